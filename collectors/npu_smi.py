"""Reads Ascend cards with ``npu-smi``: the table of ``npu-smi info``.

Series, all with ``vendor="ascend"`` and ``card`` (the lower-case PCI address without function,
``/1`` for a further chip at the same address, ``npu0`` where there is no address):

- ``accelerator_info{bus_id,model,driver,tool,npu,chip,device,phy_id} 1``
- ``accelerator_present`` 1; 0 for an expected card that a complete table lacks
- ``accelerator_healthy`` 1 for OK and Warning, 0 for Alarm and Critical, none for anything else;
  ``accelerator_health_level`` 0 OK, 1 Warning, 2 Alarm, 3 Critical
- ``accelerator_utilization_ratio`` 0-1, ``accelerator_temperature_celsius``,
  ``accelerator_power_watts``
- ``accelerator_memory_used_bytes``, ``accelerator_memory_total_bytes``: on-chip memory (HBM), or
  the card's only memory; ``accelerator_ddr_{used,total}_bytes`` where a card has both
- ``accelerator_hugepages_used``, ``accelerator_hugepages_total`` in pages
- ``accelerator_processes``: processes that the tool lists (it stops at 8), 0 where it says none
- ``accelerator_process_memory_bytes{pid,process,container_pid}``

A card whose rows are in doubt has no series at all. A table that is cut or in part unreadable says
nothing about the cards that it lacks. It must not set anything and must not judge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..watchdog.ascend_refusals import refuse
from ..watchdog.contracts import Yield
from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.model import Checkpoint, Event, Page, Sample, labelset
from ..watchdog.npu_table import Chip, Process, Table, address, read_table
from ..watchdog.system import Finished, System

MIB = 1024 * 1024
MAX_TEXT = 4 * 1024 * 1024  # bytes; the table of 16 chips is below 10 KiB
LEVELS = {"OK": 0, "WARNING": 1, "ALARM": 2, "CRITICAL": 3}


@dataclass(frozen=True, slots=True)
class NpuSmi:
    """``npu-smi info`` once per run. ``expected`` are cards that must be there besides those seen
    in earlier complete tables."""

    expected: tuple[str, ...] = ()
    interval: float = 5.0
    timeout: float = 10.0
    name: str = "npu_smi"
    scope: Mapping[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        """One per node."""
        return self.name

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield the samples of the table, and a checkpoint when the known cards change.

        Raises NotSupported without the tool or a card, SourceError when the tool fails or its
        output cannot be read, CommandTimeout when it hangs.
        """
        known = system.checkpoints.get(self.instance) or {}
        table = _ask(system, self.timeout)
        cards = names(table)
        yield from samples(table, cards)
        expected = {*self.expected, *known.get("cards", ())}
        if is_whole(table, known):
            for card in sorted(expected - set(cards.values())):
                yield _sample("accelerator_present", 0, card)
            state = {"cards": sorted(expected | set(cards.values())), "listed": table.listed}
            if state != known:
                yield Checkpoint(state)


def is_whole(table: Table, known: Mapping[str, Any]) -> bool:
    """Whether the table proves that a card which it lacks is not there. A tool that used to print
    a process section and did not now was cut at a row's end."""
    return table.complete and (table.listed or not known.get("listed"))


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:
    """Samples of a captured output. Raises SourceError or NotSupported, as ``collect`` does.

    ``command`` is the command line that gave it; where it asked for a card (``-i 3``) that the tool
    does not know, that card is lost: ``accelerator_present`` 0.
    """
    text = data[:MAX_TEXT].decode("utf-8", "replace")
    asked = re.search(r"-i +(\d{1,6})\b", command or "")
    if asked and "invalid card id" in text.lower():
        return [_sample("accelerator_present", 0, f"npu{asked[1]}")]
    return list(_read_table(text))


def _read_table(text: str) -> Iterator[Sample]:
    table = read_table(text)
    if table is None or not table.chips:
        refuse(text)
        raise SourceError("not a readable output of npu-smi" if text.strip() else "empty output")
    return samples(table, names(table))


def _ask(system: System, timeout: float) -> Table:
    done = system.runner.run(["npu-smi", "info"], timeout=timeout, limit=MAX_TEXT)
    table = read_table(done.text)
    if table is None or not table.chips:
        _explain(done)
    if done.truncated or done.code < 0:
        raise SourceError("npu-smi info was cut short")
    assert table is not None
    return table


def _explain(done: Finished) -> None:
    text = done.text + done.stderr.decode("utf-8", "replace")
    if done.code == 127:
        raise NotSupported("npu-smi is not on this node")
    refuse(text)
    raise SourceError(f"npu-smi info: no readable table (exit status {done.code})")


def names(table: Table) -> dict[Chip, str]:
    """The card name of each chip that has one: its address, else its NPU id."""
    places = Counter(chip.bus_id for chip in table.chips if chip.bus_id)
    found: dict[Chip, str] = {}
    for chip in table.chips:
        place = address(chip.bus_id) if chip.bus_id else None
        if place:
            # Both chips of a 300I Duo have one address; chip 1 keeps its name when 0 is missing.
            shared = places[chip.bus_id or ""] > 1 or (chip.model or "").startswith("310P")
            found[chip] = f"{place}/{chip.chip}" if shared and chip.chip else place
        elif chip.npu is not None:
            found[chip] = f"npu{chip.npu}/{chip.chip}" if chip.chip else f"npu{chip.npu}"
    return found


def samples(table: Table, cards: Mapping[Chip, str]) -> Iterator[Sample]:
    """What the table says of each named chip."""
    for chip, card in cards.items():
        yield from _chip(chip, card, table)
        yield from _processes(chip, card, table)


def _chip(chip: Chip, card: str, table: Table) -> Iterator[Sample]:
    yield _sample("accelerator_info", 1, card, **_identity(chip, table))
    yield _sample("accelerator_present", 1, card)
    level = LEVELS.get((chip.health or "").upper())
    if level is not None:
        yield _sample("accelerator_healthy", 1 if level < 2 else 0, card)
        yield _sample("accelerator_health_level", level, card)
    values = {
        "accelerator_utilization_ratio": chip.utilization,
        "accelerator_temperature_celsius": chip.temperature,
        "accelerator_power_watts": chip.power,
    }
    for name, value in values.items():
        if value is not None:
            yield _sample(name, value, card)
    yield from _memory(chip, card)


def _memory(chip: Chip, card: str) -> Iterator[Sample]:
    has_hbm = chip.hbm is not None and chip.hbm[1] > 0
    pairs = {
        "accelerator_memory": chip.hbm if has_hbm else chip.memory,
        "accelerator_ddr": chip.memory if has_hbm else None,
    }
    for name, pair in pairs.items():
        if pair and pair[1] > 0:
            yield _sample(f"{name}_used_bytes", pair[0] * MIB, card)
            yield _sample(f"{name}_total_bytes", pair[1] * MIB, card)
    if chip.hugepages:
        yield _sample("accelerator_hugepages_used", chip.hugepages[0], card)
        yield _sample("accelerator_hugepages_total", chip.hugepages[1], card)


def _identity(chip: Chip, table: Table) -> dict[str, str]:
    return {
        "bus_id": chip.bus_id or "",
        "model": chip.model or "",
        "driver": table.driver,
        "tool": table.tool,
        "npu": "" if chip.npu is None else str(chip.npu),
        "chip": str(chip.chip),
        "device": chip.device or "",
        "phy_id": chip.phy_id or "",
    }


def _processes(chip: Chip, card: str, table: Table) -> Iterator[Sample]:
    mine = [process for process in table.processes if _holds(process, chip)]
    if mine or chip.npu in table.idle:
        yield _sample("accelerator_processes", len(mine), card)
    for process in {process.pid: process for process in mine}.values():
        inside = process.container_pid
        yield _sample(
            "accelerator_process_memory_bytes",
            process.memory * MIB,
            card,
            pid=str(process.pid),
            process=process.name,
            container_pid="" if inside is None else str(inside),
        )


def _holds(process: Process, chip: Chip) -> bool:
    return process.npu == chip.npu and process.chip in {None, chip.chip}


def _sample(name: str, value: float, card: str, **labels: str) -> Sample:
    return Sample(name, float(value), labelset({"vendor": "ascend", "card": card, **labels}))
