"""Where an act leads: a standby that answers, spare cards that are fit, the service's own cards.

Looks at readings and at what the guard keeps; reserves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ..cardways import Ways, nearest
from ..config import Service
from ..guard import ACTS
from ..roles import STANDBY
from .sight import Sight

_SICK_ALERTS = frozenset({"CardLost", "CardUncorrectable", "CardResetRequired", "DriverFault"})


@dataclass(frozen=True, slots=True)
class Destination:
    """``refusal``: why there is none; ``standby``: traffic goes there; ``spares``: cards taken."""

    refusal: str = ""
    standby: bool = False
    spares: tuple[str, ...] = ()


def sick_cards(sight: Sight, quarantined: Collection[str]) -> frozenset[str]:
    """Cards that nothing may be moved to."""
    sick = set(quarantined)
    for alert in sight.firing:
        if alert.name in _SICK_ALERTS:
            sick.add(dict(alert.labels).get("card", ""))
    for name in ("accelerator_present", "accelerator_healthy"):
        for labels, series in sight.readings.rows(name, sight.tick.ms):
            if series.values[-1] == 0:
                sick.add(labels.get("card", ""))
    return frozenset(sick - {""})


def destination(
    sight: Sight,
    act: str,
    service: str,
    own: Collection[str],
    quarantined: Mapping[str, str],
    reserved: Collection[str],
) -> Destination:
    """Where the act on a service would lead. ``own`` are the cards that it uses now."""
    settings = sight.healing.services.get(service)
    if not ACTS[act].moves:
        bad = sorted(set(own) & set(quarantined)) if ACTS[act].kind == "restart" else []
        if bad:
            return Destination(f"its own card {bad[0]} is quarantined")
        return Destination(standby=ACTS[act].aside and ready(sight, service, quarantined))
    if settings is None:
        return Destination(f"{service or 'the node'} has neither standby nor spare cards")
    sick = sick_cards(sight, quarantined)
    why = _standby_unfit(sight, service, settings, sick)
    if settings.standby is not None and not why:
        return Destination(standby=True)
    taken = sick | set(reserved) | set(own) | _used_by_others(sight, service)
    fit = [card for card in map(sight.card, settings.spares) if card not in taken]
    needed = max(1, len(own))
    if len(fit) >= needed:
        return Destination(spares=nearest(fit, (), _ways(sight), needed))
    reasons = [why] if why else []
    have = f"{len(fit)} of {needed} spare cards are fit" if settings.spares else "no spare cards"
    return Destination("; ".join([*reasons, have]))


def ready(sight: Sight, service: str, quarantined: Collection[str]) -> bool:
    """Whether users can be kept on the other instance for a while: its last probe succeeded, its
    cards are well, and there is a front to move them."""
    settings = sight.healing.services.get(service)
    if settings is None or settings.front is None or settings.standby is None:
        return False
    probe = sight.readings.value("service_probe_success", sight.tick.ms, service=service + STANDBY)
    return probe == 1 and not _standby_unfit(
        sight, service, settings, sick_cards(sight, quarantined)
    )


def _ways(sight: Sight) -> Ways:
    """How the node's cards are joined, as far as their tools told it; the newest word counts."""
    found: dict[tuple[str, str], tuple[int, str]] = {}
    for labels, series in sight.readings.rows("accelerator_topology", sight.tick.ms):
        pair = (labels.get("card", ""), labels.get("peer", ""))
        found[pair] = max(
            found.get(pair, (0, "")), (series.block.times[-1], labels.get("path", ""))
        )
    return {pair: word for pair, (_, word) in found.items()}


def _standby_unfit(sight: Sight, service: str, settings: Service, sick: Collection[str]) -> str:
    if settings.standby is None:
        return "no standby"
    for card in map(sight.card, settings.standby.cards):
        if card in sick:
            return f"the standby's card {card} is sick, quarantined or reserved"
    name, ms = service + STANDBY, sight.tick.ms
    verdict = sight.readings.value("service_probe_success", ms, service=name)
    if verdict == 0:
        return "the standby fails its own probe"
    if sight.readings.value("service_up", ms, service=name) == 0:
        return "the standby does not answer"
    return ""


def _used_by_others(sight: Sight, service: str) -> set[str]:
    """Cards that other services use."""
    return {
        labels.get("card", "")
        for labels, _ in sight.readings.rows("service_card", sight.tick.ms)
        if labels.get("service") not in (service, service + STANDBY)
    }
