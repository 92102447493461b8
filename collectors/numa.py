"""NUMA placement: what each node allocated and has free, from sysfs.

numastat counts where pages were *allocated*, not accessed: a rise of miss or foreign is a placement
alarm, not remote traffic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.model import Sample
from ..watchdog.system import System

NODES = "/sys/devices/system/node"
EVENTS = ("numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node")


@dataclass(frozen=True, slots=True)
class Numa:
    """Reads each NUMA node's counters and memory.

    Series: ``numa_allocations_total{node,event}`` (pages; event as in numastat without ``numa_``),
    ``numa_memory_total_bytes{node}``, ``numa_memory_free_bytes{node}``, ``numa_nodes``,
    ``numa_balancing_enabled`` 0 or 1.
    """

    interval: float = 15.0
    timeout: float = 5.0
    name: str = field(default="numa", init=False)

    @property
    def instance(self) -> str:
        """The owner of the series."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides the series' own."""
        return {}

    def collect(self, system: System) -> Iterator[Sample]:
        """Yield the figures. Raises NotSupported on a kernel without NUMA, SourceError, OSError."""
        nodes = [name for name in system.files.names(NODES) if re.fullmatch(r"node\d+", name)]
        if not nodes:
            raise NotSupported("this kernel shows no NUMA nodes")
        yield Sample("numa_nodes", float(len(nodes)))
        for node in nodes:
            label = (("node", node[4:]),)
            for event, pages in parse_numastat(system.files.text(f"{NODES}/{node}/numastat")):
                yield Sample("numa_allocations_total", pages, (("event", event), *label))
            for name, value in parse_meminfo(system.files.text(f"{NODES}/{node}/meminfo")):
                yield Sample(name, value, label)
        try:
            switch = system.files.text("/proc/sys/kernel/numa_balancing").strip()
        except OSError:
            return  # built without NUMA balancing
        if switch.isdigit():
            yield Sample("numa_balancing_enabled", float(switch != "0"))


def parse_numastat(text: str) -> Iterator[tuple[str, float]]:
    """``numa_hit 123`` lines → (event without ``numa_``, pages). Raises SourceError."""
    found = False
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name in EVENTS and value.strip().isdigit():
            found = True
            yield name.removeprefix("numa_"), float(value)
    if not found:
        raise SourceError("numastat holds no counter")


def parse_meminfo(text: str) -> Iterator[tuple[str, float]]:
    """``Node 0 MemFree: 123 kB`` lines → (series name, bytes)."""
    for line in text.splitlines():
        match = re.match(r"Node \d+ (MemTotal|MemFree):\s+(\d+) kB$", line)
        if match:
            word = {"MemTotal": "total", "MemFree": "free"}[match[1]]
            yield f"numa_memory_{word}_bytes", float(match[2]) * 1024


def capture(data: bytes, command: str | None = None) -> list[Sample]:
    """Read a captured numastat or meminfo file of one node (``command`` may name its path)."""
    text = data.decode("utf-8", "replace")
    node = re.search(r"node(\d+)", command or "") or re.search(r"Node (\d+) ", text)
    label = (("node", node[1] if node else "0"),)
    memory = [Sample(name, value, label) for name, value in parse_meminfo(text)]
    if memory:
        return memory
    return [
        Sample("numa_allocations_total", pages, (("event", event), *label))
        for event, pages in parse_numastat(text)
    ]
