"""A card's texts converted, and what was said in place of a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .card import Card
from .fields import FIELDS
from .values import ABSENT, ERROR, LOST, RESET, bare, read, trouble

_ROUNDING = 16.0 * 1024 * 1024  # bytes

_RECOVERIES = {
    "none": "none",
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "drain p2p": "drain_p2p",
    "drain and reset": "drain_and_reset",
}


@dataclass(frozen=True, slots=True)
class Readings:
    """What could be read, and the worst that was said instead."""

    values: Mapping[str, float]
    troubles: Mapping[str, str]
    absent: frozenset[str]
    lost: bool
    reset: bool
    broken: bool


def readings_of(card: Card) -> Readings:
    """All figures of a card in base units, and what stands where there is none."""
    values: dict[str, float] = {}
    troubles: dict[str, str] = {}
    absent: list[str] = []
    lost, reset, broken = card.lost, False, bool(card.damage)
    for name, text in card.fields.items():
        spec = FIELDS.get(name)
        value, why = read(spec.kind, text) if spec else (None, trouble(text))
        if value is not None:
            values[name] = value
        elif why == ABSENT:
            absent.append(name)
        elif why:
            troubles[name] = why
            lost = lost or why == LOST
            reset = reset or why == RESET
            broken = broken or why == ERROR or (spec is not None and spec.vital)
    broken = broken or _contradicts(values)
    return Readings(values, troubles, frozenset(absent), lost, reset, broken)


def _contradicts(values: Mapping[str, float]) -> bool:
    """Whether the memory figures do not fit together; each is printed rounded to a MiB."""
    total, used = values.get("memory.total"), values.get("memory.used")
    if total is None or used is None:
        return False
    if used > total or total == 0.0:
        return True
    rest = total - used - values.get("memory.free", total - used)
    parts = (rest, rest - values.get("memory.reserved", 0.0))  # used may include reserved
    return min(abs(part) for part in parts) > _ROUNDING


def ecc_total(readings: Readings, base: str) -> float | None:
    """The total where one is printed, else the sum of the parts; None once a part failed."""
    values = readings.values
    if f"{base}.total" in values or f"{base}.total" in readings.absent:
        return values.get(f"{base}.total")
    names = [f"{base}.total", f"{base}.dram", f"{base}.sram"]
    if f"{base}.sram" not in values:
        names += [f"{base}.sram.parity", f"{base}.sram.secded"]
    if any(name in readings.troubles for name in names):
        return None
    parts = [values[name] for name in names if name in values]
    return sum(parts) if parts else None


def sram_split(readings: Readings, base: str) -> float | None:
    """The sum of both kinds of SRAM errors, where the tool prints them apart."""
    values = readings.values
    if base in values or f"{base}.parity" not in values or f"{base}.secded" not in values:
        return None
    return values[f"{base}.parity"] + values[f"{base}.secded"]


def recovery(text: str) -> str:
    """The recovery action as one word, ``none`` included; "" when it is not known."""
    words = " ".join(bare(text).lower().split())
    if words in _RECOVERIES:
        return _RECOVERIES[words]
    if not trouble(text) and any(word in words for word in ("reset", "reboot", "drain")):
        return "_".join(words.split())[:40]
    return ""


def word(fields: Mapping[str, str], name: str) -> str:
    """A text reading in lower case, "" when it is none."""
    text = fields.get(name, "")
    return "" if trouble(text) else " ".join(bare(text).lower().split())
