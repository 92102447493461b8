"""How a service stands, and what is watched and decided by it."""

from __future__ import annotations

import pytest

from tests.support.system import fake_system
from vllm_watchdog.watchdog.assembly import service_collectors, service_facts
from vllm_watchdog.watchdog.config import parse
from vllm_watchdog.watchdog.inventory import Pins
from vllm_watchdog.watchdog.labeller import Labeller
from vllm_watchdog.watchdog.model import ServiceMode
from vllm_watchdog.watchdog.roles import (
    aside,
    changed,
    effective,
    mode_doc,
    mode_of,
    watched,
    words,
)
from vllm_watchdog.watchdog.scheduler import Inbox
from vllm_watchdog.watchdog.watching import Watching

CONFIG = parse(
    """
services:
  chat:
    url: http://one
    cards: ["0000:53:00"]
    manager: {systemd: one.service}
    logs: [/var/log/one.log]
    standby: {url: "http://two", manager: {systemd: two.service}, cards: ["0000:64:00"]}
""",
    "w.yaml",
)
CHAT = CONFIG.services["chat"]
MOVED = ServiceMode(serving="standby")


def test_roles_are_exchanged_where_traffic_is_on_the_standby() -> None:
    now = effective(CHAT, MOVED)

    assert (now.url, now.cards, now.manager.systemd) == (  # type: ignore[union-attr]
        "http://two", ("0000:64:00",), "two.service",
    )  # fmt: skip
    assert now.standby is not None
    assert (now.standby.url, now.standby.cards) == ("http://one", ("0000:53:00",))


def test_cards_are_those_that_an_act_gave() -> None:
    mode = ServiceMode(cards=("0000:75:00",), standby_cards=("0000:86:00",))

    now = effective(CHAT, mode)

    assert now.cards == ("0000:75:00",)
    assert now.standby is not None
    assert now.standby.cards == ("0000:86:00",)


def test_a_service_without_a_standby_has_nothing_aside() -> None:
    alone = CHAT.model_copy(update={"standby": None})

    assert aside(alone, ServiceMode()) is None
    assert effective(alone, MOVED).url == "http://one"


def test_log_files_stay_with_their_instance() -> None:
    before, after = watched({"chat": CHAT}, {}), watched({"chat": CHAT}, {"chat": MOVED})

    assert [(name, s.url, s.logs) for name, s in before.items()] == [
        ("chat", "http://one", ("/var/log/one.log",)), ("chat/standby", "http://two", ()),
    ]  # fmt: skip
    assert [(name, s.url, s.logs) for name, s in after.items()] == [
        ("chat", "http://two", ()), ("chat/standby", "http://one", ("/var/log/one.log",)),
    ]  # fmt: skip


def test_both_instances_have_collectors_of_their_own() -> None:
    built = service_collectors(CONFIG, watched(CONFIG.services, {}))

    assert sorted(each.instance for each in built) == [
        "vllm_log/chat", "vllm_metrics/chat", "vllm_metrics/chat/standby", "vllm_probe/chat",
        "vllm_probe/chat/standby", "vllm_process/chat", "vllm_process/chat/standby",
    ]  # fmt: skip


def test_collectors_and_log_places_follow_the_users() -> None:
    system = fake_system()
    system.checkpoints.put("vllm_log/chat", {"at": 7})
    watching = Watching(
        system, Inbox(), {}, lambda *_, **__: None, lambda *_: None, CONFIG.services
    )
    watching.follow(CONFIG, {"chat": MOVED})

    assert system.checkpoints.get("vllm_log/chat/standby") == {"at": 7}
    page = Labeller({}).page(watching.facts(), 0)
    cards = {dict(k)["card"]: dict(k)["service"] for k in page.keys if "card" in dict(k)}
    assert cards == {"0000:64:00": "chat", "0000:53:00": "chat/standby"}


def test_the_facts_name_each_way_in_which_a_service_stands() -> None:
    mode = ServiceMode(serving="standby", profile="int8", front="shedding")
    page = service_facts(CONFIG.services, (), Pins(), {"chat": mode})

    assert {dict(k)["mode"] for k in page.keys if "mode" in dict(k)} == {
        "standby", "int8", "shedding",
    }  # fmt: skip
    assert words(ServiceMode(profile="fp16"), "fp16") == ("normal",)


@pytest.mark.parametrize(
    "sets",
    [{"serving": "both"}, {"front": 3}, {"cards": "0000:53:00"}, {"since": 1.0}, {"profile": None}],
)
def test_what_is_no_way_to_stand_is_refused(sets: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is no way|are no cards"):
        changed(ServiceMode(), sets, 1.0, "x")


def test_a_mode_is_read_back_as_it_was_written() -> None:
    mode = changed(ServiceMode(), {"serving": "standby", "cards": ["a"]}, 5.0, "chat-1")

    assert (
        mode_of(mode_doc(mode))
        == mode
        == ServiceMode("standby", cards=("a",), since=5.0, by="chat-1")
    )
