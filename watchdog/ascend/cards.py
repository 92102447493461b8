"""Which card an answer speaks of: the labels of its series. Nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping

from ..model import Labels, labelset
from .answers import Asked
from .words import numbered

VENDOR = "ascend"
MIB = 1024 * 1024
Cards = Mapping[tuple[int, int], str]
"""The card's name by NPU id and chip id, where it is known."""


def labels_of(card: str, **labels: str) -> Labels:
    """A series' labels: vendor, card, and the given ones that are not empty."""
    return labelset({"vendor": VENDOR, "card": card, **labels})


class Home:
    """Whom an answer speaks of: names the card of a block, by the ids in it or asked for."""

    def __init__(self, ask: Asked, cards: Cards) -> None:
        self._ask, self._cards = ask, cards

    def ids(self, npu: int | None, chip: int | None) -> tuple[int | None, int]:
        wanted = self._ask.npu if npu is None else npu
        inside = self._ask.chip if chip is None else chip
        return wanted, inside or 0

    def card(self, npu: int | None, chip: int | None = None) -> str:
        wanted, inside = self.ids(npu, chip)
        if wanted is None:
            return ""
        return self._cards.get((wanted, inside)) or numbered(wanted, inside)
