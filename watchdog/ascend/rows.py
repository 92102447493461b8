"""Rows of the table of ``npu-smi info``: a header's columns, a card's two rows, a process.

A row that does not read exactly as its header says raises ValueError: damage is never half read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .words import SENTINELS, address, number

_COLUMN = re.compile(r"([A-Za-z][A-Za-z-]*(?: [A-Za-z]+)?) *\(([^()]*)\)")
_SLASH = re.compile(r" *\t*/\s*")

Pair = tuple[int, int]
"""Used and total."""


@dataclass(frozen=True, slots=True)
class Chip:
    """One pair of rows. Power in watts, temperature in degrees Celsius, utilization 0-1, memory in
    MiB, hugepages in pages; None: not printed, or a word that means "no value".

    ``npu``, ``model`` and ``health`` are None where the tool left out the upper row.
    """

    chip: int
    bus_id: str | None
    utilization: float | None
    memory: Pair | None
    hbm: Pair | None
    device: str | None = None
    phy_id: str | None = None
    npu: int | None = None
    model: str | None = None
    health: str | None = None
    power: float | None = None
    temperature: float | None = None
    hugepages: Pair | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """One row of the process section. ``memory`` in MiB; ``chip`` is None where only the NPU is
    told; ``name`` may be empty or cut; ``container_pid`` is the id inside the container."""

    npu: int
    chip: int | None
    pid: int
    name: str
    memory: int
    container_pid: int | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """What the two header rows say: cells in a row, value columns, the second id of a chip."""

    width: int
    upper: tuple[str, ...]
    lower: tuple[str, ...]
    second: str | None


@dataclass(frozen=True, slots=True)
class Upper:
    """The first row of a card, as in ``Chip``."""

    npu: int
    model: str
    health: str
    power: float | None
    temperature: float | None
    hugepages: Pair | None


def read_header(upper: tuple[str, ...], lower: tuple[str, ...]) -> Header | None:
    """What the cells of the two header rows say; None when they are not those of a card section."""
    above = tuple(name.lower() for name, _ in _COLUMN.findall(upper[-1]))
    below = tuple(name.lower() for name, _ in _COLUMN.findall(lower[-1]))
    words = lower[0].split()
    second = words[1].lower() if len(upper) == 3 and len(words) > 1 else None
    known = {"power", "temp"} <= set(above) and "memory-usage" in below
    first = upper[0].split()[:1] == ["NPU"] and (len(upper) == 4 or words[:1] == ["Chip"])
    return Header(len(upper), above, below, second) if known and first else None


def read_upper(cells: tuple[str, ...], header: Header) -> Upper:
    """A card's first row. Raises ValueError when a cell is not what its column says."""
    lead = " ".join(cells[:-2]).split() or [""]
    model = " ".join(lead[1:])
    if not re.fullmatch(r"\d{1,6}", lead[0]) or not re.fullmatch(r"[\w<>.() -]+", model, re.ASCII):
        raise ValueError("no NPU id and name")
    if not re.fullmatch(r"[A-Za-z]+", cells[-2]):
        raise ValueError("no health word")
    words = _values(cells[-1], header.upper)
    huge = words.get("hugepages-usage")
    return Upper(
        int(lead[0]),
        model,
        cells[-2],
        number(words["power"], 0, 5000) or None,
        number(words["temp"], -60, 200),
        _pair(huge) if huge else None,
    )


def read_lower(cells: tuple[str, ...], header: Header) -> Chip:
    """A card's second row, without what stands in the first. Raises ValueError likewise."""
    lead = " ".join(cells[:-2]).split()
    wanted = 0 if header.width == 4 else 2 if header.second else 1
    if len(lead) != wanted or not all(re.fullmatch(r"\d{1,5}|-|NA", word) for word in lead):
        raise ValueError("no chip id")
    second = lead[1] if wanted == 2 and lead[1].isdigit() else None
    words = _values(cells[-1], header.lower)
    load = number(words.get("aicore", words.get("npu util", "-")), 0, 100)
    return Chip(
        int(lead[0]) if lead else 0,
        cells[-2].lower() if address(cells[-2]) else None,
        None if load is None else load / 100,
        _pair(words["memory-usage"]),
        _pair(words["hbm-usage"]) if "hbm-usage" in words else None,
        device=second if header.second == "device" else None,
        phy_id=second if header.second == "phy-id" else None,
    )


def _values(cell: str, columns: tuple[str, ...]) -> dict[str, str]:
    words = _SLASH.sub("/", cell).split()
    if len(words) != len(columns):
        raise ValueError("not as many values as columns")
    return dict(zip(columns, words, strict=True))


def _pair(word: str) -> Pair | None:
    if word.upper() in SENTINELS or word.upper() in {"NA/NA", "-/-"}:
        return None
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", word)
    if not found or int(found[1]) > int(found[2]):
        raise ValueError(word)
    return int(found[1]), int(found[2])


def read_process(cells: tuple[str, ...]) -> Process | None:
    """A row of the process section; None when it is damaged."""
    lead = cells[0].split()
    numbers = (*lead, cells[1], cells[3])
    if len(lead) not in {1, 2} or not all(re.fullmatch(r"\d{1,10}", word) for word in numbers):
        return None
    inside = cells[4] if len(cells) > 4 else ""
    return Process(
        int(lead[0]),
        int(lead[1]) if len(lead) == 2 else None,
        int(cells[1]),
        cells[2],
        int(cells[3]),
        int(inside) if re.fullmatch(r"\d{1,10}", inside) else None,
    )
