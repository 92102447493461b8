"""Functions over the samples of one series in a range: rates, changes, aggregates over time.

Each takes times and values (without staleness markers, at least one sample) and the frame of the
evaluation, and gives a number, or None where there is no result. The order of operations is
Prometheus'. How to avoid reading a range again stands in ``sliding.py``.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from . import gomath, sums

Times = Sequence[int]
Floats = Sequence[float]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a range lies: (start, end] in milliseconds, the evaluation time, the function's scalar
    argument."""

    start: int
    end: int
    now: int
    param: float = gomath.NAN

    @property
    def seconds(self) -> float:
        """The range's length as Go's Duration.Seconds gives it: whole and fraction added."""
        whole, part = divmod(self.end - self.start, 1000)
        return whole + part * 1_000_000 / 1e9


RangeFunction = Callable[[Times, Floats, Frame], "float | None"]


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """What rate, increase and delta need of a range's times, before any value is looked at."""

    to_start: float
    to_end: float
    sampled: float
    divisor: float

    def factor(self, to_start: float) -> float:
        """What the difference between first and last sample is multiplied by."""
        return ((self.sampled + to_start) + self.to_end) / self.sampled / self.divisor

    def clipped(self, first: float, result: float) -> float:
        """Seconds to extrapolate to the left for a counter: not beyond where it would be zero."""
        if result > 0 and first >= 0:
            to_zero = self.sampled * (first / result)
            if to_zero < self.to_start:
                return to_zero
        return self.to_start


def extrapolation(
    times: Times, first: int, last: int, frame: Frame, per_second: bool
) -> Extrapolation:
    """How far samples ``first`` to ``last`` (indices) are extrapolated to the edges of the frame:
    all the way, unless the gap is 1.1 mean spacings or more; then half a spacing."""
    to_start = (times[first] - frame.start) / 1000
    to_end = (frame.end - times[last]) / 1000
    sampled = (times[last] - times[first]) / 1000
    spacing = sampled / (last - first)
    threshold = spacing * 1.1
    if to_start >= threshold:
        to_start = spacing / 2
    if to_end >= threshold:
        to_end = spacing / 2
    return Extrapolation(to_start, to_end, sampled, frame.seconds if per_second else 1.0)


def _counter(times: Times, values: Floats, frame: Frame, per_second: bool) -> float | None:
    if len(values) < 2:
        return None
    result = values[-1] - values[0]
    before = values[0]
    for value in values:
        if value < before:
            result += before
        before = value
    edges = extrapolation(times, 0, len(times) - 1, frame, per_second)
    return result * edges.factor(edges.clipped(values[0], result))


def rate(times: Times, values: Floats, frame: Frame) -> float | None:
    """Increase per second of a counter, extrapolated to the whole range."""
    return _counter(times, values, frame, True)


def increase(times: Times, values: Floats, frame: Frame) -> float | None:
    """Increase of a counter, extrapolated to the whole range."""
    return _counter(times, values, frame, False)


def delta(times: Times, values: Floats, frame: Frame) -> float | None:
    """Difference of a gauge, extrapolated to the whole range."""
    if len(values) < 2:
        return None
    edges = extrapolation(times, 0, len(times) - 1, frame, False)
    return (values[-1] - values[0]) * edges.factor(edges.to_start)


def irate(times: Times, values: Floats, _frame: Frame) -> float | None:
    """Increase per second between the last two samples."""
    if len(values) < 2:
        return None
    rise = values[-1] if values[-1] < values[-2] else values[-1] - values[-2]
    return rise / ((times[-1] - times[-2]) / 1000)


def idelta(_times: Times, values: Floats, _frame: Frame) -> float | None:
    """Difference of the last two samples."""
    return values[-1] - values[-2] if len(values) > 1 else None


def deriv(times: Times, values: Floats, _frame: Frame) -> float | None:
    """Slope per second of the least-squares line."""
    return sums.Abscissas(times, times[0]).line(values)[0] if len(values) > 1 else None


def predict_linear(times: Times, values: Floats, frame: Frame) -> float | None:
    """The least-squares line, ``param`` seconds after the evaluation."""
    if len(values) < 2:
        return None
    return predicted(sums.Abscissas(times, frame.now), values, frame.param)


def predicted(abscissas: sums.Abscissas, values: Floats, seconds: float) -> float:
    """The value of the line so many seconds after its reference."""
    slope, now = abscissas.line(values)
    return slope * seconds + now


def changes(_times: Times, values: Floats, _frame: Frame) -> float:
    """How often the value changed; NaN after NaN is no change."""
    count = 0
    for before, value in pairwise(values):
        if value != before and (value == value or before == before):
            count += 1
    return float(count)


def resets(_times: Times, values: Floats, _frame: Frame) -> float:
    """How often the value fell."""
    return float(sum(b < a for a, b in pairwise(values)))


def quantile_over_time(_times: Times, values: Floats, frame: Frame) -> float:
    """The ``param``-quantile of the values."""
    return sums.quantile(frame.param, values)


def _over_time(function: Callable[[Floats], float]) -> RangeFunction:
    return lambda _times, values, _frame: function(values)


OVER_TIME: dict[str, Callable[[Floats], float]] = {
    "avg_over_time": sums.mean_over,
    "count_over_time": lambda values: float(len(values)),
    "last_over_time": lambda values: values[-1],
    "max_over_time": sums.largest,
    "min_over_time": sums.smallest,
    "present_over_time": lambda _values: 1.0,
    "stddev_over_time": sums.deviation_over,
    "stdvar_over_time": sums.variance_over,
    "sum_over_time": sums.sum_over,
}
"""Those that look at nothing but the values."""

FUNCTIONS: dict[str, RangeFunction] = {
    **{name: _over_time(function) for name, function in OVER_TIME.items()},
    "absent_over_time": lambda _times, _values, _frame: 1.0,
    "changes": changes,
    "delta": delta,
    "deriv": deriv,
    "idelta": idelta,
    "increase": increase,
    "irate": irate,
    "predict_linear": predict_linear,
    "quantile_over_time": quantile_over_time,
    "rate": rate,
    "resets": resets,
}

MOVING = frozenset({"delta", "increase", "predict_linear", "rate"})
"""Those whose result depends on where the frame lies, not on the samples alone."""
