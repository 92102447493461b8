"""Numbers for people: metric and binary prefixes, durations, percentages, times."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .goformat import type_name
from .printf import sprintf
from .signature import CallError
from .values import Duration, Time

_BIG = ("k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")
_FLOAT = re.compile(
    r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|inf|infinity)|nan", re.IGNORECASE
)


def to_float(value: object) -> float:
    """Read a float, a number in a string, an integer or a duration, as ``humanize`` does."""
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        return _parse_float(value)
    if isinstance(value, Duration):
        return value.ns / 1e9
    raise CallError(f"can't convert {type_name(value)} to float")


def _parse_float(text: str) -> float:
    plain = text.replace("_", "") if text[:3].lower().lstrip("+-").startswith("0x") else text
    if _FLOAT.fullmatch(plain):
        return float(plain)
    try:
        if plain.lower().lstrip("+-").startswith("0x") and "p" in plain.lower():
            return float.fromhex(plain)
    except (ValueError, OverflowError):
        pass
    raise CallError(sprintf("strconv.ParseFloat: parsing %q: invalid syntax", text))


def _plain(value: float) -> bool:
    return value == 0 or math.isnan(value) or math.isinf(value)


def _scaled(value: float, base: float, units: Sequence[str]) -> tuple[float, str]:
    prefix = ""
    for unit in units:
        if abs(value) < base:
            break
        prefix = unit
        value /= base
    return value, prefix


def _shrunk(value: float) -> tuple[float, str]:
    prefix = ""
    for unit in _SMALL:
        if abs(value) >= 1:
            break
        prefix = unit
        value *= 1000
    return value, prefix


def humanize(given: object) -> str:
    """Write a number with a metric prefix."""
    value = to_float(given)
    if _plain(value):
        return sprintf("%.4g", value)
    return sprintf("%.4g%s", *(_scaled(value, 1000, _BIG) if abs(value) >= 1 else _shrunk(value)))


def humanize1024(given: object) -> str:
    """Write a number with a binary prefix."""
    value = to_float(given)
    if abs(value) <= 1 or _plain(value):
        return sprintf("%.4g", value)
    return sprintf("%.4g%s", *_scaled(value, 1024, _BINARY))


def humanize_duration(given: object) -> str:
    """Write seconds as days, hours, minutes and seconds."""
    value = to_float(given)
    if math.isnan(value) or math.isinf(value):
        return sprintf("%.4g", value)
    if value == 0:
        return sprintf("%.4gs", value)
    if abs(value) < 1:
        return sprintf("%.4g%ss", *_shrunk(value))
    sign, value = ("-", -value) if value < 0 else ("", value)
    minutes, seconds = divmod(int(min(value, 2.0**63 - 1024)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else sprintf("%s%.4gs", sign, value)


def humanize_percentage(given: object) -> str:
    """Write a ratio as a percentage."""
    return sprintf("%.4g%%", to_float(given) * 100)


def to_time(value: float) -> Time:
    """Make a time of Unix seconds."""
    if math.isnan(value) or math.isinf(value):
        raise CallError("value is NaN or Inf")
    if abs(value * 1e9) > 2.0**63:
        raise CallError(
            sprintf(
                "%v cannot be represented as a nanoseconds timestamp since it overflows int64",
                value,
            )
        )
    return Time(int(int(value * 1e9) / 1_000_000) * 1_000_000)  # kept in whole milliseconds


def to_duration(value: float) -> Duration:
    """Make a duration of seconds."""
    ns = value * 1e9
    return Duration(int(ns) if abs(ns) < 2.0**63 else -(2**63))  # what Go's conversion leaves


def humanize_timestamp(given: object) -> str:
    """Write Unix seconds as a time in UTC."""
    value = to_float(given)
    if math.isnan(value) or math.isinf(value):
        return sprintf("%.4g", value)
    return str(to_time(value))
