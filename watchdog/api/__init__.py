"""The daemon's HTTP side: metrics, health, queries, a page. It reads what it is given and changes
nothing.

``Snapshot`` is what the exporter shows; ``Views`` is what the server asks the daemon.
Both are shapes only: the service fills them, from any thread, without waiting for a tick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..figures import CollectorFigures, OutletFigures
from ..model import Json, Labels

__all__ = ["CollectorFigures", "OutletFigures", "Snapshot", "Views"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The daemon as of its last finished tick.

    ``series``: the live series (label sets with ``__name__``) and their newest values; a further
    one with an equal label set is left out. ``described``: type and help of metrics whose names are
    another exporter's. ``alerts``: how many by (alertname, state). Counts are
    since the start, durations in seconds, ``time`` the tick's Unix seconds.
    """

    version: str = ""
    ready: bool = False
    time: float = 0.0
    series: Sequence[tuple[Labels, float]] = ()
    described: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    collectors: Sequence[CollectorFigures] = ()
    outlets: Sequence[OutletFigures] = ()
    alerts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ticks: int = 0
    ticks_late: int = 0
    tick_duration: float = 0.0
    rule_failures: int = 0
    rules_missed: int = 0
    window_series: int = 0
    window_points_dropped: int = 0
    journal_events: int = 0
    journal_errors: int = 0
    journal_bytes: int = 0


class Views(Protocol):
    """What the HTTP side may ask of the daemon. Called from many threads; must not block long."""

    def snapshot(self) -> Snapshot:
        """The daemon as of its last finished tick."""
        ...

    def query(self, expr: str, at_ms: int | None) -> Json:
        """``{resultType, result}`` of an instant query as Prometheus gives it.

        ``at_ms`` None: at the last tick. Raises ConfigError for a bad expression, another
        WatchdogError when it cannot be evaluated.
        """
        ...

    def query_range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Json:
        """``{resultType, result}`` of a range query; raises like ``query``."""
        ...

    def alerts(self) -> Sequence[Json]:
        """The alerts in the shape of ``alerts --json``."""
        ...

    def status(self) -> Json:
        """The document of ``status --json``."""
        ...

    def explain(self, what: str) -> Json:
        """Why: a service, a card, an alert's name, or the node where ``what`` is empty."""
        ...

    def events(self, after: int, limit: int, filters: Mapping[str, Any]) -> Sequence[Json]:
        """Journal events behind ``after``; ``filters``: kind, severity, service, since, until."""
        ...

    def healing(self) -> Json:
        """The document of ``/api/v1/healing``: cases, acts, budgets, what was done and refused."""
        ...

    def figures(self) -> Json:
        """The last minutes of what the page draws: ``{times, plots}``."""
        ...

    def incidents(self) -> Sequence[Json]:
        """The incidents that the journal tells of, newest first."""
        ...

    def report(self, name: str, form: str) -> tuple[str, str]:
        """An incident's name and its report, in the form html or markdown; ``name`` empty: the
        newest. Raises ConfigError for one that is not known."""
        ...
