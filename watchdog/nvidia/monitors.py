"""``nvidia-smi dmon`` and ``pmon``: a line a second, columns by the header's words.

A sample has no time, so the first line of a card (or process) is its reading; later ones carry the
label ``row`` (2, 3 …).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..errors import SourceError
from ..model import Sample
from .card import Card, labels_of
from .card import Process as _Process
from .metrics import process_samples, samples
from .rows import counted
from .values import process_name, read

MAX_LINES = 10_000

_READINGS = {
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "temp": "temperature.gpu",
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "enc": "utilization.encoder",
    "dec": "utilization.decoder",
    "jpg": "utilization.jpeg",
    "ofa": "utilization.ofa",
    "mclk": "clocks.current.memory",
    "pclk": "clocks.current.graphics",
    "fb": "memory.used",
    "rxpci": "pcie.rx",
    "txpci": "pcie.tx",
}
_UNITS = {"C", "W", "%", "MHz", "MB", "MB/s"}


def parse(text: str) -> Iterator[Sample]:
    """Samples of a dmon or pmon output. Raises SourceError when no line can be read."""
    lines = text.replace(", ", " ").splitlines()[:MAX_LINES]  # newer ones print CSV if asked
    header = next((line for line in lines if line.lstrip("# ").startswith(("gpu", "Date"))), "")
    names = header.lstrip("# ").split()
    at = lines.index(header) + 1 if header else 0
    units = lines[at].lstrip("# ").split() if at < len(lines) and lines[at][:1] == "#" else []
    body = [line for line in lines if line.strip() and not line.startswith("#")]
    if not names or "gpu" not in names or not body:
        raise SourceError("nvidia-smi: no line of the monitor's output can be read")
    if len(set(names)) != len(names) or len(units) != len(names):
        raise SourceError("nvidia-smi: the header of the monitor's output is damaged")
    return _processes(names, body) if "pid" in names else _devices(names, units, body)


def _rows(names: list[str], body: list[str]) -> Iterator[dict[str, str]]:
    for line in body:
        parts = line.split(None, len(names) - 1)
        if len(parts) == len(names) and parts[names.index("gpu")].isdecimal():
            yield dict(zip(names, (part.strip() for part in parts), strict=True))


def _numbered(sample: Sample, row: int) -> Sample:
    if row == 1:
        return sample
    labels = tuple(sorted((*sample.labels, ("row", str(row)))))
    return Sample(sample.name, sample.value, labels)


def _devices(names: list[str], units: list[str], body: list[str]) -> Iterator[Sample]:
    seen: Counter[str] = Counter()
    for row in _rows(names, body):
        seen[row["gpu"]] += 1
        fields = {"index": row["gpu"]}
        for name, unit in zip(names, units, strict=True):
            if name in _READINGS:
                fields[_READINGS[name]] = f"{row[name]} {unit}" if unit in _UNITS else row[name]
                if row[name] == "-":
                    fields[_READINGS[name]] = "-"
        for sample in samples(Card(f"gpu{row['gpu']}", fields)):
            yield _numbered(sample, seen[row["gpu"]])
    yield counted("dmon", seen.total())


def _processes(names: list[str], body: list[str]) -> Iterator[Sample]:
    seen: Counter[tuple[str, str]] = Counter()
    for row in _rows(names, body):
        key = row["gpu"], row["pid"]
        seen[key] += 1
        for sample in _process(row):
            yield _numbered(sample, seen[key])
    yield counted("pmon", seen.total())


def _process(row: dict[str, str]) -> Iterator[Sample]:
    home, pid = f"gpu{row['gpu']}", row["pid"]
    if not pid.isdecimal():
        return  # a dash: nothing runs on this card
    name = row.get("command", "")
    memory = f"{row['fb']} MB" if "fb" in row else ""
    yield from process_samples(home, _Process(pid, name, row.get("type", ""), memory))
    who = (("pid", pid), ("process", process_name(name)))
    for column, metric in (
        ("sm", "accelerator_process_utilization_ratio"),
        ("mem", "accelerator_process_memory_utilization_ratio"),
    ):
        value = read("ratio", f"{row[column]} %")[0] if column in row else None
        if value is not None:
            yield Sample(metric, value, labels_of(home, *who))
