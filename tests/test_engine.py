"""The engine's step: what comes in, what is decided, and that equal inputs decide equally."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_watchdog.watchdog.engine import Engine, EngineSettings
from vllm_watchdog.watchdog.model import Batch, Decisions, Event, Inputs, Page, Tick, labelset
from vllm_watchdog.watchdog.rulepack import read_text
from vllm_watchdog.watchdog.wire import decisions_doc, dumps

RULES = """\
groups:
  - name: hardware
    rules:
      - alert: Busy
        expr: load > 0.85
        for: 10s
        labels: {severity: warning}
  - name: slow
    rules:
      - record: load:max
        expr: max(load)
"""
START = 1_700_000_000.0


def engine(rules: str = RULES) -> Engine:
    return Engine(EngineSettings(labels={"job": "j"}), read_text(rules))


def tick(number: int, *, urgent: bool = False, at: float | None = None) -> Tick:
    seconds = 5.0 * number if at is None else at
    return Tick(number, seconds, START + seconds, urgent)


def load(value: float, **more: object) -> Batch:
    key = labelset({"card": "a"}, "load")
    return replace(Batch("tool", (Page((key,), (value,)),)), **more)  # type: ignore[arg-type]


def failed(error: str = "no answer", **more: object) -> Batch:
    return replace(Batch("tool", error=error), **more)  # type: ignore[arg-type]


def play(made: Engine, *batches: Batch | None) -> list[Decisions]:
    return [
        made.step(tick(n), Inputs((batch,) if batch else ())) for n, batch in enumerate(batches, 1)
    ]


def changes(decisions: list[Decisions]) -> list[tuple[int, str]]:
    """Tick and new state of each change of the alert Busy."""
    return [
        (n, change.after)
        for n, d in enumerate(decisions, 1)
        for change in d.transitions
        if change.alert.name == "Busy"
    ]


def collector_events(decisions: list[Decisions]) -> list[tuple[int, str]]:
    return [
        (n, e.kind)
        for n, d in enumerate(decisions, 1)
        for e in d.events
        if e.kind.startswith("collector_")
    ]


def test_an_alert_goes_from_pending_to_firing_after_its_time_and_ends_with_its_cause() -> None:
    decisions = play(engine(), load(0.9), load(0.9), load(0.9), load(0.5))

    assert changes(decisions) == [(1, "pending"), (3, "firing"), (4, "resolved")]


def test_each_change_is_an_event_for_the_journal() -> None:
    events = [e for d in play(engine(), load(0.9), load(0.9), load(0.9)) for e in d.events]

    assert [(e.kind, e.severity) for e in events] == [
        ("alert_pending", "info"),
        ("alert_firing", "warning"),
    ]
    assert dict(events[1].labels)["card"] == "a"
    assert (events[1].fields["value"], events[1].fields["before"]) == (0.9, "pending")


def test_a_collector_that_breaks_and_works_again_is_told_once_each() -> None:
    decisions = play(engine(), load(0.1), failed(), failed(), load(0.1), load(0.1))

    assert collector_events(decisions) == [(2, "collector_failed"), (4, "collector_recovered")]


def test_a_stalled_collector_is_told_as_such() -> None:
    assert collector_events(play(engine(), failed(stalled=True))) == [(1, "collector_stalled")]


def test_a_reader_kept_still_is_no_fault_and_what_it_reads_is_held_as_unknown() -> None:
    made = engine()
    readings = [load(0.9), load(0.9), load(0.9)]
    rest = failed("rests", resting=True)

    decisions = play(made, *readings, rest, *[None] * 11, load(0.1))

    assert changes(decisions) == [(1, "pending"), (3, "firing"), (16, "resolved")]
    assert collector_events(decisions) == [(4, "collector_rests"), (16, "collector_recovered")]
    told = [event for decision in decisions for event in decision.events]
    assert [event.severity for event in told if "collector" in event.kind] == ["info", "info"]
    assert "InputsUnknown" not in {alert.name for alert in made.alerts()}


def test_a_rest_is_no_run_of_the_tool() -> None:
    made = engine()

    play(made, load(0.1), failed("rests", resting=True))

    assert made.collectors["tool"].ran == START + 5.0


def test_a_tool_that_is_not_on_this_node_is_no_failure() -> None:
    made = engine()

    (decision,) = play(made, failed(absent=True))

    assert decision.events == ()
    assert made.collectors["tool"].absent


def test_unknown_inputs_hold_a_firing_alert_and_only_a_fresh_sample_ends_it() -> None:
    made = engine()
    busy = [load(0.9)] * 3

    decisions = play(made, *busy, *[failed()] * 20, load(0.5))

    assert changes(decisions) == [(1, "pending"), (3, "firing"), (24, "resolved")]


def test_unknown_time_does_not_count_towards_for() -> None:
    decisions = play(
        engine(), load(0.9), failed(), failed(), failed(), load(0.9), load(0.9), load(0.9)
    )

    (fired,) = [n for n, after in changes(decisions) if after == "firing"]
    assert fired > 5


def test_inputs_unknown_fires_after_five_minutes_of_failure() -> None:
    decisions = play(engine(), load(0.1), *[failed()] * 70)

    labels = [dict(c.alert.labels) for d in decisions for c in d.transitions if c.after == "firing"]
    names = [
        (n, c.alert.name)
        for n, d in enumerate(decisions, 1)
        for c in d.transitions
        if c.after == "firing"
    ]
    assert names == [(62, "InputsUnknown")]
    assert (labels[0]["collector"], labels[0]["job"]) == ("tool", "j")


def test_series_of_a_failed_collector_end_at_once() -> None:
    made = engine()

    play(made, load(0.9), failed())

    assert [key for key, _, _ in made.window.latest(made.ms) if ("__name__", "load") in key] == []


def test_an_urgent_step_evaluates_the_urgent_groups_only() -> None:
    made = engine()

    made.step(tick(1), Inputs((load(0.1),)))
    made.step(tick(2, urgent=True, at=6.0), Inputs((load(0.2),)))

    recorded = {dict(key)["__name__"]: value for key, value, _ in made.window.latest(made.ms)}
    assert (recorded["load"], recorded["load:max"]) == (0.2, 0.1)


def test_the_events_of_a_batch_are_decisions_too() -> None:
    event = Event("device_lost", "gone", labelset({"card": "a"}), severity="critical", urgent=True)

    (decision,) = play(engine(), load(0.1, events=(event,)))

    assert decision.events == (event,)


def test_up_and_collector_success_are_series_of_their_own() -> None:
    made = engine()

    play(made, load(0.1), failed())

    series = {
        dict(key)["__name__"]: (value, dict(key)) for key, value, _ in made.window.latest(made.ms)
    }
    assert series["up"] == (1.0, {"__name__": "up", "job": "j"})
    assert series["watchdog_collector_success"][0] == 0.0


def test_equal_inputs_give_equal_bytes() -> None:
    batches = [load(0.9), load(0.9), load(0.9), failed(), load(0.5)]

    first, second = (
        [dumps(decisions_doc(tick(n), d)) for n, d in enumerate(play(engine(), *batches), 1)]
        for _ in range(2)
    )

    assert first == second


def test_a_restored_engine_goes_on_where_it_was() -> None:
    whole = engine()
    expected = play(whole, load(0.9), load(0.9), load(0.9), load(0.5))[2:]
    before, after = engine(), engine()
    play(before, load(0.9), load(0.9))

    after.restore(before.dump(), tick(2).wall)
    got = [after.step(tick(3), Inputs((load(0.9),))), after.step(tick(4), Inputs((load(0.5),)))]

    assert [changes([d]) for d in got] == [changes([d]) for d in expected]


def test_other_rules_take_over_and_unchanged_alerts_stay() -> None:
    made = engine()
    play(made, load(0.9), load(0.9), load(0.9))
    before = [alert.fired_at for alert in made.alerts()]

    made.replace_rules(read_text(RULES + "      - {alert: New, expr: vector(1)}\n"))
    decision = made.step(tick(4), Inputs((load(0.9),)))

    assert [c.alert.name for c in decision.transitions] == ["New"]
    assert before == [alert.fired_at for alert in made.alerts() if alert.name == "Busy"]


@pytest.mark.parametrize("doc", [{}, {"window": {}}, {"window": 1, "alerts": 2, "failing": 3}])
def test_a_foreign_state_is_refused(doc: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        engine().restore(doc, START)
