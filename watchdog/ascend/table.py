"""The table of ``npu-smi info`` as values: chips, processes, and whether the table is whole.

Pure: text in, ``Table`` out; no series names, no commands. It reads every layout from 21.0 to 26.x
(310, 310P, 310B, 910A, 910B, A3, 950) by the table's own header: rows are split at ``|`` and at
blanks, never by column number or width. It must not guess: a row that does not read as its header
says is not used, and nothing of a card whose pair of rows is in doubt is returned.

A card is a pair of rows. The upper one has NPU id, model, health, power, temperature, hugepages;
the lower one chip, bus id, utilization, memory. A pair ends at a ruler. The tool leaves out the
upper row when its health query fails: then the lower row stands alone and health is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from .rows import Chip, Header, Process, Upper, read_header, read_lower, read_process, read_upper
from .words import address

MAX_LINE = 1000  # characters; the widest known table has 120

_BANNER = re.compile(r"\| *npu-smi +(\S+)(?: +Version: *(\S+))?")
_IDLE = re.compile(r"No running processes found in NPU (\d+)\b")


@dataclass(frozen=True, slots=True)
class Table:
    """A table as read. ``complete``: nothing was cut, left out or unreadable in the card section,
    so a card that is not in it is not there; ``listed``: the process section is there; ``idle``:
    NPUs of which the tool says that they have no process. ``closed``: the process section was not
    cut either."""

    tool: str
    driver: str
    chips: tuple[Chip, ...]
    processes: tuple[Process, ...]
    idle: frozenset[int]
    complete: bool
    listed: bool
    closed: bool


def read_table(text: str) -> Table | None:
    """Read the last table in ``text``; None when there is no header of one."""
    reading: _Reading | None = None
    banner = ("", "")
    upper: tuple[str, ...] | None = None
    for line in _lines(text):
        if found := _BANNER.match(line):
            banner = (found[1], found[2] or "")
        cells = _cells(line)
        if cells and _is_header(cells, "Health"):
            upper = cells
        elif cells and upper and _is_header(cells, "Bus-Id") and len(cells) == len(upper):
            header = read_header(upper, cells)
            if header and (reading is None or reading.begun):
                reading = _Reading(header, banner)
            upper = None
        elif reading:
            reading.take(line, cells)
    return reading.table() if reading else None


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _cells(line: str) -> tuple[str, ...]:
    if len(line) > MAX_LINE or not (line.startswith("|") and line.endswith("|")):
        return ()
    return tuple(cell.strip() for cell in line[1:-1].split("|"))


def _is_ruler(line: str) -> bool:
    marks = sum(line.count(mark) for mark in "-=+")
    return line.startswith("+") and len(line) >= 10 and marks >= 0.8 * len(line)


def _is_header(cells: tuple[str, ...], word: str) -> bool:
    return len(cells) in {3, 4} and cells[-2].lower() == word.lower()


@dataclass
class _Reading:
    """The state of reading one table, line by line."""

    header: Header
    banner: tuple[str, str]
    chips: list[Chip] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    idle: set[int] = field(default_factory=set)
    segment: list[Upper | Chip | None] = field(default_factory=list)
    doubt: bool = False
    begun: bool = False
    ruled: str = ""
    listed: bool = False
    remarked: bool = False
    over: bool = False

    def take(self, line: str, cells: tuple[str, ...]) -> None:
        if self.over:
            return
        if _is_ruler(line):
            self._close()
            self.ruled = line
        elif "Process id" in line and cells:
            self._close()
            self.listed = True
        elif self.listed:
            self._process(line, cells)
        elif "|" not in line and not self.segment:
            self._remark(line)
        else:
            self.doubt = self.doubt or self.remarked
            self.begun = True
            self.segment.append(self._row(cells))

    def _remark(self, line: str) -> None:
        """Text between rulers: dots stand for rows left out, and so does anything before further
        rows; after the last ruler it is a remark of the tool."""
        self.doubt = self.doubt or line.startswith((".", "…"))
        self.remarked = self.remarked or self.begun

    def table(self) -> Table:
        self._close()
        self.doubt = self.doubt or not self.chips
        closed = "=" in self.ruled and self.ruled.endswith("+")
        chips, unique = _unique(self.chips)
        lost = self._lost(chips)
        if lost:
            chips = [replace(chip, health=None) for chip in chips]
        return Table(
            *self.banner,
            tuple(chips),
            tuple(self.processes),
            frozenset(self.idle),
            complete=not self.doubt and unique and not lost and (self.listed or closed),
            listed=self.listed,
            closed=closed,
        )

    def _lost(self, chips: list[Chip]) -> bool:
        """Whether the process section knows more NPUs than the rows can account for: then text
        was lost in between, and no row can be trusted to be the partner of the one before it."""
        told = {chip.npu for chip in self.chips}
        unknown = sum(chip.npu is None for chip in self.chips)
        heard = self.idle | {process.npu for process in self.processes}
        return not self.doubt and bool(chips) and len(heard - told) > unknown

    def _row(self, cells: tuple[str, ...]) -> Upper | Chip | None:
        if len(cells) != self.header.width:
            return None
        try:
            if address(cells[-2]) or cells[-2].upper() in {"NA", "N/A", "-"}:
                return read_lower(cells, self.header)
            return read_upper(cells, self.header)
        except ValueError:
            return None

    def _close(self) -> None:
        rows, self.segment = self.segment, []
        pairs: list[Chip] = []
        for above, below in zip(rows[::2], rows[1::2], strict=False):
            if not (isinstance(above, Upper) and isinstance(below, Chip)):
                break
            pairs.append(
                replace(
                    below,
                    npu=above.npu,
                    model=above.model,
                    health=above.health,
                    power=above.power,
                    temperature=above.temperature,
                    hugepages=above.hugepages,
                )
            )
        if len(rows) == 1 and isinstance(rows[0], Chip):
            self.chips.append(rows[0])
        elif 2 * len(pairs) == len(rows):
            self.chips.extend(pairs)
        else:
            self.doubt = True

    def _process(self, line: str, cells: tuple[str, ...]) -> None:
        if found := _IDLE.search(line):
            self.idle.add(int(found[1]))
        elif len(cells) >= 4:
            process = read_process(cells)
            self.processes += [process] if process else []
        elif "|" not in line:
            self.over = True


def _unique(chips: list[Chip]) -> tuple[list[Chip], bool]:
    """The chips whose ids and address nobody else has, and whether that is all of them."""
    names = Counter(name for chip in chips for name in _names(chip))
    kept = [chip for chip in chips if all(names[name] == 1 for name in _names(chip))]
    return kept, len(kept) == len(chips)


def _names(chip: Chip) -> list[tuple[str, int]]:
    names = [(f"npu {chip.npu}", chip.chip)] if chip.npu is not None else []
    return [*names, (chip.bus_id, chip.chip)] if chip.bus_id else names
