"""Kibana's saved objects: data views, searches in its own query language, a dashboard.

Values only. Forms as Kibana 8 exports them; a newer Kibana migrates them when they are imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

PREFIX = "vllm-watchdog"
EVENTS, LOGS = f"{PREFIX}-events", f"{PREFIX}-vllm-logs"
VIEWS = {EVENTS: "logs-vllm_watchdog-*", LOGS: "logs-vllm-*"}
FORM = "8.0.0"  # the form of the objects; migrated from there


@dataclass(frozen=True, slots=True)
class Search:
    """A saved search: its query (KQL) and the columns that are shown."""

    id: str
    title: str
    query: str
    columns: tuple[str, ...]
    description: str
    view: str = EVENTS


_ACTS = (
    "case_opened or case_changed or remediation_requested or remediation_step or remediation_ended "
    "or remediation_would or page_sent"
)
_FIELDS = "vllm_watchdog.fields"
SEARCHES = (
    Search(
        "acts",
        "vllm-watchdog: every act, why and with what result",
        f"event.action: ({_ACTS})",
        ("service.name", "event.action", f"{_FIELDS}.cause", f"{_FIELDS}.remediation",
         f"{_FIELDS}.status", "message"),
        "What the daemon did: the case with its evidence, the request with every check, each step, "
        "the result.",
    ),
    Search(
        "faults",
        "vllm-watchdog: faults by card",
        "labels.card: * and event.severity >= 2",
        ("labels.card", "labels.vendor", "service.name", "event.action", "labels.code", "message"),
        "Everything grave that names a card, from tools, kernel and drivers.",
    ),
    Search(
        "refusals",
        "vllm-watchdog: refusals",
        "event.action: (remediation_refused or breaker_opened or healing_paused or hold_file)",
        ("service.name", f"{_FIELDS}.remediation", f"{_FIELDS}.reason", "message"),
        "What was not done, and the check that stood against it.",
    ),
    Search(
        "alerts",
        "vllm-watchdog: alerts",
        "event.kind: alert and event.action: (alert_firing or alert_resolved)",
        ("labels.alertname", "service.name", "labels.card", "event.action", "message"),
        "Alerts that began and ended on the nodes.",
    ),
    Search(
        "engine-errors",
        "vllm-watchdog: errors of vLLM as the daemon read them",
        "service.name: * and event.severity >= 2 and not event.kind: alert "
        "and not event.action: (remediation_* or case_* or page_sent)",
        ("service.name", "event.action", "log.level", "message"),
        "One event for each cause in vLLM's logs, copies folded.",
    ),
    Search(
        "vllm-logs",
        "vLLM: lines that name a fault",
        "fields.app: vllm-ascend and event.action: *",
        ("host.name", "service.name", "log.level", "event.action", "message"),
        "vLLM's own log lines as Filebeat or Elastic Agent bring them, with the kind that the "
        "daemon gives them.",
        LOGS,
    ),
)  # fmt: skip


def saved_objects() -> list[dict[str, Any]]:
    """All objects, what is referred to before what refers to it."""
    views = [_view(name, pattern) for name, pattern in VIEWS.items()]
    charts = [
        _chart("severity", "Events by severity", "histogram", "log.level", over_time=True),
        _chart("acts-by-result", "Acts by result", "pie", f"{_FIELDS}.status"),
        _chart("refusals-by-reason", "Refusals by reason", "pie", f"{_FIELDS}.reason",
               query="event.action: remediation_refused"),
        _chart("services", "Events by service", "horizontal_bar", "service.name"),
    ]  # fmt: skip
    searches = [_search(search) for search in SEARCHES]
    return [*views, *searches, *charts, _dashboard(charts, searches[:3])]


def ndjson(objects: Iterable[dict[str, Any]] | None = None) -> str:
    """The objects as Kibana's import takes them: one a line."""
    chosen = saved_objects() if objects is None else objects
    return "".join(json.dumps(each, ensure_ascii=False, sort_keys=True) + "\n" for each in chosen)


def _object(kind: str, name: str, attributes: dict[str, Any], refers: list[Any]) -> dict[str, Any]:
    return {
        "type": kind,
        "id": name,
        "attributes": attributes,
        "references": refers,
        "coreMigrationVersion": FORM,
        "typeMigrationVersion": FORM,
    }


def _view(name: str, pattern: str) -> dict[str, Any]:
    attributes = {"title": pattern, "name": pattern, "timeFieldName": "@timestamp"}
    return _object("index-pattern", name, attributes, [])


def _source(query: str) -> str:
    return json.dumps(
        {
            "query": {"query": query, "language": "kuery"},
            "filter": [],
            "indexRefName": "kibanaSavedObjectMeta.searchSourceJSON.index",
        }
    )


def _to_view(view: str) -> dict[str, str]:
    name = "kibanaSavedObjectMeta.searchSourceJSON.index"
    return {"name": name, "type": "index-pattern", "id": view}


def _search(search: Search) -> dict[str, Any]:
    attributes = {
        "title": search.title,
        "description": search.description,
        "columns": list(search.columns),
        "sort": [["@timestamp", "desc"]],
        "kibanaSavedObjectMeta": {"searchSourceJSON": _source(search.query)},
    }
    return _object("search", f"{PREFIX}-{search.id}", attributes, [_to_view(search.view)])


def _chart(
    name: str, title: str, kind: str, field: str, *, query: str = "", over_time: bool = False
) -> dict[str, Any]:
    terms = {"field": field, "orderBy": "1", "order": "desc", "size": 10, "missingBucket": False}
    schema = "group" if over_time else "segment"
    aggregations: list[dict[str, Any]] = [
        {"id": "1", "enabled": True, "type": "count", "schema": "metric", "params": {}},
        {"id": "2", "enabled": True, "type": "terms", "schema": schema, "params": terms},
    ]
    if over_time:
        when = {"field": "@timestamp", "interval": "auto", "min_doc_count": 1}
        aggregations.append(
            {
                "id": "3",
                "enabled": True,
                "type": "date_histogram",
                "schema": "segment",
                "params": when,
            }
        )
    state = {"title": title, "type": kind, "aggs": aggregations,
             "params": {"type": kind, "addTooltip": True, "addLegend": True}}  # fmt: skip
    attributes = {
        "title": f"vllm-watchdog: {title}",
        "description": "",
        "visState": json.dumps(state),
        "uiStateJSON": "{}",
        "version": 1,
        "kibanaSavedObjectMeta": {"searchSourceJSON": _source(query)},
    }
    return _object("visualization", f"{PREFIX}-{name}", attributes, [_to_view(EVENTS)])


def _dashboard(charts: list[Any], searches: list[Any]) -> dict[str, Any]:
    """Charts two in a row, then the searches, each over the whole width."""
    panels, refers = [], []
    y = 0
    for number, each in enumerate([*charts, *searches]):
        chart = number < len(charts)
        width = 24 if chart else 48
        x = 24 * (number % 2) if chart else 0
        panel = f"panel_{number}"
        panels.append(
            {
                "type": each["type"],
                "panelIndex": str(number),
                "panelRefName": panel,
                "gridData": {"x": x, "y": y, "w": width, "h": 12, "i": str(number)},
                "embeddableConfig": {},
            }
        )
        refers.append({"name": f"{number}:{panel}", "type": each["type"], "id": each["id"]})
        if not chart or x:
            y += 12
    attributes = {
        "title": "vllm-watchdog",
        "description": "What happened on the nodes, what was done about it, and whether it helped",
        "panelsJSON": json.dumps(panels),
        "optionsJSON": json.dumps({"useMargins": True, "hidePanelTitles": False}),
        "timeRestore": True,
        "timeFrom": "now-24h",
        "timeTo": "now",
        "version": 1,
        "kibanaSavedObjectMeta": {
            "searchSourceJSON": json.dumps(
                {"query": {"query": "", "language": "kuery"}, "filter": []}
            )
        },
    }
    return _object("dashboard", f"{PREFIX}-overview", attributes, refers)
