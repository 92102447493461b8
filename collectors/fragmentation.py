"""How much of the device memory that a vLLM worker holds it does not use.

The figures come from the plug-in in the worker itself (``deploy/vllm_plugin``), one small file a
worker and device; the card's own tools cannot tell them. A file that is old, or whose process is
gone, says nothing. Out-of-memory messages tell the same once, when it is too late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from ..watchdog.allocator import Cards, Reading, parse
from ..watchdog.contracts import Yield
from ..watchdog.errors import NoData, NotSupported, SourceError
from ..watchdog.logs import classify
from ..watchdog.model import Checkpoint, Event, Sample, labelset
from ..watchdog.processes import Stat, ancestors, same, table
from ..watchdog.serversearch import find_server, vllm_servers
from ..watchdog.system import Files, System

RUN = "/run/vllm-watchdog"
MAX_FILE = 65_536  # bytes; the plug-in writes below one KiB
MAX_FILES = 256  # workers and devices of a node
SERIES = {
    "allocated": "memory_allocator_allocated_bytes",
    "reserved": "memory_allocator_reserved_bytes",
    "inactive_split": "memory_allocator_inactive_split_bytes",
    "ooms": "memory_allocator_ooms_total",
    "alloc_retries": "memory_allocator_retries_total",
}


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """Reads what the workers publish below ``run``; ``services`` maps a service's name to its URL.

    Series, with ``vendor``, ``card`` and, where the worker's server could be told, ``service``:
    ``memory_fragmentation_ratio`` (reserved - allocated) / reserved, an upper bound as memory kept
    for reuse counts too; ``memory_allocator_{allocated,reserved,inactive_split}_bytes``,
    ``memory_allocator_{ooms,retries}_total``. Figures older than ``max_age`` seconds are left out.
    ``npus`` maps an NPU's number to its card's name; without it the card is ``npuN``.
    """

    services: Mapping[str, str] = field(default_factory=dict)
    npus: Mapping[str, str] = field(default_factory=dict)
    run: str = RUN
    max_age: float = 45.0
    interval: float = 10.0
    timeout: float = 5.0
    name: str = field(default="fragmentation", init=False)

    @property
    def instance(self) -> str:
        """The owner of the series."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides the series' own."""
        return {}

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield the figures. Raises NotSupported where no worker ever published, NoData when none
        does now, SourceError when no file can be read."""
        folder = f"{self.run}/allocator"
        if not system.files.exists(folder):
            raise NotSupported(f"no vLLM worker publishes its allocator in {folder}")
        readings = list(self._readings(system, folder))
        if not readings:
            raise NoData("no live vLLM worker publishes its allocator")
        before = system.checkpoints.get(self.instance) or {}
        owners = self._owners(system.files, readings, before.get("owners", {}))
        cards = Cards(system.files, self.npus)
        sums: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
        for reading in readings:
            card = cards.name(reading)
            if card is None:
                continue
            service = owners.get(_key(reading), "")
            labels = labelset({"service": service, "vendor": reading.vendor, "card": card})
            total = sums.setdefault(labels, {})
            for word, value in reading.figures.items():
                total[word] = total.get(word, 0.0) + value
        for labels, figures in sums.items():
            yield from _samples(labels, figures)
        if owners != before.get("owners"):
            yield Checkpoint({"owners": owners})

    def _readings(self, system: System, folder: str) -> Iterator[Reading]:
        """The figures that are young and whose process lives."""
        now = system.clock.wall()
        names = [name for name in system.files.names(folder) if re.fullmatch(r"[\d-]+\.json", name)]
        problems: list[str] = []
        read = 0
        for name in names[:MAX_FILES]:
            try:
                document = parse(system.files.part(f"{folder}/{name}", 0, MAX_FILE).data)
            except (OSError, SourceError) as error:
                problems.append(f"{name}: {error}")
                continue
            read += 1
            if not -self.max_age <= now - document.facts["time"] <= self.max_age:
                continue
            reading = _here(system.files, document)
            if reading is None:
                continue
            if not _own(system.files, f"{folder}/{name}", reading.pid):
                problems.append(f"{name}: is not of the user whose process it speaks of")
                read -= 1
                continue
            yield reading
        if problems and not read:
            raise SourceError(problems[0])

    def _owners(
        self, files: Files, readings: list[Reading], before: Mapping[str, str]
    ) -> dict[str, str]:
        """The service of each worker, looked for once: later its server may be gone."""
        owners = {_key(r): before[_key(r)] for r in readings if _key(r) in before}
        for reading in readings:
            if _key(reading) not in owners:
                service = self._service(files, reading.pid)
                if service:
                    owners[_key(reading)] = service
        return owners

    def _service(self, files: Files, pid: int) -> str | None:
        """The service whose server is above a worker; without configured ones the name by which
        the server is discovered."""
        above = {entry.pid for entry in ancestors(files, pid)}
        known = table(files)
        if not self.services:
            servers = vllm_servers(files, known.values())
            return next((server.name for server in servers if server.pid in above), None)
        for name, url in self.services.items():
            found = find_server(files, _port(url), known).server
            if found is not None and found.pid in above:
                return name
        return None


def _samples(labels: tuple[tuple[str, str], ...], figures: Mapping[str, float]) -> Iterator[Sample]:
    for word, name in SERIES.items():
        if word in figures:
            yield Sample(name, figures[word], labels)
    ratio = _ratio(figures.get("allocated"), figures.get("reserved"))
    if ratio is not None:
        yield Sample("memory_fragmentation_ratio", ratio, labels)


def _ratio(allocated: float | None, reserved: float | None) -> float | None:
    if allocated is None or not reserved or allocated > reserved:
        return None
    return (reserved - allocated) / reserved


def _key(reading: Reading) -> str:
    return f"{reading.pid}-{reading.started}"


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _here(files: Files, reading: Reading) -> Reading | None:
    """The reading under this node's pid: a container's worker knows itself by another one."""
    if same(files, reading.pid, reading.started) is not None:
        return reading
    for entry in table(files).values():
        if entry.started == reading.started and _inner(files, entry) == reading.pid:
            return replace(reading, pid=entry.pid)
    return None


def _own(files: Files, path: str, pid: int) -> bool:
    """Whether a file is of the user of the process that it speaks of; anyone may write there."""
    try:
        return files.owner(path) in (files.owner(f"/proc/{pid}"), 0)
    except OSError:
        return False


def _inner(files: Files, entry: Stat) -> int | None:
    """The pid by which a process knows itself."""
    try:
        text = files.text(f"/proc/{entry.pid}/status", 16_384)
    except OSError:
        return None
    match = re.search(r"^NSpid:.*?(\d+)$", text, re.M)
    return int(match[1]) if match else None


def capture(data: bytes, command: str | None = None) -> list[Sample | Event]:  # noqa: ARG001 (nothing to tell apart by it)
    """Read out-of-memory messages in a captured log (or a file of the plug-in). Raises SourceError.

    A message names the device as the worker counts it: label ``device``; its card and service stay
    unknown.
    """
    if data.lstrip()[:1] == b"{":
        reading = parse(data)
        device = {"vendor": reading.vendor, "device": str(reading.device)}
        return list(_samples(labelset(device), reading.figures))
    found: dict[tuple[tuple[str, str], ...], Sample] = {}
    events: list[Sample | Event] = []
    for record in classify(data, "vllm"):
        if record.kind != "oom_device":
            continue
        fields = record.fields
        number = str(fields.get("device", ""))
        vendor = "ascend" if number.startswith("npu:") else "nvidia"
        labels = labelset({"vendor": vendor, "device": number.removeprefix("npu:")})
        events.append(
            Event(record.kind, record.text, labels, fields, record.severity, time=record.time)
        )
        ratio = fields.get("fragmentation")
        if isinstance(ratio, float):
            found[labels] = Sample("memory_fragmentation_ratio", ratio, labels)
    if not events:
        raise SourceError("no out-of-memory message in it")
    return [*found.values(), *events]
