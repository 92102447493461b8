"""Many targets sick together means that the sensor or the network is sick: then nothing is touched
until a person says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SPAN = 300.0  # seconds within which acts that are due count together


@dataclass(frozen=True, slots=True)
class Due:
    """A device or restart act that is due. ``target`` is what is sick: services of one cause (one
    card, one starved host) have one target. ``cards`` are the sick ones."""

    target: str
    service: str
    cards: frozenset[str] = frozenset()


@dataclass(slots=True)
class Breaker:
    """Opens when within ``SPAN`` acts are due on at least two and more than half of the node's
    services, or of its cards. ``opened`` is when it did, None while it is closed."""

    opened: float | None = None
    why: str = ""
    seen: dict[str, tuple[float, str, tuple[str, ...]]] = field(default_factory=dict)

    def note(self, due: Iterable[Due], services: int, cards: int, now: float) -> bool:
        """Take note of what is due now; return whether the breaker opens by it."""
        for each in due:
            self.seen[each.target] = (now, each.service, tuple(sorted(each.cards)))
        self.seen = {k: v for k, v in self.seen.items() if now - v[0] <= SPAN}
        if self.opened is not None:
            return False
        named = [service for _, service, _ in self.seen.values() if service]
        targets = len(set(named))  # one service whose cards fail in turn is one
        sick = {card for _, _, cards_ in self.seen.values() for card in cards_}
        if targets >= 2 and targets > services / 2:
            self.why = f"acts are due on {targets} of {services} services at once"
        elif len(sick) >= 2 and len(self.seen) >= 2 and len(sick) > cards / 2:
            self.why = f"acts are due on {len(sick)} of {cards} cards at once"
        else:
            return False
        self.opened = now
        return True

    def close(self) -> None:
        """A person closes it; what was seen before no longer counts."""
        self.opened, self.why = None, ""
        self.seen.clear()

    def dump(self) -> dict[str, Any]:
        """The state as JSON."""
        seen = {key: [at, service, list(cards)] for key, (at, service, cards) in self.seen.items()}
        return {"opened": self.opened, "why": self.why, "seen": seen}

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Breaker:
        """The state of a JSON object. Raises KeyError, TypeError, ValueError."""
        opened = doc["opened"]
        seen = {
            str(key): (float(at), str(service), tuple(map(str, cards)))
            for key, (at, service, cards) in doc["seen"].items()
        }
        return cls(None if opened is None else float(opened), str(doc["why"]), seen)
