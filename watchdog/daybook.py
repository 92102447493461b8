"""What a daemon writes down, tick by tick: the journal first, oldest first, in memory while it
cannot be written. It judges nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from .inventory import Pins
from .journal import Beside, Journal, JournalError
from .model import Event, Json, Tick

MAX_UNWRITTEN = 10_000  # events kept in memory while the journal cannot be written
MAX_BYTES = 512 * 1024 * 1024
MAX_AGE = 14 * 86400.0
PATIENCE = 0.5  # seconds that a tick waits for who has the journal: a slow sync, a person's sqlite3
IMPATIENCE = 0.02  # and once it waited for nothing, until the journal can be written again

Tell = Callable[[str, str, str], None]
"""An own event: kind, message, severity."""


class Daybook:
    """The journal of one daemon. ``error``: why it cannot be written just now, ``errors`` how many
    writes failed, ``lost`` how many events found no room in memory meanwhile."""

    def __init__(self, log: Callable[..., object], tell: Tell) -> None:
        self._log, self._tell = log, tell
        self.journal: Journal | None = None
        self.error: str | None = None
        self.errors = 0
        self.lost = 0
        self._unwritten: deque[tuple[Tick, Sequence[Event], Mapping[str, Json]]] = deque()

    def write(
        self,
        tick: Tick,
        events: Sequence[Event],
        checkpoints: Mapping[str, Json],
        beside: Beside | None = None,
    ) -> bool:
        """Write a tick; whether all of it, with what stands ``beside`` it, is on the disk now."""
        if events or checkpoints:
            self._unwritten.append((tick, events, checkpoints))
        if self.journal is None or not (events or checkpoints or beside):
            if self.journal is None:
                self._unwritten.clear()
            return self.journal is not None
        try:
            with self._soon(self.journal):
                self._all(self.journal, tick, beside)
        except JournalError as error:
            self.failed(str(error))
            while sum(len(events) for _, events, _ in self._unwritten) > MAX_UNWRITTEN:
                _, lost, _ = self._unwritten.popleft()
                self.lost += len(lost)
            return False
        self._works(self.journal)
        return True

    def _all(self, journal: Journal, tick: Tick, beside: Beside | None) -> None:
        """What waits, oldest first; what must be durable with the last of it."""
        while len(self._unwritten) > (0 if beside is None else 1):
            journal.append(*self._unwritten[0])
            self._unwritten.popleft()
        if beside is not None:
            last = self._unwritten[0] if self._unwritten else (tick, (), {})
            journal.append(*last, durable=True, beside=beside)
            self._unwritten.clear()

    def failed(self, error: str) -> None:
        """A write failed: told once."""
        if self.error is None:
            self._log("the journal cannot be written; alerts go on from memory", reason=error)
        self.error = error
        self.errors += 1

    def keep_pins(self, pins: Pins) -> None:
        """Save names newly resolved."""
        if self.journal is None or not pins.changed:
            return
        try:
            with self._soon(self.journal):
                self.journal.save_state("pins", pins.kept)
            pins.changed = False
        except JournalError as error:
            self.failed(str(error))

    def prune(self) -> None:
        """Let old events go; those that an outlet had not sent yet are told."""
        if self.journal is None:
            return
        try:
            with self._soon(self.journal):
                pruned = self.journal.prune(MAX_BYTES, MAX_AGE)
        except JournalError as error:
            self.failed(str(error))
            return
        for outlet, count in pruned.lost.items():
            text = f"{outlet}: {count} events went by age or size before they were sent"
            self._tell("events_lost", text, "warning")

    def _soon(self, journal: Journal) -> AbstractContextManager[None]:
        """The engine waits for nobody: what is not written now is with the next tick."""
        return journal.patient(PATIENCE if self.error is None else IMPATIENCE)

    def _works(self, journal: Journal) -> None:
        if self.error is not None:
            self._log("the journal is written again")
            if self.lost:
                text = f"{self.lost} events were lost while the journal could not be written"
                self._tell("events_lost", text, "warning")
                self.lost = 0
        self.error = None
        for note in journal.notes:
            self._tell("journal_note", note, "warning")
        journal.notes.clear()
