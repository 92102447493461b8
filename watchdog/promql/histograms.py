"""Classic histograms: buckets with ``le`` bounds and cumulative counts, their quantiles and shares.

Bounds ascend, each stands once, and the counts belong to them in that order. Counts may come from
rates, so they may be fractional, NaN, or fall with rising bounds.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

import re
from collections.abc import Sequence

from . import gomath
from .gomath import INF, NAN

Floats = Sequence[float]

_TOLERANCE = 1e-12  # counts closer than this, relatively, are taken as equal
_CLEARLY = 1 + 1e-11
_TINY = 1e-250
_SMALLEST_NORMAL = 2.2250738585072014e-308
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_HEX = re.compile(
    r"[+-]?0x_?([0-9a-f_]+\.?[0-9a-f_]*|\.[0-9a-f_]+)p[+-]?\d+", re.ASCII | re.IGNORECASE
)
_WORDS = {"inf": INF, "infinity": INF, "nan": NAN}


def bound(text: str) -> float | None:
    """Read an ``le`` label as Go's ParseFloat does; None where it is no number that fits."""
    word = text.lower().lstrip("+-") if text[:2] not in {"++", "--", "+-", "-+"} else ""
    if word in _WORDS:
        return -_WORDS[word] if text.startswith("-") else _WORDS[word]
    if _DECIMAL.fullmatch(text):
        value = float(text)
    elif _HEX.fullmatch(text):
        value = _hexadecimal(text.replace("_", ""))
    else:
        return None
    return None if value in (INF, -INF) else value


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return INF


def quantile(q: float, bounds: Floats, counts: list[float]) -> float:
    """The q-quantile by linear interpolation within its bucket. Evens out ``counts`` in place.

    NaN without a +Inf bucket, with fewer than two buckets, or without observations; the bound of
    the last finite bucket where the quantile lies above it.
    """
    if not 0 <= q <= 1:
        return NAN if q != q else -INF if q < 0 else INF
    if bounds[-1] != INF:
        return NAN
    steady(counts)
    last = len(bounds) - 1
    if last < 1 or counts[last] == 0:
        return NAN
    rank = q * counts[last]
    at = _first_reaching(counts, rank, last)
    if at == last:
        return bounds[last - 1]
    start, below = 0.0, 0.0
    if at > 0:
        start, below = bounds[at - 1], counts[at - 1]
    elif bounds[0] <= 0:
        return bounds[0]
    return start + (bounds[at] - start) * gomath.div(rank - below, counts[at] - below)


def _first_reaching(counts: Sequence[float], rank: float, last: int) -> int:
    """Binary search, step by step as Go's, so that NaN counts end at the same place."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if counts[middle] >= rank:
            high = middle
        else:
            low = middle + 1
    return low


def fraction(lower: float, upper: float, bounds: Floats, counts: list[float]) -> float:
    """The share of observations between ``lower`` and ``upper``."""
    if bounds[-1] != INF:
        return NAN
    count = counts[-1]
    if count == 0 or lower != lower or upper != upper:
        return NAN
    if lower >= upper:
        return 0.0
    ranks = [_rank(value, bounds, counts) for value in (lower, upper)]
    low, high = (count if rank is None or rank > count else rank for rank in ranks)
    return gomath.div(high - low, count)


def _rank(value: float, bounds: Floats, counts: Floats) -> float | None:
    """How many observations lie below ``value``; None if it is above all bounds.

    Buckets of positive bounds start at 0; a first bucket that reaches down to -Inf counts whole.
    """
    rank, start = 0.0, 0.0 if bounds[0] > 0 else -INF
    for end, count in zip(bounds, counts, strict=True):
        if start >= value:
            return rank
        if end > value:
            if start == -INF:
                return count
            return rank + gomath.div((count - rank) * (value - start), end - start)
        rank, start = count, end
    return None


def steady(counts: list[float]) -> None:
    """Make the counts never fall, and level out differences that are only rounding."""
    before = counts[0]
    for at, count in enumerate(counts):
        if count > before * _CLEARLY and count > _TINY <= before:
            before = count  # rises by much more than the tolerance
        elif count == before:
            continue
        elif count < before or nearly(before, count):
            counts[at] = before
        else:
            before = count


def nearly(a: float, b: float) -> bool:
    """Are two different counts equal within the tolerance? (Two NaN are.)"""
    if a != a and b != b:
        return True
    total = abs(a) + abs(b)
    apart = abs(a - b)
    if a == 0 or b == 0 or total < _SMALLEST_NORMAL:
        return apart < _TOLERANCE * _SMALLEST_NORMAL
    return apart / min(total, 1.7976931348623157e308) < _TOLERANCE
