"""Off the sick card: users first, then the server; only to what is proved healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.node import (
    INCLUDE,
    OWN,
    SPARE,
    STANDBY,
    Node,
    case_of,
    service,
    take_back,
    walk,
)
from vllm_watchdog.remediations.card_failover import CardFailover
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.errors import Temporary
from vllm_watchdog.watchdog.model import ServiceMode
from vllm_watchdog.watchdog.system import Process

STAND = {"url": STANDBY, "cards": ["0000:75:00"]}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.hung = True
    made.lost.add(OWN)
    made.write(INCLUDE, "server 127.0.0.1:8000;\n")
    made.clock.advance(60)
    return made


def to_standby(node: Node, cause: str = "card_lost", **more: Any) -> ActCase:
    keys = ("front", "standby")
    settings = service(**{"standby": STAND, **{key: more.pop(key) for key in keys if key in more}})
    return case_of(node, settings, cause, **{"standby": True, "sick": (OWN,), **more})


def to_spares(node: Node, **more: Any) -> ActCase:
    return case_of(node, service(), "card_lost", sick=(OWN,), spares=(SPARE,), **more)


def test_traffic_moves_to_the_standby_before_anything_is_stopped(node: Node) -> None:
    case = to_standby(node)
    assert CardFailover().precheck(node.system, case) == ""
    steps = CardFailover().plan(node.system, case)

    went = walk(node, steps)

    assert steps[0].moves_traffic
    assert node.log[:2] == ["nginx -t", "nginx -s reload"]
    assert node.log[2] == "systemctl stop"
    assert "server 127.0.0.1:8001;" in node.files.text(INCLUDE)
    assert went.sets == {"serving": "standby"}
    assert node.unit.active == "inactive"


def test_once_users_are_away_nothing_of_the_rest_can_fail_it(node: Node) -> None:
    node.deaf = node.stuck = True

    went = walk(node, CardFailover().plan(node.system, to_standby(node)))

    assert went.why == ""
    assert went.steps["kill what is left"] == "failed"


def test_a_sick_server_that_its_unit_restarts_meanwhile_is_stopped_all_the_same(node: Node) -> None:
    case = to_standby(node)
    node.crash()
    node.boot()

    walk(node, CardFailover().plan(node.system, case))

    assert node.unit.active == "inactive"


def test_with_users_on_the_standby_it_leads_back_to_the_configured_instance(node: Node) -> None:
    node.hung = False
    node.write(INCLUDE, "server 127.0.0.1:8001;\n")
    case = to_standby(node, mode=ServiceMode(serving="standby"), sick=())
    assert CardFailover().precheck(node.system, case) == ""

    went = walk(node, CardFailover().plan(node.system, case))

    assert went.sets == {"serving": "primary"}
    assert node.log == ["nginx -t", "nginx -s reload"]  # nobody manages the standby


@pytest.mark.parametrize(
    ("more", "spoil", "told"),
    [
        ({}, {"standby_answers": False}, "the standby gives no completion"),
        ({"standby": {"url": STANDBY, "cards": [OWN]}}, {}, "the standby uses the sick card"),
        ({"front": None}, {}, "it has no front"),
    ],
)
def test_a_standby_that_users_could_not_use_is_declined(
    node: Node, more: dict[str, Any], spoil: dict[str, Any], told: str
) -> None:
    for key, value in spoil.items():
        setattr(node, key, value)

    assert told in CardFailover().precheck(node.system, to_standby(node, **more))


def test_a_front_that_somebody_else_wrote_is_left_alone(node: Node) -> None:
    node.write(INCLUDE, "server 10.0.0.9:80;\n")

    assert "not as we wrote it" in CardFailover().precheck(node.system, to_standby(node))


def test_nginx_that_refuses_the_switch_fails_it_with_the_old_front_in_place(node: Node) -> None:
    node.nginx_fails = True

    went = walk(node, CardFailover().plan(node.system, to_standby(node)))

    assert "nginx: [emerg] broken" in went.why
    assert node.files.text(INCLUDE) == "server 127.0.0.1:8000;\n"
    assert "systemctl stop" not in node.log


def test_without_a_standby_the_server_moves_to_the_spare_card(node: Node) -> None:
    case = to_spares(node)
    assert CardFailover().precheck(node.system, case) == ""
    steps = CardFailover().plan(node.system, case)
    node.deaf = True
    walk(node, steps, stop_after="kill what is left")
    node.hung = False

    went = walk(node, CardFailover().plan(node.system, case))

    assert went.why == ""
    environ = node.files.text(f"/proc/{node.unit.main}/environ").split("\0")
    assert environ == ["CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1"]
    assert went.sets == {"cards": [SPARE]}
    assert node.cards[SPARE]
    assert went.steps["see it on the spare cards"] in ("done", "found")


def test_the_driver_s_own_index_is_asked_for_where_the_list_is_not_whole(node: Node) -> None:
    walk(node, CardFailover().plan(node.system, to_spares(node)), stop_after="start")

    assert "CUDA_VISIBLE_DEVICES=1" in node.files.text(f"/proc/{node.unit.main}/environ")


def test_the_profile_that_an_earlier_act_gave_goes_along(node: Node) -> None:
    node.hung = False
    given = "# request: act-0\n# profile: int8\nMODEL=/models/int8\n"
    node.write("/var/lib/w/services/chat.env", given)
    node.write("/etc/w/fp16.env", "MODEL=/models/fp16\nPORT=8000\n")
    settings = service(profiles={"fp16": "/etc/w/fp16.env"}, start_profile="fp16")
    case = case_of(node, settings, "card_lost", sick=(OWN,), spares=(SPARE,))

    walk(node, CardFailover().plan(node.system, case))

    environ = node.files.text(f"/proc/{node.unit.main}/environ").split("\0")
    assert environ == [
        "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES=1",
        "MODEL=/models/int8",
    ]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [("taken", "process 88 holds it"), ("sick", "it is sick"), ("lost", "it is not")],
)
def test_a_spare_that_is_not_fit_is_declined(node: Node, spoil: str, told: str) -> None:
    if spoil == "taken":
        node.table[88] = Process(88, 1, "other", ("other",), 1.0)
        node.cards[SPARE].append(88)
    else:
        getattr(node, spoil).add(SPARE)

    assert told in CardFailover().precheck(node.system, to_spares(node))


def test_a_spare_taken_meanwhile_ends_it_before_the_start(node: Node) -> None:
    node.hung = False
    steps = CardFailover().plan(node.system, to_spares(node))
    node.cards[SPARE].append(88)

    went = walk(node, steps)

    assert "process 88 holds it" in went.why
    assert "systemctl start" not in node.log


def test_a_server_that_cannot_be_stopped_is_not_started_elsewhere(node: Node) -> None:
    node.deaf = node.stuck = True

    went = walk(node, CardFailover().plan(node.system, to_spares(node)))

    assert "could not be stopped" in went.why
    assert "systemctl start" not in node.log


def test_a_failed_move_leaves_the_environment_as_it_was(node: Node) -> None:
    node.hung = False
    node.loading, node.dies = 600.0, 20.0

    went = walk(node, CardFailover().plan(node.system, to_spares(node)))
    take_back(node, went, all_steps=True)

    assert "it ended before it answered" in went.why
    assert node.system.files.exists("/var/lib/w/services/chat.env") is False
    assert went.sets == {}


def test_nothing_healthy_left_is_said(node: Node) -> None:
    case = case_of(node, service(), "card_lost", sick=(OWN,))

    assert CardFailover().precheck(node.system, case).startswith("nothing healthy is left")


def test_a_new_standby_on_spare_cards_is_a_bonus_and_no_condition(node: Node) -> None:
    node.hung = False
    case = to_standby(node, spares=(SPARE,))

    went = walk(node, CardFailover().plan(node.system, case))

    assert went.sets == {"serving": "standby", "cards": [SPARE]}
    assert all(not step.must for step in went.ours[1:])


def test_it_lets_a_unit_be_that_restarts_by_itself_after_a_mere_crash(node: Node) -> None:
    node.lost.clear()
    node.crash()
    node.unit.active, node.unit.sub = "activating", "auto-restart"

    with pytest.raises(Temporary, match="its manager restarts it by itself"):
        CardFailover().precheck(node.system, to_standby(node, cause="engine_dead", sick=()))
