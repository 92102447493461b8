"""Which lines are one event: repeats, follow-ups, causes, and what an own stop explains.

It sees events in the order of their lines and hands out records. It reads no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .logcann import Failure, facts
from .logpatterns import Pattern
from .logrecords import Found, LogRecord

RECENT = 32  # events that a further line can still belong to
NEAR = 60  # lines between two lines of one event where they have no time
FAR = 400  # lines between two lines of one event where one has only the time of an earlier line
CANN_NEAR = 12  # lines between two lines of one CANN failure
CANN_SECONDS = 60.0
FOLD_SECONDS = 2.0  # between an event and the line that tells of its copies
CAUSE_SECONDS = 120.0  # between a cause and what follows from it
STOP_SECONDS = 300.0  # for which an own stop explains dead processes

_CAUSES = frozenset(
    (
        "oom_device",
        "kv_cache_unavailable",
        "device_fault",
        "device_ecc",
        "device_lost",
        "npu_error",
        "rpc_timeout",
        "collective_timeout",
        "collective_error",
        "collective_abort",
        "hccl_link",
        "hccl_timeout",
        "worker_died",
        "ray_actor_died",
    )
)
_OWN_STOP = frozenset(("engine_dead", "engine_proc_died", "worker_died", "request_error_server"))


@dataclass(frozen=True, slots=True)
class Clock:
    """When a line was written, as far as that can be told: in seconds of an unknown year if need
    be; ``own`` is false where the time is that of a line before it."""

    seconds: float | None = None
    own: bool = True

    def apart(self, other: Clock) -> float | None:
        """Seconds between two lines; None where they cannot be compared."""
        if self.seconds is None or other.seconds is None:
            return None
        apart = abs(self.seconds - other.seconds)
        return apart if apart < 300 * 86400 else None  # one of them without its year


@dataclass(slots=True)
class Happening:
    """A record that may still grow until it is handed out, and then takes in its repeats."""

    pattern: Pattern
    kind: str
    severity: str
    line: int
    text: str
    time: float | None
    fields: dict[str, Any]
    marks: dict[str, Any]
    where: str
    clock: Clock
    body: str
    last_line: int
    folded: int = 0
    count: int = 1
    told: bool = False
    failure: Failure | None = None

    def near(self, line: int, clock: Clock, within: float, lines: int = NEAR) -> bool:
        """Whether something at this place can belong to the event."""
        apart = line - self.last_line
        seconds = clock.apart(self.clock)
        if seconds is None:
            return apart <= lines
        return seconds <= within and (apart <= FAR or (clock.own and self.clock.own))

    def agrees(self, other: Happening, names: Sequence[str]) -> bool:
        """Whether both can be one as far as these fields go (unknown agrees with all)."""
        for name in names:
            mine = self.fields.get(name, self.marks.get(name))
            theirs = other.fields.get(name, other.marks.get(name))
            if mine is not None and theirs is not None and mine != theirs:
                return False
        return True

    def take_in(self, other: Happening) -> None:
        """Another telling of the same: gaps are filled, what is known stays."""
        for name, value in other.fields.items():
            self.fields.setdefault(name, value)
        self.count += self.body == other.body
        self.folded = max(self.folded, other.folded)
        self.last_line = other.line
        if other.clock.seconds is not None:
            self.clock = other.clock
        if self.time is None:
            self.time = other.time

    def record(self) -> LogRecord:
        """The event as a record."""
        copies = max(self.count, self.folded)
        if copies > 1 and self.failure is None:
            self.fields["copies"] = copies
        return LogRecord(self.kind, self.severity, self.line, self.text, self.time, self.fields)


@dataclass
class Groups:
    """The events of one log that are under way."""

    _recent: list[Happening] = field(default_factory=list)
    _fresh: list[Happening] = field(default_factory=list)
    _stopping: Happening | None = None
    _phase: str = ""
    starting: bool = False

    def keep(self, event: Happening) -> None:
        """Add an event, or let one that is under way take it in."""
        if event.folded and self._fold(event):
            return
        if event.fields.get("phase") == "startup" and self._phase in ("sleep", "wake", "reload"):
            event.fields["phase"] = "reload"  # weights loaded into a server that was up
        under_way = self._under_way(event)
        if under_way is not None:
            under_way.take_in(event)
            return
        self._circumstances(event)
        self._add(event)

    def take_out(self, *, ended: bool = False, until: int | None = None) -> list[LogRecord]:
        """The events not told yet, in the order of their lines. A follow-up code without the code
        that it follows waits once, unless the log has ``ended``; with ``until``, events with a line
        after that one wait too."""
        waiting: list[Happening] = []
        told: list[LogRecord] = []
        for event in sorted(self._fresh, key=lambda event: event.line):
            failure = event.failure
            if until is not None and event.last_line > until:
                waiting.append(event)
                continue
            if failure is not None:
                if failure.secondary and not ended and not event.marks.get("waited"):
                    event.marks["waited"] = True
                    waiting.append(event)
                    continue
                if failure.empty:
                    continue
                event.kind, event.severity, event.fields = failure.verdict()
            event.told = True
            told.append(event.record())
        self._fresh = waiting
        return told

    def latest(self, kind: str, pid: int | None) -> Happening | None:
        """The latest event of a kind and process."""
        for other in reversed(self._recent):
            if other.kind == kind and other.fields.get("pid") == pid:
                return other
        return None

    def join_failure(self, found: Found, line: int, time: float | None, clock: Clock) -> bool:
        """Add a line of CANN's to the failure that it belongs to, if that is under way."""
        last = self._recent[-1] if self._recent else None
        if last is None or line - last.last_line > CANN_NEAR:
            return False
        if clock.own and last.clock.own and (clock.apart(last.clock) or 0.0) > CANN_SECONDS:
            return False
        if last.failure is None:
            return self._follows(last, found)
        if not last.failure.takes(found):
            return False
        last.failure.add(found)
        last.last_line = line
        if clock.own:
            last.clock = clock
        if last.time is None:
            last.time = time
        if last.told and not last.fields.get("code"):
            self._fresh.append(last)
        return True

    def begin_failure(self, event: Happening, failure: Failure) -> None:
        """A CANN failure begins."""
        event.failure = failure
        event.kind = failure.verdict()[0]
        self._add(event)

    def _add(self, event: Happening) -> None:
        self._recent.append(event)
        if len(self._recent) > RECENT:
            del self._recent[0]
        self._fresh.append(event)

    def _under_way(self, event: Happening) -> Happening | None:
        """The latest event that this one tells of again."""
        within = event.pattern.within
        if not within:
            return None
        for other in reversed(self._recent):
            if (
                other.kind == event.kind
                and other.near(event.line, event.clock, within)
                and other.agrees(event, event.pattern.key)
            ):
                return other
        return None

    def _fold(self, event: Happening) -> bool:
        """A line that Ray folded tells how often the event just before it happened."""
        for other in reversed(self._recent):
            if other.where == event.where and other.near(event.line, event.clock, FOLD_SECONDS):
                other.folded = max(other.folded, event.folded)
                return other.kind != event.kind or self._under_way(event) is other
        return False

    def _circumstances(self, event: Happening) -> None:
        """What the events before it say about this one."""
        phase = event.fields.get("phase") if event.kind == "lifecycle" else None
        if phase == "startup":
            self.starting, self._stopping = True, None
        elif phase == "ready":
            self.starting, self._stopping = False, None
        elif phase == "shutdown" and self._stopping is None:
            self._stopping = event
        self._phase = phase or self._phase
        stop = self._stopping
        if (
            event.kind in _OWN_STOP
            and stop is not None
            and stop.near(event.line, event.clock, STOP_SECONDS, FAR)
        ):
            event.severity = "info"
            event.fields["during_shutdown"] = True
        elif event.pattern.consequence:
            self._find_cause(event)
        elif event.kind in _CAUSES:
            self._explain(event)

    def _find_cause(self, event: Happening) -> None:
        for other in self._recent:
            if other.kind not in _CAUSES or (other.failure and other.failure.secondary):
                continue
            if not other.near(event.line, event.clock, CAUSE_SECONDS, FAR):
                continue
            kind = other.failure.verdict()[0] if other.failure else other.kind
            event.fields.setdefault("cause", kind)
            if other.kind == "oom_device" and event.kind.startswith("engine_"):
                other.severity = "critical"
            return

    def _explain(self, event: Happening) -> None:
        """The cause may stand below what follows from it, in the same traceback."""
        for other in self._recent:
            if (
                other.pattern.consequence
                and not other.told
                and other.fields.get("pid") == event.fields.get("pid")
                and other.near(event.line, event.clock, FOLD_SECONDS, FAR)
            ):
                other.fields.setdefault("cause", event.kind)

    def _follows(self, last: Happening, found: Found) -> bool:
        """torch_npu's follow-up code belongs to an abort told just before it."""
        error = found.fields.get("error")
        if last.kind not in ("collective_abort", "collective_timeout") or not error:
            return False
        told = facts(found.text)
        text_pid = told.pop("text_pid", None)
        if text_pid is not None and last.fields.setdefault("pid", text_pid) != text_pid:
            return False
        last.fields.setdefault("code", error)
        for name, value in told.items():
            last.fields.setdefault(name, value)
        return True
