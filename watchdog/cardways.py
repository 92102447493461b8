"""Which cards lie near one another, by the words of their tools' topology. A ranking, no measure.

Pure: words in, an order out. Where no words are told the order stays as it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

Ways = Mapping[tuple[str, str], str]
"""The word for the way between two cards (``NV18``, ``HCCS``, ``PIX``, ``SYS`` …), either order."""

_WORDS = ("SIO", "HCCS", "HCCS_SW", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_LINKED = re.compile(r"NV(\d{1,3})")


def rank(word: str) -> float:
    """0 and above; the smaller the nearer. Many NVLinks are nearer than few; a word that is not
    known, or none, is farthest."""
    if found := _LINKED.fullmatch(word):
        return 1.0 / (1.0 + int(found[1]))
    return _WORDS.index(word) + 1.0 if word in _WORDS else len(_WORDS) + 1.0


def nearest(spares: Sequence[str], kept: Sequence[str], ways: Ways, count: int) -> tuple[str, ...]:
    """The ``count`` spares that lie nearest to the kept cards and to one another; fewer where
    there are fewer."""

    def far(one: str, other: str) -> float:
        return rank(ways.get((one, other)) or ways.get((other, one)) or "")

    left, taken = list(spares), list[str]()
    while left and len(taken) < count:
        group = [*kept, *taken] or left
        best = min(left, key=lambda card: sum(far(card, each) for each in group if each != card))
        left.remove(best)
        taken.append(best)
    return tuple(taken)
