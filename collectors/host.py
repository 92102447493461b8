"""Host figures: CPU time by mode, memory, swap, load. Names as node_exporter has them, shortened
to ours: what they measure is said by the name, never by a comment in a dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..watchdog.model import Sample
from ..watchdog.system import System


@dataclass(frozen=True, slots=True)
class HostFigures:
    """Reads the machine's own figures.

    Series: ``host_cpu_seconds_total{mode}``, ``host_cpus``, ``host_memory_total_bytes``,
    ``host_memory_available_bytes``, ``host_swap_total_bytes``, ``host_swap_used_bytes``,
    ``host_load{window="1m"|"5m"|"15m"}``, ``host_boot_time_seconds``,
    ``host_memory_pressure_ratio{kind="some"|"full"}`` (PSI, share of the last 10 s) where the
    kernel has it.
    """

    interval: float = 5.0
    timeout: float = 5.0
    name: str = field(default="host", init=False)

    @property
    def instance(self) -> str:
        """The owner of the series."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides the series' own."""
        return {}

    def collect(self, system: System) -> Iterator[Sample]:
        """Yield the figures. Raises OSError when /proc cannot be read."""
        figures = system.host.figures()
        for key, value in figures.items():
            if key.startswith("cpu:"):
                yield Sample("host_cpu_seconds_total", value, (("mode", key[4:]),))
        for key, name in _NAMES.items():
            if key in figures:
                yield Sample(name, figures[key])
        for window in ("1", "5", "15"):
            if f"load{window}" in figures:
                yield Sample("host_load", figures[f"load{window}"], (("window", f"{window}m"),))
        yield from _pressure(system)


_NAMES = {
    "cpus": "host_cpus",
    "memory_total": "host_memory_total_bytes",
    "memory_available": "host_memory_available_bytes",
    "swap_total": "host_swap_total_bytes",
    "swap_used": "host_swap_used_bytes",
    "boot_time": "host_boot_time_seconds",
}


def _pressure(system: System) -> Iterator[Sample]:
    try:
        text = system.files.text("/proc/pressure/memory")
    except OSError:
        return  # a kernel without PSI
    yield from parse_pressure(text)


def parse_pressure(text: str) -> Iterator[Sample]:
    """Read a PSI file (kernel Documentation/accounting/psi.rst): avg10 in per cent → ratio."""
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        fields = dict(part.split("=", 1) for part in rest.split() if "=" in part)
        try:
            share = float(fields["avg10"]) / 100
        except (KeyError, ValueError):
            continue
        if kind in ("some", "full"):
            yield Sample("host_memory_pressure_ratio", share, (("kind", kind),))
