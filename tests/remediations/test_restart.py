"""Restart as a plan: in which order, what is proved before the start, what a crash leaves to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.healing.node import (
    OWN,
    URL,
    Node,
    case_of,
    service,
    take_back,
    walk,
)
from vllm_watchdog.remediations.restart import Restart
from vllm_watchdog.watchdog.errors import Temporary
from vllm_watchdog.watchdog.model import ServiceMode
from vllm_watchdog.watchdog.system import Process

HUNG = [
    "drain the front",
    "evidence",
    "stop by the manager",
    "kill what is left",
    "end orphans",
    "prove the memory free",
    "start",
    "wait for its first answer",
]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.clock.advance(60)
    return made


def test_a_hung_server_is_drained_at_the_front_ended_and_started_in_this_order(node: Node) -> None:
    node.hung = node.deaf = True
    case = case_of(node, service(), "engine_stalled")
    steps = Restart().plan(node.system, case)
    answered = replace(steps[-1], done=lambda _: "yes")

    went = walk(node, [*steps[:-1], answered])

    assert [step.name for step in steps] == HUNG
    assert went.why == ""
    tail = [line for line in node.log if line.startswith(("systemctl", "kill"))]
    assert tail == [
        "systemctl stop",
        "kill -9 vllm",
        "kill -9 VLLM::EngineCor",
        "systemctl reset-failed",
        "systemctl start",
    ]
    assert node.log[:2] == ["nginx -t", "nginx -s reload"]


@pytest.mark.parametrize(
    ("policy", "age", "more", "waits"),
    [
        ("always", 1.0, {}, True),
        ("always", 6.0, {}, False),
        ("on-failure", 1.0, {}, False),  # a vLLM whose engine died ends with 0
        ("always", 1.0, {"standby": True}, False),
    ],
)
def test_a_dying_server_is_left_a_moment_to_a_manager_that_starts_it_again_in_any_case(
    node: Node, policy: str, age: float, more: dict[str, bool], *, waits: bool
) -> None:
    node.unit.restart = policy
    case = case_of(node, service(), "engine_dead", **more)
    alert = replace(case.request.alert, active_at=node.clock.wall() - age)
    case = replace(case, request=replace(case.request, alert=alert))

    if waits:
        with pytest.raises(Temporary, match="by itself once it has ended") as raised:
            Restart().precheck(node.system, case)
        assert raised.value.delay == pytest.approx(4.0)
    else:
        assert Restart().precheck(node.system, case) == ""


def test_the_drained_front_is_temporary_and_opens_again(node: Node) -> None:
    node.hung = True
    case = case_of(node, service(), "engine_stalled")
    steps = Restart().plan(node.system, case)
    node.hung = False
    went = walk(node, steps)
    drained = node.files.text("/etc/nginx/chat.conf")

    take_back(node, went, all_steps=False)

    assert "server 127.0.0.1:8000;" not in drained
    assert "server 127.0.0.1:8000;" in node.files.text("/etc/nginx/chat.conf")


def test_a_server_that_is_gone_with_exit_status_0_is_started_without_a_drain(node: Node) -> None:
    node.crash()
    case = case_of(node, service())
    steps = Restart().plan(node.system, case)

    went = walk(node, steps)

    assert "drain the front" not in went.steps
    assert went.steps["stop by the manager"] == "found"
    assert went.steps["wait for its first answer"] == "done"
    assert [line for line in node.log if "systemctl" in line] == ["systemctl start"]


def test_running_requests_finish_before_a_server_that_serves_is_stopped(node: Node) -> None:
    node.running = 3
    steps = Restart().plan(node.system, case_of(node, service(), "output_corrupt"))
    names = [step.name for step in steps]
    wait = next(step for step in steps if step.name == "let running requests finish")

    assert names.index(wait.name) < names.index("stop by the manager")
    assert wait.done(node.system) == "no"
    assert not wait.must
    node.running = 0
    assert wait.done(node.system) == "yes"


def test_it_does_not_start_on_a_card_whose_memory_is_still_taken(node: Node) -> None:
    node.sticky = True
    node.crash()

    went = walk(node, Restart().plan(node.system, case_of(node, service())))

    assert went.why.startswith("prove the memory free: its time is up")
    assert "systemctl start" not in node.log


@pytest.mark.parametrize(("cause", "proved"), [("none", True), ("card_lost", False)])
def test_only_a_card_that_is_broken_is_left_out_of_the_proof(
    node: Node, cause: str, proved: bool
) -> None:
    steps = Restart().plan(node.system, case_of(node, service(), cause, sick=(OWN,)))

    assert ("prove the memory free" in [step.name for step in steps]) is proved


def test_an_orphan_on_the_service_s_card_is_ended_by_its_pid(node: Node) -> None:
    api, core = sorted(node.group)
    node.end([api])
    node.group.clear()  # it has left the cgroup
    node.crash()
    node.table[core] = replace(node.table[core], ppid=1)
    node._proc(core, {})

    went = walk(node, Restart().plan(node.system, case_of(node, service())))

    assert went.steps["end orphans"] == "done"
    assert node.log[:2] == ["kill -9 VLLM::EngineCor", "systemctl start"]


def test_a_stranger_on_the_service_s_card_is_left_alone_and_nothing_starts(node: Node) -> None:
    node.crash()
    node.table[77] = Process(77, 1, "train.py", ("python", "train.py"), node.clock.wall())
    node._proc(77, {})
    node.cards[OWN].append(77)

    went = walk(node, Restart().plan(node.system, case_of(node, service())))

    assert went.why.startswith("prove the memory free")
    assert not any(line.startswith(("kill", "systemctl start")) for line in node.log)


def test_another_service_s_engine_is_no_orphan(node: Node) -> None:
    node.crash()
    node.table[70] = Process(70, 1, "vllm", ("vllm", "serve", "m", "--port", "9"), 1.0)
    node.table[71] = Process(71, 70, "VLLM::EngineCor", ("VLLM::EngineCore",), 1.0)
    for pid in (70, 71):
        node._proc(pid, {})
    node.cards[OWN].append(71)

    walk(node, Restart().plan(node.system, case_of(node, service())))

    assert not any(line.startswith("kill") for line in node.log)


def test_a_server_that_dies_while_it_starts_ends_the_wait_at_once(node: Node) -> None:
    node.crash()
    node.loading, node.dies = 300.0, 20.0
    before = node.clock.mono()

    went = walk(node, Restart().plan(node.system, case_of(node, service())))

    assert went.why == "wait for its first answer: it ended before it answered: exit-code"
    assert 20 <= node.clock.mono() - before < 25


def test_loading_for_ten_minutes_is_waited_for(node: Node) -> None:
    node.crash()
    node.loading = 600.0

    went = walk(node, Restart().plan(node.system, case_of(node, service())))

    assert went.why == ""


def test_an_answer_that_the_canary_does_not_expect_ends_the_wait(node: Node) -> None:
    node.crash()
    node.answer = "!!!!"
    probe = {"kind": "completion", "model": "m", "expect": "^4"}

    went = walk(node, Restart().plan(node.system, case_of(node, service(probe=probe))))

    assert went.why.endswith("it answers, but not what is expected of it")


def test_a_limit_of_the_act_bounds_the_wait(node: Node) -> None:
    steps = Restart().plan(node.system, case_of(node, service(), limit=120.0))

    assert steps[-1].deadline == 120.0


@pytest.mark.parametrize("step", HUNG)
def test_after_a_crash_at_any_step_nothing_is_done_twice(node: Node, step: str) -> None:
    node.hung = node.deaf = True
    case = case_of(node, service(), "engine_stalled")
    walk(node, Restart().plan(node.system, case), stop_after=step)
    if step in ("start", "wait for its first answer"):
        node.hung = False

    again = Restart().plan(node.system, case)
    node.hung = False if "systemctl start" in node.log else node.hung
    last = replace(again[-1], done=lambda _: "yes")
    went = walk(node, [*again[:-1], last])

    assert [each.name for each in again] == HUNG
    assert went.why == ""
    assert node.log.count("systemctl start") == 1
    assert node.log.count("nginx -s reload") == 1
    assert node.log.count("kill -9 vllm") == 1


def test_it_waits_for_nobody_while_the_unit_restarts_by_itself(node: Node) -> None:
    node.crash()
    node.unit.active, node.unit.sub = "activating", "auto-restart"

    with pytest.raises(Temporary, match="restarts it by itself"):
        Restart().precheck(node.system, case_of(node, service()))


def test_a_server_that_its_manager_just_restarted_is_left_to_it(node: Node) -> None:
    case = case_of(node, service())
    node.crash()
    node.boot()
    node.unit.restarts = 1

    with pytest.raises(Temporary, match="restarted it by itself 0 s ago"):
        Restart().precheck(node.system, case)


def test_a_unit_that_gave_itself_up_is_freed_and_started(node: Node) -> None:
    node.end(sorted(node.group), "start-limit-hit")
    case = case_of(node, service())

    assert Restart().precheck(node.system, case) == ""
    walk(node, Restart().plan(node.system, case))
    assert node.log == ["systemctl reset-failed", "systemctl start"]


def test_a_server_that_hangs_although_its_unit_restarts_on_failure_is_ours(node: Node) -> None:
    node.hung = True
    node.unit.restarts = 2  # long ago

    assert Restart().precheck(node.system, case_of(node, service(), "engine_stalled")) == ""


def test_without_a_manager_it_is_declined(node: Node) -> None:
    told = Restart().precheck(node.system, case_of(node, service(manager=None)))

    assert told == "no manager is configured for it"


def test_missing_rights_are_told_with_what_to_do(node: Node) -> None:
    node.hung = node.refuses = True

    steps = Restart().plan(node.system, case_of(node, service(), "engine_stalled"))
    with pytest.raises(Exception, match=r"vllm-watchdog\.rules"):
        next(step for step in steps if step.name == "stop by the manager").do(node.system)  # type: ignore[misc]


def test_the_standby_is_restarted_while_it_is_the_one_that_serves(node: Node) -> None:
    standby = {"url": URL, "manager": {"systemd": "vllm@chat.service"}}
    settings = service(url="http://127.0.0.1:8009", manager=None, standby=standby)
    case = case_of(node, settings, mode=ServiceMode(serving="standby"))

    assert Restart().precheck(node.system, case) == ""


def test_a_fragmented_allocator_gets_expandable_segments_where_configured(node: Node) -> None:
    case = case_of(node, service(expandable_segments=True), "fragmentation")

    assert Restart().precheck(node.system, case) == ""
    went = walk(node, Restart().plan(node.system, case))

    assert went.why == ""
    environ = node.files.text(f"/proc/{node.unit.main}/environ")
    assert environ == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
