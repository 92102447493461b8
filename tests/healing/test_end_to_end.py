"""Faults on a whole node: real systemd, real nginx, the daemon's own unit, users at 100 requests/s.

Each test injects one fault and looks at three things: what the daemon did and when, how the node
stands afterwards, and what users saw.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.support.healing.rig import (
    FAR_FRONT,
    FRONT,
    OTHER_FRONT,
    OTHERS,
    OWN,
    PORTS,
    SPARE,
    XID,
    Act,
    Rig,
    Users,
    chat,
    far,
    other,
    rig,
)

pytestmark = [pytest.mark.peer, pytest.mark.slow]

LIMIT = 30.0  # seconds from a card's fault to users on healthy cards
RATE = 100.0
ALONE = "[Service]\nRestart=no\nKillMode=process\n"
PATIENT = "[Service]\nRestart=always\nRestartSec=1\n"


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("node")) as made:
        yield made


@pytest.fixture
def node(booted: Rig, request: pytest.FixtureRequest) -> Iterator[Rig]:
    booted.fresh()
    yield booted
    booted.keep(request.node.name)


def lose_card(node: Rig) -> float:
    """The card falls off the bus, and the engine on it stands still; when."""
    fault = time.time()
    node.signal("chat", "engine", "STOP")
    node.cards(OWN, lost=True)
    return fault


def good(lines: Sequence[Mapping[str, Any]], after: float = 0.0) -> bool:
    """Whether each request that was sent after a moment was answered right, and there were some."""
    sent = [each for each in lines if "number" in each and each["at"] >= after]
    return bool(sent) and all(each["status"] == 200 for each in sent)


def whole(users: Users) -> bool:
    """Whether each stream came to its end."""
    return all(each["whole"] for each in users.wait() if "stream" in each)


def kept_on_standby(node: Rig, act: Act, lines: Sequence[Mapping[str, Any]]) -> None:
    """All that must hold of users whose server was restarted while they were on the standby."""
    (moved,) = node.events("traffic_moved")
    assert moved["fields"]["request"] == act.id
    assert good(lines, moved["time"] + 0.5)
    assert node.include() == str(PORTS["chat"])


def moved_to_standby(node: Rig, fault: float, users: Users, streams: Users) -> Act:
    """All that must hold once a card's users are on the standby."""
    act = node.ended("card_failover")
    lines = users.wait()
    assert act.status == "done", act.detail
    assert act.moved_at is not None
    assert act.moved_at - fault < LIMIT
    assert node.include() == str(PORTS["chat-standby"])
    assert node.failed_outside(lines, PORTS["chat"], act.moved_at) == []
    assert good(lines, act.moved_at + 0.5)
    assert whole(streams)
    assert node.machine.show("vllm@chat.service", "ActiveState") in ("inactive", "failed")
    return act


def test_a_lost_card_moves_users_to_the_standby(node: Rig) -> None:
    node.serve({"chat": chat(spares=[]), "other": other()})
    users = node.clients(FRONT, RATE, 10.0)
    streams = node.clients(OTHER_FRONT, 1.0, 10.0, streams=5)
    time.sleep(2.0)

    act = moved_to_standby(node, lose_card(node), users, streams)

    assert act.cause == "card_lost"
    assert "card_quarantined" in {each["kind"] for each in node.events()}


def test_a_hung_tool_does_not_hide_the_kernel_s_line(node: Rig) -> None:
    node.serve({"chat": chat(spares=[]), "other": other()})
    users = node.clients(FRONT, RATE, 10.0)
    streams = node.clients(OTHER_FRONT, 1.0, 10.0, streams=5)
    time.sleep(2.0)
    fault = time.time()
    node.hang_tool()
    node.signal("chat", "engine", "STOP")
    node.kernel(XID.format(card=OWN))

    act = moved_to_standby(node, fault, users, streams)

    assert act.cause == "card_lost"


def test_a_dead_engine_is_started_again_though_its_server_ended_with_0(node: Rig) -> None:
    node.serve({"chat": chat()})
    users = node.clients(FRONT, RATE, 14.0)
    time.sleep(2.0)
    node.signal("chat", "engine", "KILL")
    act = node.ended("restart")
    lines = users.wait()

    assert (act.status, act.cause) == ("done", "engine_dead"), act.detail
    assert [each.remediation for each in node.acts()] == ["restart"]
    kept_on_standby(node, act, lines)
    assert max(each["seconds"] for each in lines if "number" in each) < 10.0


def test_a_hung_engine_is_restarted(node: Rig) -> None:
    node.serve({"chat": chat()})
    users = node.clients(FRONT, RATE, 100.0)
    time.sleep(2.0)
    fault = time.time()
    node.signal("chat", "engine", "STOP")
    act = node.ended("restart", within=120.0)
    over = time.time()
    time.sleep(2.0)
    users.stop()

    assert (act.status, act.cause) == ("done", "engine_stalled"), act.detail
    assert over - fault < 120.0
    assert [each.remediation for each in node.acts()] == ["restart"]
    kept_on_standby(node, act, users.lines())


def test_engines_that_outlived_their_server_are_ended_before_the_next_start(node: Rig) -> None:
    node.drop_in("chat", ALONE)
    node.serve({"chat": chat()})
    old = node.must("pgrep", "-P", node.pid("chat"), "-x", "VLLM::EngineCor").split()
    users = node.clients(FRONT, RATE, 14.0)
    time.sleep(2.0)
    node.signal("chat", "api", "KILL")
    act = node.ended("restart")
    lines = users.wait()

    assert act.status == "done", act.detail
    assert node.machine.run("kill", "-0", *old).returncode != 0
    assert len(node.must("pgrep", "-P", node.pid("chat"), "-x", "VLLM::EngineCor").split()) == 1
    kept_on_standby(node, act, lines)


def test_memory_that_overflows_leads_to_the_int8_profile(node: Rig) -> None:
    node.serve({"chat": chat()})
    users = node.clients(FRONT, RATE, 20.0)
    time.sleep(2.0)
    node.word("chat", "oom")
    act = node.ended("quantize")
    lines = users.wait()

    assert (act.status, act.cause) == ("done", "device_memory"), act.detail
    assert "/models/int8" in node.must("cat", f"/proc/{node.pid('chat')}/cmdline")
    assert [each.remediation for each in node.acts()] == ["quantize"]
    assert good(lines, node.events("remediation_ended")[0]["time"])


def test_the_first_profile_comes_back_and_no_user_notices(node: Rig) -> None:
    node.serve({"chat": chat()})
    node.word("chat", "oom")
    node.post(FRONT, {"prompt": "2+2="})
    node.ended("quantize")
    node.path("/srv/control/chat/oom").unlink()
    users = node.clients(FRONT, RATE, 12.0)
    time.sleep(1.0)
    node.must("vllm-watchdog", "approve", "--service", "chat")
    node.wait_for(lambda: [a.status for a in node.acts()] == ["done"] * 2, 30.0, "the way back")
    lines = users.wait()

    assert [act.remediation for act in node.acts()] == ["quantize"] * 2
    assert "/models/fp16" in node.must("cat", f"/proc/{node.pid('chat')}/cmdline")
    assert good(lines)
    assert {each["instance"] for each in lines if "number" in each} == {"chat", "chat-standby"}
    assert node.include() == str(PORTS["chat"])


def test_a_cut_network_is_nothing_to_a_service_that_still_answers(node: Rig) -> None:
    node.serve({"chat": chat(needs=["node-2"])})
    users = node.clients(FRONT, RATE, 24.0)
    node.link("down")
    node.wait_for(lambda: 'peer_reachable{peer="node-2"} 0' in node.metrics(), 20.0, "the cut")
    lines = users.wait()

    assert node.acts() == []
    assert good(lines)


def test_a_cut_upstream_is_served_from_the_cache_until_it_is_back(node: Rig) -> None:
    node.far_server()
    node.serve({"far": far()})
    kept, unknown = ({"prompt": each, "temperature": 0} for each in ("kept", "unknown"))
    assert node.post(FAR_FRONT, kept).status == 200
    node.link("down")
    node.wait_for(lambda: node.events("remediation_step"), 60.0, "cache-only mode")
    hit, miss = node.post(FAR_FRONT, kept), node.post(FAR_FRONT, unknown)
    asked = node.front_log()
    node.link("up")
    act = node.ended("cache_only")

    assert (hit.status, hit.headers.get("x-cache-status")) == (200, "HIT")
    assert (miss.status, json.loads(miss.body)["error"]["code"]) == (503, "cache_only")
    assert "retry-after" in miss.headers
    assert [asked[each.number]["connect"] for each in (hit, miss)] == ["-", "-"]
    assert act.status == "done", act.detail
    assert node.post(FAR_FRONT, unknown).status == 200


def test_a_slow_start_is_waited_for(node: Rig) -> None:
    node.serve({"chat": chat()})
    node.word("chat", "start_seconds", "20")
    node.must("systemctl", "restart", "vllm@chat.service")
    node.wait_for(lambda: "tiny" in node.get(f"{FRONT}/v1/models"), 40.0, "the start")

    assert node.acts() == []


def test_with_a_sick_standby_the_server_moves_to_a_spare_card(node: Rig) -> None:
    node.serve({"chat": chat()})
    node.word("chat-standby", "refuse")
    sick = 'service_probe_success{service="chat/standby"} 0'
    node.wait_for(lambda: sick in node.metrics(), 15.0, "the sick standby")
    users = node.clients(FRONT, RATE, 25.0)
    time.sleep(1.0)
    fault = lose_card(node)
    act = node.ended("card_failover")
    lines = users.wait()

    assert act.status == "done", act.detail
    assert node.events("remediation_ended")[0]["time"] - fault < LIMIT
    assert node.include() == str(PORTS["chat"])
    assert node.holders(SPARE) == node.engines("chat")
    assert good(lines, node.events("remediation_ended")[0]["time"])


def test_a_spare_that_another_service_uses_is_left_to_it(node: Rig) -> None:
    node.serve({"chat": chat(standby=None, spares=[OTHERS, SPARE]), "other": other()})
    before = node.pid("other")
    users = node.clients(OTHER_FRONT, RATE, 12.0)
    time.sleep(1.0)
    lose_card(node)
    act = node.ended("card_failover")

    assert act.status == "done", act.detail
    assert node.holders(SPARE) == node.engines("chat")
    assert node.holders(OTHERS) == node.engines("other")
    assert node.pid("other") == before
    assert good(users.wait())


def test_a_unit_that_restarts_itself_has_no_second_healer(node: Rig) -> None:
    node.drop_in("chat", PATIENT)
    node.serve({"chat": chat(standby=None)})
    users = node.clients(FRONT, RATE, 12.0)
    time.sleep(1.0)
    node.signal("chat", "engine", "KILL")
    lines = users.wait()

    assert {each.status for each in node.acts()} <= {"declined"}
    assert not any(each.steps for each in node.acts())
    assert node.events("page_sent") == []
    assert (node.machine.show("vllm@chat.service", "NRestarts"), node.starts("chat")) == ("1", 2)
    assert good(lines, lines[-1]["at"] - 3.0)


def test_a_broken_front_is_left_as_it_was_and_a_person_is_paged(node: Rig) -> None:
    node.serve({"chat": chat(spares=[]), "other": other()})
    node.path("/etc/nginx/conf.d/broken.conf").write_text("nonsense;\n")
    users = node.clients(FRONT, RATE, 12.0)
    time.sleep(1.0)
    node.cards(OWN, lost=True)  # the engine on it goes on for a while
    act = node.ended("card_failover")
    node.wait_for(lambda: node.events("page_sent"), 20.0, "a page")

    assert act.status == "failed"
    assert node.include() == str(PORTS["chat"])
    assert node.machine.show("vllm@chat.service", "ActiveState") == "active"
    assert good(users.wait())
