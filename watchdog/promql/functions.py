"""Operations for the functions of scalars and instant vectors."""

# ruff: noqa: ARG002 - operations have one signature; some look at the time alone, or at nothing
from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter

from ..model import Labels
from . import dates, gomath, histograms
from .plan import Context, Renaming, ScalarOp, VectorOp, nameless, unique
from .values import EMPTY, Columns


class Number(ScalarOp):
    """A literal, or ``pi()``."""

    def __init__(self, value: float) -> None:
        self._value = value

    def number(self, now: int, context: Context) -> float:
        """The value."""
        return self._value


class Time(ScalarOp):
    """``time()``: the evaluation time in seconds."""

    def number(self, now: int, context: Context) -> float:
        """Seconds since the epoch."""
        return now / 1000


class ScalarOf(ScalarOp):
    """``scalar(v)``: the value of the only element, NaN if there is not exactly one."""

    def __init__(self, inner: VectorOp) -> None:
        self._inner = inner

    def number(self, now: int, context: Context) -> float:
        """The value, or NaN."""
        values = self._inner.vector(now, context)[1]
        return values[0] if len(values) == 1 else math.nan


class VectorOf(VectorOp):
    """``vector(s)``: one element without labels."""

    def __init__(self, inner: ScalarOp) -> None:
        self._inner = inner

    def vector(self, now: int, context: Context) -> Columns:
        """The element."""
        return ((),), [self._inner.number(now, context)]


class Each(VectorOp):
    """Maps the values of a vector one by one; the names go."""

    def __init__(self, inner: VectorOp, function: Callable[[float], float]) -> None:
        self._inner = inner
        self._function = function
        self._names = Renaming(nameless)
        self._input: Columns = EMPTY
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """The mapped vector."""
        columns = self._inner.vector(now, context)
        if columns is not self._input:
            names = self._names(columns[0])
            self._result = names, list(map(self._function, columns[1]))
            self._input = columns
        return self._result


class Negated(VectorOp):
    """``-v``: the names go."""

    def __init__(self, inner: VectorOp) -> None:
        self._inner = inner
        self._names = Renaming(nameless)

    def vector(self, now: int, context: Context) -> Columns:
        """The vector with the other sign."""
        labels, values = self._inner.vector(now, context)
        return self._names(labels), [-value for value in values]


class NegatedNumber(ScalarOp):
    """``-s``."""

    def __init__(self, inner: ScalarOp) -> None:
        self._inner = inner

    def number(self, now: int, context: Context) -> float:
        """The number with the other sign."""
        return -self._inner.number(now, context)


class Mapped(VectorOp):
    """Maps the values with scalars that may differ at each moment (clamp, round)."""

    def __init__(
        self,
        inner: VectorOp,
        scalars: list[ScalarOp],
        make: Callable[[list[float]], Callable[[float], float] | None],
    ) -> None:
        self._inner = inner
        self._scalars = scalars
        self._make = make
        self._names = Renaming(nameless)

    def vector(self, now: int, context: Context) -> Columns:
        """The mapped vector; empty where the scalars allow no value."""
        labels, values = self._inner.vector(now, context)
        function = self._make([scalar.number(now, context) for scalar in self._scalars])
        if function is None:
            return EMPTY
        return self._names(labels), list(map(function, values))


def clamp(limits: list[float]) -> Callable[[float], float] | None:
    """Keep values within [low, high]; nothing if high is below low."""
    low, high = limits
    if high < low:
        return None
    return lambda value: gomath.larger(low, gomath.smaller(high, value))


def rounding(to: list[float]) -> Callable[[float], float]:
    """Round to the nearest multiple, ties upwards."""
    inverse = gomath.div(1.0, to[0] if to else 1.0)
    return lambda value: gomath.div(gomath.floor(value * inverse + 0.5), inverse)


class Calendar(VectorOp):
    """A calendar function of the values, or of now where there is no argument."""

    def __init__(self, inner: VectorOp | None, function: Callable[[int], int]) -> None:
        self._inner = inner
        self._function = function
        self._names = Renaming(nameless)

    def vector(self, now: int, context: Context) -> Columns:
        """The parts of the dates."""
        if self._inner is None:
            return ((),), [float(self._function(int(now / 1000)))]
        labels, values = self._inner.vector(now, context)
        names = self._names(labels)
        return names, [float(self._function(dates.seconds(value))) for value in values]


class EvaluationTime(VectorOp):
    """``timestamp(v)`` of anything but a selector: its values are as of now."""

    def __init__(self, inner: VectorOp) -> None:
        self._inner = inner
        self._names = Renaming(nameless)

    def vector(self, now: int, context: Context) -> Columns:
        """The evaluation time for each element."""
        labels, _ = self._inner.vector(now, context)
        return self._names(labels), [now / 1000] * len(labels)


class Sorted(VectorOp):
    """``sort`` and ``sort_desc``: by value, NaN last. Without effect over many moments."""

    def __init__(self, inner: VectorOp, *, descending: bool) -> None:
        self._inner = inner
        self._descending = descending

    def vector(self, now: int, context: Context) -> Columns:
        """The vector in order."""
        labels, values = self._inner.vector(now, context)
        sign = -1.0 if self._descending else 1.0
        order = sorted(
            range(len(values)),
            key=lambda at: (
                values[at] != values[at],
                sign * values[at] if values[at] == values[at] else 0.0,
            ),
        )
        return tuple(labels[at] for at in order), [values[at] for at in order]


class Absent(VectorOp):
    """``absent``: one element with the selector's labels while the vector is empty."""

    def __init__(self, inner: VectorOp, labels: Labels) -> None:
        self._inner = inner
        self._result: Columns = ((labels,), [1.0])

    def vector(self, now: int, context: Context) -> Columns:
        """One element, or none."""
        return EMPTY if self._inner.vector(now, context)[0] else self._result


class OfNativeHistograms(VectorOp):
    """A function of native histograms, of which the window has none."""

    def __init__(self, inner: VectorOp) -> None:
        self._inner = inner

    def vector(self, now: int, context: Context) -> Columns:
        """Nothing, unless the argument fails."""
        self._inner.vector(now, context)
        return EMPTY


class OfBuckets(VectorOp):
    """``histogram_quantile`` and ``histogram_fraction``: one element per classic histogram."""

    def __init__(
        self,
        inner: VectorOp,
        scalars: list[ScalarOp],
        function: Callable[..., float],
    ) -> None:
        self._inner = inner
        self._scalars = scalars
        self._function = function
        self._labels: tuple[Labels, ...] | None = None
        self._names: tuple[Labels, ...] = ()
        self._layouts: list[Layout] = []

    def vector(self, now: int, context: Context) -> Columns:
        """The function of each histogram's buckets."""
        scalars = [scalar.number(now, context) for scalar in self._scalars]
        labels, values = self._inner.vector(now, context)
        if labels is not self._labels:
            self._learn(labels)
        results = [
            self._function(*scalars, layout.bounds, layout.counts(values))
            for layout in self._layouts
        ]
        return self._names, results

    def _learn(self, labels: tuple[Labels, ...]) -> None:
        groups: dict[Labels, list[tuple[float, int]]] = {}
        for at, each in enumerate(labels):
            upper = histograms.bound(dict(each).get("le", ""))
            if upper is not None:
                rest = tuple(pair for pair in each if pair[0] != "le")
                groups.setdefault(rest, []).append((upper, at))
        names = tuple(nameless(each) for each in groups)
        unique(names)
        self._layouts = [Layout(buckets) for buckets in groups.values()]
        self._labels, self._names = labels, names


class Layout:
    """Where one histogram's buckets stand in a vector. Buckets of equal bound are added up."""

    __slots__ = ("_places", "_same", "bounds")

    def __init__(self, buckets: list[tuple[float, int]]) -> None:
        ordered = sorted((pair for pair in buckets if pair[0] == pair[0]), key=itemgetter(0))
        self.bounds: list[float] = []
        self._places: list[int] = []
        self._same: list[tuple[int, int]] = []
        for upper, at in ordered + [pair for pair in buckets if pair[0] != pair[0]]:
            if self.bounds and upper == self.bounds[-1]:
                self._same.append((len(self.bounds) - 1, at))
            else:
                self.bounds.append(upper)
                self._places.append(at)

    def counts(self, values: list[float]) -> list[float]:
        """The counts, one a bound."""
        counts = [values[at] for at in self._places]
        for index, at in self._same:
            counts[index] += values[at]
        return counts
