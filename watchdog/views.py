"""What the HTTP side and people see of the daemon: snapshot, status, alerts, queries.

Everything is read under the daemon's lock and given as plain values; nothing is changed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from . import promql
from .api import CollectorFigures, OutletFigures, Snapshot
from .daemon import Daemon
from .engine import CollectorState
from .errors import ConfigError, Place, Problem, WatchdogError
from .explain import explain
from .livefigures import LiveFigures
from .model import NAME, Json, Labels, Sample, StoredEvent, labelset
from .outlook import outlook
from .policies import effective
from .promql import EvaluationError, PromqlError, Scalar, String, Value, Vector
from .report import chosen, compose
from .report.keeping import FORMS, kept_report
from .report.sources import JournalSource
from .rules import ALERTS, RECORDER
from .system import Clock, hostname
from .version import version
from .wire import alert_doc, moment, number

if TYPE_CHECKING:
    from .compat import Family


RECENT = 30  # events about acts that the page shows
ACT_KINDS = (
    "remediation_requested,remediation_ended,remediation_refused,remediation_would,page_sent,"
    "card_quarantined,card_released,healing_paused,healing_resumed,remediation_approved"
)
PATIENCE = 2.0  # seconds that a person's query may hold up the engine
TURN = 6.0  # seconds that it waits for those before it


class _Patience:
    """Ends a query that takes too long. Raises EvaluationError when called then."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end = clock.mono() + PATIENCE

    def __call__(self) -> None:
        if self._clock.mono() > self._end:
            raise EvaluationError(
                f"takes longer than {PATIENCE:g} s: name fewer series, a shorter range or a "
                "larger step"
            )


class DaemonViews:
    """The Views of one daemon (see ``api``)."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._version = version()
        self._asking = threading.Lock()
        self._figures = LiveFigures(self.query_range)

    def snapshot(self) -> Snapshot:
        """The daemon as of its last finished tick."""
        daemon = self._daemon
        with daemon.lock:
            tick, engine = daemon.last_tick, daemon.engine
            series = [
                (key, value)
                for key, value, owner in engine.window.latest(engine.ms)
                if not owner.startswith(_BOOKKEEPING)
            ]
            states = dict(engine.collectors)
            alerts = Counter((alert.name, str(alert.state)) for alert in engine.alerts())
            counts = engine.window.counts
            dropped = counts.series_refused + counts.points_cut + counts.out_of_order
            counters = engine.rules.counters
            size = len(engine.window)
        journal = daemon.journal
        shown = [item for item in series if (NAME, "up") not in item[0]]
        foreign = compatible(series, daemon.loaded.config.compat)
        shown += [
            (labelset(sample.labels, sample.name), sample.value)
            for family in foreign
            for sample in family.samples
        ]
        return Snapshot(
            version=self._version,
            ready=tick is not None,
            time=tick.wall if tick else 0.0,
            series=shown,
            described={family.name: (family.kind, family.help) for family in foreign},
            collectors=[_figures(name, state) for name, state in sorted(states.items())],
            outlets=self._outlets(),
            alerts=dict(alerts),
            ticks=engine.ticks,
            ticks_late=daemon.missed_ticks,
            tick_duration=daemon.last_duration,
            rule_failures=sum(counters.failures.values()),
            rules_missed=sum(counters.missed.values()),
            window_series=size,
            window_points_dropped=dropped,
            journal_events=journal.written if journal else 0,
            journal_errors=daemon.journal_errors,
            journal_bytes=journal.size() if journal else 0,
        )

    def query(self, expr: str, at_ms: int | None) -> Json:
        """See Views.query."""
        return self._evaluate(
            expr,
            lambda tree, window, now, watch: promql.query(
                tree, window, now if at_ms is None else at_ms, watch=watch
            ),
        )

    def query_range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Json:
        """See Views.query_range."""
        return self._evaluate(
            expr,
            lambda tree, window, _now, watch: promql.query_range(
                tree, window, start_ms, end_ms, step_ms, watch=watch
            ),
        )

    def _evaluate(self, expr: str, run: Any) -> Json:
        try:
            tree = promql.load(expr)
            with self._turn(), self._daemon.lock:
                engine = self._daemon.engine
                watch = _Patience(self._daemon.system.clock)
                found = run(tree, engine.window, engine.ms, watch)
            return result_doc(found)
        except PromqlError as error:
            raise ConfigError(
                Problem(Place("query", error.line, error.column), error.message)
            ) from error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        """One question at a time, so that a tick never waits for more than one."""
        if not self._asking.acquire(timeout=TURN):
            raise WatchdogError("other queries are being answered: ask again")
        try:
            yield
        finally:
            self._asking.release()

    def alerts(self) -> Sequence[Json]:
        """See Views.alerts."""
        with self._daemon.lock:
            found = list(self._daemon.engine.alerts())
        order = {"firing": 0, "pending": 1, "resolved": 2, "inactive": 3}
        found.sort(key=lambda alert: (order[alert.state], alert.name, alert.labels))
        return [alert_doc(alert) for alert in found]

    def explain(self, what: str) -> Json:
        """See Views.explain."""
        with self._daemon.lock:
            return explain(self._daemon.engine, what)

    def events(self, after: int, limit: int, filters: Mapping[str, Any]) -> Sequence[Json]:
        """See Views.events."""
        journal = self._daemon.journal
        if journal is None:
            return []
        service = filters.get("service")
        found = journal.history(
            after=after,
            limit=limit,
            kinds=filters["kind"].split(",") if filters.get("kind") else (),
            severities=[filters["severity"]] if filters.get("severity") else (),
            labels={"service": service} if service else None,
            since=filters.get("since"),
            until=filters.get("until"),
        )
        return [_event_doc(event) for event in found]

    def healing(self) -> Json:
        """See Views.healing."""
        with self._daemon.lock:
            doc = outlook(self._daemon.engine)
        doc["recent"] = list(self.events(0, RECENT, {"kind": ACT_KINDS}))
        return doc

    def figures(self) -> Json:
        """See Views.figures."""
        return self._figures.at(self._daemon.engine.ms)

    def incidents(self) -> Sequence[Json]:
        """See Views.incidents."""
        folder = self._daemon.loaded.config.state
        return [
            {**each.document(), "kept": kept_report(folder, each.name) is not None}
            for each in self.source().incidents()
        ]

    def report(self, name: str, form: str) -> tuple[str, str]:
        """See Views.report. One that was written at its end shows values that are gone by now."""
        source = self.source()
        incident = chosen(source.incidents(), name)
        kept = kept_report(self._daemon.loaded.config.state, incident.name, form)
        if kept is not None and incident.closed is not None:
            with contextlib.suppress(OSError):
                return incident.name, kept.read_text("utf-8")
        made = self._daemon.system.clock.wall()
        return incident.name, FORMS[form][1](compose(source, incident, self._version, made))

    def source(self) -> JournalSource:
        """What reports on this daemon are made from."""
        daemon = self._daemon
        return JournalSource(
            daemon.journal,
            self.query_range,
            daemon.labels["instance"],
            lambda: daemon.engine.ms / 1000,
        )

    def status(self) -> Json:
        """See Views.status."""
        daemon = self._daemon
        with daemon.lock:
            engine = daemon.engine
            table = _Table((key, value) for key, value, _ in engine.window.latest(engine.ms))
            states = dict(engine.collectors)
            forced = engine.healer.standing.forced
            firing = [alert_doc(a) for a in engine.alerts() if a.state == "firing"]
            groups = [
                {"name": group.name, "rules": len(group.rules)} for group in engine.rules.groups
            ]
        mode = "observe" if forced else daemon.loaded.config.mode
        return {
            "version": self._version,
            "mode": mode,
            "observing_because": forced or None,
            "instance": daemon.labels["instance"],
            "time": moment(engine.ms / 1000) if engine.ms else None,
            "uptime": round(daemon.uptime(), 1),
            "ticks": engine.ticks,
            "firing": len(firing),
            "alerts": firing,
            "cards": table.cards(),
            "services": [
                table.service(name, service.url, effective(mode, service.mode))
                for name, service in sorted(daemon.seen.services.items())
            ],
            "collectors": [_collector_doc(name, state) for name, state in sorted(states.items())],
            "outlets": [
                {"outlet": o.name, "up": o.up, "lag": o.lag, "error": o.last_error or None}
                for o in self._outlets()
            ],
            "groups": groups,
            "journal": {"error": daemon.journal_error},
            "window": {"series": len(engine.window)},
        }

    def _outlets(self) -> list[OutletFigures]:
        return [outlet.figures() for outlet in self._daemon.outlets]


class _Table:
    """The newest values by name and label, for a person's overview."""

    def __init__(self, series: Any) -> None:
        self._by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
        for key, value in series:
            labels = dict(key)
            self._by_name.setdefault(labels.pop(NAME, ""), []).append((labels, value))

    def value(self, name: str, **labels: str) -> float | int | str | None:
        """The value of the one series of ``name`` with these labels; None where there is none."""
        for found, value in self._by_name.get(name, ()):
            if all(found.get(key) == wanted for key, wanted in labels.items()):
                return number(value)
        return None

    def total(self, name: str, **labels: str) -> float | int | str | None:
        """The sum over all series of ``name`` with these labels; None where there is none."""
        values = [
            value
            for found, value in self._by_name.get(name, ())
            if all(found.get(key) == wanted for key, wanted in labels.items())
        ]
        return number(sum(values)) if values else None

    def cards(self) -> list[dict[str, Any]]:
        """One row per card that was seen or is expected."""
        known: dict[str, dict[str, str]] = {}
        for name in ("accelerator_present", "accelerator_info"):
            for labels, _ in self._by_name.get(name, ()):
                known.setdefault(labels.get("card", ""), {}).update(labels)
        return [self._card(card, labels) for card, labels in sorted(known.items())]

    def _card(self, card: str, labels: Mapping[str, str]) -> dict[str, Any]:
        def of(name: str) -> float | int | str | None:
            return self.value(f"accelerator_{name}", card=card)

        return {
            "card": card,
            "vendor": labels.get("vendor"),
            "model": labels.get("model"),
            "present": of("present"),
            "healthy": of("healthy"),
            "utilization": of("utilization_ratio"),
            "memory_used_bytes": of("memory_used_bytes"),
            "memory_total_bytes": of("memory_total_bytes"),
            "temperature": of("temperature_celsius"),
            "power_watts": of("power_watts"),
        }

    def service(self, name: str, url: str, mode: str) -> dict[str, Any]:
        """One row of a service."""
        verdicts = self._by_name.get("service_probe_verdict", ())
        probe = [found["verdict"] for found, _ in verdicts if found.get("service") == name]
        return {
            "service": name,
            "url": url,
            "mode": mode,
            "up": self.value("service_up", service=name),
            "health": self.value("service_health", service=name),
            "probe": probe[0] if probe else None,
            "running": self.total("vllm:num_requests_running", service=name),
            "waiting": self.total("vllm:num_requests_waiting", service=name),
            "cards": sorted(
                found.get("card", "")
                for found, _ in self._by_name.get("service_card", ())
                if found.get("service") == name
            ),
        }


def compatible(
    series: Sequence[tuple[Labels, float]], exporters: Sequence[str]
) -> Sequence[Family]:
    """The same cards' figures under the names of the exporters asked for."""
    if not exporters:
        return ()
    from .compat import families

    samples = [
        Sample(dict(key)[NAME], value, tuple(pair for pair in key if pair[0] != NAME))
        for key, value in series
        if dict(key)[NAME].startswith("accelerator_")
    ]
    return families(samples, exporters, hostname())


_BOOKKEEPING = (RECORDER, ALERTS)
"""Owners of series that are not exported: a centre with the same rules makes them itself, and two
writers of one series would fight."""


def _figures(name: str, state: CollectorState) -> CollectorFigures:
    return CollectorFigures(
        name,
        state.success,
        state.duration,
        state.stalled,
        state.absent,
        state.error,
        state.succeeded or 0.0,
    )


def _collector_doc(name: str, state: CollectorState) -> dict[str, Any]:
    if state.absent:
        word = "not on this node"
    elif state.success:
        word = "ok"
    else:
        word = "stalled" if state.stalled else "failed"
    return {
        "collector": name,
        "state": word,
        "since": moment(state.since),
        "duration": round(state.duration, 4),
        "last_success": moment(state.succeeded) if state.succeeded else None,
        "error": state.error,
    }


def _event_doc(event: StoredEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "id": event.id,
        "time": moment(event.time),
        "kind": event.kind,
        "severity": event.severity,
        "message": event.message,
        "labels": dict(event.labels),
        "fields": event.fields,
    }


def result_doc(result: Value) -> dict[str, Any]:
    """A query's result as Prometheus' HTTP API gives it: values as strings, times in seconds."""
    if isinstance(result, Scalar):
        return {"resultType": "scalar", "result": [result.ms / 1000, _decimal(result.value)]}
    if isinstance(result, String):
        return {"resultType": "string", "result": [result.ms / 1000, result.value]}
    if isinstance(result, Vector):
        vector = [
            {"metric": dict(key), "value": [result.ms / 1000, _decimal(value)]}
            for key, value in result.elements
        ]
        return {"resultType": "vector", "result": vector}
    matrix = [
        {"metric": dict(key), "values": [[ms / 1000, _decimal(value)] for ms, value in points]}
        for key, points in result.series
    ]
    return {"resultType": "matrix", "result": matrix}


def _decimal(value: float) -> str:
    """A number without an exponent, the shortest that reads back as itself."""
    special = number(value)
    if isinstance(special, str):
        return special
    return format(Decimal(repr(value)).normalize(), "f")
