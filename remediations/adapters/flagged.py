"""The steps around a flag of the front: raise it, hold it for so long at the most, lower it.

A note in the state folder says which request raised it and since when, so that a crash neither
raises it twice nor gives it more time. It decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.errors import Permanent
from ...watchdog.model import Json
from ...watchdog.system import System
from .front import Flag


@dataclass(frozen=True, slots=True)
class Note:
    """``request`` raised the flag at ``entered`` for the first time; at ``left`` it was lowered or
    the same trouble was last seen (0: not yet); ``over``: it was lowered because all was done."""

    request: str = ""
    entered: float = 0.0
    left: float = 0.0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Flagged:
    """A flag in the hands of one act, which may hold it for ``seconds`` in all."""

    case: ActCase
    flag: Flag
    seconds: float

    @property
    def path(self) -> Path:
        """Where the note lies; a person who takes it away forgives what it holds."""
        return self.case.state / "fronts" / f"{self.flag.path.name}.json"

    def note(self, system: System) -> Note:
        """What is noted; nothing, where there is no note or one that cannot be read."""
        try:
            doc = json.loads(system.files.read(self.path, 4096))
            return Note(
                str(doc["request"]), float(doc["entered"]), float(doc["left"]), bool(doc["over"])
            )
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            return Note()

    def keep(self, system: System, note: Note) -> None:
        """Write the note. Raises OSError."""
        doc = {
            "request": note.request,
            "entered": note.entered,
            "left": note.left,
            "over": note.over,
        }
        system.files.make_folder(self.path.parent)
        system.files.write(self.path, json.dumps(doc).encode())

    def raising(self, name: str, seen: Callable[[System], bool], sets: Json) -> Step:
        """The step that raises it. ``seen``: whether the front behaves so."""

        def done(system: System) -> Done:
            if self._over(system):
                return "yes"
            return "yes" if self.mine(system) and seen(system) else "no"

        return Step(
            name, 10.0, done, do=self._raise, undo=self._take_back, temporary=True, sets=sets
        )

    def lowering(self, name: str, sets: Json) -> Step:
        """The step that lowers it because all is done."""

        def done(system: System) -> Done:
            return "yes" if self._over(system) and not self.mine(system) else "no"

        def lower(system: System) -> None:
            self.keep(system, Note(self._request, self._entered(system), _now(system), over=True))
            self._lower(system)

        return Step(name, 10.0, done, do=lower, sets=sets)

    def mine(self, system: System) -> bool:
        """Whether the flag is there and of this act."""
        return self.flag.owner(system) == self._request

    @property
    def _request(self) -> str:
        return self.case.request.id or "act"

    def _over(self, system: System) -> bool:
        note = self.note(system)
        return note.over and note.request == self._request

    def _entered(self, system: System) -> float:
        note = self.note(system)
        return note.entered if note.request == self._request else _now(system)

    def _raise(self, system: System) -> None:
        entered = self._entered(system)
        left = entered + self.seconds - _now(system)
        if left < 1.0:
            raise Permanent(f"its {self.seconds:g} s are over")
        self.keep(system, Note(self._request, entered))
        self.flag.up(system, left, self._request)

    def _lower(self, system: System) -> None:
        """Ours only: one that a person raised meanwhile stays."""
        if self.mine(system):
            self.flag.down(system)

    def _take_back(self, system: System) -> None:
        if not self._over(system):
            self.keep(system, Note(self._request, self._entered(system), _now(system)))
        self._lower(system)


def _now(system: System) -> float:
    return system.clock.wall()
