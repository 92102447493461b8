"""A vLLM server's log files: what the engine says went wrong, as events and counters.

One collector a service. It follows the files over rotation and restarts; prompts, outputs and
request bodies never leave it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..watchdog.contracts import Yield
from ..watchdog.errors import SourceError
from ..watchdog.logevents import LogBook, readable
from ..watchdog.logs import classify
from ..watchdog.logtail import BUDGET, LogTail
from ..watchdog.model import Checkpoint, Event, Page, Sample, labelset
from ..watchdog.system import System


@dataclass(frozen=True)
class VllmLog:
    """Follows the files that ``files`` (glob patterns) name for one service.

    ``from_start`` reads files that are there at first sight from their beginning; ``budget`` is the
    most bytes of one run.
    """

    name: ClassVar[str] = "vllm_log"

    service: str
    files: tuple[str, ...] = ()
    from_start: bool = False
    budget: int = BUDGET
    interval: float = 5.0
    timeout: float = 30.0
    book: LogBook | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.book is None:
            object.__setattr__(self, "book", LogBook("vllm", {"service": self.service}))

    @property
    def instance(self) -> str:
        """``vllm_log/SERVICE``."""
        return f"{self.name}/{self.service}"

    @property
    def scope(self) -> Mapping[str, str]:
        """The service."""
        return {"service": self.service}

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the events of new lines, and ``log_events_total`` and ``log_requests_total``.

        Raises SourceError when no file can be read though there are some.
        """
        assert self.book is not None
        kept = system.checkpoints.get(self.instance)
        tail = LogTail(system.files, self.files, kept, self.from_start, self.budget)
        self.book.open()
        read = False
        for path, data in tail.blocks():
            read = True
            for _, event in self.book.take(path, data, system.clock.wall()):
                yield event
        position = tail.position()
        if tail.problems and not read and not position["places"]:
            path, reason = next(iter(sorted(tail.problems.items())))
            raise SourceError(f"{path}: {reason}")
        told = dict((kept or {}).get("unreadable") or {})
        for path in sorted(set(tail.problems) - set(told)):
            text = f"{path}: {tail.problems[path]}"
            yield Event("log_unreadable", text, labelset(self.scope), severity="warning")
        yield from self.book.close()
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
