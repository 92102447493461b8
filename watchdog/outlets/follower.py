"""A cursor over the journal: what a delivery has not got yet, in order, at the delivery's pace.

An outage costs disk, not memory: a batch is read when it can be sent. What a batch becomes on the
wire is the delivery's work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import Temporary
from ..figures import OutletFigures
from ..journal import Journal, JournalError
from ..model import StoredEvent

COUNT = 2000  # events in a batch
BYTES = 2 * 1024 * 1024  # text of a batch
IDLE = 1.0  # seconds between two looks for new events
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0  # seconds after a failure; doubled with each


class Delivery(Protocol):
    """Brings events to one place. ``notes``: what the other side cannot do, to be logged."""

    name: str
    notes: list[str]

    def deliver(self, batch: Sequence[StoredEvent]) -> list[tuple[StoredEvent, str]]:
        """Bring the whole batch there, each event once, whatever became of earlier tries.

        Returns the events that the other side refuses for good, and why. Raises Temporary when
        anything of the batch is still to be delivered; the same events then come again.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class Follower:
    """Brings the journal to a delivery, on a thread of its own.

    ``log`` is told of changes (down, up, refused), not of states.
    """

    def __init__(self, journal: Journal, delivery: Delivery, log: Callable[..., object]) -> None:
        self.name = delivery.name
        self._journal, self._delivery, self._log = journal, delivery, log
        self._sent = self._errors = self._refused = self._failures = 0
        self._last_error = ""
        self._wake, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._thread.start()

    def offer(self, *_: object) -> None:
        """A tick has passed: there may be new events."""
        if not self._failures:
            self._wake.set()

    def stop(self, timeout: float) -> None:
        """Send what is still there if the other side answers, and end within ``timeout``."""
        self._ending.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def figures(self) -> OutletFigures:
        """How the outlet stands."""
        try:
            cursor = self._journal.cursor(self.name)
            lag, lost = max(self._journal.last() - cursor.seq, 0), cursor.lost
        except JournalError:
            lag = lost = 0
        return OutletFigures(
            self.name,
            not self._failures,
            lag,
            self._sent,
            self._errors,
            self._refused,
            lost,
            self._last_error if self._failures else "",
        )

    def step(self) -> float:
        """Deliver one batch; returns the seconds until the next is worth a try (0: at once)."""
        try:
            batch = self._journal.read(self._journal.cursor(self.name).seq, COUNT, BYTES)
            if not batch:
                return IDLE
            refused = self._delivery.deliver(batch)
            self._journal.advance(self.name, batch[-1].seq, refused)
        except Temporary as error:
            return max(self._failed(str(error)), error.delay)
        except JournalError as error:
            return self._failed(str(error))
        except Exception as error:  # noqa: BLE001 (the boundary of a delivery)
            return self._failed(f"{type(error).__name__}: {error}")
        self._succeeded(len(batch), refused)
        return 0.0

    def _run(self) -> None:
        while not self._ending.is_set():
            delay = self.step()
            for note in self._delivery.notes:
                self._log(f"{self.name}: {note}", level="warning")
            self._delivery.notes.clear()
            if delay:
                self._wake.wait(delay)
                self._wake.clear()
        if not self._failures:
            self.step()
        self._delivery.close()

    def _failed(self, reason: str) -> float:
        self._errors += 1
        self._failures += 1
        if self._failures == 1:
            self._log(f"{self.name} cannot be reached; events wait", level="warning", reason=reason)
        self._last_error = reason
        return float(min(FIRST_DELAY * 2 ** min(self._failures - 1, 30), LONGEST_DELAY))

    def _succeeded(self, count: int, refused: Sequence[tuple[StoredEvent, str]]) -> None:
        if self._failures:
            self._failures = 0
            self._log(f"{self.name} takes events again")
        self._sent += count - len(refused)
        self._refused += len(refused)
        if refused:
            event, reason = refused[0]
            self._log(
                f"{self.name} refused {len(refused)} events for good; they are set aside",
                level="warning",
                first=event.id,
                reason=reason,
            )
