"""Policies: matched in order, taken over by name, refused when they name nothing."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_watchdog.watchdog.assembly import shipped_rules
from vllm_watchdog.watchdog.config import Config
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.policies import (
    alert_names,
    bind,
    check,
    effective,
    first_match,
    shipped,
)
from vllm_watchdog.watchdog.rulepack import load

SERVICE = {"url": "http://127.0.0.1:8000"}


def config(*policies: dict[str, Any], **more: Any) -> Config:
    return Config.model_validate(
        {"policies": list(policies), "services": {"chat": SERVICE}, **more}
    )


def policy_for(settings: Config, service: str = "chat", **labels: str) -> str | None:
    found = first_match(bind(settings), labels, service)
    return found.name if found else None


def test_the_first_policy_that_matches_wins() -> None:
    settings = config(
        {"name": "one", "when": ["EngineDead"], "do": ["restart"]},
        {"name": "two", "when": ["EngineDead", "CardLost"], "do": ["page"]},
    )

    assert policy_for(settings, alertname="EngineDead") == "one"
    assert policy_for(settings, alertname="CardLost") == "two"
    assert policy_for(settings, alertname="EngineStalled") is None


def test_matchers_select_by_any_label() -> None:
    settings = config(
        {
            "name": "npu",
            "when": ['{alertname="MemoryOverflow",vendor=~"asc.*"}'],
            "do": ["quantize"],
        }
    )

    assert policy_for(settings, alertname="MemoryOverflow", vendor="ascend") == "npu"
    assert policy_for(settings, alertname="MemoryOverflow", vendor="nvidia") is None
    assert policy_for(settings, alertname="MemoryOverflow") is None


def test_services_narrow_a_policy() -> None:
    settings = config(
        {"name": "p", "when": ["EngineDead"], "do": ["restart"], "services": ["chat"]}
    )

    assert policy_for(settings, "chat", alertname="EngineDead") == "p"
    assert policy_for(settings, "embed", alertname="EngineDead") is None


def test_page_is_always_the_last_rung() -> None:
    settings = config(
        {"name": "none", "when": ["A"], "do": ["restart"]},
        {"name": "early", "when": ["B"], "do": ["page", "restart"]},
        {"name": "twice", "when": ["C"], "do": ["restart", "page"]},
    )

    assert [policy.ladder for policy in bind(settings)] == [("restart", "page")] * 3


def test_a_named_policy_is_taken_over_with_what_stands_beside_it() -> None:
    settings = config({"use": "card-failover", "mode": "confirm", "within": "1m"})
    (policy,) = bind(settings)

    assert (policy.name, policy.mode, policy.within) == ("card-failover", "confirm", 60.0)
    assert policy.ladder == ("card_failover", "page")


def test_without_the_key_the_shipped_ones_are_the_list_and_with_it_only_that_list() -> None:
    assert bind(Config()) == shipped()
    assert bind(config()) == ()


@pytest.mark.parametrize(
    ("modes", "strictest"),
    [
        (("act", None, None), "act"),
        (("act", "confirm", None), "confirm"),
        (("act", None, "observe"), "observe"),
        (("observe", "act", "act"), "observe"),
        ((None, None, None), "observe"),
    ],
)
def test_the_strictest_mode_counts(modes: tuple[Any, ...], strictest: str) -> None:
    assert effective(*modes) == strictest


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"when": ["EngineDeed"], "do": ["restart"]}, "no such alert: 'EngineDeed' (did you mean 'EngineDead'?)"),
        ({"when": ['{alertname="CardLots"}'], "do": ["page"]}, "no such alert: 'CardLots'"),
        ({"when": ["EngineDead"], "do": ["restart"], "services": ["caht"]}, "did you mean 'chat'?"),
        ({"use": "card-failovr"}, "no such policy: 'card-failovr' (did you mean 'card-failover'?)"),
        ({"when": ["{}"], "do": ["page"]}, "policies.0.when"),
        ({"when": ["{vendor=}"], "do": ["page"]}, "policies.0.when"),
        ({"when": ['{a="b"}[5m]'], "do": ["page"]}, "no set of matchers"),
        ({"when": ['{alertname=~"Nope.*"}'], "do": ["page"]}, "fits no alert that is loaded"),
        ({"when": ['{alertname="EngineDead",alertname!="EngineDead"}'], "do": ["page"]},
         "fits no alert"),
        ({"when": ['{__name__="up"}'], "do": ["page"]}, "alerts have no metric name"),
        ({"when": ['{cause="engine_ded"}'], "do": ["page"]},
         "no such cause: 'engine_ded' (did you mean 'engine_dead'?)"),
        ({"when": ['{cause=~"card_.*",cuase="a"}'], "do": ["page"]},
         "no alert carries a label 'cuase' (did you mean 'cause'?)"),
    ],
)  # fmt: skip
def test_what_names_nothing_is_refused_with_its_place(policy: dict[str, Any], said: str) -> None:
    alerts = alert_names(load(shipped_rules(), ("*",)).groups)
    told = [str(problem) for problem in check(config(policy), alerts, "w.yaml")]

    assert len(told) == 1
    assert said in told[0]
    assert told[0].startswith("w.yaml: policies.0")


def test_a_service_is_not_sought_among_none_without_saying_so() -> None:
    policy = {"when": ["EngineDead"], "services": ["chat"], "do": ["page"]}
    (problem,) = check(config(policy, services={}), ["EngineDead"])

    assert str(problem).endswith("no such service: 'chat' (no service is configured)")


@pytest.mark.parametrize("when", [[], [""], ["EngineDead", " "]])
def test_an_empty_selector_is_refused(when: list[str]) -> None:
    with pytest.raises(ValueError, match=r"needs when and do|empty name"):
        config({"when": when, "do": ["page"]})


def test_every_alert_that_the_shipped_policies_name_is_a_shipped_alert() -> None:
    alerts = alert_names(load(shipped_rules(), ("*",)).groups)
    names = {
        "CardLost", "CardUncorrectable", "CardResetRequired", "NetworkOutage", "MemoryHeldByOther",
        "MemoryOverflow", "EngineDead", "EngineStalled", "OutputCorrupt", "MemoryFragmented",
        "LowLoadNight",
    }  # fmt: skip

    assert names - alerts == set()
    assert all(first_match(shipped(), {"alertname": name}, "chat") for name in names)


@pytest.mark.parametrize(
    "told_only",
    ["AcceleratorBusy", "GpuSmOutOfRange", "PeerLatencyHigh", "L3HitRatioLow", "LatencySwingHigh",
     "ResponseSlow", "AvailabilityBurn", "RequestFailuresHigh"],
)  # fmt: skip
def test_what_is_no_fault_of_a_server_has_no_act(told_only: str) -> None:
    assert first_match(shipped(), {"alertname": told_only, "cause": "none"}, "chat") is None


@pytest.mark.parametrize(
    ("labels", "ladder"),
    [
        ({"alertname": "EngineDead", "cause": "foreign_memory", "holder": "foreign"}, ("page",)),
        ({"alertname": "EngineDead", "cause": "foreign_memory", "holder": "orphan"}, ("restart", "page")),
        ({"alertname": "EngineDead", "cause": "link_down"}, ("restart", "card_failover", "page")),
        ({"alertname": "CardLinkDown", "cause": "link_down"}, ("page",)),
        ({"alertname": "MemoryOverflow", "cause": "fragmentation"}, ("restart", "page")),
        ({"alertname": "MemoryOverflow", "cause": "device_memory"}, ("quantize", "restart", "page")),
        ({"alertname": "NetworkOutage", "cause": "network_outage"}, ("cache_only", "page")),
    ],
)  # fmt: skip
def test_the_cause_chooses_among_the_shipped_ladders(
    labels: dict[str, str], ladder: tuple[str, ...]
) -> None:
    found = first_match(shipped(), labels, "chat")

    assert found is not None
    assert found.ladder == ladder


def test_a_bad_selector_raises_when_policies_are_bound() -> None:
    with pytest.raises(ConfigError, match=r"policies\.0\.when"):
        bind(config({"when": ["{a=~'('}"], "do": ["page"]}))
