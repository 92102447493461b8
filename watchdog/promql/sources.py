"""Operations that read the window: selectors, functions over ranges, subqueries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from typing import Protocol

from ..model import Labels
from .nodes import At
from .plan import Context, Op, Renaming, ScalarOp, VectorOp, nameless
from .ranges import Frame, RangeFunction
from .selection import Selection
from .values import EMPTY, Columns

Samples = tuple[Labels, list[int], list[float]]
"""A series' label set, times and values."""


class Moment:
    """The reference time of a selector or subquery: ``@`` and ``offset`` applied to now."""

    __slots__ = ("at", "offset")

    def __init__(self, at: At | None, offset: int) -> None:
        self.at = at
        self.offset = offset

    def __call__(self, now: int, context: Context) -> int:
        """The time in milliseconds that is read as of ``now``."""
        if self.at is None:
            return now - self.offset
        return self.fixed(context) - self.offset

    def fixed(self, context: Context) -> int:
        """The time that ``@`` says."""
        assert self.at is not None
        if self.at.ms is not None:
            return self.at.ms
        return context.first if self.at.edge == "start" else context.last


class Select(VectorOp):
    """An instant vector selector."""

    def __init__(self, selection: Selection, moment: Moment) -> None:
        self._selection = selection
        self._moment = moment

    def vector(self, now: int, context: Context) -> Columns:
        """The last values within the lookback."""
        columns = self._selection.at(self._moment(now, context), context.lookback)
        context.budget.spend(1 + len(columns[1]))
        return columns


class Timestamp(VectorOp):
    """``timestamp(selector)``: the samples' own times in seconds."""

    def __init__(self, selection: Selection, moment: Moment) -> None:
        self._selection = selection
        self._moment = moment
        self._names = Renaming(nameless)

    def vector(self, now: int, context: Context) -> Columns:
        """The times of the last samples within the lookback."""
        times = self._selection.times_at(self._moment(now, context), context.lookback)
        context.budget.spend(1 + len(times))
        labels = self._selection.labels
        found = [
            (each, ms / 1000) for each, ms in zip(labels, times, strict=True) if ms is not None
        ]
        names = self._names(tuple(each for each, _ in found))
        return names, [seconds for _, seconds in found]


class Ranged(Op, ABC):
    """A range vector: a selector with a range, or a subquery."""

    kind = "matrix"
    range: int
    moment: Moment

    @abstractmethod
    def samples(self, now: int, context: Context) -> list[Samples]:
        """Per series with samples in the range: label set, times, values."""


class SelectRange(Ranged):
    """A range vector selector."""

    def __init__(self, selection: Selection, range_ms: int, moment: Moment) -> None:
        self.selection = selection
        self.range = range_ms
        self.moment = moment

    def samples(self, now: int, context: Context) -> list[Samples]:
        """The samples in the range, staleness markers left out."""
        end = self.moment(now, context)
        found = self.selection.samples(end - self.range, end)
        context.budget.spend(1 + sum(len(times) for _, times, _ in found))
        return found


class Subquery(Ranged):
    """``expr[range:step]``: the inner expression at the multiples of the step in the range."""

    def __init__(self, inner: VectorOp, range_ms: int, step: int | None, moment: Moment) -> None:
        self._inner = inner
        self.range = range_ms
        self._step = step
        self.moment = moment

    def samples(self, now: int, context: Context) -> list[Samples]:
        """The part of the evaluated series that lies in the range."""
        end = self.moment(now, context)
        start = end - self.range
        found = []
        for labels, times, values in self._evaluated(context):
            low = bisect_right(times, start)
            high = bisect_right(times, end, low)
            if low < high:
                found.append((labels, times[low:high], values[low:high]))
        return found

    def _evaluated(self, context: Context) -> list[Samples]:
        """All that the moments of the context need, evaluated once."""
        if self in context.memo:
            known: list[Samples] = context.memo[self]
            return known
        step = self._step or context.default_step
        start = self.moment(context.start, context) - self.range
        inner = context.within((start // step + 1) * step, self.moment(context.end, context), step)
        series: dict[Labels, Samples] = {}
        for now in range(inner.start, inner.end + 1, step):
            labels, values = self._inner.vector(now, inner)
            context.budget.spend(1 + len(values))
            for each, value in zip(labels, values, strict=True):
                entry = series.get(each)
                if entry is None:
                    series[each] = entry = (each, [], [])
                entry[1].append(now)
                entry[2].append(value)
        context.memo[self] = result = list(series.values())
        return result


class Slider(Protocol):
    """Computes a function over a selector's range without reading again what has not changed."""

    def vector(self, frame: Frame) -> Columns:
        """The function's result per series, under the series' own label sets."""


class RangeCall(VectorOp):
    """A function of a range vector."""

    def __init__(
        self,
        function: RangeFunction,
        source: Ranged,
        param: ScalarOp | None,
        *,
        keeps_name: bool,
        slider: Slider | None,
    ) -> None:
        self._function = function
        self._source = source
        self._param = param
        self._slider = slider
        self._names = None if keeps_name else Renaming(nameless)
        self._last: Columns = EMPTY
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """One element per series that has a result."""
        end = self._source.moment(now, context)
        param = self._param.number(now, context) if self._param else 0.0
        frame = Frame(end - self._source.range, end, now, param)
        if self._slider is not None:
            columns = self._slider.vector(frame)
            context.budget.spend(1 + len(columns[1]))
        else:
            columns = self._computed(frame, self._source.samples(now, context))
        if self._names is None or not columns[0]:
            return columns
        names = self._names(columns[0])
        if columns is not self._last:
            self._last, self._result = columns, (names, columns[1])
        return self._result

    def _computed(self, frame: Frame, series: list[Samples]) -> Columns:
        labels, values = [], []
        for each, times, samples in series:
            value = self._function(times, samples, frame)
            if value is not None:
                labels.append(each)
                values.append(value)
        return tuple(labels), values


class AbsentOverTime(VectorOp):
    """``absent_over_time``: 1 while no series has a sample in the range."""

    def __init__(self, source: Ranged, labels: Labels) -> None:
        self._source = source
        self._result: Columns = ((labels,), [1.0])

    def vector(self, now: int, context: Context) -> Columns:
        """One element, or none."""
        return EMPTY if self._source.samples(now, context) else self._result
