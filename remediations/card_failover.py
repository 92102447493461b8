"""Takes a service off its sick cards: to the standby that answers, else onto spare cards.

Users first: with a standby the front is switched before anything is stopped. Without one the
server moves to spares that are proved fit; nothing healthy left is said, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from ..watchdog.acting import ActCase, Done, Step
from ..watchdog.system import System
from .adapters.aside import silent
from .adapters.cards import fit, holders
from .adapters.composition import composed
from .adapters.evidence import evidence_step
from .adapters.front import Front
from .adapters.handled import (
    CARD_CAUSES,
    UNREADABLE,
    Handled,
    changeable,
    looking,
    unmanaged,
)
from .adapters.instances import other, serving
from .adapters.starting import configure_step, start_steps
from .adapters.stopping import quiet_steps, stop_steps


@dataclass(frozen=True, slots=True)
class CardFailover:
    """The front to the standby, or the server onto spare cards."""

    name: ClassVar[str] = "card_failover"
    effect: ClassVar[str] = (
        "traffic moves to the standby, or the server is started anew on spare cards"
    )
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = True

    def precheck(self, system: System, case: ActCase) -> str:
        """Neither a standby that answers on healthy cards, nor spares that are fit."""
        if case.settings is None:
            return "it belongs to no service"
        sick = Handled.of(case, serving(case))
        if case.request.cause not in CARD_CAUSES and sick is not None:
            why = unmanaged(system, sick)  # no second hand where it is being restarted already
            if why:
                return why
        if case.request.standby:
            return _standby_unfit(system, case)
        if case.spares:
            return _spares_unfit(system, case)
        return "nothing healthy is left: no standby that answers, no spare cards that are fit"

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """With a standby: front, evidence, stop, and a new standby on spares if there are some.
        Without: front drained, evidence, stop, spares proved and given, start, first answer."""
        if case.settings is None:
            return ()
        return _to_standby(case) if case.request.standby else _to_spares(case)


def _to_standby(case: ActCase) -> list[Step]:
    front, target = Front.of(case), other(case)
    if front is None or target is None:
        return []
    role: Literal["primary", "standby"] = "standby" if target.role == "standby" else "primary"
    switch = front.step(role, moves_traffic=True, sets={"serving": role})
    steps = [replace(switch, undo=None)]  # never back to a server that was stopped for its card
    sick = serving(case)
    moves = bool(case.spares)
    handled = Handled.of(case, sick, changes=moves, starts=moves)
    steps.append(evidence_step(case, sick))
    if handled is None:
        return steps
    steps += stop_steps(handled, must=False)
    if case.spares:
        steps += _moved(handled, must=False)
    return steps


def _to_spares(case: ActCase) -> list[Step]:
    sick = serving(case)
    handled = Handled.of(case, sick, changes=True)
    if handled is None:
        return []
    quiet = quiet_steps(handled)
    if quiet:
        quiet[0] = replace(quiet[0], moves_traffic=quiet[0].temporary)
    return [
        *quiet,
        handled.before(evidence_step(case, sick)),
        *stop_steps(handled, must=False),
        *_moved(handled, must=True),
    ]


def _moved(handled: Handled, *, must: bool) -> list[Step]:
    """The stopped server given the spares, started there, answering."""
    case = handled.case
    key = "standby_cards" if handled.instance.role == "standby" else "cards"

    def unfit(system: System) -> str:
        status = handled.manager.status(system)
        if not status.ended:
            return "the server on the sick cards could not be stopped"
        return _unfit(system, case)

    wanted = composed(handled, "", case.spares)
    steps = [
        configure_step(handled, wanted, unfit),
        *start_steps(handled, sets={key: list(case.spares)}),
        _on_cards(handled),
    ]
    return [replace(step, must=must and step.must) for step in steps]


def _on_cards(handled: Handled) -> Step:
    """Each of the spares has a process of the server, as far as the cards' tool tells."""
    case = handled.case

    def done(system: System) -> Done:
        own = {process.pid for process in handled.manager.processes(system)}
        held = holders(system, case.spares, case.vendors)
        told = [each.pids for each in held.values()]
        if any(pids is None for pids in told):
            return "no"
        return "yes" if all(own & set(pids or ()) for pids in told) else "no"

    return Step("see it on the spare cards", 10.0, looking(done), must=False, poll=1.0)


def _standby_unfit(system: System, case: ActCase) -> str:
    front, target = Front.of(case), other(case)
    if target is None or case.settings is None:
        return "it has no standby"
    if front is None:
        return "it has no front: traffic cannot be moved"
    try:
        state = front.state(system)
    except OSError as error:
        return f"{front.include}: {error.strerror or error}"
    if state == "unknown":
        return f"{front.include} is not as we wrote it"
    bad = sorted(set(target.cards) & set(case.sick))
    if bad:
        return f"the {target.role} uses the sick card {bad[0]}"
    return silent(system, case, target)


def _spares_unfit(system: System, case: ActCase) -> str:
    handled = Handled.of(case, serving(case), changes=True)
    if handled is None:
        return "no manager is configured for it"
    if len(case.spares) < len(case.cards):
        return f"{len(case.spares)} spare cards for {len(case.cards)}"
    why = changeable(system, handled)
    if why:
        return why
    try:
        why = handled.manager.takes_cards(system) or _unfit(system, case)
        if not why:
            composed(handled, "", case.spares)(system)
    except UNREADABLE as error:
        return str(error)
    return why


def _unfit(system: System, case: ActCase) -> str:
    """Why the spares cannot take over."""
    healthy = [card for card in case.cards if card not in case.sick]
    told = fit(system, case.spares, case.vendors, like=healthy, quarantined=case.sick)
    bad = [f"spare {card}: {why}" for card, why in told.items() if why]
    return bad[0] if bad else ""
