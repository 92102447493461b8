"""Which of a service's two servers is meant: the one that users reach, or the other.

An act is about the serving one. Names and settings only; nothing is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...watchdog.acting import ActCase
from ...watchdog.config import Manager, Service


@dataclass(frozen=True, slots=True)
class Instance:
    """One server of a service. ``cards`` as it uses them now; ``unit_name``: ``NAME``, or
    ``NAME-standby``, under which its files lie in the state folder. ``role`` as the front calls
    it."""

    url: str
    manager: Manager | None
    cards: tuple[str, ...]
    unit_name: str
    role: str = "primary"


def serving(case: ActCase) -> Instance:
    """The instance that users reach: the sick one of an act. ``cards`` are the case's."""
    settings = _settings(case)
    if case.mode.serving == "standby" and settings.standby is not None:
        standby = settings.standby
        return Instance(standby.url, standby.manager, case.cards, f"{case.name}-standby", "standby")
    return Instance(settings.url, settings.manager, case.cards, case.name)


def other(case: ActCase) -> Instance | None:
    """The instance that users do not reach just now; None where there is no standby. Its cards are
    named as they are configured."""
    settings = _settings(case)
    standby = settings.standby
    if standby is None:
        return None
    if case.mode.serving == "standby":
        cards = case.mode.cards or settings.cards
        return Instance(settings.url, settings.manager, cards, case.name)
    cards = case.mode.standby_cards or standby.cards
    return Instance(standby.url, standby.manager, cards, f"{case.name}-standby", "standby")


def _settings(case: ActCase) -> Service:
    if case.settings is None:
        raise ValueError("an act of the node has no instance")
    return case.settings
