"""Lets idle cards and, when all of a node's cards idle, its CPUs run slower; and back again.

It ends nothing and moves nothing. Clocks as found are put back on load, at the window's end, at
the daemon's stop and after a crash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ..watchdog.acting import ActCase, Step
from ..watchdog.system import System
from .adapters.cardview import vendor_of
from .adapters.frequency import Lowered

_CARD = 30.0  # seconds for a card: two commands, and its clock to follow
_CPUS = 15.0


@dataclass(frozen=True, slots=True)
class LowerFrequency:
    """One step for each card, one for the CPUs; the way back takes the CPUs first."""

    name: ClassVar[str] = "lower_frequency"
    effect: ClassVar[str] = (
        "Idle cards, and the CPUs of a node that is idle as a whole, run slower."
    )
    disruptive: ClassVar[bool] = False
    verified: ClassVar[bool] = False

    def precheck(self, system: System, case: ActCase) -> str:  # noqa: ARG002 - the protocol's
        """Declined only where no card is named."""
        return "" if case.back or _cards(case) else "no card is named"

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        """The cards, then the CPUs; back: the CPUs, then the cards."""
        lowered, cards = Lowered(case.state), _cards(case)
        if case.back:
            return [_cpus_back(lowered), *(_card_back(lowered, card) for card in cards)]
        steps = [
            _card(lowered, card, vendor_of(system.files, card, case.vendors)) for card in cards
        ]
        return [*steps, _cpus(lowered, cards, case.vendors)]


def _cards(case: ActCase) -> tuple[str, ...]:
    return case.sick or case.request.cards


def _card(lowered: Lowered, card: str, vendor: str) -> Step:
    return Step(
        f"lower {card}",
        _CARD,
        partial(lowered.card_lowered, card=card),
        partial(lowered.lower_card, card=card, vendor=vendor),
        partial(lowered.restore_card, card=card),
        poll=1.0,
    )


def _cpus(lowered: Lowered, cards: tuple[str, ...], vendors: Mapping[str, str]) -> Step:
    return Step(
        "lower the CPUs",
        _CPUS,
        partial(lowered.cpus_lowered, idle=cards, vendors=vendors),
        lowered.lower_cpus,
        lowered.restore_cpus,
        must=False,
        poll=1.0,
    )


def _card_back(lowered: Lowered, card: str) -> Step:
    return Step(
        f"restore {card}",
        _CARD,
        partial(lowered.card_restored, card=card),
        partial(lowered.restore_card, card=card),
        must=False,
    )


def _cpus_back(lowered: Lowered) -> Step:
    return Step("restore the CPUs", _CPUS, lowered.cpus_restored, lowered.restore_cpus, must=False)
