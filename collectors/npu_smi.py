"""Ascend cards by ``npu-smi``: the table of ``npu-smi info`` each run, and a few further queries.

It asks one thing at a time and decides nothing beyond what the tool states; formats are read in
``watchdog/ascend``. Every series carries ``vendor="ascend"`` and ``card`` (the lower-case PCI
address without function, ``/1`` for a further chip at the same address, ``npu0`` where there is
no address). A card whose rows are damaged has no series; a table that is cut or partly unreadable
says nothing about the cards that it lacks.

======================================== ==========================================================
accelerator_info                        1; bus_id, model, driver, tool, npu, chip, device (logic
                                        id), phy_id; by other queries slot, uuid, serial, firmware
accelerator_present                     0: expected and not in a complete table
accelerator_healthy                     1: OK or Warning; 0: Alarm or Critical; absent: unknown.
                                        The worse of the table and the health query
accelerator_health_level                0 OK, 1 Warning, 2 Alarm, 3 Critical
accelerator_fault                       1; code (0x…), kind, severity: active fault codes
accelerator_utilization_ratio           AI cores (950: the NPU), 0-1
accelerator_temperature_celsius         also accelerator_memory_, accelerator_board_temperature_
accelerator_power_watts                 absent on the second die of a card and on SoC boards
accelerator_memory_*_bytes              used, total: on-chip memory, or the card's only one
accelerator_ddr_*_bytes                 used, total: where a card has it beside on-chip memory
accelerator_hugepages_*                 used, total; pages
accelerator_processes                   how many the tool lists (it stops at 8); 0: it says none
accelerator_process_memory_bytes        pid, process, container_pid
accelerator_ecc_errors_total            kind: correctable, uncorrectable
accelerator_ecc_lifetime_errors_total   kind; over the card's life
accelerator_ecc_memory_errors_total     kind, memory: hbm, ddr; also _lifetime_memory_errors_total
accelerator_retired_pages_total         kind, memory; also accelerator_retired_pages_pending
accelerator_engine_utilization_ratio    engine: vector, cube, ai_cpu, control_cpu
accelerator_overall_utilization_ratio   the whole NPU
accelerator_memory_used_ratio           also _memory_utilization_ratio (bandwidth), _ddr_…
accelerator_clock_hertz                 domain: core, memory, ddr; also accelerator_max_clock_hertz
accelerator_cores, accelerator_chips    counts
accelerator_topology                    1; peer (a card), path: HCCS, PIX, PHB, SYS …
accelerator_cpu_affinity                1; cpus
accelerator_superpod_info               1; sdid, superpod, size, server
accelerator_board_compatible            1 or 0: firmware and driver fit
accelerator_reset_success               1 or 0: what a reset command ended with
accelerators_listed                     vendor only: the tool's own count
accelerator_query_supported             vendor, tool, verb, type: what the tool's help lists
======================================== ==========================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..watchdog.ascend.cards import labels_of
from ..watchdog.ascend.health import health_of
from ..watchdog.ascend.known import Known, renewed
from ..watchdog.ascend.queries import ask, level_of, turn, with_answer, with_physical_ids
from ..watchdog.ascend.readings import read_answer
from ..watchdog.ascend.readout import health, names, samples
from ..watchdog.ascend.refusals import refuse
from ..watchdog.ascend.rows import Chip
from ..watchdog.ascend.table import Table, read_table
from ..watchdog.contracts import Yield
from ..watchdog.errors import CommandTimeout, SourceError
from ..watchdog.model import Checkpoint, Event, Page, Sample
from ..watchdog.system import System

MAX_TEXT = 4 * 1024 * 1024  # bytes; the table of 16 chips is below 10 KiB
NO_CARD = "There is no NPU card"


@dataclass(frozen=True, slots=True)
class NpuSmi:
    """``expected`` are cards that must be there besides those seen in earlier complete tables.
    ``queries`` are asked card by card in turn, at most ``calls`` of them in a run, of a sick card
    first; their last answers stay until asked again. ``interval`` and ``timeout`` in seconds."""

    expected: tuple[str, ...] = ()
    queries: tuple[str, ...] = ("health", "ecc")
    calls: int = 2
    interval: float = 5.0
    timeout: float = 10.0
    name: str = "npu_smi"
    scope: Mapping[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        """One per node."""
        return self.name

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield the samples of all cards, and a checkpoint when something new is known.

        Raises NotSupported without the tool or a card, SourceError when the tool fails or its
        output cannot be read, CommandTimeout when it hangs.
        """
        limit = 0.9 * self.timeout  # so that a hung tool is told before the run counts as stalled
        deadline = system.clock.mono() + limit
        now = system.clock.wall()
        old = system.checkpoints.get(self.instance)
        known = Known.read(old, now)
        expected = known.cards | set(self.expected)
        text = ask(system, ("npu-smi", "info"), limit)
        if NO_CARD in text and expected:
            yield from _absent(expected)
            return
        table = _table(text)
        cards = names(table)
        if is_whole(table, known):
            known = replace(known, cards=known.cards | set(cards.values()), listed=table.listed)
            yield from _absent(expected - set(cards.values()))
        known = self._asked(system, deadline, _settled(known, table, cards), table, cards)
        phy = {card: phy_id for phy_id, card in known.phy.items()}
        for chip, card in cards.items():
            yield from samples(chip, card, table, phy.get(card, ""))
            yield from _answers(known, chip, card)
        doc = renewed(known, old, now)
        if doc:
            yield Checkpoint(doc)

    def _asked(
        self, system: System, deadline: float, known: Known, table: Table, cards: dict[Chip, str]
    ) -> Known:
        """With the answers to this run's share of the queries; it stops where time is short."""
        step = int(system.clock.wall() // self.interval) * self.calls
        try:
            known = with_physical_ids(system, _left(system, deadline), known, cards)
            for chip, query in turn(self.queries, known, cards, step)[: self.calls]:
                left = _left(system, deadline)
                if query not in known.refused:
                    known = with_answer(system, left, known, table, chip, query, cards)
        except CommandTimeout as late:
            if late.stuck:
                raise
        return known


def is_whole(table: Table, known: Known) -> bool:
    """Whether the table proves that a card which it lacks is not there. A tool that used to print
    a process section and did not now was cut at a row's end."""
    same_tool = known.driver == table.driver
    return table.complete and (table.listed or not (known.listed and same_tool))


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:
    """Samples of a captured output. Raises SourceError or NotSupported, as ``collect`` does.

    ``command`` is the command line that gave it; where it asked for a card (``-i 3``) that the tool
    does not know, that card is lost: ``accelerator_present`` 0.
    """
    text = data[:MAX_TEXT].decode("utf-8", "replace")
    table = read_table(text)
    if table and table.chips:
        return list(_of_table(table))
    asked = re.search(r"-i +(\d{1,6})\b", command or "")
    if asked and "invalid card id" in text.lower():
        return list(_absent({f"npu{asked[1]}"}))
    if table:
        raise SourceError("a table of npu-smi info without a readable card")
    return list(read_answer(text, command))


def _of_table(table: Table) -> Iterator[Sample]:
    for chip, card in names(table).items():
        yield from samples(chip, card, table)
        yield from health(health_of([chip.health]) if chip.health else None, card)


def _absent(cards: set[str] | frozenset[str]) -> Iterator[Sample]:
    for card in sorted(cards):
        yield Sample("accelerator_present", 0.0, labels_of(card))


def _table(text: str) -> Table:
    table = read_table(text)
    if table is None or not table.chips:
        refuse(text)
        raise SourceError("npu-smi info: no readable table")
    return table


def _settled(known: Known, table: Table, cards: Mapping[Chip, str]) -> Known:
    """Without what belongs to another driver or to cards that are not in the table."""
    answers = {card: known.answers[card] for card in cards.values() if card in known.answers}
    refused = known.refused if known.driver == table.driver else frozenset[str]()
    return replace(known, driver=table.driver, refused=refused, answers=answers)


def _answers(known: Known, chip: Chip, card: str) -> Iterator[Sample]:
    yield from health(level_of(known, chip, card), card)
    for query in known.answers.get(card, ()):
        for sample in known.samples(card, query):
            if sample.name not in {"accelerator_healthy", "accelerator_health_level"}:
                yield sample


def _left(system: System, deadline: float) -> float:
    left = deadline - system.clock.mono()
    if left < 0.5:
        raise CommandTimeout("no time is left for further queries")
    return left
