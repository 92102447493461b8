"""Counts of what was tried and done: ladders per (service, cause), acts of the node.

Kept where the failure of an act cannot erase it; times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST = 100  # times kept per key


@dataclass(slots=True)
class Ledger:
    """``ladders``: begins by key; ``ended``: the last end by key; ``acts`` and ``traffic``: begins
    of acts of the two kinds that have a budget each."""

    ladders: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    acts: list[float] = field(default_factory=list)
    traffic: list[float] = field(default_factory=list)

    def begin(self, key: str, now: float) -> None:
        """A ladder begins: it counts, whatever comes of it."""
        self.ladders.setdefault(key, []).append(now)
        del self.ladders[key][:-_MOST]

    def end(self, key: str, now: float) -> None:
        """A ladder ended: its cooldown begins."""
        self.ended[key] = now

    def attempts(self, key: str, now: float, per: float) -> int:
        """Ladders of a key that began within the last ``per`` seconds."""
        return sum(now - at < per for at in self.ladders.get(key, ()))

    def rests_until(self, key: str, now: float, cooldown: float, per: float) -> float:
        """When the cooldown of a key ends: it doubles with each further ladder."""
        count = self.attempts(key, now, per)
        last = max(self.ended.get(key, 0.0), *self.ladders.get(key, ()), 0.0)
        return last + cooldown * 2 ** (count - 1) if count else 0.0

    def act(self, now: float, *, traffic: bool) -> None:
        """An act begins."""
        times = self.traffic if traffic else self.acts
        times.append(now)
        del times[:-_MOST]

    def withdraw(self, key: str, *, ladder: bool, traffic: bool) -> None:
        """What was counted last never began: no intent of it was written."""
        if ladder and self.ladders.get(key):
            self.ladders[key].pop()
        times = self.traffic if traffic else self.acts
        if times:
            times.pop()

    def spent(self, now: float, per: float, *, traffic: bool) -> int:
        """Acts of the kind that began within the last ``per`` seconds."""
        return sum(now - at < per for at in (self.traffic if traffic else self.acts))

    def dump(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {
            "ladders": {key: list(times) for key, times in self.ladders.items()},
            "ended": dict(self.ended),
            "acts": list(self.acts),
            "traffic": list(self.traffic),
        }

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Ledger:
        """The counts of a JSON object. Raises KeyError, TypeError, ValueError."""
        return cls(
            {str(key): [float(at) for at in times] for key, times in doc["ladders"].items()},
            {str(key): float(at) for key, at in doc["ended"].items()},
            [float(at) for at in doc["acts"]],
            [float(at) for at in doc["traffic"]],
        )
