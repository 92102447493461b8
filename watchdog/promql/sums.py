"""Sums, means, spreads and lines over floats, with Prometheus' compensated arithmetic and its order
of operations: results are equal to the bit, so nothing here may be reordered.

All take a non-empty sequence of floats (staleness markers already left out).
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from . import gomath
from .gomath import INF, NAN

Floats = Sequence[float]

_MANY = 12  # below, adding up one by one is as fast
_HUGE = 1e300


def add(value: float, total: float, error: float) -> tuple[float, float]:
    """One step of Kahan-Babuška-Neumaier summation: the new total and its compensation."""
    new = total + value
    if new in (INF, -INF):
        return new, 0.0
    if abs(total) >= abs(value):
        return new, error + ((total - new) + value)
    return new, error + ((value - new) + total)


def total_of(values: Iterable[float], total: float = 0.0) -> tuple[float, float]:
    """The compensated sum from ``total`` on: total and compensation, not yet added up.

    The compensation means nothing once the total is infinite; a total never becomes finite again.
    Each step's rounding error is exact, so Knuth's way to it gives what Neumaier's two cases give.
    """
    error = 0.0
    for value in values:
        new = total + value
        part = new - total
        error += (total - (new - part)) + (value - part)
        total = new
    return total, error


def _running_total(values: Iterable[float]) -> float:
    """The values added one after the other, each sum rounded, without compensation."""
    return deque(accumulate(values), maxlen=1)[0]


if sum([1.0, 1e100, -1e100]) == 0.0:  # since 3.12 the built-in one compensates
    _running_total = sum  # type: ignore[assignment]


def largest_total(values: Floats) -> float:
    """A bound for the size of every total on the way of adding these values up."""
    lowest = min(values)
    if lowest >= 0:
        return sum(values)
    return max(max(values), -lowest) * len(values)  # noqa: PLW3301


def bracket(values: Floats, largest: float) -> tuple[float, float, float] | None:
    """The total of ``total_of`` and two bounds that its compensation lies between, in less time;
    None where that is not sure. ``largest`` is about as large as any total on the way.

    The compensation c is the sum of the totals' rounding errors, each of them exact, itself added
    with rounding. So c differs from the exact error E = sum - total by at most n * u times the sum
    of the errors' sizes (u = 2 ** -53), and each error is at most u times a total:
    |c - E| <= n ** 2 * u ** 2 * largest. ``fsum`` gives E, rounded once. The bound is taken four
    times as wide for what was rounded on the way.
    """
    total = _running_total(values)
    if total - total != 0 or not largest < _HUGE:
        return None
    error = math.fsum((*values, -total))
    slack = len(values) ** 2 * largest * 2.0**-104 + abs(error) * 2.0**-51
    return total, error - slack, error + slack


def sum_over(values: Floats, largest: float | None = None) -> float:
    """``sum_over_time``: an infinite total is given as it is."""
    if len(values) >= _MANY:
        bounds = bracket(values, largest_total(values) if largest is None else largest)
        if bounds is not None:
            total, low, high = bounds
            if total + low == total + high:  # rounding keeps order: so it is between them
                return total + low
    total, error = total_of(values)
    return total if total in (INF, -INF) else total + error


def sum_of(values: Floats) -> float:
    """``sum``: as ``sum_over``, but starting from the first value, not from zero."""
    total, error = total_of(values[1:], values[0])
    return total if total in (INF, -INF) else total + error


def mean_over(values: Floats) -> float:
    """``avg_over_time``, ``avg``: sum by count; on overflow an incremental mean from there on."""
    count = float(len(values))
    bounds = bracket(values, largest_total(values)) if count >= _MANY else None
    if bounds is not None:
        total, low, high = bounds
        if total / count + low / count == total / count + high / count:
            return total / count + low / count
    total, error = total_of(values[1:], values[0])
    if total - total == 0:
        return total / count + error / count
    total, error = values[0], 0.0
    for done in range(1, len(values)):
        new, moved = add(values[done], total, error)
        if new in (INF, -INF):
            return _incremental_mean(values, done, total / done, error / done)
        total, error = new, moved
    return total / count + error / count


def _incremental_mean(values: Floats, done: int, mean: float, error: float) -> float:
    for at in range(done, len(values)):
        count = at + 1.0
        share = (count - 1) / count
        mean, error = add(values[at] / count, share * mean, share * error)
    return mean + error


def flat(values: Floats) -> bool:
    """Are all values equal? (NaN is equal to nothing.)"""
    first = values[0]
    return first == first and values.count(first) == len(values)


def variance_over(values: Floats) -> float:
    """``stdvar_over_time``: Welford's method with compensation."""
    if flat(values) and values[0] - values[0] == 0:
        return 0.0
    count = mean = mean_error = squares = squares_error = 0.0
    for value in values:  # two steps as in ``total_of``
        count += 1
        delta = value - (mean + mean_error)
        step = delta / count
        new = mean + step
        part = new - mean
        mean_error += (mean - (new - part)) + (step - part)
        mean = new
        step = delta * (value - (mean + mean_error))
        new = squares + step
        part = new - squares
        squares_error += (squares - (new - part)) + (step - part)
        squares = new
    result = (squares + squares_error) / count
    return result if result - result == 0 else _variance_with_infinities(values)


def _variance_with_infinities(values: Floats) -> float:
    """The same where a total may be infinite: its compensation is then zero."""
    count = mean = mean_error = squares = squares_error = 0.0
    for value in values:
        count += 1
        delta = value - (mean + mean_error)
        mean, mean_error = add(delta / count, mean, mean_error)
        product = delta * (value - (mean + mean_error))
        squares, squares_error = add(product, squares, squares_error)
    return (squares + squares_error) / count


def deviation_over(values: Floats) -> float:
    """``stddev_over_time``."""
    return gomath.sqrt(variance_over(values))


def variance(values: Floats) -> float:
    """``stdvar``: Welford's method without compensation; NaN if the first value is not finite."""
    mean = values[0]
    squares = 0.0 if mean - mean == 0 else NAN
    count = 1.0
    for value in values[1:]:
        count += 1
        delta = value - mean
        mean += delta / count
        squares += delta * (value - mean)
    return squares / count


def deviation(values: Floats) -> float:
    """``stddev``."""
    return gomath.sqrt(variance(values))


def largest(values: Floats) -> float:
    """The maximum; NaN only if there is nothing else."""
    best = max(values)
    return best if best == best else max((v for v in values if v == v), default=NAN)


def smallest(values: Floats) -> float:
    """The minimum; NaN only if there is nothing else."""
    best = min(values)
    return best if best == best else min((v for v in values if v == v), default=NAN)


def quantile(q: float, values: Floats) -> float:
    """The q-quantile by linear interpolation; NaN counts as the smallest value."""
    if q != q:
        return NAN
    if q < 0:
        return -INF
    if q > 1:
        return INF
    total = sum(values)
    if total == total:
        ordered = sorted(values)
    else:  # NaN, or opposite infinities
        ordered = [v for v in values if v != v] + sorted(v for v in values if v == v)
    rank = q * (len(ordered) - 1)
    lower = int(rank)
    upper = min(len(ordered) - 1, lower + 1)
    weight = rank - lower
    return ordered[lower] * (1 - weight) + ordered[upper] * weight


class Abscissas:
    """Times in seconds from a reference, and their sums: the same for all series read together."""

    __slots__ = ("farthest", "seconds", "square_sum", "sum")

    def __init__(self, times: Sequence[int], at_ms: int) -> None:
        self.seconds = [(ms - at_ms) / 1000 for ms in times]
        self.farthest = max(abs(self.seconds[0]), abs(self.seconds[-1]))
        self.sum = sum_over(self.seconds)
        self.square_sum = sum_over(list(map(mul, self.seconds, self.seconds)))

    def line(self, values: Floats) -> tuple[float, float]:
        """Least squares: the slope per second and the value at the reference."""
        first = values[0]
        if flat(values):
            return (NAN, NAN) if first in (INF, -INF) else (0.0, first)
        count = float(len(values))
        largest = max(max(values), -min(values)) * count  # noqa: PLW3301
        y_sum = sum_over(values, largest)
        product_sum = sum_over(list(map(mul, self.seconds, values)), largest * self.farthest)
        covariance = product_sum - self.sum * y_sum / count
        spread = self.square_sum - self.sum * self.sum / count
        slope = gomath.div(covariance, spread)
        return slope, y_sum / count - slope * self.sum / count
