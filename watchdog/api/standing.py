"""How the node stands for whoever gives commands, and what the doors ask of the daemon.

Shapes only: the service fills them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..model import Command
from ..wire import moment


@dataclass(frozen=True, slots=True)
class Waiting:
    """An act that waits for a person's yes. ``also``: what else stands against it just now;
    ``back``: it takes back what an earlier one did."""

    id: str
    service: str
    act: str
    cause: str
    alert: str
    since: float
    also: Sequence[str] = ()
    back: bool = False


@dataclass(frozen=True, slots=True)
class Act:
    """An act under way; times in Unix seconds."""

    id: str
    case: str
    service: str
    act: str
    since: float
    deadline: float


@dataclass(frozen=True, slots=True)
class Standing:
    """How the node stands for whoever gives commands.

    ``cards``: every name that a card goes by, and the card; ``open``: cases whose ladders go on, by
    id, with their service; ``paused``: by service ("" all), with the end; ``held_back``: silences
    and what the centre asked; ``forced``: why the node only observes until somebody resumes it.
    """

    mode: str = "observe"
    instance: str = ""
    services: Sequence[str] = ()
    cards: Mapping[str, str] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    paused: Mapping[str, float | None] = field(default_factory=dict)
    held_back: Sequence[str] = ()
    held: bool = False
    breaker: str = ""
    forced: str = ""
    waiting: Sequence[Waiting] = ()
    acts: Sequence[Act] = ()
    open: Mapping[str, str] = field(default_factory=dict)


class Desk(Protocol):
    """What the doors ask of the daemon. Called from many threads."""

    def standing(self) -> Standing:
        """How the node stands as of the last tick."""
        ...

    def carry(self, commands: Sequence[Command]) -> bool:
        """Pass commands on and wait until a tick has heard them; False when that takes too long.

        Raises WatchdogError when they cannot be passed on.
        """
        ...


def standing_doc(standing: Standing) -> dict[str, Any]:
    """What waits, what is under way and what holds acts back, as JSON."""
    return {
        "mode": standing.mode,
        "waiting": [
            {
                "id": each.id,
                "service": each.service or None,
                "act": each.act,
                "cause": each.cause,
                "alert": each.alert,
                "since": moment(each.since),
                "also": list(each.also),
                "back": each.back,
            }
            for each in standing.waiting
        ],
        "acts": [
            {
                "id": each.id,
                "service": each.service or None,
                "act": each.act,
                "since": moment(each.since),
                "deadline": moment(each.deadline),
            }
            for each in standing.acts
        ],
        "paused": [
            {"service": service or None, "until": moment(until)}
            for service, until in sorted(standing.paused.items())
        ],
        "held_back": list(standing.held_back),
        "hold_file": standing.held,
        "breaker": standing.breaker or None,
        "observing": standing.forced or None,
        "quarantined": dict(standing.quarantined),
    }
