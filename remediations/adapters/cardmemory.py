"""How much memory a card of a model shows as used while nobody uses it. Figures only.

A driver keeps some for itself: gigabytes on an Ascend 910B, next to nothing on a first 910. Beside
the figures seen in the field, cards of the same model that are idle now count: a newer driver may
keep more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from .cardview import Seen

MIB = 1024.0 * 1024.0
_ASCEND = (  # model, MiB with room above what was seen
    (re.compile(r"910B\d|Ascend910$|910C|910_93"), 4608.0),  # seen: 2,000 to 4,175
    (re.compile(r"910(?:A|ProA|ProB|PremiumA)$"), 256.0),  # seen: 2 to 18
    (re.compile(r"(?:Ascend)?950"), 6144.0),  # seen: 4,857
    (re.compile(r"310P"), 2560.0),  # seen: 924 to 1,849
)
_NVIDIA = 1024.0  # MiB; seen: 0 to 600, more with old drivers that count the reserved part
_LEAST = 16.0  # a card's idle figure is never above this part of its memory
_LEARNT = 8.0  # nor is one that is learnt from its neighbours above this part
_MARGIN = 256.0 * MIB


def idle_limit(seen: Seen, others: Iterable[Seen], asked: Collection[str]) -> float | None:
    """Bytes up to which a card counts as idle; None where nothing is known of its model.

    ``asked``: the cards in question, which are no measure for one another.
    """
    if seen.total is None:
        return None
    known = _documented(seen)
    peers = [
        other.used
        for other in others
        if other.card not in asked and _twin(seen, other) and other.used is not None
    ]
    learnt = min(min(peers) * 1.1 + _MARGIN, seen.total / _LEARNT) if peers else None
    figures = [figure for figure in (known, learnt) if figure is not None]
    return max(figures, default=None)


def _documented(seen: Seen) -> float | None:
    if seen.vendor == "nvidia":
        return min(_NVIDIA * MIB, (seen.total or 0.0) / _LEAST)
    for pattern, figure in _ASCEND:
        if pattern.match(seen.model):
            return figure * MIB
    return None


def _twin(seen: Seen, other: Seen) -> bool:
    """Whether another card is of the same make, and idle by its tool's own word."""
    same = (other.vendor, other.model, other.total) == (seen.vendor, seen.model, seen.total)
    return same and other.pids == () and not other.screens and other.healthy is True
