"""One printed text into one value in base units, or into the reason why there is none.

Strict on purpose: a text that is neither a number in an expected unit nor a known word is damage,
and damage must never turn into a plausible figure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

ABSENT = "absent"  # the tool has no such reading here: N/A, Not Supported, deprecated …
ERROR = "error"  # the tool tried and failed: ERR!, Unknown Error
LOST = "lost"  # the tool says that the GPU is gone
RESET = "reset"  # the tool says that the GPU wants a reset
GARBLED = "garbled"  # nothing that the tool is known to print in this place

_ABSENT_WORDS = frozenset(
    {
        "",
        "-",
        "--",
        "n/a",
        "na",
        "not supported",
        "not found",
        "not available",
        "function not found",
        "insufficient permissions",
        "no permission",
        "no permissions",
        "deprecated",
        "requested functionality has been deprecated",
        "not available in wddm driver model",
    }
)
_ERROR_WORDS = ("err!", "unknown error", "error", "err")

_MIB = float(1024 * 1024)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Accepted units with their factor to the base unit, and the plausible range of the result."""

    units: tuple[tuple[str, float], ...]
    low: float
    high: float


QUANTITIES = {
    "ratio": Quantity((("%", 0.01),), 0.0, 1.0),
    "fan": Quantity((("%", 0.01),), 0.0, 2.0),
    "bytes": Quantity(
        (("MiB", _MIB), ("GiB", 1024 * _MIB), ("KiB", 1024.0), ("MB", _MIB)), 0.0, 2.0**50
    ),  # dmon and pmon say MB and mean MiB
    "celsius": Quantity((("C", 1.0), ("", 1.0)), -150.0, 250.0),
    "watts": Quantity((("W", 1.0),), 0.0, 20_000.0),
    "hertz": Quantity((("MHz", 1e6),), 0.0, 2e10),
    "count": Quantity((("", 1.0), ("bank(s)", 1.0)), 0.0, 2.0**63),
    "seconds": Quantity((("us", 1e-6), ("ms", 1e-3), ("s", 1.0)), 0.0, 1e12),
    "lanes": Quantity((("x", 1.0), ("", 1.0)), 0.0, 32.0),
    "generation": Quantity((("", 1.0),), 0.0, 16.0),
    "rate": Quantity((("KB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)), 0.0, 1e15),
}
"""Kinds of figures by name. Ratios are 0 to 1; a fan may turn above its nominal speed."""

_FLAGS = {
    "yes": 1.0,
    "no": 0.0,
    "enabled": 1.0,
    "disabled": 0.0,
    "active": 1.0,
    "not active": 0.0,
    "true": 1.0,
    "false": 0.0,
    "on": 1.0,
    "off": 0.0,
    "valid": 1.0,
}
_NUMBER = re.compile(r"([-+]?[0-9]{1,19}(?:\.[0-9]{1,6})?)[ ]*([A-Za-z%/()]*)\Z", re.ASCII)
_STATE = re.compile(r"P([0-9]{1,2})\Z", re.ASCII)


def bare(text: str) -> str:
    """The text without surrounding blanks and without the square brackets that CSV puts."""
    text = text.strip()
    if text[:1] == "[" and text[-1:] == "]":
        return text[1:-1].strip()
    return text


@lru_cache(maxsize=4096)
def trouble(text: str) -> str:
    """Why a text is no value: ABSENT, ERROR, LOST, RESET, or "" when it may be one."""
    word = bare(text).lower()
    if word in _ABSENT_WORDS:
        return ABSENT
    if "gpu is lost" in word:
        return LOST
    if "requires reset" in word or word == "reset required":
        return RESET
    return ERROR if word in _ERROR_WORDS else ""


@lru_cache(maxsize=8192)
def read(kind: str, text: str) -> tuple[float | None, str]:
    """Value in base units and "", or None and the trouble.

    ``kind`` is a name of QUANTITIES, ``flag`` (1 or 0) or ``state`` (the number of a P-state).
    """
    why = trouble(text)
    if why:
        return None, why
    value = _plain(kind, bare(text))
    return (value, "") if value is not None else (None, GARBLED)


def _plain(kind: str, text: str) -> float | None:
    if kind == "flag":
        return _FLAGS.get(text.lower())
    if kind == "state":
        state = _STATE.match(text)
        return float(state[1]) if state else None
    quantity = QUANTITIES[kind]
    match = _NUMBER.match(text)
    if not match:
        return None
    for unit, factor in quantity.units:
        if unit == match[2]:
            number = float(match[1])
            value = number * factor if factor >= 1.0 else number / round(1 / factor)
            return value if quantity.low <= value <= quantity.high else None
    return None


_ADDRESS = re.compile(
    r"(?:0x)?([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.[0-7])?\Z", re.ASCII
)


@lru_cache(maxsize=1024)
def card_name(bus_id: str) -> str:
    """Card name of a PCI address (``00000000:C1:00.0`` -> ``0000:c1:00``), or "" if it is none.

    Domains above 16 bit keep all their digits.
    """
    match = _ADDRESS.match(bus_id.strip())
    if not match:
        return ""
    domain = int(match[1], 16)
    return f"{domain:04x}:{match[2]}:{match[3]}".lower()


_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z", re.ASCII)


@lru_cache(maxsize=1024)
def is_uuid(text: str) -> bool:
    """Whether a text has the form of a GPU's uuid."""
    return _UUID.match(text) is not None


def process_name(text: str) -> str:
    """A name fit for a label: no arguments (they may hold secrets), at most 120 letters."""
    name = " ".join(text.split()).split(" -", 1)[0]
    return name[:120]
