"""The series in a table of ``npu-smi info``, chip by chip, by the names of the cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from ..model import Sample
from .cards import MIB, labels_of
from .rows import Chip, Process
from .table import Table
from .words import address, numbered


def names(table: Table) -> dict[Chip, str]:
    """The card name of each chip that has one: its address, else its NPU id."""
    places = Counter(chip.bus_id for chip in table.chips if chip.bus_id)
    # Both chips of a 300I Duo (310P) have one address; chip 1 keeps its name when 0 is missing.
    duo = any((chip.model or "").startswith("310P") for chip in table.chips)
    found: dict[Chip, str] = {}
    for chip in table.chips:
        place = address(chip.bus_id) if chip.bus_id else None
        if place:
            shared = duo or places[chip.bus_id or ""] > 1
            found[chip] = f"{place}/{chip.chip}" if shared and chip.chip else place
        elif chip.npu is not None:
            found[chip] = numbered(chip.npu, chip.chip)
    return found


def health(level: int | None, card: str) -> Iterator[Sample]:
    """The health series of a level (0 OK, 1 Warning, 2 Alarm, 3 Critical); none when unknown."""
    if level is not None:
        yield Sample("accelerator_healthy", float(level < 2), labels_of(card))
        yield Sample("accelerator_health_level", float(level), labels_of(card))


def samples(chip: Chip, card: str, table: Table, phy_id: str = "") -> Iterator[Sample]:
    """What the table says of one chip, but for its health. ``phy_id`` where the table lacks it."""
    yield Sample("accelerator_info", 1.0, labels_of(card, **_identity(chip, table, phy_id)))
    yield Sample("accelerator_present", 1.0, labels_of(card))
    values = {
        "accelerator_utilization_ratio": chip.utilization,
        "accelerator_temperature_celsius": chip.temperature,
        "accelerator_power_watts": chip.power,
        **_memory(chip),
    }
    for name, value in values.items():
        if value is not None:
            yield Sample(name, float(value), labels_of(card))
    yield from _processes(chip, card, table)


def _memory(chip: Chip) -> Mapping[str, float]:
    has_hbm = chip.hbm is not None and chip.hbm[1] > 0
    pairs = {
        "accelerator_memory": chip.hbm if has_hbm else chip.memory,
        "accelerator_ddr": chip.memory if has_hbm else None,
    }
    found: dict[str, float] = {}
    for name, pair in pairs.items():
        if pair and pair[1] > 0:
            found[f"{name}_used_bytes"] = pair[0] * MIB
            found[f"{name}_total_bytes"] = pair[1] * MIB
    if chip.hugepages:
        found["accelerator_hugepages_used"] = chip.hugepages[0]
        found["accelerator_hugepages_configured"] = chip.hugepages[1]
    return found


def _identity(chip: Chip, table: Table, phy_id: str) -> dict[str, str]:
    return {
        "bus_id": chip.bus_id or "",
        "model": chip.model or "",
        "driver": table.driver,
        "tool": table.tool,
        "npu": "" if chip.npu is None else str(chip.npu),
        "chip": str(chip.chip),
        "device": chip.device or "",
        "phy_id": chip.phy_id or phy_id,
    }


def _processes(chip: Chip, card: str, table: Table) -> Iterator[Sample]:
    mine = {process.pid: process for process in table.processes if _holds(process, chip)}
    if mine or chip.npu in table.idle:
        yield Sample("accelerator_processes", float(len(mine)), labels_of(card))
    for process in mine.values():
        inside = process.container_pid
        labels = labels_of(
            card,
            pid=str(process.pid),
            process=process.name,
            container_pid="" if inside is None else str(inside),
        )
        yield Sample("accelerator_process_memory_bytes", float(process.memory) * MIB, labels)


def _holds(process: Process, chip: Chip) -> bool:
    return process.npu == chip.npu and process.chip in {None, chip.chip}
