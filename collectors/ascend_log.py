"""The logs of Ascend's driver and of CANN: faults of NPUs and their links, as events and series.

It follows the files that the driver, its log daemon and the runtime write; it never asks a card.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..watchdog.cardfaults import HOLD, CardFaults
from ..watchdog.contracts import Yield
from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.logevents import LogBook, readable
from ..watchdog.logs import classify
from ..watchdog.logtail import BUDGET, LogTail, LogWatch
from ..watchdog.model import Checkpoint, Event, Page, Sample, labelset
from ..watchdog.system import System

FILES = (
    "/var/log/npu/*.log",
    "/var/log/npu/*/*.log",
    "/var/log/npu/slog/*/*.log",
    "/var/log/npu/slog/*/*/*.log",
    "/var/log/ascend_seclog/*.log",
    "/var/log/mindx-dl/*/*.log",
    "/root/ascend/log/*/*/*.log",
    "/home/*/ascend/log/*/*/*.log",
)


@dataclass
class _State:
    """What lives as long as the daemon: the book and the held faults."""

    book: LogBook = field(default_factory=lambda: LogBook("ascend"))
    faults: CardFaults = field(default_factory=CardFaults)
    watch: LogWatch = field(default_factory=LogWatch)
    restored: bool = False
    behind: bool = False
    waited: float = 0.0


@dataclass(frozen=True)
class AscendLog:
    """Follows the NPUs' logs of this node.

    ``files`` are glob patterns (default: where driver, device plug-in and CANN write). ``cards``
    maps a device number as the driver counts to a card; ``hold`` is how long a fault stays in
    ``accelerator_fault`` after its last line unless the log says that it is over. ``wait`` lets a
    run wait so many seconds for something to be written (0: never wait).
    """

    name: ClassVar[str] = "ascend_log"

    files: tuple[str, ...] = FILES
    cards: Mapping[str, str] = field(default_factory=dict)
    hold: float = HOLD
    from_start: bool = False
    budget: int = BUDGET
    interval: float = 5.0
    timeout: float = 30.0
    wait: float = 0.0
    state: _State = field(default_factory=_State, compare=False, repr=False)

    @property
    def instance(self) -> str:
        """``ascend_log``."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """None: a node has one driver."""
        return {}

    @property
    def waited(self) -> float:
        """Seconds that the last run waited for something to be written: no work of its own."""
        return self.state.waited

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the events of new lines, ``accelerator_fault`` and ``log_events_total``.

        Raises NotSupported where there is no such log, SourceError when none of them can be read.
        """
        kept = system.checkpoints.get(self.instance)
        state, start = self.state, system.clock.mono()
        if not state.restored:
            state.restored = True
            state.faults.cards, state.faults.hold = self.cards, self.hold
            state.faults.restore((kept or {}).get("faults"))
        elif self.wait and not state.behind:
            state.watch.wait(system.files, self.files, self.wait)
        state.waited = system.clock.mono() - start
        wall = system.clock.wall()
        tail = LogTail(system.files, self.files, kept, self.from_start, self.budget)
        state.book.open()
        for record, event in state.book.read(tail.blocks(), wall):
            labels = state.faults.note(record, wall)
            yield state.book.event(record, labels) if labels else event
        position, state.behind = tail.position(), tail.behind
        if tail.problems and not position["places"]:
            path, reason = next(iter(sorted(tail.problems.items())))
            raise SourceError(f"{path}: {reason}")
        if not position["places"] and not kept:
            raise NotSupported("no log of an Ascend driver is on this node")
        told = dict((kept or {}).get("unreadable") or {})
        for path in sorted(set(tail.problems) - set(told)):
            text = f"{path}: {tail.problems[path]}"
            yield Event("log_unreadable", text, labelset({}), severity="warning")
        yield from state.faults.samples(wall)
        yield from state.book.close(wall)
        unreadable = dict(sorted(tail.problems.items()))
        document = {**position, "unreadable": unreadable, "faults": state.faults.document()}
        if document != kept:
            yield Checkpoint(document)


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:  # noqa: ARG001
    """The events of a saved log of the driver or of CANN, and the faults of cards that it tells.

    Raises SourceError when it cannot be read.
    """
    readable(data)
    book, faults = LogBook("ascend"), CardFaults(hold=float("inf"))
    items: list[Sample | Page | Event] = []
    for record in classify(data, "ascend"):
        labels = faults.note(record, 0.0)
        items.append(book.event(record, labels))
    return [*faults.samples(0.0), *items]
