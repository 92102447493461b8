"""What acts leave in the state folder, seen to between them: readers that rest, settings that must
go back, tries that a person forgave, bundles that are too many. It decides on no act.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Protocol

from .errors import WatchdogError
from .model import Command
from .system import System
from .workers.crew import Spawn

Tell = Callable[[str, str, str], None]
"""An own event: kind, message, severity."""


class Adapters(Protocol):
    """The rooms of remediations that know those files; ``state`` is the state folder."""

    def resting(self, system: System, state: Path, now: float) -> frozenset[str]:
        """The names of the collectors that must not start now. Raises nothing."""
        ...

    def lowered(self, system: System, state: Path) -> bool:
        """Whether a setting is noted that an act changed for a time. Raises nothing."""
        ...

    def restore(self, system: System, state: Path) -> list[str]:
        """Put such settings back; what did not go as expected, a line each. Raises nothing."""
        ...

    def forgive(self, system: System, state: Path, cards: Collection[str]) -> None:
        """Count the cards' resets from none. Raises WatchdogError, OSError."""
        ...

    def prune(self, system: System, state: Path, now: float) -> int:
        """Take away what is too old or too much of what was kept; how many went."""
        ...


class Upkeep:
    """The upkeep of one state folder. ``spawn`` runs something beside the caller."""

    def __init__(
        self, system: System, state: Path, adapters: Adapters, tell: Tell, spawn: Spawn
    ) -> None:
        self._system, self._state, self._adapters = system, state, adapters
        self._tell, self._spawn = tell, spawn

    def resting(self) -> frozenset[str]:
        """The names of the collectors that must not start now. Any thread may ask."""
        return self._adapters.resting(self._system, self._state, self._system.clock.wall())

    def restore(self, patience: float) -> None:
        """Put back what an act changed for a time, waiting for it so many seconds at the most;
        nothing is begun without any."""
        if patience <= 0 or not self._adapters.lowered(self._system, self._state):
            return
        made = self._spawn("restore", self._restore)
        if made is not None:
            made.join(patience)
            if made.is_alive():
                text = f"what an act had lowered is not back within {patience:.0f} s"
                self._tell("settings_not_restored", text, "warning")

    def _restore(self) -> None:
        lines = self._adapters.restore(self._system, self._state)
        for line in lines:
            self._tell("settings_not_restored", line, "warning")
        if not lines:
            self._tell("settings_restored", "what an act had lowered is as it was found", "info")

    def heed(self, commands: Iterable[Command]) -> None:
        """A card that a person released counts its resets from none."""
        for command in commands:
            card = str(command.args.get("card") or "")
            if command.verb != "release" or not card:
                continue
            try:
                self._adapters.forgive(self._system, self._state, (card,))
            except (WatchdogError, OSError) as error:
                text = f"the resets of {card} are still counted: {error}"
                self._tell("card_not_forgiven", text, "warning")

    def tidy(self) -> None:
        """Let bundles and recordings go that are too old or too many, beside the caller."""
        self._spawn("tidy", self._prune)

    def _prune(self) -> None:
        gone = self._adapters.prune(self._system, self._state, self._system.clock.wall())
        if gone:
            text = f"{gone} bundles of evidence or recordings went by age or size"
            self._tell("evidence_pruned", text, "info")
