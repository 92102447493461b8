"""Calendar functions of Unix seconds, in UTC, for any float: as Go's time package does, whose
64-bit arithmetic wraps around far outside of what a calendar module knows."""

from __future__ import annotations

from collections.abc import Callable

_DAY = 86_400
_WRAP = 1 << 64
_SMALLEST = -(1 << 63)
_YEARS = 292_277_022_400  # Go counts from this many years before year 1, so that all fits
_TO_BASE = _YEARS // 400 * 146_097 * _DAY
_UNIX_DAYS = 719_162  # from 1 January of year 1 to the epoch
_MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def seconds(value: float) -> int:
    """The whole seconds of a value, cut towards zero; what does not fit is the smallest integer."""
    if -9.223372036854775808e18 <= value < 9.223372036854775808e18:
        return int(value)
    return _SMALLEST


def _since_base(unix: int) -> int:
    return (unix + _UNIX_DAYS * _DAY + _TO_BASE) % _WRAP


def _date(unix: int) -> tuple[int, int, int, int]:
    """Year, month, day of the month, day of the year (both from 1)."""
    days = _since_base(unix) // _DAY
    cycles, days = divmod(days, 146_097)
    centuries = min(days // 36_524, 3)
    days -= centuries * 36_524
    fours, days = divmod(days, 1_461)
    years = min(days // 365, 3)
    days -= years * 365
    year = cycles * 400 + centuries * 100 + fours * 4 + years - _YEARS + 1
    left = days
    for month in range(1, 13):
        length = month_length(year, month)
        if left < length:
            return year, month, left + 1, days + 1
        left -= length
    raise AssertionError("a year has at most 366 days")


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTHS[month - 1] + leap


def _weekday(unix: int) -> int:
    return (_since_base(unix) // _DAY + 1) % 7


def _days_in_month(unix: int) -> int:
    year, month, _, _ = _date(unix)
    return month_length(year, month)


FUNCTIONS: dict[str, Callable[[int], int]] = {
    "day_of_month": lambda unix: _date(unix)[2],
    "day_of_week": _weekday,
    "day_of_year": lambda unix: _date(unix)[3],
    "days_in_month": _days_in_month,
    "hour": lambda unix: _since_base(unix) % _DAY // 3600,
    "minute": lambda unix: _since_base(unix) % 3600 // 60,
    "month": lambda unix: _date(unix)[1],
    "year": lambda unix: _date(unix)[0],
}
"""The functions of a time in Unix seconds; Sunday is day 0 of the week."""
