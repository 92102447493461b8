"""Ascend cards as ``npu-smi`` shows them now: one reading for an act, nothing remembered.

It asks the tool and hands its samples on; formats are read in ``watchdog/ascend``. Where the table
has no word on a card's processes its own query is asked, and after it the kernel: who has the
card's device file open. It must not judge who may be used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...watchdog.ascend.cards import labels_of
from ...watchdog.ascend.health import health_of
from ...watchdog.ascend.known import Known
from ...watchdog.ascend.queries import ask, with_physical_ids
from ...watchdog.ascend.readings import read_answer
from ...watchdog.ascend.readout import health, names, samples
from ...watchdog.ascend.refusals import refuse
from ...watchdog.ascend.rows import Chip
from ...watchdog.ascend.table import read_table
from ...watchdog.errors import CommandTimeout, NotSupported, SourceError
from ...watchdog.model import Sample
from ...watchdog.system import System
from .openers import openers

TOOL = "npu-smi"
VENDOR = "ascend"
_LEAST = 0.2  # seconds: no command is begun with less


def read(system: System, cards: Iterable[str], timeout: float) -> tuple[list[Sample], bool]:
    """What the tool says of the node's cards, and whether a card that it lacks is not there.

    Of ``cards`` the processes are looked for further where the table does not tell. ``timeout``:
    seconds for all of it. Raises NotSupported, CommandTimeout, SourceError, OSError.
    """
    deadline = system.clock.mono() + timeout
    text = ask(system, (TOOL, "info"), timeout)
    table = read_table(text)
    if table is None or not table.chips:
        refuse(text)
        raise SourceError("npu-smi info: no readable table")
    known = names(table)
    phy = _physical(system, known, deadline)
    found: list[Sample] = []
    untold: dict[Chip, str] = {}
    for chip, card in known.items():
        told = list(samples(chip, card, table, phy.get(card, "")))
        told += health(health_of([chip.health]) if chip.health else None, card)
        if not any(one.name == "accelerator_processes" for one in told):
            untold[chip] = card
        found += told
    wanted = set(cards)
    open_files = {card: f"/dev/davinci{phy[card]}" for card in untold.values() if card in phy}
    asked = {chip: card for chip, card in untold.items() if card in wanted}
    return [*found, *_processes(system, asked, open_files, deadline)], table.complete


def _physical(system: System, known: dict[Chip, str], deadline: float) -> dict[str, str]:
    """The number of each card's device file, as far as the tool tells it."""
    left = deadline - system.clock.mono()
    try:
        told = with_physical_ids(system, max(left, _LEAST), Known(), known)
    except (NotSupported, SourceError):
        return {}
    except CommandTimeout as late:
        if late.stuck:
            raise
        return {}
    return {card: number for number, card in told.phy.items()}


def _processes(
    system: System, chips: dict[Chip, str], device: dict[str, str], deadline: float
) -> Iterator[Sample]:
    """The processes of chips of which the table says nothing. An answer of the tool without a
    process proves nothing: only the kernel's word counts as none."""
    opened = openers(system, [device[card] for card in chips.values() if card in device])
    for chip, card in chips.items():
        told = _asked(system, chip, card, deadline)
        pids = {dict(one.labels).get("pid", "") for one in told}
        if opened is not None and card in device:
            more = {str(pid) for pid in opened[device[card]]} - pids
            told += [Sample("accelerator_process_info", 1.0, labels_of(card, pid=p)) for p in more]
            pids |= more
        elif not pids:
            continue
        yield Sample("accelerator_processes", float(len(pids)), labels_of(card))
        yield from told


def _asked(system: System, chip: Chip, card: str, deadline: float) -> list[Sample]:
    left = deadline - system.clock.mono()
    if chip.npu is None or left < _LEAST:
        return []
    command = (TOOL, "info", "-t", "proc-mem", "-i", str(chip.npu), "-c", str(chip.chip))
    try:
        text = ask(system, command, left)
        told = read_answer(text, " ".join(command), {(chip.npu, chip.chip): card})
    except (NotSupported, SourceError):
        return []
    except CommandTimeout as late:
        if late.stuck:
            raise
        return []
    return [one for one in told if one.name == "accelerator_process_memory_bytes"]
