"""Moments, durations, figures and foreign text as a person reads them."""

from __future__ import annotations

import math
import unicodedata
from datetime import datetime, timezone

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})  # control, direction marks, halves, unassigned
LONGEST = 1000  # characters of a text from anywhere that are shown


def day(seconds: float) -> str:
    """``2026-01-31 12:00:00 UTC``."""
    return f"{_at(seconds):%Y-%m-%d %H:%M:%S} UTC"


def clock(seconds: float) -> str:
    """``12:00:00``, in UTC."""
    return f"{_at(seconds):%H:%M:%S}"


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(math.floor(seconds), timezone.utc)


def span(seconds: float) -> str:
    """A duration: ``0.4 s``, ``12 s``, ``3 min 5 s``, ``2 h 10 min``, ``3 d 4 h``."""
    if 0 < seconds < 0.05:
        return "under 0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"),
                                       (60, "min", 1, "s")):  # fmt: skip
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def outcome(status: str) -> str:
    """A step's end as a person says it."""
    return {"found": "was so already", "undone": "put back", "timed_out": "timed out"}.get(
        status, status
    )


def after(seconds: float, origin: float) -> str:
    """How long after (or before) a moment: ``+12 s``, ``-3 s``."""
    away = seconds - origin
    return f"{'-' if away < 0 else '+'}{span(abs(away))}"


def figure(value: float, unit: str) -> str:
    """A value with its unit."""
    if unit == "flag":
        return "yes" if value else "no"
    if unit == "ratio":
        return f"{value * 100:.3g} %"
    if unit == "seconds":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "bytes":
        return f"{value / 2**30:.1f} GiB"
    words = {"celsius": " °C", "watts": " W", "per second": "/s"}
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text + words.get(unit, "")


def visible(text: str) -> str:
    """Foreign text with what cannot be seen written out, so that it can deceive nobody, and cut
    where it is longer than anybody reads."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"
    if text.isprintable():
        return text
    return "".join(
        f"\\x{ord(c):02x}" if unicodedata.category(c) in _HIDDEN and c not in "\n\t" else c
        for c in text
    )
