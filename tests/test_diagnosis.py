"""One cause a service: card before link before host before memory before engine before requests."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from vllm_watchdog.watchdog.diagnosis import (
    CAUSES,
    Facts,
    Noted,
    ServiceFacts,
    diagnose,
    observe,
    rank,
)
from vllm_watchdog.watchdog.model import Alert, Diagnosis, labelset

NOW = 1000.0
CHAT = ServiceFacts("chat", ("c1", "c2"))


def alert(name: str, at: float = 990.0, **labels: str) -> Alert:
    return Alert(f"g/{name}", labelset({"alertname": name, **labels}), "firing", at, 1.0, (), at)


def event(
    kind: str, at: float = 995.0, labels: dict[str, str] | None = None, **fields: Any
) -> Noted:
    return Noted(at, kind, "critical", f"a line of {kind}", labels or {}, fields)


def one(*alerts: Alert, service: ServiceFacts = CHAT, **more: Any) -> Diagnosis:
    (found,) = diagnose(Facts(NOW, alerts, {service.name: service}, **more))
    return found


OWN = {"service": "chat"}
LAYERS = [
    ("card_lost", [alert("CardLost", card="c1", proof="driver")], []),
    ("network_outage", [alert("NetworkOutage", **OWN)], []),
    ("host_memory", [alert("EngineDead", **OWN)], [event("host_oom", comm="VLLM::EngineCor")]),
    ("device_memory", [alert("MemoryOverflow", **OWN)], []),
    ("engine_stalled", [alert("EngineStalled", **OWN)], []),
    ("latency", [alert("ResponseSlow", **OWN)], []),
]


@pytest.mark.parametrize(("higher", "lower"), list(itertools.combinations(range(len(LAYERS)), 2)))
def test_the_earlier_layer_explains_the_later_one(higher: int, lower: int) -> None:
    (cause, first, events), (_, second, more) = LAYERS[higher], LAYERS[lower]
    found = one(*second, *first, events=(*events, *more))

    assert found.cause == cause
    assert found.alert.name == first[0].name
    assert {each.name for each in second} - {found.alert.name} <= {a.name for a in found.explains}


@pytest.mark.parametrize(("cause", "alerts", "events"), LAYERS)
def test_each_layer_is_named_where_it_stands_alone(cause: str, alerts: Any, events: Any) -> None:
    assert one(*alerts, events=tuple(events)).cause == cause


def test_the_gravest_fault_of_a_card_names_it() -> None:
    found = one(
        alert("CardResetRequired", 980.0, card="c1"),
        alert("CardUncorrectable", 985.0, card="c1"),
        alert("CardLost", 990.0, card="c2"),
    )

    assert (found.cause, found.alert.name, found.cards) == ("card_lost", "CardLost", ("c1", "c2"))


def test_a_reset_that_only_a_driver_fault_asks_for_is_a_driver_fault() -> None:
    by_driver = alert("CardResetRequired", card="c1", proof="driver")
    by_tool = alert("CardResetRequired", card="c1", proof="tool")
    faults = {"c1": frozenset({"driver_fault"})}

    assert one(by_driver, faults=faults).cause == "driver_fault"
    assert one(by_driver, by_tool, faults=faults).cause == "card_reset_required"
    assert one(by_driver, faults={"c1": frozenset({"npu_event"})}).cause == "card_reset_required"


def test_services_on_one_sick_card_have_a_case_each() -> None:
    two = {"a": ServiceFacts("a", ("c1",)), "b": ServiceFacts("b", ("c1", "c3"))}
    found = diagnose(Facts(NOW, (alert("CardLost", card="c1"),), two))

    assert [(each.service, each.cause, each.cards) for each in found] == [
        ("a", "card_lost", ("c1",)),
        ("b", "card_lost", ("c1",)),
    ]


def test_a_card_that_no_service_uses_is_a_case_of_the_node() -> None:
    found = one(alert("CardLost", card="c9"))

    assert (found.service, found.cause, found.cards) == ("", "card_lost", ("c9",))


def test_an_alert_of_network_or_host_reaches_a_service_only_through_its_own_symptoms() -> None:
    node = (alert("PeerLatencyHigh", peer="node-2"), alert("HostMemoryLow"))

    assert diagnose(Facts(NOW, node, {"chat": CHAT})) == ()


def test_a_link_that_is_down_is_no_case_while_the_service_does_not_suffer() -> None:
    down = alert("CardLinkDown", card="c1")
    assert diagnose(Facts(NOW, (down,), {"chat": CHAT})) == ()

    stalled = one(down, alert("EngineStalled", **OWN))
    assert (stalled.cause, stalled.alert.name) == ("link_down", "CardLinkDown")


def test_a_gone_engine_is_named_by_its_own_alert_whatever_ended_it() -> None:
    gone = alert("EngineDead", **OWN)

    for found, cause in (
        (one(gone, alert("CardLinkDown", card="c1")), "link_down"),
        (one(gone, events=(event("host_oom", comm="python3"),)), "host_memory"),
        (one(gone, alert("MemoryHeldByOther", **OWN)), "foreign_memory"),
        (one(gone, alert("MemoryOverflow", **OWN), events=(event("oom_device", cause="fragmentation"),)),
         "fragmentation"),
        (one(gone), "engine_dead"),
    ):  # fmt: skip
        assert (found.cause, found.alert.name) == (cause, "EngineDead")


def test_device_memory_names_its_case_itself() -> None:
    found = one(alert("EngineDead", **OWN), alert("MemoryOverflow", **OWN))

    assert (found.cause, found.alert.name) == ("device_memory", "MemoryOverflow")
    assert [each.name for each in found.explains] == ["EngineDead"]


def test_a_foreign_victim_of_the_hosts_memory_did_not_end_the_engine() -> None:
    found = one(alert("EngineDead", **OWN), events=(event("host_oom", comm="java"),))

    assert found.cause == "engine_dead"


@pytest.mark.parametrize(("left", "holder"), [(True, "orphan"), (False, "foreign")])
def test_who_holds_the_memory_is_told(left: bool, holder: str) -> None:
    service = ServiceFacts("chat", ("c1",), orphans=left)
    found = one(alert("MemoryHeldByOther", **OWN), service=service)

    assert dict(found.traits) == {"cause": "foreign_memory", "holder": holder}


def test_orphans_come_before_fragmentation_and_that_before_capacity() -> None:
    overflow = alert("MemoryOverflow", **OWN)
    oom = event("oom_device", cause="fragmentation")
    left = ServiceFacts("chat", ("c1",), orphans=True)

    assert one(overflow, events=(oom,), service=left).cause == "foreign_memory"
    assert one(overflow, events=(oom,)).cause == "fragmentation"
    assert one(overflow, events=(event("oom_device", cause="capacity"),)).cause == "device_memory"


def test_fragmented_memory_does_not_explain_a_stall() -> None:
    found = one(alert("MemoryFragmented", card="c1", **OWN), alert("EngineStalled", **OWN))

    assert found.cause == "engine_stalled"


def test_a_start_that_failed_is_told_from_an_engine_that_died() -> None:
    gone, failed = alert("EngineDead", **OWN), event("engine_init_failed", 900.0)
    ready = event("lifecycle", 950.0, phase="ready")

    assert one(gone, events=(failed,)).cause == "engine_start_failed"
    assert one(gone, events=(failed, ready)).cause == "engine_dead"


@pytest.mark.parametrize("operation", ["restart", "stop", "start", "drain", "pause", "sleep"])
def test_what_somebody_does_on_purpose_is_planned_and_a_lost_card_is_not(operation: str) -> None:
    service = ServiceFacts("chat", ("c1",), operation=operation)

    assert one(alert("EngineDead", **OWN), service=service).cause == "planned"
    assert one(alert("RequestFailuresHigh", **OWN), service=service).cause == "planned"
    assert one(alert("CardLost", card="c1"), service=service).cause == "card_lost"


def test_a_card_read_as_lost_whose_other_readings_are_fine_is_a_sensors_fault() -> None:
    lost = alert("CardLost", 990.0, card="c1", proof="tool")

    assert one(lost, healthy={"c1": 990.0}).cause == "sensor"
    assert one(lost, healthy={"c1": 985.0}).cause == "card_lost"
    by_driver = alert("CardLost", card="c1", proof="driver")
    assert one(lost, by_driver, healthy={"c1": 990.0}).cause == "card_lost"


def test_slow_answers_of_an_engine_that_moves_and_has_a_queue_are_saturation() -> None:
    busy = ServiceFacts("chat", waiting=40.0, pending=60.0, moved=(990.0, 995.0))
    slow = alert("ResponseSlow", **OWN)

    assert one(slow, service=busy).cause == "saturated"
    assert one(slow).cause == "latency"


def test_unknown_inputs_are_told_in_the_evidence_and_a_known_proof_names_the_case() -> None:
    held = Alert("g/CardLost", labelset({"alertname": "CardLost", "card": "c1", "proof": "tool"}),
                 "firing", 900.0, 1.0, (), 900.0, unknown_since=950.0)  # fmt: skip
    known = alert("CardLost", card="c1", proof="driver")
    found = one(held, known)

    assert found.alert == known
    assert "alert CardLost [card=c1, proof=tool] (inputs unknown)" in found.evidence


def test_high_utilisation_is_explained_by_nothing() -> None:
    found = one(alert("CardLost", card="c1"), alert("AcceleratorBusy", card="c1"))

    assert found.explains == ()


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (ServiceFacts("s"), "none"),
        (ServiceFacts("s", operation="sleep"), "planned"),
        (ServiceFacts("s", client_errors=80.0, requests=100.0), "client_errors"),
        (ServiceFacts("s", client_errors=8.0, requests=10.0), "none"),
        (ServiceFacts("s", waiting=9.0, moved=(990.0, 995.0)), "saturated"),
        (ServiceFacts("s", waiting=9.0, moved=(900.0, 905.0)), "none"),
        (ServiceFacts("s", probe="slow", moved=(990.0, 995.0)), "saturated"),
    ],
)
def test_a_service_without_a_case_is_described(facts: ServiceFacts, word: str) -> None:
    assert observe(facts, NOW) == word


def test_every_cause_has_a_place_in_the_order() -> None:
    assert sorted(CAUSES, key=rank) == list(CAUSES)
    assert len(set(CAUSES)) == 20
