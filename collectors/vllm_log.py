"""A vLLM server's log files: what the engine says went wrong, as events and counters.

One collector a service. It follows the files over rotation and restarts; prompts, outputs and
request bodies never leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import ClassVar

from ..watchdog.contracts import Yield
from ..watchdog.errors import SourceError
from ..watchdog.logevents import LogBook, readable
from ..watchdog.logs import classify
from ..watchdog.logtail import BUDGET, LogTail, LogWatch
from ..watchdog.model import Checkpoint, Event, Page, Sample, labelset
from ..watchdog.system import System


@dataclass
class _State:
    """What lives as long as the daemon."""

    book: LogBook
    watch: LogWatch = field(default_factory=LogWatch)
    begun: bool = False
    behind: bool = False
    waited: float = 0.0


@dataclass(frozen=True)
class VllmLog:
    """Follows the files that ``files`` (glob patterns) name for one service.

    ``from_start`` reads files that are there at first sight from their beginning; ``budget`` is the
    most bytes of one run. ``wait`` lets a run wait so many seconds for something to be written, so
    that a caller who runs it again and again learns of a line at once (0: never wait).
    """

    name: ClassVar[str] = "vllm_log"

    service: str
    files: tuple[str, ...] = ()
    from_start: bool = False
    budget: int = BUDGET
    interval: float = 5.0
    timeout: float = 30.0
    wait: float = 0.0
    zone: tzinfo | None = None
    state: _State | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.state is None:
            book = LogBook("vllm", {"service": self.service}, self.zone)
            object.__setattr__(self, "state", _State(book))

    @property
    def instance(self) -> str:
        """``vllm_log/SERVICE``."""
        return f"{self.name}/{self.service}"

    @property
    def scope(self) -> Mapping[str, str]:
        """The service."""
        return {"service": self.service}

    @property
    def waited(self) -> float:
        """Seconds that the last run waited for something to be written: no work of its own."""
        return self.state.waited if self.state is not None else 0.0

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the events of new lines, and ``log_events_total`` and ``log_requests_total``.

        Raises SourceError when no file can be read though there are some.
        """
        assert self.state is not None
        book, start = self.state.book, system.clock.mono()
        if self.wait and self.state.begun and not self.state.behind:
            self.state.watch.wait(system.files, self.files, self.wait)
        self.state.waited = system.clock.mono() - start
        self.state.begun = True
        kept = system.checkpoints.get(self.instance)
        tail = LogTail(system.files, self.files, kept, self.from_start, self.budget)
        book.open()
        for _, event in book.read(tail.blocks(), system.clock.wall()):
            yield event
        position, self.state.behind = tail.position(), tail.behind
        if tail.problems and not position["places"]:
            path, reason = next(iter(sorted(tail.problems.items())))
            raise SourceError(f"{path}: {reason}")
        told = dict((kept or {}).get("unreadable") or {})
        for path in sorted(set(tail.problems) - set(told)):
            text = f"{path}: {tail.problems[path]}"
            yield Event("log_unreadable", text, labelset(self.scope), severity="warning")
        yield from book.close(system.clock.wall())
        document = {**position, "unreadable": dict(sorted(tail.problems.items()))}
        if document != kept:
            yield Checkpoint(document)


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:  # noqa: ARG001
    """The events of a saved log, and how many requests its access lines tell of.

    Raises SourceError when it is empty or no text.
    """
    readable(data)
    book = LogBook("vllm")
    book.count_requests(data)
    return [*book.request_counts(), *(book.event(record) for record in classify(data, "vllm"))]
