"""How a page of samples is written again without a look at its labels, and what bounds refuse."""

from __future__ import annotations

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .model import Labels, Page
from .series import Block, is_stale


@dataclass(slots=True)
class Counts:
    """What the bounds refused, since the start: each is told as a metric.

    ``series_refused``: samples of series beyond the limit. ``points_cut``: samples dropped before
    their time because a series had too many. ``out_of_order``: samples not newer than the series'
    last one, duplicates among them. ``conflicts``: samples of a series that another collector owns.
    """

    series_refused: int = 0
    points_cut: int = 0
    out_of_order: int = 0
    conflicts: int = 0


class Plan:
    """How to write a page layout again: per page the append of each series' values."""

    __slots__ = ("blocks", "layout", "pushes", "refused")

    def __init__(self, layout: tuple[tuple[Labels, ...], ...]) -> None:
        self.layout = layout
        self.pushes: list[list[Callable[[float], None]]] = []
        self.blocks: list[Block] = []
        self.refused = Counts()

    def fits(self, pages: Sequence[Page], ms: int) -> bool:
        """Can these pages be written without a look at their labels?"""
        if len(pages) != len(self.layout):
            return False
        for page, keys in zip(pages, self.layout, strict=True):
            values = page.values
            if page.keys is not keys or len(values) != len(keys):
                return False
            total = sum(values)
            if total != total and any(map(is_stale, values)):
                return False
        return all(block.times[-1] < ms for block in self.blocks)


def discard(_value: float) -> None:
    """Takes the place of a refused series in a plan."""
