"""The metrics page, made afresh from a snapshot at each scrape, so what has ended is gone.

Negotiation and number format are prometheus_client's. Lines are put together here, because a
series' text before its value hardly ever changes and is kept. ``job`` and ``instance`` are left
out: the scrape adds them. No timestamps: a series with one would not go stale.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.exposition import escape_label_name, escape_metric_name
from prometheus_client.utils import floatToGoString

from ..model import NAME, Labels, labelset
from . import Snapshot
from .metrics import help_text, own

DROPPED = frozenset({NAME, "job", "instance"})
_number: Callable[[float], str] = floatToGoString
HISTOGRAM = ("_bucket", "_sum", "_count")


@dataclass(slots=True)
class Family:
    """One metric family: its name without the counter's suffix, and its lines by their text.

    ``help`` is set where another exporter's words are taken over.
    """

    name: str
    type: str
    help: str = ""
    lines: dict[str, float] = field(default_factory=dict)


class Exporter:
    """Renders snapshots. Keeps each series' text between scrapes; one at a time may render."""

    def __init__(self) -> None:
        self._heads: dict[Labels, tuple[str, str]] = {}
        self._escaping = ""

    def render(self, snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
        """The page and its content type for an Accept header."""
        content_type = choose_encoder(accept)[1]
        openmetrics = content_type.startswith("application/openmetrics-text")
        escaping = content_type.partition("escaping=")[2] or "underscores"
        if escaping != self._escaping:
            self._heads, self._escaping = {}, escaping
        series = [*snapshot.series, *own_series(snapshot)]
        text = "".join(
            part
            for family in self._families(series, snapshot.described)
            for part in _text(family, openmetrics, escaping)
        )
        return (text + ("# EOF\n" if openmetrics else "")).encode(), content_type

    def _families(
        self,
        series: Iterable[tuple[Labels, float]],
        described: Mapping[str, tuple[str, str]],
    ) -> Iterable[Family]:
        """The families by name, their lines in the order of the series."""
        known: dict[Labels, tuple[str, str]] = self._heads
        heads: dict[Labels, tuple[str, str]] = {}
        found: list[tuple[str, str, float]] = []
        for key, value in series:
            line = known.get(key) or _head(key, self._escaping)
            heads[key] = line
            found.append((*line, value))
        self._heads = heads
        names = {name for name, _, _ in found}
        places = {
            name: (name, *described[name]) if name in described else (*_family(name, names), "")
            for name in names
        }
        families: dict[str, Family] = {}
        for name, head, value in found:
            base, kind, words = places[name]
            family = families.get(base)
            if family is None:
                family = families[base] = Family(base, kind, words)
            family.lines.setdefault(head, value)
        return [families[name] for name in sorted(families)]


def own_series(snapshot: Snapshot) -> Iterator[tuple[Labels, float]]:
    """The daemon's own figures as series."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    yield labelset({"version": snapshot.version, "python": python}, "watchdog_build_info"), 1.0
    for name, value in _scalars(snapshot):
        yield labelset({}, name), float(value)
    for collector in snapshot.collectors:
        if collector.absent:
            continue  # neither a success nor a failure
        labels = {"collector": collector.name}
        yield labelset(labels, "watchdog_collector_success"), float(collector.success)
        yield labelset(labels, "watchdog_collector_stalled"), float(collector.stalled)
        yield labelset(labels, "watchdog_collector_duration_seconds"), collector.duration
        if collector.succeeded:
            name = "watchdog_collector_last_success_timestamp_seconds"
            yield labelset(labels, name), collector.succeeded
    for outlet in snapshot.outlets:
        labels = {"outlet": outlet.name}
        yield labelset(labels, "watchdog_outlet_up"), float(outlet.up)
        yield labelset(labels, "watchdog_outlet_lag_events"), float(outlet.lag)
        yield labelset(labels, "watchdog_outlet_sent_total"), float(outlet.sent)
        yield labelset(labels, "watchdog_outlet_errors_total"), float(outlet.errors)
        yield labelset(labels, "watchdog_outlet_refused_total"), float(outlet.refused)
        yield labelset(labels, "watchdog_outlet_lost_total"), float(outlet.lost)
    for (name, state), count in snapshot.alerts.items():
        yield labelset({"alertname": name, "alertstate": state}, "watchdog_alerts"), float(count)


def _scalars(snapshot: Snapshot) -> tuple[tuple[str, float], ...]:
    return (
        ("watchdog_ticks_total", snapshot.ticks),
        ("watchdog_ticks_late_total", snapshot.ticks_late),
        ("watchdog_tick_duration_seconds", snapshot.tick_duration),
        ("watchdog_tick_timestamp_seconds", snapshot.time),
        ("watchdog_rule_evaluation_failures_total", snapshot.rule_failures),
        ("watchdog_rule_missed_total", snapshot.rules_missed),
        ("watchdog_window_series", snapshot.window_series),
        ("watchdog_window_points_dropped_total", snapshot.window_points_dropped),
        ("watchdog_journal_events_total", snapshot.journal_events),
        ("watchdog_journal_errors_total", snapshot.journal_errors),
        ("watchdog_journal_bytes", snapshot.journal_bytes),
    )


def _head(key: Labels, escaping: str) -> tuple[str, str]:
    """A series' name, and its line up to its value."""
    name = dict(key)[NAME]
    shown = escape_metric_name(name, escaping)
    pairs = [
        f'{escape_label_name(label, escaping)}="{_escaped(value)}"'
        for label, value in key
        if label not in DROPPED
    ]
    if shown.startswith('"'):
        return name, f"{{{','.join([shown, *pairs])}}} "
    return name, f"{shown}{{{','.join(pairs)}}} " if pairs else f"{shown} "


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _family(name: str, names: Container[str]) -> tuple[str, str]:
    """Name and type of the family that a series belongs to, given all names on the page."""
    for suffix in HISTOGRAM:
        base = name.removesuffix(suffix)
        if base != name and all(base + other in names for other in HISTOGRAM):
            return base, "histogram"
    base = name.removesuffix("_total")
    if base != name and base not in names:
        return base, "counter"
    return name, "gauge" if own(name) and base == name else "unknown"


def _text(family: Family, openmetrics: bool, escaping: str) -> Iterator[str]:
    name, kind = family.name, family.type
    full = name + "_total" if kind == "counter" and not family.help else name
    if openmetrics and family.help and kind == "counter":
        kind = "unknown"  # there a counter's name must end in _total, and theirs does not
    if not openmetrics:
        name = full
        kind = "untyped" if kind == "unknown" else kind
    shown = escape_metric_name(name, escaping)
    yield f"# HELP {shown} {family.help or help_text(full)}\n# TYPE {shown} {kind}\n"
    for head, value in family.lines.items():
        yield f"{head}{_number(value)}\n"
