"""What an incident file says, as values. Times are seconds after the incident's beginning."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import Config
from ..model import Labels


@dataclass(frozen=True, slots=True)
class GivenSeries:
    """One series; ``values[i]`` stands at ``i * interval``, None for no sample there."""

    labels: Labels
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LogText:
    """Lines of a log. ``source``: kernel, ascend or vllm; ``service`` for the last only."""

    at: float
    source: str
    text: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """A server's process starts, exits (with ``code``), or is killed for the host's memory."""

    at: float
    service: str
    event: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A collector (every instance of it, where the name has no slash) that gives nothing."""

    collector: str
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Deed:
    """What a person does. ``alert`` for a silence only."""

    at: float
    do: str
    service: str = ""
    alert: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """The right answer. ``service`` empty: of the whole node; ``act``, ``alerts`` and ``causes``
    None where nothing is asked of them."""

    act: str | None = None
    by: float | None = None
    service: str = ""
    alerts: tuple[str, ...] | None = None
    causes: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Incident:
    """One file."""

    file: str
    name: str
    config: Config
    until: float
    series: tuple[GivenSeries, ...] = ()
    logs: tuple[LogText, ...] = ()
    processes: tuple[ProcessEvent, ...] = ()
    stalls: tuple[Stall, ...] = ()
    deeds: tuple[Deed, ...] = ()
    expected: tuple[Expected, ...] = ()
