"""Further calls of ``npu-smi`` beside the table: whom to ask what next, and what came of it.

A query that the driver does not support is remembered and not asked again. One that fails leaves
no answer: what was said before is not shown as if it still held.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..errors import NotSupported, SourceError
from ..system import System
from .health import health_of
from .identities import id_map
from .known import Known
from .readings import read_answer
from .rows import Chip
from .table import Table

MAX_TEXT = 4 * 1024 * 1024  # bytes; the table of 16 chips is below 10 KiB


def ask(system: System, command: tuple[str, ...], timeout: float) -> str:
    """What a command prints. Raises NotSupported without the program, SourceError when it was cut
    or killed, CommandTimeout when it did not end in ``timeout`` seconds."""
    done = system.runner.run(command, timeout=timeout, limit=MAX_TEXT)
    if done.code == 127:
        raise NotSupported(f"{command[0]} is not on this node")
    if done.truncated or done.code < 0:
        raise SourceError(f"{' '.join(command)} was cut short")
    return done.text if done.text.strip() else done.stderr.decode("utf-8", "replace")


def turn(
    queries: Iterable[str], known: Known, cards: Mapping[Chip, str], step: int
) -> list[tuple[Chip, str]]:
    """The order in which to ask: the health of cards that are not well, then all in turn; both
    lists begin ``step`` places further on."""
    own = [chip for chip in cards if chip.npu is not None]
    wanted = [query for query in queries if query not in known.refused]
    sick = [chip for chip in own if level_of(known, chip, cards[chip]) != 0]
    first = [(chip, "health") for chip in sick] if "health" in wanted else []
    every = [(chip, query) for query in wanted for chip in own]
    return list(dict.fromkeys(_turned(first, step) + _turned(every, step)))


def with_physical_ids(
    system: System, timeout: float, known: Known, cards: Mapping[Chip, str]
) -> Known:
    """With the physical ids: of the table, else of ``-m``, where a logic id is one if the node's
    device files have the same numbers."""
    here = frozenset(cards.values())
    if known.mapped == here:
        return known
    told = {chip.phy_id: card for chip, card in cards.items() if chip.phy_id}
    if len(told) < len(cards):
        try:
            rows = id_map(ask(system, ("npu-smi", "info", "-m"), timeout))
        except SourceError:
            return known
        by_id = {(str(chip.npu), str(chip.chip)): card for chip, card in cards.items()}
        names = system.files.glob("/dev/davinci*")
        files = {name.removeprefix("/dev/davinci") for name in names if name[-1].isdigit()}
        numbered = files == {row["device"] for row in rows if "device" in row}
        ids = [
            (row.get("phy_id") or (row.get("device") if numbered else None), row) for row in rows
        ]
        told = {
            phy: by_id[row["npu"], row["chip"]]
            for phy, row in ids
            if phy and (row["npu"], row["chip"]) in by_id
        }
    return replace(known, phy=told, mapped=here)


def with_answer(
    system: System,
    timeout: float,
    known: Known,
    table: Table,
    chip: Chip,
    query: str,
    cards: Mapping[Chip, str],
) -> Known:
    """With what a chip answers to ``npu-smi info -t QUERY``."""
    several = sum(other.npu == chip.npu for other in table.chips) > 1
    command = ["npu-smi", "info", "-t", query, "-i", str(chip.npu)]
    command += ["-c", str(chip.chip)] if several else []
    by_id = {(one.npu or 0, one.chip): name for one, name in cards.items()}
    try:
        text = ask(system, tuple(command), timeout)
        return known.with_answer(cards[chip], query, read_answer(text, " ".join(command), by_id))
    except NotSupported:
        return known.refusing(query)
    except SourceError:
        return known.with_answer(cards[chip], query, None)


def level_of(known: Known, chip: Chip, card: str) -> int | None:
    """The worse of the table's word and the query's answer; None when the table's is unknown and
    the query does not say that the card is sick."""
    asked = [
        int(sample.value)
        for sample in known.samples(card, "health")
        if sample.name == "accelerator_health_level"
    ]
    word = health_of([chip.health]) if chip.health else None
    if word is None:
        return next((level for level in asked if level > 1), None)
    return max([word, *asked])


def _turned(items: list[tuple[Chip, str]], step: int) -> list[tuple[Chip, str]]:
    at = step % len(items) if items else 0
    return items[at:] + items[:at]
