"""CSV of ``--query-gpu``, ``--query-compute-apps`` and ``--query-retired-pages``.

Columns are taken by the header's names; without a header by the fields of the query, or by an
order that is known by heart and fits the row. A row of another width is left out, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..errors import SourceError
from ..model import Sample
from .card import VENDOR, Card, Process, labels_of
from .fields import FIELDS, TEXTS
from .metrics import process_samples, samples
from .values import bare, card_name, is_uuid, trouble

MAX_ROWS = 4096

_COLUMN = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)(?: \[([^\]]*)\])?\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?\Z", re.ASCII)
_FIELDS_OPTION = re.compile(r"--query-(?:gpu|compute-apps|retired-pages)[= ]([A-Za-z0-9_.,]+)")

_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.single_bit.count": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
    "used_memory": "used_gpu_memory",
    "name_of_process": "process_name",
}
_UNITS = {
    "ratio": "%",
    "fan": "%",
    "bytes": "MiB",
    "watts": "W",
    "hertz": "MHz",
    "seconds": "us",
}  # what ``nounits`` leaves out
_KNOWN = frozenset(FIELDS) | TEXTS | {"timestamp", "count", "compute_mode", "hostname", "pid"}

_PREFIX = ("fan.speed", "memory.total", "memory.used", "memory.free", "pstate", "temperature.gpu")
_BUSY = ("utilization.gpu", "utilization.memory", "index")
_SHORT = (*_PREFIX, "name", "uuid", *_BUSY)
_LONG = (
    *(*_PREFIX, "name", "uuid", "compute_mode", *_BUSY, "power.draw"),
    *("pcie.link.gen.current", "pcie.link.width.current"),
    *("encoder.stats.sessionCount", "encoder.stats.averageFps", "encoder.stats.averageLatency"),
    *("clocks.current.graphics", "clocks.current.sm"),
    *("clocks.current.memory", "clocks.current.video"),
)
_ORDERS = (_SHORT, _LONG)  # of a widely used agent that asks without a header


def columns(line: str) -> list[tuple[str, str]] | None:
    """Name and unit of each column of a header line; None if the line is no header."""
    found = []
    for part in line.split(","):
        match = _COLUMN.match(part.strip())
        if not match:
            return None
        found.append((canonical(match[1]), match[2] or ""))
    known = [name for name, _ in found if name in _KNOWN or "retired_pages" in name]
    return found if known else None


def canonical(name: str) -> str:
    """The main name of a field that has several."""
    name = name.replace("clocks_throttle_reasons", "clocks_event_reasons")
    return _ALIASES.get(name, name)


def asked(command: str) -> list[str]:
    """The fields that a command line asks for, in order; empty if it names none."""
    match = _FIELDS_OPTION.search(command)
    return [canonical(name) for name in match[1].split(",") if name] if match else []


def order_by_heart(line: str) -> list[str]:
    """The field order of a row without header, where it can be told beyond doubt; else empty."""
    parts = _split(line)
    for order in _ORDERS:
        if len(parts) == len(order):
            row = dict(zip(order, parts, strict=True))
            if is_uuid(row["uuid"]) and re.match(r"P[0-9]+\Z", row["pstate"]) and _adds_up(row):
                return list(order)
    return []


def _adds_up(row: dict[str, str]) -> bool:
    memory = [row[f"memory.{name}"].split(" ")[0] for name in ("total", "used", "free")]
    if not all(part.isdecimal() for part in memory):
        return False
    total, used, free = (int(part) for part in memory)
    return used + free <= total


def _split(line: str) -> list[str]:
    return [part.strip() for part in line.split(", ")] if ", " in line else [line.strip()]


def table(text: str, fields: list[str]) -> Iterator[Sample]:
    """Samples of a CSV output. ``fields``: the order, for an output without a header.

    Raises SourceError when no row can be read.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    header = columns(lines[0])
    if header is None and not fields:
        raise SourceError("nvidia-smi: a CSV output without a header; say its command")
    named = header if header is not None else [(name, _unit(name)) for name in fields]
    body = lines[1:] if header is not None else lines
    names = [name for name, _ in named]
    if "retired_pages.address" in names:
        return _retired(_rows(body, named))
    if "pid" in names:
        return _apps(names, body)
    return _gpus(named, body)


def _unit(name: str) -> str:
    spec = FIELDS.get(name)
    return _UNITS.get(spec.kind, "") if spec else ""


def _rows(body: list[str], named: list[tuple[str, str]]) -> Iterator[dict[str, str]]:
    for line in body[:MAX_ROWS]:
        parts = _split(line)
        if len(parts) == len(named):
            yield {
                name: f"{part} {unit}" if unit and _NUMBER.match(part) else part
                for (name, unit), part in zip(named, parts, strict=True)
            }


def _gpus(named: list[tuple[str, str]], body: list[str]) -> Iterator[Sample]:
    doubled = len({name for name, _ in named}) != len(named)
    cards = [_card(row, at, doubled) for at, row in enumerate(_rows(body, named))]
    if not cards:
        raise SourceError("nvidia-smi: no row of the CSV output can be read")
    names = [card.name for card in cards]
    for card in cards:
        if names.count(card.name) == 1:
            yield from samples(card)


def _card(row: dict[str, str], at: int, doubled: bool) -> Card:
    texts = {name: bare(text) if name in TEXTS else text for name, text in row.items()}
    printed = row.get("pci.bus_id", "")
    name, damage = card_name(printed), ""
    parts = [row.get(f"pci.{part}", "").removeprefix("0x") for part in ("domain", "bus", "device")]
    built = card_name(":".join(parts)) if all(parts) else ""
    if (printed and not name) or (name and built and name != built) or doubled:
        damage = "its address is damaged"
    if "uuid" in row and not is_uuid(row["uuid"]):
        damage = "its uuid is damaged"
    index = row.get("index", "")
    place = f"gpu{index}" if index.isdecimal() and len(index) < 5 else ""
    uuid = row["uuid"] if is_uuid(row.get("uuid", "")) else ""
    return Card(name or built or place or uuid or f"gpu{at}", texts, damage=damage)


def _apps(names: list[str], body: list[str]) -> Iterator[Sample]:
    """Processes; a name may hold commas: what is too much belongs to it."""
    rows = 0
    for line in body[:MAX_ROWS]:
        parts = _split(line)
        surplus = len(parts) - len(names)
        if surplus > 0 and "process_name" in names:
            at = names.index("process_name")
            parts[at : at + surplus + 1] = [", ".join(parts[at : at + surplus + 1])]
        if len(parts) != len(names):
            continue
        rows += 1
        row = dict(zip(names, parts, strict=True))
        memory = row.get("used_gpu_memory", "")
        memory = f"{memory} MiB" if memory.isdecimal() else memory
        process = Process(row["pid"], row.get("process_name", ""), "", memory)
        yield from process_samples(_home(row), process)
    yield counted("compute_apps", rows)


def _home(row: dict[str, str]) -> str:
    uuid = bare(row.get("uuid", ""))
    return card_name(row.get("pci.bus_id", "")) or (uuid if not trouble(uuid) else "") or "gpu0"


def counted(listing: str, rows: int) -> Sample:
    """How many rows of a listing were read: 0 is an answer too."""
    return Sample("accelerators_rows", float(rows), (("listing", listing), ("vendor", VENDOR)))


def _retired(rows: Iterator[dict[str, str]]) -> Iterator[Sample]:
    """Retired pages one by one; a row without an address says that there is no list."""
    count = 0
    for row in rows:
        count += 1
        address, cause = bare(row["retired_pages.address"]), row.get("retired_pages.cause", "")
        if not trouble(address):
            more = (("address", address[:32]), ("cause", cause[:40]))
            yield Sample("accelerator_retired_page_info", 1.0, labels_of(_home(row), *more))
    yield counted("retired_pages", count)
