"""Sorts log text into events: which lines mean something, and which of them are one event.

Bytes go in, records come out; one pass over blocks finds the lines that can mean something, only
those are read. Nothing is opened, followed or told here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timezone, tzinfo
from functools import lru_cache
from typing import Any

from . import logcann, logrecords
from .logcann import Failure, facts
from .logheads import Calendar, Head, head, plain
from .logpatterns import Pattern, shipped
from .logrecords import MAX_LINE, MAX_TEXT, Around, Found, LogRecord, exception, groups
from .logscan import Scanner, scanner

BLOCK = 1024 * 1024  # bytes scanned at once
RECENT = 32  # events that a further line can still belong to
NEAR = 60  # lines between two lines of one event where they have no time
FAR = 400  # lines between two lines of one event where one has only the time of an earlier line
CANN_NEAR = 12  # lines between two lines of one CANN failure
SOME_YEAR = 978_220_800.0  # the end of 2000, a leap year

_FINISHERS = {**logrecords.FINISHERS, **logcann.FINISHERS}
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
_FOLDED = re.compile(r"\[repeated (\d+)x across cluster\]")
_ECHO = re.compile(r"\s*(?:raise\b|f?[\"'])")
_SECRET = re.compile(
    r"(?s)(Received request \S+?:|Dumping (?:input data|scheduler output)[^:]*?:?|"
    r"prompt(?:_token_ids)?\s*[=:]|messages\s*[=:]|SchedulerOutput\(|NewRequestData\().*"
)


@dataclass(frozen=True, slots=True)
class _Clock:
    """When a line was written, as far as that can be told: in seconds of an unknown year if need
    be; ``own`` is false where the time is that of a line before it."""

    seconds: float | None
    own: bool = True

    def apart(self, other: _Clock) -> float | None:
        """Seconds between two lines; None where they cannot be compared."""
        if self.seconds is None or other.seconds is None:
            return None
        apart = abs(self.seconds - other.seconds)
        return apart if apart < 300 * 86400 else None  # one of them without its year


@dataclass(slots=True)
class _Event:
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
    last_line: int
    clock: _Clock
    body: str
    count: int = 1
    folded: int = 0
    told: bool = False
    failure: Failure | None = None

    def near(self, line: int, clock: _Clock, within: float, lines: int = NEAR) -> bool:
        """Whether something at this place can belong to the event."""
        apart = line - self.last_line
        seconds = clock.apart(self.clock)
        if seconds is None:
            return apart <= lines
        return seconds <= within and (apart <= FAR or (clock.own and self.clock.own))

    def record(self) -> LogRecord:
        """The event as a record."""
        copies = max(self.count, self.folded)
        if copies > 1 and self.failure is None:
            self.fields["copies"] = copies
        return LogRecord(self.kind, self.severity, self.line, self.text, self.time, self.fields)


@dataclass(slots=True)
class _Echo:
    """Source text in a traceback whose exception line has not been seen yet."""

    event: _Event
    pid: int | None


@lru_cache(maxsize=8)
def _choice(source: str | None) -> tuple[tuple[Pattern, ...], tuple[str, ...]]:
    """The patterns of a source, and all their literals, each once."""
    chosen = [p for p in shipped() if source is None or source in p.sources]
    # The kernel's own lines quote sentences that mean something else in a server's log.
    patterns = tuple(sorted(chosen, key=lambda pattern: pattern.sources != ("kernel",)))
    literals = dict.fromkeys(literal for pattern in patterns for literal in pattern.literals)
    return patterns, tuple(literals)


@dataclass
class Classifier:
    """Reads one log from its beginning to its end.

    ``source`` is vllm, kernel, ascend or None (all patterns). ``zone`` is the writer's zone where
    lines name none; ``reference`` (Unix seconds) gives the year where they have none. ``scan``
    makes the scanner (for tests and for machines without hyperscan).
    """

    source: str | None = None
    zone: tzinfo = timezone.utc
    reference: float | None = None
    scan: Callable[[tuple[str, ...]], Scanner] = scanner

    _rest: bytes = b""
    _line: int = 0
    _events: list[_Event] = field(default_factory=list)
    _fresh: list[_Event] = field(default_factory=list)
    _echoes: list[_Echo] = field(default_factory=list)
    _stalls: dict[int | None, tuple[int, float | None]] = field(default_factory=dict)
    _identity: dict[int | None, dict[str, Any]] = field(default_factory=dict)
    _stopping: _Event | None = None
    _starting: bool = False
    _phase: str = ""
    _clock: _Clock = _Clock(None)

    def __post_init__(self) -> None:
        self._patterns, literals = _choice(self.source)
        self._scanner = self.scan(literals)
        number = {literal: place for place, literal in enumerate(literals)}
        self._of_literal: list[list[int]] = [[] for _ in literals]
        for place, pattern in enumerate(self._patterns):
            for literal in pattern.literals:
                self._of_literal[number[literal]].append(place)
        self._calendar = Calendar(self.zone, self.reference)
        self._some_year = Calendar(self.zone, SOME_YEAR)

    def feed(self, data: bytes) -> list[LogRecord]:
        """Take more of the log; return the events that it tells. A cut last line waits."""
        data = self._rest + _clean(data)
        cut = data.rfind(b"\n") + 1
        if not cut and len(data) > BLOCK:
            data, cut = data[:MAX_LINE] + b"\n", MAX_LINE + 1  # a line without end
        self._rest = data[cut:]
        place = 0
        while place < cut:
            stop = cut
            if cut - place > BLOCK:
                stop = data.rfind(b"\n", place, place + BLOCK) + 1
                if stop <= place:
                    stop = data.find(b"\n", place) + 1
            self._read(data[place:stop])
            place = stop
        return self._hand_out()

    def finish(self) -> list[LogRecord]:
        """The log has ended: return what waited for more."""
        rest, self._rest = self._rest, b""
        if rest:
            self._read(rest)
        for echo in self._echoes:
            self._keep(echo.event)
        self._echoes = []
        return self._hand_out(everything=True)

    def _hand_out(self, everything: bool = False) -> list[LogRecord]:
        """The events not told yet, in the order of their lines. A follow-up code without the code
        that it follows waits for one more feed."""
        waiting: list[_Event] = []
        told: list[LogRecord] = []
        for event in sorted(self._fresh, key=lambda event: event.line):
            failure = event.failure
            if failure is not None:
                if failure.secondary and not everything and not event.marks.get("waited"):
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

    # ---- lines ----

    def _read(self, block: bytes) -> None:
        self._settle_echoes(block)
        seen = 0
        line = self._line
        for start, stop, literals in self._scanner.hits(block):
            line += block.count(b"\n", seen, start)
            seen = start
            self._look(block, start, stop, literals, line + 1)
        self._line = line + block.count(b"\n", seen)

    def _look(self, block: bytes, start: int, stop: int, literals: list[int], line: int) -> None:
        """Read one line that holds some literal."""
        stop = min(stop, start + MAX_LINE)
        text = plain(block[start:stop].decode("utf-8", "replace"))
        if len(literals) == 1:
            places = self._of_literal[literals[0]]
        else:
            places = sorted({place for literal in literals for place in self._of_literal[literal]})
        begin: Head | None = None
        for place in places:
            pattern = self._patterns[place]
            match = pattern.match.search(text)
            if match is None or (pattern.unless is not None and pattern.unless.search(text)):
                continue
            if begin is None:
                begin = Head() if pattern.sources == ("kernel",) else head(text)
            if begin.quiet and not (pattern.info and self._leads(pattern, text, begin)):
                continue
            found = Found(
                pattern,
                match,
                text,
                begin,
                pattern.kind,
                pattern.severity,
                {**pattern.fields, **groups(match)},
                Around(block, start, stop),
                {"where": begin.where} if begin.where else {},
            )
            if self._take(found, line):
                return

    def _leads(self, pattern: Pattern, text: str, begin: Head) -> bool:
        """A quiet line counts only where the words stand at the beginning of its message."""
        if not pattern.kind or "vllm" not in pattern.sources:
            return True
        return pattern.match.match(text, begin.body) is not None

    def _take(self, found: Found, line: int) -> bool:
        """Make an event of a line, or add it to one; False where it means nothing after all."""
        pattern = found.pattern
        body = found.text[found.head.body :]
        if (
            not pattern.indented
            and body[:2] in ("  ", "\t", "\t\t")
            and pattern.sources != ("kernel",)
        ):
            return self._echo(found, body, line)
        time = self._time(found)
        if pattern.cann:
            return self._cann(found, line, time)
        finisher = _FINISHERS.get(pattern.finish)
        if finisher is not None:
            finisher(found)
        elif pattern.finish:
            self._remembering(found, time)
        if not found.kind:
            return False
        self._who(found)
        self._keep(self._event(found, line, time))
        return True

    def _time(self, found: Found) -> float | None:
        """The line's time; the clock, which tells lines apart, goes on without its year too."""
        time = self._calendar.read(found.text, found.head.stamp)
        seconds = time
        if seconds is None and self.reference is None:
            seconds = self._some_year.read(found.text, found.head.stamp)
        own = seconds is not None
        self._clock = _Clock(seconds if own else self._clock.seconds, own)
        return time

    def _who(self, found: Found) -> None:
        """What the head knows of the writer, where the text does not say otherwise."""
        begin, fields = found.head, found.fields
        if begin.pid is None and not begin.process:
            if found.pattern.sources == ("kernel",):
                return
            begin = self._neighbour(found) or begin
        if begin.pid is not None:
            fields.setdefault("pid", begin.pid)
        for name, rank in begin.ranks.items():
            fields.setdefault(name, rank)
        if begin.process.startswith("Worker_"):
            fields.setdefault("worker", begin.process[7:])
        if found.pattern.traceback:
            ended = exception(found.around.after(200), begin.pid, begun=False)
            if ended is not None:
                fields.setdefault("error", ended[:200])

    def _neighbour(self, found: Found) -> Head | None:
        """The head of the next line, where that line is a piece of the same traceback."""
        for line in found.around.after(1):
            begin = head(line)
            if begin.pid is not None and line[begin.body :].startswith(("  File ", "Traceback ")):
                return begin
        return None

    def _event(self, found: Found, line: int, time: float | None) -> _Event:
        text = _SECRET.sub(r"\1", found.text)[:MAX_TEXT]
        folded = _FOLDED.search(found.text)
        return _Event(
            found.pattern,
            found.kind,
            found.severity,
            line,
            text,
            time,
            found.fields,
            found.marks,
            found.head.where,
            line,
            self._clock,
            found.text[found.head.body :],
            folded=int(folded[1]) if folded else 0,
        )

    # ---- events ----

    def _keep(self, event: _Event) -> None:
        """Add an event, or let an open one take it in."""
        if event.folded and self._fold(event):
            return
        if event.fields.get("phase") == "startup" and self._phase in ("sleep", "wake", "reload"):
            event.fields["phase"] = "reload"  # weights loaded into a server that was up
        open_event = self._open_event(event)
        if open_event is not None:
            _merge(open_event, event)
            return
        self._circumstances(event)
        self._events.append(event)
        del self._events[:-RECENT]
        self._fresh.append(event)

    def _open_event(self, event: _Event) -> _Event | None:
        """The latest event that this one tells of again."""
        within = event.pattern.within
        if not within:
            return None
        for other in reversed(self._events):
            if (
                other.kind == event.kind
                and other.near(event.line, event.clock, within)
                and all(_agree(other, event, name) for name in event.pattern.key)
            ):
                return other
        return None

    def _fold(self, event: _Event) -> bool:
        """A line that Ray folded tells how often the event just before it happened."""
        for other in reversed(self._events):
            if other.where == event.where and other.near(event.line, event.clock, 2.0):
                other.folded = max(other.folded, event.folded)
                return other.kind != event.kind or self._open_event(event) is other
        return False

    def _circumstances(self, event: _Event) -> None:
        """What the events before it say about this one."""
        phase = event.fields.get("phase") if event.kind == "lifecycle" else None
        if phase == "startup":
            self._starting, self._stopping = True, None
        elif phase == "ready":
            self._starting, self._stopping = False, None
        elif phase == "shutdown" and self._stopping is None:
            self._stopping = event
        stop = self._stopping
        stopped = stop is not None and stop.near(event.line, event.clock, 300.0, FAR)
        if stopped and event.kind in _OWN_STOP:
            event.severity = "info"
            event.fields["during_shutdown"] = True
            return
        self._phase = phase or self._phase
        if event.pattern.consequence:
            self._find_cause(event)
        elif event.kind in _CAUSES:
            self._explain(event)

    def _find_cause(self, event: _Event) -> None:
        for other in self._events:
            if other.kind in _CAUSES and other.near(event.line, event.clock, 120.0, FAR):
                kind = other.failure.verdict()[0] if other.failure else other.kind
                if other.failure is not None and other.failure.secondary:
                    continue
                event.fields.setdefault("cause", kind)
                if other.kind == "oom_device" and event.kind.startswith("engine_"):
                    other.severity = "critical"
                return

    def _explain(self, event: _Event) -> None:
        """The cause may stand below what follows from it, in the same traceback."""
        for other in self._events:
            if (
                other.pattern.consequence
                and not other.told
                and other.fields.get("pid") == event.fields.get("pid")
                and other.near(event.line, event.clock, 5.0, FAR)
            ):
                other.fields.setdefault("cause", event.kind)

    # ---- tracebacks ----

    def _echo(self, found: Found, body: str, line: int) -> bool:
        """Source text that a traceback prints: it counts only if its exception never comes."""
        if not _ECHO.match(body) or found.pattern.info:
            return False
        if exception(found.around.after(200), found.head.pid) is not None:
            return False
        time = self._time(found)
        self._who(found)
        found.fields["cut"] = True
        self._echoes.append(_Echo(self._event(found, line, time), found.head.pid))
        return True

    def _settle_echoes(self, block: bytes) -> None:
        """Look for the exceptions that the last block left open."""
        if not self._echoes:
            return
        for echo in self._echoes:
            if exception(Around(block, 0, -1).after(400), echo.pid) is None:
                self._keep(echo.event)
        self._echoes = []

    # ---- what is remembered between lines ----

    def _remembering(self, found: Found, time: float | None) -> None:
        finish, fields, pid = found.pattern.finish, found.fields, found.head.pid
        if finish == "ipc_stall":
            count, last = self._stalls.get(pid, (0, None))
            row = last is None or time is None or 0 <= time - last <= 75
            count = count + 1 if row else 1
            self._stalls[pid] = (count, time)
            if self._starting:
                found.severity = "info"
            elif count >= 3:
                found.severity = "critical"
            fields["in_row"] = count
        elif finish == "identity":
            self._identity[pid] = _identity(found.text)
        elif finish == "hccl_return":
            for other in reversed(self._events):
                if other.kind == "hccl_link" and other.fields.get("pid") == pid:
                    other.fields.setdefault("ret", fields["ret"])
                    break
        elif finish in ("identified", "errno"):
            for name, value in self._identity.get(pid, {}).items():
                fields.setdefault(name, value)

    def _cann(self, found: Found, line: int, time: float | None) -> bool:
        """Add a line to the CANN failure that it belongs to, or begin one."""
        last = self._events[-1] if self._events else None
        near = last is not None and line - last.last_line <= CANN_NEAR
        if last is not None and self._clock.own and last.clock.own:
            near = near and (self._clock.apart(last.clock) or 0.0) <= 60.0
        if near and last is not None and last.failure is not None and last.failure.takes(found):
            last.failure.add(found)
            last.last_line = line
            if self._clock.own:
                last.clock = self._clock
            if last.told and not last.fields.get("code"):
                self._fresh.append(last)
            if last.time is None:
                last.time = time
            return True
        failure = Failure()
        failure.add(found)
        if failure.secondary and near and last is not None and self._follows(last, found):
            return True
        if not failure.told.get("rank") and (who := self._neighbour(found)):
            failure.pid = who.pid if failure.pid is None else failure.pid
            failure.told = {**who.ranks, **failure.told}
        event = self._event(found, line, time)
        event.failure = failure
        event.kind = failure.verdict()[0]
        self._events.append(event)
        del self._events[:-RECENT]
        self._fresh.append(event)
        return True

    def _follows(self, last: _Event, found: Found) -> bool:
        """torch_npu's follow-up code belongs to an abort told just before it."""
        if last.kind not in ("collective_abort", "collective_timeout"):
            return False
        told = facts(found.text)
        text_pid = told.pop("text_pid", None)
        if text_pid is not None and last.fields.setdefault("pid", text_pid) != text_pid:
            return False
        last.fields.setdefault("code", found.fields.get("error"))
        for name, value in told.items():
            last.fields.setdefault(name, value)
        return True


def classify(
    data: bytes,
    source: str | None = None,
    *,
    zone: tzinfo = timezone.utc,
    reference: float | None = None,
) -> list[LogRecord]:
    """The records of a whole log, in the order of their lines. See Classifier."""
    reader = Classifier(source, zone, reference)
    ended = data if data.endswith(b"\n") else data + b"\n"
    return sorted(reader.feed(ended) + reader.finish(), key=lambda record: record.line)


def _merge(event: _Event, other: _Event) -> None:
    """Let an event take in another telling of it: gaps are filled, what is known stays."""
    for name, value in other.fields.items():
        event.fields.setdefault(name, value)
    event.count += event.body == other.body
    event.folded = max(event.folded, other.folded)
    event.last_line = other.line
    if other.clock.seconds is not None:
        event.clock = other.clock
    if event.time is None:
        event.time = other.time


def _agree(one: _Event, other: _Event, name: str) -> bool:
    """Whether two events can be the same as far as this field goes (unknown agrees with all)."""
    mine = one.fields.get(name, one.marks.get(name))
    theirs = other.fields.get(name, other.marks.get(name))
    return mine is None or theirs is None or mine == theirs


def _clean(data: bytes) -> bytes:
    """Without NUL bytes: holes that truncation leaves, and the halves of UTF-16."""
    return data.replace(b"\0", b"") if b"\0" in data else data


_IDENTITY = {
    "rank": re.compile(r"\brank\[(\d+)\]"),
    "device": re.compile(r"\bdevice\[(\d+)\]|\bdeviceLogicId\[(\d+)\]|\blogicDevId\[(\d+)\]"),
}


def _identity(text: str) -> dict[str, int]:
    """Rank and device that a process says are its own."""
    told: dict[str, int] = {}
    for name, expression in _IDENTITY.items():
        match = expression.search(text)
        if match is not None:
            told[name] = int(next(part for part in match.groups() if part is not None))
    return told
