"""How far apart two cards lie, by the words of their tools' topology. A ranking, no measure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from ...watchdog.errors import CommandTimeout, NotSupported, SourceError
from ...watchdog.system import System
from . import cards_ascend, cards_nvidia
from .cardview import Seen, look

_WORDS = ("SIO", "HCCS", "HCCS_SW", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_FARTHEST = float(len(_WORDS) + 1)
_LINKED = re.compile(r"NV(\d{1,3})")
_READERS = {"nvidia": cards_nvidia.paths, "ascend": cards_ascend.paths}


def rank(word: str) -> float:
    """0 and above; the smaller the nearer. Many NVLinks are nearer than few."""
    if found := _LINKED.fullmatch(word):
        return 1.0 / (1.0 + int(found[1]))
    return _WORDS.index(word) + 1.0 if word in _WORDS else _FARTHEST


def joined(
    system: System, seen: Iterable[Seen], timeout: float
) -> Mapping[tuple[str, str], str] | None:
    """The word for each pair of cards, as their tools tell it; None where one does not."""
    found: dict[tuple[str, str], str] = {}
    by_vendor: dict[str, dict[str, str]] = {}
    for one in seen:
        if one.number:
            by_vendor.setdefault(one.vendor, {})[one.number] = one.card
    for vendor, numbers in by_vendor.items():
        try:
            told = _READERS[vendor](system, numbers, timeout)
        except (NotSupported, CommandTimeout, SourceError, OSError):
            return None
        for sample in told:
            labels = dict(sample.labels)
            if sample.name == "accelerator_topology" and "path" in labels:
                found[labels["card"], labels["peer"]] = labels["path"]
    return found


def distances(
    system: System, cards: Iterable[str], vendors: Mapping[str, str], timeout: float
) -> Callable[[str, str], float]:
    """How far two cards lie apart; all equally far where nothing is told."""
    view = look(system, cards, vendors, timeout)
    words = joined(system, view.cards.values(), timeout) or {}

    def far(one: str, other: str) -> float:
        return rank(words.get((one, other)) or words.get((other, one)) or "")

    return far
