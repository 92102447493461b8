"""From an incident and its source to the report: what belongs to it, in order, bounded."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..model import StoredEvent
from ..signals import SIGNALS, Signal
from . import retelling
from .clients import seen
from .model import Entry, Incident, LogLine, Plot, Report
from .sources import MOST_EVENTS, Source, Values
from .words import clock

LEAD, TAIL = 120.0, 60.0  # seconds shown before the first sign and after the end
EARLIEST = 1800.0  # seconds before the opening at which a first sign is still looked for
POINTS = 240  # of a line
MOST_LINES = 12  # of a plot
MOST_ENTRIES, MOST_LOG, MOST_EVIDENCE = 400, 120, 50
MOST_ALERTS, MOST_ACTS, MOST_REFUSALS = 100, 30, 100
LARGEST = 1e30  # of a value that is drawn
STANDBY = "/standby"

_OWN = (
    "act_", "alert_", "breaker_", "card_", "case_", "collector_", "command_", "configuration_",
    "daemon_", "events_lost", "healing_", "hold_", "journal_", "log_lost", "log_unreadable",
    "metrics_", "observing_", "orphan_", "outlet_", "page_", "peer_", "probe_", "recording_",
    "remediation_", "rule_", "server_exit", "service_", "silence", "state_", "tool_", "traffic_",
)  # fmt: skip
"""Beginnings of kinds that the daemon tells of itself; any other is a record of a log."""
_UNSEEN = (retelling.STEP, "alert_pending", "alert_inactive")
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
    alerts, acts, refusals = (
        retelling.alerts(events),
        retelling.acts(events),
        list(retelling.refusals(events)),
    )
    counts = {
        "alerts": (len(alerts), MOST_ALERTS),
        "acts": (len(acts), MOST_ACTS),
        "refusals": (len(refusals), MOST_REFUSALS),
        "events of the timeline": (len(timeline), MOST_ENTRIES),
        "records of the log": (len(log), MOST_LOG),
        "pieces of evidence": (len(incident_.evidence), MOST_EVIDENCE),
    }
    incident_ = replace(incident_, evidence=incident_.evidence[:MOST_EVIDENCE])
    return Report(
        incident_, source.node, version, made, source.label, begin, end,
        tuple(timeline[:MOST_ENTRIES]), tuple(alerts[:MOST_ALERTS]), tuple(acts[:MOST_ACTS]),
        tuple(refusals[:MOST_REFUSALS]), tuple(log[:MOST_LOG]), plots,
        tuple(seen(plots, max(begin, since), first, stop)),
        tuple(_notes(len(early), counts, plots, begin, before)),
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
    events: int, counts: Mapping[str, tuple[int, int]], plots: Sequence[Plot], begin: float,
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
    for what, (number, most) in counts.items():
        if number > most:
            yield f"Shown are {most} of {number} {what}."
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
            since = retelling.moment(event.fields.get("active_at"))
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
        lines = [
            (labels.get(signal.scope, ""), tuple((at, _drawn(value)) for at, value in points))
            for labels, points in found
            if points
        ]
        if lines:
            yield Plot(
                signal.name, signal.title, signal.unit, signal.scope, step,
                tuple(lines[:MOST_LINES]),
            )  # fmt: skip


def _drawn(value: float) -> float:
    """A value that has a place in a picture: what no card or server can mean is not known (NaN)."""
    if not abs(value) < LARGEST:
        return math.nan
    return value if abs(value) > 1 / LARGEST else 0.0


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
