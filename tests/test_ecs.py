"""Journal events as ECS documents."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from vllm_watchdog.watchdog.ecs import Encoder, index_template, timestamp
from vllm_watchdog.watchdog.model import Event, StoredEvent, Tick, labelset
from vllm_watchdog.watchdog.records import stored

WALL = 1_700_000_000.25


def kept(event: Event) -> StoredEvent:
    return stored(event, 7, "run-00000001-0000", Tick(1, 1.0, WALL))


def test_a_document_has_the_fields_that_kibana_looks_for() -> None:
    labels = labelset({"service": "deepseek", "card": "0000:53:00"})
    event = Event(
        "device_lost", "GPU has\nfallen off", labels, {"xid": 79}, "critical", time=WALL - 5
    )

    assert Encoder("node-1").document(kept(event)) == {
        "@timestamp": "2023-11-14T22:13:15.250Z",
        "message": "GPU has\nfallen off",
        "labels": {"service": "deepseek", "card": "0000:53:00"},
        "vllm_watchdog": {"fields": {"xid": 79}},
        "service": {"name": "deepseek"},
        "ecs": {"version": "8.11.0"},
        "data_stream": {"type": "logs", "dataset": "vllm_watchdog", "namespace": "default"},
        "host": {"name": "node-1"},
        "log": {"level": "critical"},
        "event": {
            "module": "vllm_watchdog",
            "dataset": "vllm_watchdog",
            "kind": "event",
            "category": ["driver"],
            "type": ["error"],
            "action": "device_lost",
            "severity": 3,
            "id": "run-00000001-0000",
            "sequence": 7,
            "created": "2023-11-14T22:13:20.250Z",
        },
    }


def test_an_alerts_change_is_an_alert_of_the_schema() -> None:
    document = Encoder("n").document(kept(Event("alert_firing", labels=(("alertname", "X"),))))

    assert document["event"]["kind"] == "alert"
    assert "service" not in document


def test_a_source_time_that_no_calendar_holds_gives_way_to_the_ticks() -> None:
    for wild in (float("nan"), 1e18, -1.0):
        document = Encoder("n").document(kept(Event("xid", time=wild)))

        assert document["@timestamp"] == timestamp(WALL)


texts = st.text(st.characters(codec=None), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=texts,
    message=texts,
    labels=st.dictionaries(texts, texts, max_size=4),
    fields=st.dictionaries(texts, values, max_size=4),
    severity=texts,
)
def test_any_event_becomes_one_line_of_valid_json(
    kind: str, message: str, labels: dict[str, str], fields: dict[str, object], severity: str
) -> None:
    event = kept(Event(kind, message, labelset(labels), fields, severity))
    line = Encoder("node\n1").line(event)

    assert "\n" not in line
    line.encode()
    document = json.loads(line)
    assert document["message"] == event.message
    assert document["labels"] == dict(event.labels)
    assert document["vllm_watchdog"]["fields"] == event.fields
    assert document["event"]["action"] == event.kind


def test_every_field_of_a_document_is_mapped() -> None:
    event = Event("xid", "m", labelset({"service": "s", "card": "c"}), {"xid": 79})
    document = Encoder("n").document(kept(event))
    mappings = index_template()["template"]["mappings"]

    def unmapped(value: object, mapping: dict[str, object], path: str) -> list[str]:
        if not isinstance(value, dict) or "type" in mapping:
            return [] if "type" in mapping else [path]
        known = mapping.get("properties", {})
        assert isinstance(known, dict)
        return [
            missing
            for name, item in value.items()
            for missing in unmapped(item, known.get(name, {}), f"{path}.{name}")
        ]

    assert unmapped(document, mappings, "") == []


def test_the_template_stands_above_the_built_in_one_for_logs() -> None:
    template = index_template()

    assert template["priority"] > 100
    assert template["index_patterns"] == ["logs-vllm_watchdog-*"]
    assert template["template"]["lifecycle"] == {"data_retention": "90d"}
