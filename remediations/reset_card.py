"""Resets a card that asks for it, once nobody is on it nor on any chip that is reset with it.

It moves no traffic and ends no process: whoever holds a card keeps it, and the act is declined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from ..watchdog.acting import ActCase, Done, Step
from ..watchdog.errors import WatchdogError
from ..watchdog.system import System
from .adapters import readers
from .adapters.cardview import vendor_of
from .adapters.resetting import COMMAND, PAUSE, SETTLE, TRIES, Resets

BOOT = 150.0  # seconds that a card may take to come up again
QUIET = TRIES * (COMMAND + BOOT + PAUSE) + 120.0  # seconds that our readers rest at most


@dataclass(frozen=True, slots=True)
class ResetCard:
    """One to three tries, half a minute apart; a passed check ends them."""

    name: ClassVar[str] = "reset_card"
    effect: ClassVar[str] = "The card, and every chip that resets with it, is reset."
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = False

    def precheck(self, system: System, case: ActCase) -> str:
        """Declined while anything is on the cards, or where that cannot be told."""
        cards = _sick(case)
        if not cards:
            return "no card is named"
        if any(card.startswith("MIG-") for card in cards):
            return "a MIG instance cannot be reset alone"
        vendors = {vendor_of(system.files, card, case.vendors) for card in cards}
        if len(vendors) != 1 or not vendors <= {"nvidia", "ascend"}:
            return "it is not known whose cards these are"
        resets = Resets(case, cards, vendors.pop())
        try:
            if card := resets.spent(system):
                return f"{card}: {TRIES} resets did not mend it; it stays out until it is released"
            return resets.hindrance(system)
        except (WatchdogError, OSError) as error:
            return str(error)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        """Readers at rest, nobody there, up to three tries, the check."""
        cards = _sick(case)
        vendor = vendor_of(system.files, cards[0], case.vendors) if cards else ""
        resets = Resets(case, cards, vendor)
        steps = [_rest(case, vendor)]
        if vendor == "nvidia":
            steps.append(_persistence(resets))
        steps.append(Step("nobody on the cards", 30.0, resets.free, poll=1.0))
        for number in range(1, TRIES + 1):
            if number > 1:
                pause = PAUSE + 15.0
                steps.append(
                    Step(f"pause before try {number}", pause, resets.paused, must=False, poll=2.0)
                )
            steps.append(_try(resets, number))
        steps.append(Step("check", SETTLE + 60.0, resets.check, poll=2.0))
        steps.append(Step("forget the tries", 5.0, resets.passed, resets.forgive, must=False))
        return steps


def _sick(case: ActCase) -> tuple[str, ...]:
    return case.sick or case.request.cards


def _rest(case: ActCase, vendor: str) -> Step:
    by = case.request.id

    def done(system: System) -> Done:
        return readers.at_rest(system, case.state, [vendor], system.clock.wall(), by)

    def do(system: System) -> None:
        readers.rest(system, case.state, [vendor], system.clock.wall() + QUIET, by)

    def undo(system: System) -> None:
        readers.wake(system, case.state, by)

    return Step("our readers at rest", 30.0, done, do, undo, temporary=True)


def _persistence(resets: Resets) -> Step:
    return Step(
        "persistence mode off",
        20.0,
        resets.persistent,
        resets.drop_persistence,
        resets.put_persistence_back,
        temporary=True,
        must=False,
        poll=1.0,
    )


def _try(resets: Resets, number: int) -> Step:
    return Step(
        f"reset, try {number}",
        BOOT,
        resets.done,
        partial(resets.reset, number=number),
        must=number == TRIES,
        poll=2.0,
    )
