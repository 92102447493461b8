"""Defragment and drain: with little to do, and until a person says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.healing.node import INCLUDE, Node, case_of, service, walk
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.remediations.defragment import Defragment
from vllm_watchdog.remediations.drain import Drain
from vllm_watchdog.watchdog.model import ServiceMode


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.write(INCLUDE, "server 127.0.0.1:8000;\n")
    made.clock.advance(60)
    return made


def test_defragment_restarts_a_drained_server(node: Node) -> None:
    case = case_of(node, service(), "fragmentation")
    assert Defragment().precheck(node.system, case) == ""

    went = walk(node, Defragment().plan(node.system, case))

    assert went.why == ""
    order = list(went.steps)
    assert order[:2] == ["drain the front", "let running requests finish"]
    assert [line for line in node.log if "systemctl" in line] == [
        "systemctl stop",
        "systemctl start",
    ]


def test_defragment_is_declined_while_there_is_much_to_do(node: Node) -> None:
    node.running = 3

    told = Defragment().precheck(node.system, case_of(node, service(), "fragmentation"))

    assert told == "3 requests run or wait: not at low traffic"


def test_defragment_is_declined_where_the_load_cannot_be_read(node: Node) -> None:
    node.hung = True

    told = Defragment().precheck(node.system, case_of(node, service(), "fragmentation"))

    assert told == "how many requests run cannot be read"


def test_expandable_segments_join_what_the_profile_says_of_the_allocator(node: Node) -> None:
    node.write(
        "/etc/w/fp16.env", "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:False"
    )
    settings = service(
        expandable_segments=True, profiles={"fp16": "/etc/w/fp16.env"}, start_profile="fp16"
    )

    walk(node, Defragment().plan(node.system, case_of(node, settings, "fragmentation")))

    environ = node.files.text(f"/proc/{node.unit.main}/environ")
    assert environ == "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"


def test_drain_refuses_new_requests_and_stays_so(node: Node) -> None:
    case = case_of(node, service(), "none")
    assert Drain().precheck(node.system, case) == ""
    steps = Drain().plan(node.system, case)

    went = walk(node, steps)

    assert "server 127.0.0.1:8000 down;" in node.files.text(INCLUDE)
    assert went.sets == {"front": "drained"}
    assert not any(step.temporary for step in steps)
    assert "systemctl stop" not in node.log


def test_the_way_back_of_a_drain_opens_the_front_to_who_served(node: Node) -> None:
    walk(node, Drain().plan(node.system, case_of(node, service(), "none")))
    back = case_of(node, service(), "none", mode=ServiceMode(front="drained"), back=True)

    went = walk(node, Drain().plan(node.system, back))

    assert went.sets == {"front": "open"}
    assert "server 127.0.0.1:8000;" in node.files.text(INCLUDE)


def test_drain_without_a_front_is_declined(node: Node) -> None:
    told = Drain().precheck(node.system, case_of(node, service(front=None), "none"))

    assert told == "it has no front"


@pytest.mark.parametrize("name", ["restart", "card_failover", "quantize", "defragment", "drain"])
def test_an_act_of_the_node_is_declined_and_has_no_steps(node: Node, name: str) -> None:
    act = REMEDIATIONS[name]
    case = case_of(node, service(), "none")
    of_node = type(case)(
        case.request, "", None, case.mode, (), (), (), case.began, case.state
    )  # fmt: skip

    assert act.precheck(node.system, of_node) == "it belongs to no service"
