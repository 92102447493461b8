"""From an incident and its source to the report: what belongs to it, in order, bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..model import StoredEvent
from ..signals import SIGNALS, Signal
from .clients import seen
from .model import Act, AlertSpan, Entry, Incident, LogLine, Plot, Refusal, Report, StepTaken
from .sources import MOST_EVENTS, Source, Values
from .words import clock

LEAD, TAIL = 120.0, 60.0  # seconds shown before the first sign and after the end
EARLIEST = 1800.0  # seconds before the opening at which a first sign is still looked for
POINTS = 240  # of a line
MOST_LINES = 12  # of a plot
MOST_ENTRIES, MOST_LOG = 400, 120
STANDBY = "/standby"

_OWN = (
    "act_", "alert_", "breaker_", "card_", "case_", "collector_", "command_", "configuration_",
    "daemon_", "events_lost", "healing_", "hold_", "journal_", "log_lost", "log_unreadable",
    "metrics_", "observing_", "orphan_", "outlet_", "page_", "peer_", "probe_", "recording_",
    "remediation_", "rule_", "server_exit", "service_", "silence", "state_", "tool_", "traffic_",
)  # fmt: skip
"""Beginnings of kinds that the daemon tells of itself; any other is a record of a log."""
_STEP = "remediation_step"
_UNSEEN = (_STEP, "alert_pending", "alert_inactive")
"""What the timeline leaves out: steps stand with their act, "since when" with its alert."""
_NODE = ("breaker_", "configuration_", "daemon_", "events_lost", "healing_", "hold_", "journal_")
"""What concerns every case of the node."""
_PEOPLE = ("healing_", "hold_", "remediation_approved", "alert_silenced", "silence", "command_")


def compose(source: Source, incident: Incident, version: str, made: float) -> Report:
    """The report on an incident. Raises ConfigError where the source cannot be read."""
    stop = incident.closed if incident.closed is not None else source.now()
    before, behind = _neighbours(source, incident)
    since = max(incident.opened - EARLIEST, (before.closed or 0.0) + 0.001 if before else 0.0)
    until = min(stop + TAIL, behind.opened if behind else math.inf)
    early = source.events(since, until)
    events = [event for event in early if _belongs(event, incident)]
    first = _first_sign(events, incident)
    begin, end = first - LEAD, min(stop + TAIL, until)
    if not incident.key:
        first, begin, end = incident.opened, incident.opened, stop
    events = [event for event in events if event.time >= begin]
    values = source.values(begin, end)
    incident_ = _with_cards(incident, values)
    plots = tuple(_plots(values, incident_, begin, end))
    timeline = [_entry(event) for event in events if not event.kind.startswith(_UNSEEN)]
    log = [_log_line(event) for event in events if _sort(event) == "log"]
    return Report(
        incident_, source.node, version, made, source.label, begin, end,
        tuple(timeline[:MOST_ENTRIES]), tuple(_alerts(events)), tuple(_acts(events)),
        tuple(_refusals(events)), tuple(log[:MOST_LOG]), plots,
        tuple(seen(plots, max(begin, since), first, stop)),
        tuple(_notes(len(early), len(timeline), len(log), plots, begin, before)),
    )  # fmt: skip


def _neighbours(source: Source, incident: Incident) -> tuple[Incident | None, Incident | None]:
    """The incidents of the same case before and after this one."""
    if not incident.key:
        return None, None
    same = [each for each in source.incidents() if each.key == incident.key]
    before = [each for each in same if each.closed and each.closed <= incident.opened]
    after = [each for each in same if each.opened > incident.opened]
    return (before[0] if before else None), (after[-1] if after else None)


def _notes(
    events: int, timeline: int, log: int, plots: Sequence[Plot], begin: float,
    before: Incident | None,
) -> Iterable[str]:  # fmt: skip
    """What is missing or was cut."""
    if before is not None and before.closed is not None and before.closed > begin:
        yield (
            f"The incident before it ({before.name}) ended at {clock(before.closed)}: "
            "the plots show its end, too."
        )
    if events >= MOST_EVENTS:
        yield f"Only the newest {MOST_EVENTS} events of this time were looked at."
    if timeline > MOST_ENTRIES:
        yield f"The timeline shows {MOST_ENTRIES} of {timeline} events."
    if log > MOST_LOG:
        yield f"The log shows {MOST_LOG} of {log} records."
    if not plots:
        yield "No values of this time are held any more, so there are no plots."


def _belongs(event: StoredEvent, incident: Incident) -> bool:
    """Whether an event tells of this incident."""
    if not incident.key or event.fields.get("case") == incident.key:
        return True
    labels = dict(event.labels)
    service, card = labels.get("service", ""), labels.get("card", "")
    if event.kind.startswith("case_") or (event.fields.get("case") and not service):
        return False  # another case's
    if service:
        return service.removesuffix(STANDBY) == incident.service if incident.service else False
    if card:
        return card in incident.cards
    return event.kind.startswith(_NODE) or event.severity != "info"


def _first_sign(events: Sequence[StoredEvent], incident: Incident) -> float:
    """When the first alert became active that still was at the opening, or the first grave event
    shortly before it. Alerts that the case does not name count only if they are as recent."""
    signs = [incident.opened]
    active: dict[tuple[Any, ...], float] = {}
    for event in events:
        named = dict(event.labels).get("alertname", "") in (incident.alert, *incident.explains)
        earliest = incident.opened - (EARLIEST if named else LEAD)
        if event.time > incident.opened:
            break
        if event.kind.startswith("alert_"):
            active.pop(event.labels, None)
            since = _moment(event.fields.get("active_at"))
            if event.fields.get("after") in ("pending", "firing") and since is not None:
                active[event.labels] = since if since >= earliest else incident.opened
        elif event.severity == "critical" and event.time >= earliest:
            signs.append(event.time)
    return min((*signs, *active.values()))


def _with_cards(incident: Incident, values: Values) -> Incident:
    """The incident with all cards of its service, as far as they are known."""
    if not incident.service:
        return incident
    text = Signal("", "service", "number", "", "max by (card) (service_card{$})").expression(
        (incident.service, incident.service + STANDBY)
    )
    found = values(text, incident.opened - LEAD, incident.opened, LEAD / 4)
    cards = {labels["card"] for labels, _ in found if labels.get("card")}
    return replace(incident, cards=tuple(sorted(cards | set(incident.cards))))


def _plots(values: Values, incident: Incident, begin: float, end: float) -> Iterable[Plot]:
    """The figures of the services and cards concerned that have values."""
    step = max(5.0, math.ceil((end - begin) / POINTS))
    services = (incident.service, incident.service + STANDBY) if incident.service else ()
    for signal in SIGNALS:
        wanted = services if signal.scope == "service" else incident.cards
        if signal.scope == "peer":
            wanted = ()
            if incident.key and incident.cause not in ("network_outage", "link_down", "latency"):
                continue
        elif not wanted and incident.key:
            continue
        found = values(signal.expression(wanted), begin, end, step)
        lines = [(labels.get(signal.scope, ""), points) for labels, points in found if points]
        if lines:
            yield Plot(
                signal.name, signal.title, signal.unit, signal.scope, step,
                tuple(lines[:MOST_LINES]),
            )  # fmt: skip


def _sort(event: StoredEvent) -> str:
    """Which sort of entry an event is."""
    kind = event.kind
    if not kind.startswith(_OWN):
        return "log"
    if kind.startswith(_PEOPLE) or event.fields.get("who"):
        return "person"
    if kind.startswith("alert_"):
        return "alert"
    if kind.startswith("case_"):
        return "case"
    if kind.startswith(("remediation_", "page_", "card_", "breaker_", "traffic_")):
        return "act"
    return "node"


def _where(event: StoredEvent) -> str:
    labels = dict(event.labels)
    return " ".join(
        labels[key] for key in ("service", "card", "peer", "collector") if labels.get(key)
    )


def _entry(event: StoredEvent) -> Entry:
    text = event.message or event.kind
    return Entry(event.time, _sort(event), event.kind, event.severity, text, _where(event))


def _log_line(event: StoredEvent) -> LogLine:
    return LogLine(event.time, event.kind, event.severity, event.message, _where(event))


def _alerts(events: Iterable[StoredEvent]) -> list[AlertSpan]:
    """The alerts that changed, each from its first sign to its end."""
    spans: dict[tuple[Any, ...], AlertSpan] = {}
    for event in events:
        if not event.kind.startswith("alert_") or "after" not in event.fields:
            continue
        labels = dict(event.labels)
        fields = event.fields
        key = (event.labels, fields.get("active_at"))
        before = spans.get(key)
        annotations = fields.get("annotations")
        summary = annotations.get("summary", "") if isinstance(annotations, dict) else ""
        over = event.time if fields["after"] in ("resolved", "inactive") else None
        spans[key] = AlertSpan(
            labels.get("alertname", ""),
            {name: value for name, value in labels.items() if name != "alertname"},
            labels.get("severity", ""),
            _moment(fields.get("active_at")),
            _moment(fields.get("fired_at")) or (before.fired if before else None),
            over,
            str(summary) or (before.summary if before else ""),
        )
    return [span for span in spans.values() if span.fired is not None]


def _acts(events: Sequence[StoredEvent]) -> list[Act]:
    """The acts that were let through, with their steps."""
    acts: list[Act] = []
    for event in events:
        if event.kind != "remediation_requested":
            continue
        name = str(event.fields.get("request") or "")
        own = [each for each in events if name and each.fields.get("request") == name]
        end = next((each for each in own if each.kind == "remediation_ended"), None)
        status = str(end.fields.get("status") or "") if end is not None else "under way"
        detail = ""
        if end is not None:
            detail = end.message.partition(f": {status}")[2].lstrip(", ")
        steps = [_step(each) for each in own if each.kind.startswith(_STEP)]
        attempt = event.fields.get("attempt")
        healthy = end.fields.get("seconds_to_healthy") if end is not None else None
        acts.append(
            Act(
                str(event.fields.get("remediation") or ""), name,
                attempt if isinstance(attempt, int) else 1, event.time,
                end.time if end is not None else None, status, detail, tuple(steps),
                float(healthy) if isinstance(healthy, int | float) else None,
            )
        )  # fmt: skip
    return acts


def _step(event: StoredEvent) -> StepTaken:
    fields = event.fields
    seconds = fields.get("duration", fields.get("seconds"))
    return StepTaken(
        event.time,
        str(fields.get("step") or event.message),
        str(fields.get("status") or fields.get("state") or ""),
        float(seconds) if isinstance(seconds, int | float) else None,
        str(fields.get("detail") or ""),
    )


def _refusals(events: Iterable[StoredEvent]) -> Iterable[Refusal]:
    """What was not done, and what would have been."""
    for event in events:
        if event.kind not in ("remediation_refused", "remediation_would"):
            continue
        checks = event.fields.get("checks")
        against = {
            str(name): str(text)
            for name, text in (checks.items() if isinstance(checks, dict) else ())
            if text
        }
        yield Refusal(
            event.time,
            str(event.fields.get("remediation") or ""),
            str(event.fields.get("reason") or ""),
            event.message,
            against,
            event.kind == "remediation_would",
        )


def _moment(text: Any) -> float | None:
    """An event's RFC 3339 text as Unix seconds; None where it is none."""
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None
