"""The table that bare ``nvidia-smi`` prints: for captures by hand; a daemon asks for XML.

Names in it are cut and columns move between drivers, so cells are told by their form. A card whose
block is not whole, or holds an ERR!, is never called healthy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .card import Card, Instance, Process
from .values import card_name

_DRIVER = re.compile(r"Driver Version: *([0-9.]+)")
_FIRST = re.compile(
    r"\| {1,4}([0-9]{1,3}) +(\S.*?) +\S+ *"
    r"\| *([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) +\S+ *\| *(\S.*?) *\|\s*\Z"
)
_SECOND = re.compile(
    r"\| *(\S+?%?) +(\S+) +(\S+) +(\S+) */ *(\S+) *"
    r"\| *(\S+) */ *(\S+) *\| *(\S+(?: Error)?) +(\S.*?) *\|\s*\Z"
)
_THIRD = re.compile(r"\| *\| *\| *(Enabled|Disabled|N/A)\*? *\|\s*\Z")
_INSTANCE = re.compile(
    r"\| +([0-9]+) +([0-9]+) +([0-9]+) +([0-9]+) +\| +([0-9]+MiB) */ *([0-9]+MiB) +\|"
    r" *[0-9]+ +(\S+) *\|"
)
_PROCESS = re.compile(
    r"\| +([0-9]+) +(?:([0-9]+|N/A) +([0-9]+|N/A) +)?([0-9]+) +([CGM+]+) +(\S.*?) +"
    r"([0-9]+MiB|N/A) *\|\s*\Z"
)
_UNIT = re.compile(r"([0-9.]+)([A-Za-z%]+)\Z")


@dataclass(slots=True)
class _Block:
    index: str
    fields: dict[str, str]
    lines: int = 1
    broken: bool = False
    instances: list[Instance] = field(default_factory=list)


def known(text: str) -> bool:
    """Whether a text holds rows of the table."""
    return any(_FIRST.match(line) for line in text.splitlines())


def parse(text: str) -> list[Card]:
    """All cards of the table, with processes and MIG instances where they are listed."""
    driver = _DRIVER.search(text)
    lines = text.splitlines()
    blocks = list(_blocks(lines))
    processes = _processes(lines) if any("Process name" in line for line in lines) else None
    for line in lines:
        match = _INSTANCE.match(line)
        if match:
            _add_instance(blocks, match)
    cards = [
        _card(block, driver[1] if driver else "", None if processes is None else processes)
        for block in blocks
    ]
    names = [card.name for card in cards]
    return [card for card in cards if names.count(card.name) == 1]


def _blocks(lines: list[str]) -> Iterator[_Block]:
    block: _Block | None = None
    for line in lines:
        first = _FIRST.match(line)
        if first or line.startswith("+-"):
            if block:
                block.broken = block.broken or bool(first) or not 2 <= block.lines <= 3
                yield block
            block = _begin(first) if first else None
        elif block:
            _more(block, line)
    if block:
        block.broken = True  # the table ends in the middle of the card
        yield block


def _begin(match: re.Match[str]) -> _Block:
    ecc = match[4]
    fields = {"index": match[1], "name": match[2], "pci.bus_id": match[3]}
    if ecc.lower() not in ("on", "off"):
        fields["ecc.errors.uncorrected.volatile.total"] = ecc
    return _Block(match[1], fields)


def _more(block: _Block, line: str) -> None:
    block.lines += 1
    second = _SECOND.match(line) if block.lines == 2 else None
    third = _THIRD.match(line) if block.lines == 3 else None
    if second:
        names = (
            "fan.speed",
            "temperature.gpu",
            "pstate",
            "power.draw",
            "power.limit",
            "memory.used",
            "memory.total",
            "utilization.gpu",
        )
        block.fields.update(zip(names, map(_spaced, second.groups()), strict=False))
    elif third:
        block.fields["mig.mode.current"] = third[1]
    else:
        block.broken = True


def _spaced(text: str) -> str:
    match = _UNIT.match(text)
    return f"{match[1]} {match[2]}" if match else text


def _add_instance(blocks: list[_Block], match: re.Match[str]) -> None:
    gpu, gi, ci, index, used, total, errors = match.groups()
    for block in blocks:
        if block.index == gpu:
            fields = {
                "memory.used": _spaced(used),
                "memory.total": _spaced(total),
                "ecc.errors.uncorrected.volatile.sram": errors,
            }
            block.instances.append(Instance(index, gi, ci, fields=fields))


def _processes(lines: list[str]) -> dict[str, list[Process]]:
    found: dict[str, list[Process]] = {}
    for line in lines:
        match = _PROCESS.match(line)
        if match:
            gpu, gi, ci, pid, kind, name, memory = match.groups()
            process = Process(pid, name, kind, _spaced(memory), gi or "", ci or "")
            found.setdefault(gpu, []).append(process)
    return found


def _card(block: _Block, driver: str, processes: dict[str, list[Process]] | None) -> Card:
    fields = {"driver_version": driver, **block.fields}
    return Card(
        card_name(block.fields["pci.bus_id"]),
        fields,
        None if processes is None else tuple(processes.get(block.index, ())),
        tuple(block.instances),
        "its block is not whole" if block.broken else "",
    )
