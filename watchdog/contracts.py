"""What a plug-in must look like. Shapes only: no plug-in is named here and nothing is run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from .model import Checkpoint, Event, Page, Sample
from .system import System

Yield = Sample | Page | Event | Checkpoint


@runtime_checkable
class Collector(Protocol):
    """Reads one source once.

    ``name`` is the kind (``npu_smi``), ``instance`` the owner of the series
    (``vllm_metrics/deepseek``;
    equal to ``name`` where a node has one), ``scope`` the labels every series carries. ``interval``
    and
    ``timeout`` are seconds. ``collect`` raises NotSupported (off on this node), NoData (nothing
    just now), or lets the source's own error pass; it must not catch broadly, schedule, cache or
    time itself.
    """

    name: str

    @property
    def instance(self) -> str:
        """The name under which this instance owns its series."""
        ...

    @property
    def scope(self) -> Mapping[str, str]:
        """Labels that every series of this instance carries, besides its own."""
        ...

    @property
    def interval(self) -> float:
        """Seconds between two runs."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds after which a run counts as stalled."""
        ...

    def collect(self, system: System) -> Iterable[Yield]:
        """Read the source and yield what it says."""
        ...
