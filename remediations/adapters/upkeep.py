"""What a daemon asks of these rooms outside of any act: one value, no state of its own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...watchdog.errors import WatchdogError
from ...watchdog.system import System
from . import evidence_keeping, frequency, readers, resetting


class StateFolder:
    """The files of acts in the state folder, each seen to by the room that writes it."""

    def resting(self, system: System, state: Path, now: float) -> frozenset[str]:
        """The names of the collectors that must not start now (Unix seconds)."""
        return readers.resting(system, state, now)

    def lowered(self, system: System, state: Path) -> bool:
        """Whether clocks are noted as lowered. A damaged note counts: it must be told."""
        if not system.files.exists(state / frequency.FILE):
            return False
        noted = frequency.Lowered(state)
        try:
            return bool(noted.cards(system)) or noted.cpus_restored(system) == "no"
        except WatchdogError:
            return True

    def restore(self, system: System, state: Path) -> list[str]:
        """Put all clocks back as found; what was not, a line each."""
        return frequency.restore_all(system, state)

    def forgive(self, system: System, state: Path, cards: Collection[str]) -> None:
        """Count the cards' resets from none. Raises SourceError, OSError."""
        resetting.forgive(system, state, cards)

    def prune(self, system: System, state: Path, now: float) -> int:
        """Take away bundles and recordings too old or too large; how many went."""
        return evidence_keeping.prune(system, state, now)
