"""Sums, means, spreads and lines over floats, with Prometheus' compensated arithmetic and its order
of operations: results are equal to the bit, so nothing here may be reordered.

All take a non-empty sequence of floats (staleness markers already left out).
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

from collections.abc import Iterable, Sequence

from . import gomath
from .gomath import INF, NAN

Floats = Sequence[float]


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
    """
    error = 0.0
    for value in values:
        new = total + value
        if abs(total) >= abs(value):
            error += (total - new) + value
        else:
            error += (value - new) + total
        total = new
    return total, error


def sum_over(values: Iterable[float]) -> float:
    """``sum_over_time``: an infinite total is given as it is."""
    total, error = total_of(values)
    return total if total in (INF, -INF) else total + error


def sum_of(values: Floats) -> float:
    """``sum``: as ``sum_over``, but starting from the first value, not from zero."""
    total, error = total_of(values[1:], values[0])
    return total if total in (INF, -INF) else total + error


def mean_over(values: Floats) -> float:
    """``avg_over_time``, ``avg``: sum by count; on overflow an incremental mean from there on."""
    total, error = total_of(values[1:], values[0])
    if total - total == 0:
        count = float(len(values))
        return total / count + error / count
    total, error = values[0], 0.0
    for done in range(1, len(values)):
        new, moved = add(values[done], total, error)
        if new in (INF, -INF):
            return _incremental_mean(values, done, total / done, error / done)
        total, error = new, moved
    return total / len(values) + error / len(values)


def _incremental_mean(values: Floats, done: int, mean: float, error: float) -> float:
    for at in range(done, len(values)):
        count = at + 1.0
        share = (count - 1) / count
        mean, error = add(values[at] / count, share * mean, share * error)
    return mean + error


def variance_over(values: Floats) -> float:
    """``stdvar_over_time``: Welford's method with compensation."""
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


def line(times: Sequence[int], values: Floats, at_ms: int) -> tuple[float, float]:
    """Least squares: the slope per second and the value at ``at_ms``."""
    if all(value == values[0] for value in values[1:]):
        flat = values[0]
        return (NAN, NAN) if flat in (INF, -INF) else (0.0, flat)
    count = 0.0
    x_sum = x_error = y_sum = y_error = xy_sum = xy_error = xx_sum = xx_error = 0.0
    for ms, y in zip(times, values, strict=True):
        count += 1.0
        x = (ms - at_ms) / 1000
        x_sum, x_error = add(x, x_sum, x_error)
        y_sum, y_error = add(y, y_sum, y_error)
        xy_sum, xy_error = add(x * y, xy_sum, xy_error)
        xx_sum, xx_error = add(x * x, xx_sum, xx_error)
    x_sum += x_error
    y_sum += y_error
    covariance = (xy_sum + xy_error) - x_sum * y_sum / count
    spread = (xx_sum + xx_error) - x_sum * x_sum / count
    slope = gomath.div(covariance, spread)
    return slope, y_sum / count - slope * x_sum / count
