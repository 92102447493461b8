"""A journal event as a document of the Elastic Common Schema, and the index template for them.

Shapes only: nothing is sent from here. Our own fields stand under ``vllm_watchdog``; those of an
event are of one mapping type (flattened), so that no two events can contradict each other's types.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from json.encoder import encode_basestring
from typing import Any

from .model import Json, StoredEvent

VERSION = "8.11.0"  # of the schema
STREAM = "logs-vllm_watchdog-default"
DATASET = "vllm_watchdog"
TEMPLATE = "logs-vllm_watchdog"
TEMPLATE_VERSION = 1  # raise it with each change of the template
RETENTION = "90d"
KEPT = 1000  # texts kept of each sort
SEVERITIES = {"info": 1, "warning": 2, "critical": 3}
"""``event.severity`` by our word."""

CATEGORIES = (
    ("network", ("peer_", "link_", "collective_", "hccl_", "network_")),
    ("process", ("engine_", "worker_", "server_", "process_", "orphan_", "ray_", "host_oom")),
    ("driver", ("device_", "driver_", "app_fault", "npu_", "nvlink_", "nvswitch_", "pcie_")),
    ("configuration", ("configuration_", "reload", "command_", "policy_")),
)
"""``event.category`` by the beginning of the kind; all others are ``host``."""


_quoted: Callable[[str], str] = encode_basestring


class Encoder:
    """Makes documents of one node's events. ``line`` is ``document`` as text, made faster."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._heads: dict[tuple[str, str], str] = {}
        self._services: dict[str, str] = {}
        self._moment = (-1.0, "")

    def document(self, event: StoredEvent) -> Json:
        """The event as a document."""
        document: Json = json.loads(self.line(event))
        return document

    def line(self, event: StoredEvent) -> str:
        """The event as a document in one line of JSON."""
        if event.recorded != self._moment[0]:
            self._moment = (event.recorded, timestamp(event.recorded))
        recorded = self._moment[1]
        happened = recorded if event.time == event.recorded else timestamp(event.time)
        key = (event.kind, event.severity)
        head = self._heads.get(key) or _kept(self._heads, key, self._head(*key))
        labels = event.labels_json
        service = self._services.get(labels)
        if service is None:
            service = _kept(self._services, labels, _service(labels))
        return (
            f'{{"@timestamp":"{happened}","message":{_quoted(event.message)},"labels":{labels},'
            f'"vllm_watchdog":{{"fields":{event.fields_json}}}{service},{head},"id":"{event.id}",'
            f'"sequence":{event.seq},"created":"{recorded}"}}}}'
        )

    def _head(self, kind: str, severity: str) -> str:
        """What all events of one kind and severity share; ``event`` comes last and stays open."""
        shared: dict[str, Any] = {
            "ecs": {"version": VERSION},
            "data_stream": {"type": "logs", "dataset": DATASET, "namespace": "default"},
            "host": {"name": self._host},
            "log": {"level": severity},
            "event": {
                "module": DATASET,
                "dataset": DATASET,
                "kind": "alert" if kind.startswith("alert") else "event",
                "category": [_category(kind)],
                "type": ["info" if severity == "info" else "error"],
                "action": kind,
                "severity": SEVERITIES.get(severity, 0),
            },
        }
        return json.dumps(shared, ensure_ascii=False, separators=(",", ":"))[1:-2]


def _kept(table: dict[Any, str], key: object, text: str) -> str:
    """Keep what is worked out once and used often; a table that has grown large begins anew."""
    if len(table) >= KEPT:
        table.clear()
    table[key] = text
    return text


def _service(labels_json: str) -> str:
    """The ``service`` part of a document, from the event's labels; empty without one."""
    name = json.loads(labels_json).get("service")
    return f',"service":{{"name":{_quoted(name)}}}' if name else ""


def timestamp(seconds: float) -> str:
    """Unix seconds as RFC 3339 with milliseconds."""
    when = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{when.isoformat(timespec='milliseconds')[:23]}Z"


def _category(kind: str) -> str:
    for category, beginnings in CATEGORIES:
        if kind.startswith(beginnings):
            return category
    return "host"


def index_template() -> dict[str, Any]:
    """The composable index template of the data stream; above the built-in ``logs-*-*``."""
    return {
        "index_patterns": [f"{TEMPLATE}-*"],
        "data_stream": {},
        "priority": 500,
        "version": TEMPLATE_VERSION,
        "_meta": {"description": "Events of vllm-watchdog", "managed_by": "vllm-watchdog"},
        "template": {
            "settings": {"index": {"codec": "best_compression"}},
            "mappings": _mappings(),
            "lifecycle": {"data_retention": RETENTION},
        },
    }


def _mappings() -> dict[str, Any]:
    keyword = {"type": "keyword", "ignore_above": 1024}
    labels = ("alertname", "card", "code", "instance", "job", "kind", "service", "vendor")
    event = ("action", "category", "dataset", "id", "kind", "module", "type")
    return {
        "dynamic": False,
        "dynamic_templates": [
            {"labels": {"path_match": "labels.*", "mapping": keyword}},
        ],
        "properties": {
            "@timestamp": {"type": "date"},
            "message": {"type": "text"},
            "ecs": {"properties": {"version": keyword}},
            "data_stream": {"properties": dict.fromkeys(("type", "dataset", "namespace"), keyword)},
            "host": {"properties": {"name": keyword}},
            "log": {"properties": {"level": keyword}},
            "service": {"properties": {"name": keyword}},
            "event": {
                "properties": {
                    **dict.fromkeys(event, keyword),
                    "created": {"type": "date"},
                    "sequence": {"type": "long"},
                    "severity": {"type": "long"},
                }
            },
            "labels": {"dynamic": True, "properties": dict.fromkeys(labels, keyword)},
            "vllm_watchdog": {
                "dynamic": False,
                "properties": {"fields": {"type": "flattened", "ignore_above": 1024}},
            },
        },
    }
