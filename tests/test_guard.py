"""The guard: every check, in order; counts that failure cannot erase; the breaker."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from vllm_watchdog.watchdog.config import Guard as Limits
from vllm_watchdog.watchdog.guard import ACTS, Asked, Breaker, Due, Guard, Ledger
from vllm_watchdog.watchdog.guard.silences import Silence
from vllm_watchdog.watchdog.model import Alert, labelset

DEAD = Alert(
    "serving/EngineDead",
    labelset({"alertname": "EngineDead", "service": "chat"}),
    "firing",
    0.0,
    1.0,
)
ASKED = Asked("restart", "restart", "chat", "chat|engine_dead", "chat", DEAD, "act")
ORDER = [
    "hold", "mode", "silenced", "warming", "unknown", "explained", "destination", "other_restart",
    "breaker", "busy", "attempts", "cooldown", "node_budget", "fleet_budget", "journal", "precondition",
]  # fmt: skip


def guard(**limits: object) -> Guard:
    return Guard(Limits.model_validate(limits))


def against(keeper: Guard, now: float = 100.0, **changes: object) -> dict[str, str]:
    """The checks that refuse, with what they say."""
    judgement = keeper.judge(replace(ASKED, **changes), now)  # type: ignore[arg-type]
    return {name: text for name, text in judgement.checks if text}


def test_checks_come_in_the_order_of_refusal_and_all_are_evaluated() -> None:
    judgement = guard().judge(ASKED, 100.0)

    assert [name for name, _ in judgement.checks] == ORDER
    assert judgement.allowed


def test_the_first_refusal_is_the_reason_and_the_others_are_told_too() -> None:
    asked = replace(ASKED, warming="cold", precondition="one reading only", mode="observe")
    judgement = guard().judge(asked, 100.0)

    assert judgement.reason == "mode"
    assert {name for name, text in judgement.checks if text} == {"mode", "warming", "precondition"}


@pytest.mark.parametrize("name", ["warming", "unknown", "explained", "destination", "precondition"])
def test_what_stands_against_an_act_refuses_it(name: str) -> None:
    assert list(against(guard(), **{name: "so it is"})) == [name]


def test_anothers_restart_under_way_refuses() -> None:
    assert list(against(guard(), other="a person: restart is under way")) == ["other_restart"]


def test_a_hold_file_and_a_pause_refuse_until_they_end() -> None:
    keeper = guard()
    keeper.held = True
    assert list(against(keeper)) == ["hold"]

    keeper.held, keeper.holds = False, {"chat": 200.0}
    assert list(against(keeper, 199.0)) == ["hold"]
    assert against(keeper, 200.0) == {}
    assert against(keeper, 199.0, service="embed") == {}


def test_a_silence_holds_the_act_on_the_silenced_alert() -> None:
    keeper = guard()
    keeper.silences.append(Silence.equal({"alertname": "EngineDead"}, 200.0))

    assert list(against(keeper, 199.0)) == ["silenced"]
    assert against(keeper, 200.0) == {}


def test_confirm_waits_for_a_yes_that_expires() -> None:
    keeper = guard()
    assert list(against(keeper, mode="confirm")) == ["mode"]

    keeper.approvals["chat"] = 150.0
    assert against(keeper, 149.0, mode="confirm") == {}
    assert list(against(keeper, 150.0, mode="confirm")) == ["mode"]


def test_a_page_passes_in_confirm_and_not_in_observe() -> None:
    assert against(guard(), act="page", kind="page", mode="confirm") == {}
    assert list(against(guard(), act="page", kind="page", mode="observe")) == ["mode"]


def test_a_second_act_on_a_service_or_on_cards_and_front_waits() -> None:
    keeper = guard()
    keeper.running["r"] = ("chat", True)

    assert list(against(keeper)) == ["busy"]
    assert list(against(keeper, service="embed")) == ["busy"]
    assert against(keeper, service="embed", act="page", kind="page") == {}


def test_attempts_count_ladders_and_never_rungs() -> None:
    keeper = guard(attempts=2, per="1h", cooldown=0)
    for at in (0.0, 60.0):
        keeper.ledger.begin("chat|engine_dead", at)

    assert list(against(keeper, 3599.0)) == ["attempts"]
    assert against(keeper, 3599.0, first=False) == {}
    assert against(keeper, 3599.0, key="chat|card_lost") == {}
    assert against(keeper, 3600.0) == {}


@pytest.mark.parametrize(("ladders", "rest"), [(1, 120.0), (2, 240.0), (3, 480.0)])
def test_the_cooldown_doubles_with_each_ladder(ladders: int, rest: float) -> None:
    keeper = guard(attempts=9, cooldown="2m")
    for at in range(ladders):
        keeper.ledger.begin("chat|engine_dead", float(at))
    keeper.ledger.end("chat|engine_dead", 1000.0)

    assert list(against(keeper, 1000.0 + rest - 1)) == ["cooldown"]
    assert against(keeper, 1000.0 + rest) == {}


def test_acts_and_traffic_have_a_budget_each() -> None:
    keeper = guard(node="1/h", cooldown=0)
    keeper.ledger.act(0.0, traffic=False)

    assert list(against(keeper)) == ["node_budget"]
    assert against(keeper, kind="traffic") == {}
    assert against(keeper, 3600.0) == {}


def test_without_the_fleets_word_devices_are_left_alone_and_traffic_is_not() -> None:
    keeper = guard(fleet="http://coordinator:1")
    assert list(against(keeper)) == ["fleet_budget"]
    assert against(keeper, kind="traffic") == {}

    keeper.fleet = True
    assert against(keeper) == {}


def test_observe_counts_in_a_book_of_its_own() -> None:
    keeper = guard(attempts=1, cooldown=0)
    keeper.shadow.begin("chat|engine_dead", 50.0)

    assert list(against(keeper, mode="observe")) == ["mode", "attempts"]
    assert against(keeper) == {}


@pytest.mark.parametrize(
    ("changes", "final"),
    [
        ({"destination": "no spare"}, "destination"),
        ({"destination": "no spare", "precondition": "one reading only"}, ""),
        ({"destination": "no spare", "mode": "observe"}, ""),
        ({"unknown": "a tool is silent"}, ""),
        ({}, ""),
    ],
)
def test_only_what_neither_ends_by_itself_nor_was_asked_for_is_a_failure(
    changes: dict[str, str], final: str
) -> None:
    assert guard().judge(replace(ASKED, **changes), 100.0).final == final  # type: ignore[arg-type]


def test_a_spent_budget_is_a_failure_even_while_another_act_is_under_way() -> None:
    keeper = guard(node="1/h")
    keeper.ledger.act(0.0, traffic=False)
    keeper.running["r"] = ("embed", True)
    judgement = keeper.judge(ASKED, 100.0)

    assert (judgement.reason, judgement.final) == ("busy", "node_budget")


# The breaker


def due(*targets: str) -> list[Due]:
    return [Due(name, name) for name in targets]


def test_the_breaker_opens_on_two_and_more_than_half_of_the_services() -> None:
    assert not Breaker().note(due("a"), 1, 8, 0.0)
    assert not Breaker().note(due("a", "b"), 4, 8, 0.0)
    assert Breaker().note(due("a", "b"), 3, 8, 0.0)


def test_services_of_one_cause_are_one_target() -> None:
    two = [Due("card:x", "a", frozenset({"x"})), Due("card:x", "b", frozenset({"x"}))]

    assert not Breaker().note(two, 2, 8, 0.0)


def test_a_service_whose_cards_fail_one_after_the_other_is_one_service() -> None:
    first, second = (Due(f"card:{card}", "a", frozenset({card})) for card in ("x", "y"))
    breaker = Breaker()

    assert not breaker.note([first], 1, 8, 0.0)
    assert not breaker.note([second], 1, 8, 60.0)


def test_the_breaker_opens_on_more_than_half_of_the_cards() -> None:
    sick = [Due("card:x", "a", frozenset({"x"})), Due("card:y", "b", frozenset({"y"}))]

    assert not Breaker().note(sick, 8, 4, 0.0)
    assert Breaker().note(sick, 8, 3, 0.0)


def test_what_is_due_counts_together_for_five_minutes() -> None:
    early, late = Breaker(), Breaker()
    early.note(due("a"), 3, 8, 0.0)
    late.note(due("a"), 3, 8, 0.0)

    assert early.note(due("b"), 3, 8, 300.0)
    assert not late.note(due("b"), 3, 8, 300.1)


def test_only_traffic_and_paging_pass_an_open_breaker_and_a_person_closes_it() -> None:
    keeper = guard()
    keeper.breaker.note(due("a", "b"), 2, 8, 0.0)
    assert list(against(keeper, 9999.0)) == ["breaker"]
    assert list(against(keeper, 9999.0, kind="device", act="card_failover")) == ["breaker"]
    assert against(keeper, 9999.0, kind="traffic", act="cache_only") == {}
    assert against(keeper, 9999.0, kind="page", act="page") == {}

    keeper.breaker.close()
    assert against(keeper, 9999.0) == {}


def test_two_services_in_one_outage_are_both_served_from_their_caches() -> None:
    keeper = guard()
    keeper.running["first"] = ("chat", ACTS["cache_only"].exclusive)

    again = {"kind": "traffic", "act": "cache_only"}
    assert against(keeper, service="embed", **again) == {}
    assert list(against(keeper, service="chat", **again)) == ["busy"]


def test_an_act_on_cards_and_a_cache_that_serves_do_not_wait_for_each_other() -> None:
    keeper = guard()
    keeper.running["first"] = ("chat", ACTS["reset_card"].exclusive)
    assert against(keeper, service="embed", kind="traffic", act="cache_only") == {}
    assert list(against(keeper, service="embed", kind="traffic", act="drain")) == ["busy"]

    keeper.running["first"] = ("chat", ACTS["cache_only"].exclusive)
    assert against(keeper, service="embed", kind="device", act="card_failover") == {}


def test_all_that_is_counted_outlives_a_restart() -> None:
    keeper = guard(attempts=1)
    keeper.ledger.begin("chat|engine_dead", 50.0)
    keeper.ledger.act(50.0, traffic=True)
    keeper.holds[""] = None
    keeper.quarantined["0000:53:00"] = "card_lost"
    keeper.breaker.note(due("a", "b"), 2, 8, 50.0)
    again = guard(attempts=1)
    again.restore(json.loads(json.dumps(keeper.dump())))

    assert again == keeper
    assert against(again, 60.0) == against(keeper, 60.0) != {}


def test_a_saved_ledger_that_is_not_ours_is_refused() -> None:
    with pytest.raises(KeyError):
        Ledger.of({"ladders": {}})


def test_what_only_takes_back_what_we_did_is_held_by_a_person_and_by_no_count() -> None:
    keeper = guard(attempts=1, node="1/h")
    keeper.breaker.note(due("a", "b"), 2, 8, 0.0)
    keeper.ledger.begin(ASKED.key, 0.0)
    keeper.ledger.act(0.0, traffic=False)
    back = {"undoing": True, "kind": "device", "act": "lower_frequency"}

    assert against(keeper, 1.0, **back) == {}
    assert against(keeper, 1.0, **back, mode="confirm") == {}
    assert list(against(keeper, 1.0, **back, mode="observe")) == ["mode"]
    keeper.holds[""] = None
    assert list(against(keeper, 1.0, **back)) == ["hold"]
