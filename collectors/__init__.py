"""Collectors: one file a source. They read and parse; deadlines belong to the host.

The mapping below is the whole list; a collector's module is imported when it is first asked for, so
that what is off costs no memory.
"""

from __future__ import annotations

import importlib
from typing import Any

COLLECTORS: dict[str, tuple[str, str]] = {
    "npu_smi": ("npu_smi", "NpuSmi"),
    "hccn_tool": ("hccn_tool", "HccnTool"),
    "nvidia_smi": ("nvidia_smi", "NvidiaSmi"),
    "nvidia_links": ("nvidia_links", "NvidiaLinks"),
    "kernel_log": ("kernel_log", "KernelLog"),
    "ascend_log": ("ascend_log", "AscendLog"),
    "vllm_metrics": ("vllm_metrics", "VllmMetrics"),
    "vllm_log": ("vllm_log", "VllmLog"),
    "vllm_probe": ("vllm_probe", "VllmProbe"),
    "vllm_process": ("vllm_process", "VllmProcess"),
    "host": ("host", "HostFigures"),
    "numa": ("numa", "Numa"),
    "l3": ("l3", "L3"),
    "peers": ("peers", "Peers"),
    "fragmentation": ("fragmentation", "Fragmentation"),
}
"""Name of a collector → its module in this folder and its class there."""

PER_SERVICE = frozenset({"vllm_metrics", "vllm_log", "vllm_probe", "vllm_process"})
"""Collectors that run once for each service."""


def collector_class(name: str) -> Any:
    """The class of a collector. Raises KeyError for a name that is none."""
    module, attribute = COLLECTORS[name]
    return getattr(importlib.import_module(f".{module}", __name__), attribute)


def capture_function(name: str) -> Any:
    """The function that reads a captured output for a collector, or None where there is none."""
    module, _ = COLLECTORS[name]
    return getattr(importlib.import_module(f".{module}", __name__), "capture", None)
