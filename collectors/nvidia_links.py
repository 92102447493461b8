"""How the node's NVIDIA GPUs are joined: ``nvidia-smi nvlink -s`` and ``topo -m``.

It runs beside the collector of the cards and more seldom, and learns from the cards seen there
which one a number or uuid means. Every series carries ``vendor="nvidia"`` and ``card``.

============================================ ======================================================
accelerator_link_up                          link (number); 1 or 0
accelerator_link_bandwidth_bytes_per_second  link; its speed now
accelerator_links_active                     how many are up
accelerator_topology                         1; peer (card or network card), path (NV12, PIX, SYS …)
accelerator_numa_node                        number of the node nearest to the card
accelerator_cpu_affinity                     1; cpus
============================================ ======================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..watchdog.contracts import Yield
from ..watchdog.errors import NoData
from ..watchdog.model import Sample
from ..watchdog.nvidia import links, messages
from ..watchdog.system import System

LINKS = ("nvidia-smi", "nvlink", "-s")
TOPOLOGY = ("nvidia-smi", "topo", "-m")
_CARDS_OF = "nvidia_smi"  # the instance whose checkpoint names the cards
_NOT_LINKS = ("accelerator_info", "accelerator_present")  # told with the cards


@dataclass(frozen=True)
class NvidiaLinks:
    """Links and topology. ``interval`` and ``timeout`` are seconds, the latter for both queries."""

    interval: float = 60.0
    timeout: float = 20.0

    name: ClassVar[str] = "nvidia_smi"

    @property
    def instance(self) -> str:
        """Its series are not those of NvidiaSmi."""
        return "nvidia_smi/links"

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides those on the samples."""
        return {}

    def collect(self, system: System) -> Iterable[Yield]:
        """Read links and topology. Raises NoData where the GPUs have neither."""
        cards = _places(system.checkpoints.get(_CARDS_OF))
        deadline = system.clock.mono() + self.timeout
        found: list[Sample] = []
        for command, parse in ((LINKS, links.nvlinks), (TOPOLOGY, links.matrix)):
            left = max(deadline - system.clock.mono(), 0.1)
            answer = system.runner.run(command, timeout=left)
            if not answer.code and not answer.truncated and not messages.failure(answer.text):
                found += [s for s in parse(answer.text, cards) if s.name not in _NOT_LINKS]
        if not found:
            raise NoData("nvidia-smi: neither NVLinks nor a topology are told")
        return found


def _places(doc: Mapping[str, Any] | None) -> dict[str, str]:
    """Card name by uuid and by the tool's number, of the cards seen."""
    found = {}
    for name, identity in ((doc or {}).get("cards") or {}).items():
        for key in ("uuid", "index"):
            if isinstance(identity, Mapping) and identity.get(key):
                found[str(identity[key])] = name
    return found
