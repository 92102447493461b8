"""Alerts live as in Prometheus, and are held while their inputs are unknown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from vllm_watchdog.watchdog.model import Alert, Batch, Labels, Page, labelset
from vllm_watchdog.watchdog.promql import Vector, load, query
from vllm_watchdog.watchdog.rulepack import read_text
from vllm_watchdog.watchdog.rules import EvaluationResult, RuleEngine, Settings
from vllm_watchdog.watchdog.window import Window

HOT = """
groups:
- name: g
  rules:
  - alert: Hot
    expr: temperature > 90
    for: 10s
    labels: {severity: page}
    annotations: {summary: "{{ $labels.card }} at {{ $value }}"}
"""


class Node:
    """A window and an engine whose time goes on in steps of 5 seconds from zero."""

    def __init__(self, rules: str, *, window: Window | None = None, start: int = 0) -> None:
        self.window = window or Window()
        self.engine = RuleEngine(
            read_text(rules), self.window, Settings(external_labels=(("dc", "x"),))
        )
        self.now = start - 5
        self.failing: dict[str, Labels] = {}

    def step(
        self, series: Mapping[str, float] | None = None, owner: str = "tool"
    ) -> EvaluationResult:
        """Five seconds later: ``series`` (``name{card}`` in short as ``name/card``) and the rules."""
        self.now += 5
        if series is not None:
            self.give(series, owner)
        for name in self.failing:
            self.window.mark_stale(name, self.now * 1000)
        return self.engine.evaluate(self.now * 1000, self.failing)

    def give(self, series: Mapping[str, float], owner: str = "tool") -> None:
        keys = tuple(_key(text) for text in series)
        self.window.append(Batch(owner, (Page(keys, tuple(series.values())),)), self.now * 1000)

    def run(
        self, steps: int, series: Mapping[str, float] | None = None
    ) -> list[tuple[int, str, str, str]]:
        """Several steps; returns (second, alert's card, before, after) of each change."""
        told = []
        for _ in range(steps):
            for change in self.step(series).transitions:
                card = dict(change.alert.labels).get("card", "")
                told.append((self.now, card, change.before, change.after))
        return told

    def states(self) -> dict[str, str]:
        """The state by card."""
        return {dict(a.labels).get("card", a.name): a.state for a in self.engine.alerts()}

    def alert(self, name: str = "Hot") -> Alert:
        (found,) = (alert for alert in self.engine.alerts() if alert.name == name)
        return found

    def value(self, expr: str) -> list[tuple[dict[str, str], float]]:
        result = query(load(expr), self.window, self.now * 1000)
        assert isinstance(result, Vector)
        return [(dict(labels), value) for labels, value in result.elements]


def _key(text: str) -> Labels:
    name, _, card = text.partition("/")
    return labelset({"card": card}, name)


# The life cycle


def test_pending_alert_fires_after_for() -> None:
    node = Node(HOT)

    told = node.run(4, {"temperature/a": 95.0})

    assert told == [(0, "a", "inactive", "pending"), (10, "a", "pending", "firing")]
    assert (node.alert().active_at, node.alert().fired_at) == (0.0, 10.0)


def test_alert_without_for_fires_at_once() -> None:
    node = Node(HOT.replace("for: 10s", "for: 0s"))

    told = node.run(2, {"temperature/a": 95.0})

    assert told == [(0, "a", "inactive", "firing")]


def test_pending_alert_is_dropped_when_it_misses_once() -> None:
    node = Node(HOT)

    told = [*node.run(2, {"temperature/a": 95.0}), *node.run(1, {"temperature/a": 80.0})]

    assert told[1:] == [(10, "a", "pending", "inactive")]
    assert node.states() == {}


def test_firing_alert_resolves_when_it_misses_once() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})

    told = node.run(1, {"temperature/a": 80.0})

    assert told == [(15, "a", "firing", "resolved")]
    assert node.alert().resolved_at == 15.0


def test_resolved_alert_is_remembered_for_15_minutes() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})

    told = node.run(182, {"temperature/a": 80.0})

    assert told == [(15, "a", "firing", "resolved"), (920, "a", "resolved", "inactive")]


def test_alert_that_returns_after_resolving_is_a_new_one() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.run(1, {"temperature/a": 80.0})

    told = node.run(1, {"temperature/a": 95.0})

    assert told == [(20, "a", "resolved", "pending")]
    assert (node.alert().active_at, node.alert().fired_at) == (20.0, None)


def test_keep_firing_for_bridges_a_gap() -> None:
    node = Node(HOT.replace("for: 10s", "keep_firing_for: 10s"))
    node.run(1, {"temperature/a": 95.0})

    told = node.run(4, {"temperature/a": 80.0})

    assert told == [(15, "a", "firing", "resolved")]


def test_keep_firing_starts_anew_after_each_return() -> None:
    node = Node(HOT.replace("for: 10s", "keep_firing_for: 10s"))
    node.run(1, {"temperature/a": 95.0})
    node.run(1, {"temperature/a": 80.0})
    node.run(1, {"temperature/a": 95.0})

    told = node.run(3, {"temperature/a": 80.0})

    assert told == [(25, "a", "firing", "resolved")]


def test_labels_of_the_rule_stand_over_those_of_the_result() -> None:
    rules = HOT.replace("severity: page", 'card: "{{ $labels.card }}-{{ $value }}", gone: ""')
    node = Node(rules)

    node.run(1, {"temperature/a": 95.0})

    assert node.alert().labels == (("alertname", "Hot"), ("card", "a-95"))


def test_annotations_show_the_value_of_the_last_evaluation() -> None:
    node = Node(HOT)
    node.run(1, {"temperature/a": 95.0})
    node.run(1, {"temperature/a": 99.5})

    alert = node.alert()

    assert (alert.annotations, alert.value) == ((("summary", "a at 99.5"),), 99.5)


def test_annotations_of_a_resolved_alert_stay_as_they_were() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.run(2, {"temperature/a": 80.0})

    assert node.alert().annotations == (("summary", "a at 95"),)


def test_annotation_can_ask_for_other_series() -> None:
    rules = HOT.replace("{{ $value }}", "{{ query 'power' | first | value }} W").replace(
        "'power'", '\\"power\\"'
    )
    node = Node(rules)

    node.run(1, {"temperature/a": 95.0, "power/a": 300.0})
    first = node.alert().annotations
    node.run(1, {"temperature/a": 95.0, "power/a": 350.0})

    assert (first, node.alert().annotations) == (
        (("summary", "a at 300 W"),), (("summary", "a at 350 W"),),
    )  # fmt: skip


def test_external_labels_are_seen_by_templates() -> None:
    node = Node(HOT.replace("{{ $value }}", "{{ $externalLabels.dc }}"))
    node.run(1, {"temperature/a": 95.0})

    assert node.alert().annotations == (("summary", "a at x"),)


# Groups


def test_recorded_series_is_seen_by_later_rules_of_the_same_evaluation() -> None:
    node = Node("""
groups:
- name: g
  rules:
  - {record: hottest, expr: max(temperature), labels: {by: node}}
  - {alert: Hot, expr: hottest > 90}
""")

    told = node.run(1, {"temperature/a": 95.0, "temperature/b": 20.0})

    assert told == [(0, "", "inactive", "firing")]
    assert node.value("hottest") == [({"__name__": "hottest", "by": "node"}, 95.0)]


def test_recorded_series_ends_when_its_rule_gives_it_no_more() -> None:
    node = Node("groups:\n- name: g\n  rules:\n  - {record: hot, expr: temperature > 90}\n")
    node.run(1, {"temperature/a": 95.0, "temperature/b": 96.0})

    node.run(1, {"temperature/a": 95.0, "temperature/b": 20.0})

    assert [labels["card"] for labels, _ in node.value("hot")] == ["a"]


def test_alerts_series_follow_the_state_and_end_with_it() -> None:
    node = Node(HOT)
    seen = []
    for value in (95.0, 95.0, 95.0, 80.0):
        node.run(1, {"temperature/a": value})
        seen.append([labels["alertstate"] for labels, _ in node.value("ALERTS")])

    assert seen == [["pending"], ["pending"], ["firing"], []]


def test_alerts_for_state_holds_the_time_of_activation() -> None:
    node = Node(HOT)
    node.run(1, {"temperature/a": 80.0})
    node.run(3, {"temperature/a": 95.0})

    assert node.value("ALERTS_FOR_STATE") == [
        ({"__name__": "ALERTS_FOR_STATE", "alertname": "Hot", "card": "a", "severity": "page"}, 5.0)
    ]


def test_group_with_an_interval_waits_for_its_turn() -> None:
    node = Node(HOT.replace("- name: g", "- name: g\n  interval: 1m"))

    evaluated = [node.now for _ in range(25) if node.step({"temperature/a": 1.0}).evaluated]

    assert evaluated == [0, 60, 120]


def test_missed_turns_are_counted_and_not_made_up_for() -> None:
    node = Node(HOT)
    node.run(2, {"temperature/a": 1.0})
    node.now += 20
    node.run(1, {"temperature/a": 1.0})

    counters = node.engine.counters

    assert (counters.evaluations["g"], counters.missed["g"]) == (3, 4)


def test_jitter_of_the_clock_misses_no_turn() -> None:
    engine = RuleEngine(read_text(HOT), Window())
    for ms in (0, 5003, 9998, 15001):
        engine.evaluate(ms)

    assert (engine.counters.evaluations["g"], engine.counters.missed["g"]) == (4, 0)


def test_urgent_groups_can_be_evaluated_alone() -> None:
    rules = HOT + HOT.replace("groups:\n- name: g", "- name: urgent")
    node = Node(rules)
    node.run(1, {"temperature/a": 1.0})
    node.now += 2
    node.give({"temperature/a": 95.0})

    result = node.engine.evaluate(node.now * 1000, only_groups=["urgent"])

    assert result.evaluated == ("urgent",)
    assert [change.alert.rule for change in result.transitions] == ["urgent/Hot"]


def test_failing_rule_leaves_its_alerts_as_they_are_and_the_others_alone() -> None:
    node = Node("""
groups:
- name: g
  rules:
  - {alert: Bad, expr: temperature * on (card) power}
  - {alert: Good, expr: temperature > 90}
""")
    good = {"temperature/a": 95.0, "power/a": 1.0}
    node.run(1, good)
    node.now += 5
    keys = (*map(_key, good), labelset({"card": "a", "x": "2"}, "power"))
    node.window.append(Batch("tool", (Page(keys, (95.0, 1.0, 2.0)),)), node.now * 1000)

    result = node.engine.evaluate(node.now * 1000)

    assert [(error.rule, error.number) for error in result.errors] == [("Bad", 1)]
    assert {(a.name, a.state) for a in node.engine.alerts()} == {
        ("Bad", "firing"),
        ("Good", "firing"),
    }
    assert node.engine.counters.failures["g"] == 1


def test_two_results_with_one_label_set_are_an_error() -> None:
    node = Node(HOT.replace("severity: page", "card: same"))

    result = node.step({"temperature/a": 95.0, "temperature/b": 95.0})

    assert [error.message for error in result.errors] == [
        "vector contains metrics with the same labelset after applying alert labels"
    ]
    assert node.states() == {}


def test_two_recorded_series_with_one_label_set_are_an_error() -> None:
    node = Node(
        "groups:\n- name: g\n  rules:\n  - {record: r, expr: temperature, labels: {card: x}}\n"
    )

    result = node.step({"temperature/a": 95.0, "temperature/b": 95.0})

    assert [error.message for error in result.errors] == [
        "vector contains metrics with the same labelset after applying rule labels"
    ]


def test_alerts_over_the_limit_are_an_error_and_all_cleared() -> None:
    node = Node(HOT.replace("- name: g", "- name: g\n  limit: 1"))
    node.run(1, {"temperature/a": 95.0})

    result = node.step({"temperature/a": 95.0, "temperature/b": 95.0})

    assert [error.message for error in result.errors] == ["exceeded limit of 1 with 2 alerts"]
    assert [(dict(c.alert.labels)["card"], c.before, c.after) for c in result.transitions] == [
        ("a", "pending", "inactive")
    ]
    assert node.states() == {}


def test_recorded_series_over_the_limit_are_an_error() -> None:
    node = Node("groups:\n- name: g\n  limit: 1\n  rules:\n  - {record: r, expr: temperature}\n")

    result = node.step({"temperature/a": 95.0, "temperature/b": 95.0})

    assert [error.message for error in result.errors] == ["exceeded limit of 1 with 2 series"]
    assert node.value("r") == []


def test_two_proofs_of_one_name_make_one_alert() -> None:
    node = Node("""
groups:
- name: g
  rules:
  - {alert: Lost, expr: present == 0}
  - {alert: Lost, expr: line == 1, for: 5s}
""")

    told = node.run(1, {"present/a": 0.0, "line/a": 0.0})
    told += node.run(2, {"present/a": 0.0, "line/a": 1.0})
    told += node.run(1, {"present/a": 1.0, "line/a": 1.0})
    told += node.run(1, {"present/a": 1.0, "line/a": 0.0})

    assert told == [(0, "a", "inactive", "firing"), (20, "a", "firing", "resolved")]


def test_window_keeps_what_the_rules_look_back_to() -> None:
    window = Window()
    rules = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'delta(x[1h]) > 0'}\n"
    RuleEngine(read_text(rules), window)
    for second in range(0, 3600, 60):
        window.append(Batch("c", (Page((_key("x"), _key("y")), (1.0, 1.0)),)), second * 1000)

    assert (window.since("x"), (window.since("y") or 0) > 1_800_000) == (0, True)


# Unknown inputs


def test_firing_alert_is_held_while_its_collector_fails() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.failing = {"tool": ()}

    told = node.run(20)

    assert [change for change in told if change[1]] == []
    assert (node.alert().state, node.alert().unknown_since) == ("firing", 15.0)
    assert ("unknown_since", "1970-01-01T00:00:15Z") in node.alert().annotations


def test_held_alert_ends_by_a_fresh_sample() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.failing = {"tool": ()}
    node.run(10)
    node.failing = {}

    told = node.run(1, {"temperature/a": 80.0})

    assert ("a", "firing", "resolved") in [change[1:] for change in told]


def test_held_alert_goes_on_firing_when_the_sample_says_so() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.failing = {"tool": ()}
    node.run(10)
    node.failing = {}

    node.run(1, {"temperature/a": 96.0})

    assert (node.alert().state, node.alert().unknown_since, node.alert().fired_at) == (
        "firing", None, 10.0,
    )  # fmt: skip


def test_for_clock_stands_still_while_inputs_are_unknown() -> None:
    node = Node(HOT)
    node.run(2, {"temperature/a": 95.0})
    node.failing = {"tool": ()}
    node.run(10)
    frozen = node.alert().active_at
    node.failing = {}

    told = node.run(2, {"temperature/a": 95.0})

    assert frozen == 50.0
    assert (60, "a", "pending", "firing") in told


def test_keep_firing_clock_stands_still_while_inputs_are_unknown() -> None:
    node = Node(HOT.replace("for: 10s", "keep_firing_for: 10s"))
    node.run(1, {"temperature/a": 95.0})
    node.run(1, {"temperature/a": 80.0})
    node.failing = {"tool": ()}
    node.run(5)
    node.failing = {}

    told = node.run(3, {"temperature/a": 80.0})

    assert (40, "a", "firing", "resolved") in told


def test_absence_of_unknown_inputs_starts_no_alert() -> None:
    node = Node("groups:\n- name: g\n  rules:\n  - {alert: Gone, expr: absent(temperature)}\n")
    node.run(1, {"temperature/a": 20.0})
    node.failing = {"tool": ()}

    node.run(10)

    assert "Gone" not in node.states()


def test_absence_after_a_complete_reading_starts_an_alert() -> None:
    node = Node("groups:\n- name: g\n  rules:\n  - {alert: Gone, expr: absent(temperature)}\n")
    node.run(1, {"temperature/a": 20.0})

    told = node.run(1, {})

    assert told == [(5, "", "inactive", "firing")]


def test_alert_stays_held_after_its_series_left_the_window() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 95.0})
    node.failing = {"tool": ()}

    node.run(400)

    assert node.window.owners("temperature") == set()
    assert node.alert().state == "firing"


def test_unknown_inputs_are_seen_through_recording_rules() -> None:
    node = Node("""
groups:
- name: one
  rules: [{record: hottest, expr: max by (card) (temperature)}]
- name: two
  rules: [{alert: Hot, expr: hottest > 90}]
""")
    node.run(1, {"temperature/a": 95.0})
    node.failing = {"tool": ()}

    node.run(3)

    assert (node.alert().state, node.alert().unknown_since) == ("firing", 5.0)


def test_alert_that_contradicts_the_failing_scope_is_known() -> None:
    rules = "groups:\n- name: g\n  rules:\n  - {alert: Down, expr: service_up == 0}\n"
    node = Node(rules)
    keys = {name: labelset({"service": name}, "service_up") for name in "ab"}
    for name, key in keys.items():
        node.window.append(Batch(f"metrics/{name}", (Page((key,), (0.0,)),)), 0)
    node.engine.evaluate(0)
    node.window.mark_stale("metrics/a", 5000)
    node.window.append(Batch("metrics/b", (Page((keys["b"],), (1.0,)),)), 5000)

    node.engine.evaluate(5000, {"metrics/a": (("service", "a"),)})

    states = {
        dict(a.labels).get("service"): a.state for a in node.engine.alerts() if a.name == "Down"
    }
    assert states == {"a": "firing", "b": "resolved"}


def test_other_vendor_is_known_while_one_vendors_tool_fails() -> None:
    rules = "groups:\n- name: g\n  rules:\n  - {alert: Sick, expr: accelerator_healthy == 0}\n"
    node = Node(rules)
    key = {
        v: labelset({"vendor": v, "card": v[0]}, "accelerator_healthy")
        for v in ("nvidia", "ascend")
    }
    for vendor, series in key.items():
        node.window.append(Batch(vendor, (Page((series,), (0.0,)),)), 0)
    node.engine.evaluate(0)
    node.window.mark_stale("nvidia", 5000)
    node.window.append(Batch("ascend", (Page((key["ascend"],), (1.0,)),)), 5000)

    node.engine.evaluate(5000, {"nvidia": ()})

    assert node.states() == {"n": "firing", "a": "resolved", "InputsUnknown": "pending"}


def test_inputs_unknown_fires_after_five_minutes_and_ends_with_the_failure() -> None:
    node = Node(HOT)
    node.run(1, {"temperature/a": 20.0})
    node.failing = {"tool": ()}
    told = node.run(70)
    node.failing = {}
    told += node.run(1, {"temperature/a": 20.0})

    assert told == [
        (5, "", "inactive", "pending"), (305, "", "pending", "firing"), (355, "", "firing", "resolved"),
    ]  # fmt: skip
    assert node.alert("InputsUnknown").labels == (
        ("alertname", "InputsUnknown"), ("collector", "tool"), ("severity", "warning"),
    )  # fmt: skip


# Warm or not


@pytest.mark.parametrize(
    ("expr", "seconds"),
    [("x > 0", 0), ("rate(x[1m]) > 0", 60), ("x offset 30s > 0", 30), ("x > 0 and y > 0", 60),
     ("max_over_time(x[30s:5s]) > 0", 30)],
)  # fmt: skip
def test_rule_is_warm_once_its_series_cover_what_it_looks_back_to(expr: str, seconds: int) -> None:
    node = Node(f"groups:\n- name: g\n  rules:\n  - {{alert: A, expr: '{expr}'}}\n")
    rule = node.engine.groups[0].rules[0]
    warm_at = None
    while warm_at is None and node.now < 200:
        node.step({"x": 1.0})
        warm_at = node.now if node.engine.warm(rule, node.now * 1000) else None

    assert warm_at == (seconds if "y" not in expr else 65)


def test_rule_that_never_saw_a_sample_is_not_warm() -> None:
    node = Node("groups:\n- name: g\n  rules:\n  - {alert: A, expr: absent(x)}\n")
    for _ in range(100):
        node.step({"y": 1.0})

    assert not node.engine.warm(node.engine.groups[0].rules[0], node.now * 1000)


# Restart and reload


def saved(node: Node) -> dict[str, Any]:
    doc: dict[str, Any] = json.loads(json.dumps(node.engine.dump(), allow_nan=False))
    return doc


def test_firing_alert_survives_a_restart() -> None:
    before = Node(HOT)
    before.run(3, {"temperature/a": 95.0})
    after = Node(HOT, start=60)

    count = after.engine.restore(saved(before), 60_000)
    told = after.run(1, {"temperature/a": 95.0})

    assert (count, told) == (1, [])
    assert (after.alert().active_at, after.alert().fired_at) == (0.0, 10.0)


def test_time_of_the_outage_does_not_count_for_a_pending_alert() -> None:
    before = Node(HOT)
    before.run(2, {"temperature/a": 95.0})
    after = Node(HOT, start=60)
    after.engine.restore(saved(before), 60_000)

    told = after.run(3, {"temperature/a": 95.0})

    assert told == [(65, "a", "pending", "firing")]


def test_restored_alert_waits_for_its_series_before_it_resolves() -> None:
    before = Node(HOT.replace("temperature > 90", "max_over_time(temperature[30s]) > 90"))
    before.run(3, {"temperature/a": 95.0})
    after = Node(HOT.replace("temperature > 90", "max_over_time(temperature[30s]) > 90"), start=60)
    after.engine.restore(saved(before), 60_000)

    told = after.run(10, {"temperature/a": 80.0})

    assert told == [(90, "a", "firing", "resolved")]


@pytest.mark.parametrize(
    ("old", "new"),
    [("> 90", "> 91"), ("severity: page", "severity: info"), ("alert: Hot", "alert: Hotter")],
)
def test_alert_of_a_changed_rule_is_not_restored(old: str, new: str) -> None:
    before = Node(HOT)
    before.run(3, {"temperature/a": 95.0})
    after = Node(HOT.replace(old, new), start=60)

    assert after.engine.restore(saved(before), 60_000) == 0


def test_held_alert_is_still_held_after_a_restart() -> None:
    before = Node(HOT)
    before.run(3, {"temperature/a": 95.0})
    before.failing = {"tool": ()}
    before.run(2)
    after = Node(HOT, start=60)
    after.engine.restore(saved(before), 60_000)
    after.failing = {"tool": ()}

    after.run(200)

    assert (after.alert().state, after.alert().unknown_since) == ("firing", 15.0)


def test_resolved_alert_keeps_its_end_over_a_restart() -> None:
    before = Node(HOT)
    before.run(3, {"temperature/a": 95.0})
    before.run(1, {"temperature/a": 80.0})
    after = Node(HOT, start=60)
    after.engine.restore(saved(before), 60_000)
    after.run(1, {"temperature/a": 80.0})

    assert (after.alert().state, after.alert().resolved_at) == ("resolved", 15.0)


@pytest.mark.parametrize("doc", [{}, {"version": 2}, {"version": 1, "saved_ms": 0, "alerts": [{}]}])
def test_foreign_document_is_refused(doc: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="saved alerts"):
        Node(HOT).engine.restore(doc, 0)


def test_reload_keeps_alerts_of_unchanged_rules_and_ends_the_others() -> None:
    other = "  - {alert: Warm, expr: temperature > 50}\n  - {record: r, expr: temperature}\n"
    node = Node(HOT + other)
    node.run(3, {"temperature/a": 95.0})

    told = node.engine.replace(read_text(HOT), node.now * 1000 + 1000)

    assert [(c.alert.name, c.before, c.after) for c in told] == [("Warm", "firing", "inactive")]
    assert (node.alert().state, node.alert().fired_at) == ("firing", 10.0)
    node.now += 1
    assert node.value("r") == []


def test_reload_goes_on_counting() -> None:
    node = Node(HOT)
    node.run(3, {"temperature/a": 1.0})

    node.engine.replace(read_text(HOT), node.now * 1000)

    assert node.engine.counters.evaluations["g"] == 3
