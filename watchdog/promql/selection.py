"""The series that a selector reads, resolved once and kept until series appear, vanish or move.

A *run* is a selection's series within one block of the window: they share times, so that where a
moment or a range lies is looked up once for all of them. Values are read in place, never copied
before they are needed. Nothing is evaluated here.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import compress
from typing import cast

from ..model import NAME, Labels
from ..series import Block, Series, is_stale
from ..window import Window
from .nodes import Matcher
from .values import EMPTY, Columns


class Run:
    """Series of one selection in one block; ``slots`` are their places in the selection."""

    __slots__ = ("block", "columns", "series", "slots")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.series: list[Series] = []
        self.columns: list[array[float]] = []
        self.slots: list[int] = []

    def latest(self, ref: int, lookback: int) -> int:
        """The position of the last sample at or before ``ref`` and within the lookback, or -1."""
        times = self.block.times
        index = len(times) - 1
        if times[index] > ref:
            index = bisect_right(times, ref) - 1
        if index < 0 or times[index] <= ref - lookback:
            return -1
        return self.block.base + index

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The indices [low, high) of the samples in (start, end]."""
        times = self.block.times
        high = len(times)
        if times[-1] > end:
            high = bisect_right(times, end)
        return bisect_right(times, start, 0, high), high

    def marked_since(self, low: int) -> list[int]:
        """Which columns hold a staleness marker at index ``low`` or later."""
        if not self.block.marked:
            return []
        at = self.block.base + low
        return [
            column
            for column, series in enumerate(self.series)
            if series.marks and series.marks[-1] >= at
        ]


class Selection:
    """A selector's series in one window."""

    def __init__(self, window: Window, matchers: tuple[Matcher, ...]) -> None:
        self._window = window
        self._matchers = matchers
        self._name = next((m.value for m in matchers if m.name == NAME and m.op == "="), "")
        self._generation = -1
        self._key: tuple[int, ...] | None = None
        self._columns: Columns = EMPTY
        self._mask: list[bool] = []
        self._masked: tuple[Labels, ...] = ()
        self._masked_of: tuple[Labels, ...] | None = None
        self.labels: tuple[Labels, ...] = ()
        self.runs: list[Run] = []

    def refresh(self) -> int:
        """Look the series up again if they changed; return the generation of the look-up."""
        generation = self._window.generation(self._name)
        if generation != self._generation:
            self._generation = generation
            series = self._window.select(self._matchers)
            self.labels = tuple(s.key for s in series)
            runs: dict[int, Run] = {}
            for slot, each in enumerate(series):
                run = runs.setdefault(id(each.block), Run(each.block))
                run.series.append(each)
                run.columns.append(each.values)
                run.slots.append(slot)
            self.runs = list(runs.values())
            self._key = None
        return self._generation

    def at(self, ref: int, lookback: int) -> Columns:
        """The instant vector as of ``ref``; the same object while no value is newer or gone."""
        self.refresh()
        key = tuple([run.latest(ref, lookback) for run in self.runs])
        if key != self._key:
            self._columns = self._read(key)
            self._key = key
        return self._columns

    def _read(self, positions: tuple[int, ...]) -> Columns:
        if len(positions) == 1 and positions[0] >= 0 and not self.runs[0].block.marked:
            index = positions[0] - self.runs[0].block.base
            return self.labels, [column[index] for column in self.runs[0].columns]
        values: list[float | None] = [None] * len(self.labels)
        for run, position in zip(self.runs, positions, strict=True):
            if position >= 0:
                index = position - run.block.base
                for slot, column in zip(run.slots, run.columns, strict=True):
                    values[slot] = column[index]
                if run.block.marked:
                    for slot in run.slots:
                        value = values[slot]
                        if value is not None and is_stale(value):
                            values[slot] = None
        return self.present(values, None not in values)

    def present(self, values: list[float | None], whole: bool) -> Columns:
        """Leave out the series without a value; equal gaps give the same label sets object."""
        if whole:
            return self.labels, cast("list[float]", values)
        mask = [value is not None for value in values]
        if mask != self._mask or self._masked_of is not self.labels:
            self._mask = mask
            self._masked_of = self.labels
            self._masked = tuple(compress(self.labels, mask))
        return self._masked, cast("list[float]", list(compress(values, mask)))

    def times_at(self, ref: int, lookback: int) -> list[int | None]:
        """Per series the time of its sample as of ``ref``, or None (for ``timestamp``)."""
        self.refresh()
        times: list[int | None] = [None] * len(self.labels)
        for run in self.runs:
            position = run.latest(ref, lookback)
            if position >= 0:
                index = position - run.block.base
                for slot, column in zip(run.slots, run.columns, strict=True):
                    if not is_stale(column[index]):
                        times[slot] = run.block.times[index]
        return times

    def samples(self, start: int, end: int) -> list[tuple[Labels, list[int], list[float]]]:
        """Per series with samples in (start, end]: times and values without staleness markers."""
        self.refresh()
        found: dict[int, tuple[Labels, list[int], list[float]]] = {}
        for run in self.runs:
            low, high = run.span(start, end)
            if low < high:
                for slot, column in zip(run.slots, run.columns, strict=True):
                    times, values = unmarked(run.block.times[low:high], column[low:high])
                    if times:
                        found[slot] = (self.labels[slot], times, values)
        return [found[slot] for slot in sorted(found)]


def unmarked(times: array[int], values: array[float]) -> tuple[list[int], list[float]]:
    """Times and values without the staleness markers."""
    kept = [(t, v) for t, v in zip(times, values, strict=True) if v == v or not is_stale(v)]
    return [t for t, _ in kept], [v for _, v in kept]
