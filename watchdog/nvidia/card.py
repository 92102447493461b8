"""One GPU as some tool's output shows it: printed texts, nothing judged, nothing converted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model import Labels
from .values import trouble

VENDOR = "nvidia"


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU. ``memory`` is the printed text; ``gi`` and ``ci`` its MIG place."""

    pid: str
    name: str = ""
    kind: str = ""
    memory: str = ""
    gi: str = ""
    ci: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance. ``uuid`` "" where the output does not say it."""

    index: str
    gi: str
    ci: str
    uuid: str = ""
    profile: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's readings: printed texts under the names of --query-gpu.

    ``name`` is the card's name in all metrics. ``damage`` says why its part of the output cannot
    be trusted as a whole (doubled elements, contradicting addresses). ``lost``: the tool says so.
    ``processes`` is None where the output does not list any.
    """

    name: str
    fields: Mapping[str, str]
    processes: tuple[Process, ...] | None = None
    instances: tuple[Instance, ...] = ()
    damage: str = ""
    lost: bool = False


def labels_of(name: str, *extra: tuple[str, str]) -> Labels:
    """The labels of a card's series."""
    pairs = [("card", name), ("vendor", VENDOR), *(pair for pair in extra if pair[1])]
    return tuple(sorted(pairs))


def instance_name(card: Card, instance: Instance) -> str:
    """The MIG uuid; where the output lacks it, its form before driver 470, else a place."""
    uuid = card.fields.get("uuid", "")
    if instance.uuid:
        return instance.uuid
    if uuid and not trouble(uuid):
        return f"MIG-{uuid}/{instance.gi}/{instance.ci}"
    return f"{card.name}/mig{instance.index}"
