"""Single words of the tools' output: numbers, words that mean "no value", addresses, ids.

Strict on purpose: what is neither a number in range nor a known word is damage, and damage gives
no value.
"""

from __future__ import annotations

import re

SENTINELS = frozenset({"", "-", "--", "NA", "N/A", "UNKNOWN", "UNKNOWN!", "NOT SUPPORTED"})
UNREADABLE = (32765, 32767)  # the library's "invalid" and "read failed" in place of a number

_BUS = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)")
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?")


def number(word: str, low: float, high: float) -> float | None:
    """The number in a word; None for one that means "no value". Raises ValueError for anything
    else, and for a number outside ``low`` to ``high``."""
    if word.upper() in SENTINELS:
        return None
    if not _NUMBER.fullmatch(word):
        raise ValueError(word)
    value = float(word)
    if value in UNREADABLE:
        return None
    if not low <= value <= high:
        raise ValueError(word)
    return value


def reading(word: str, low: float, high: float) -> float | None:
    """``number`` for a value that stands alone: damage is no value too."""
    try:
        return number(word, low, high)
    except ValueError:
        return None


def address(bus_id: str) -> str | None:
    """The card's name in a PCI address (``0000:c1:00``), or None for anything else."""
    found = _BUS.fullmatch(bus_id.lower())
    return found[1][:10] if found else None


def numbered(npu: int, chip: int = 0) -> str:
    """The name of a card that has no address: ``npu3``, ``npu3/1`` for its second chip."""
    return f"npu{npu}/{chip}" if chip else f"npu{npu}"
