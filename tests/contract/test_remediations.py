"""What every act keeps: its name, a sentence, steps that can be journaled and walked again."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from tests.support.healing.node import INCLUDE, OWN, SPARE, Node, case_of, service
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.watchdog.acting import ActCase, Remediation
from vllm_watchdog.watchdog.config import Act

CAUSES = ("engine_dead", "engine_stalled", "device_memory", "fragmentation", "card_lost", "none")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.write(INCLUDE, "server 127.0.0.1:8000;\n")
    for name in ("fp16", "int8"):
        made.write(f"/etc/w/{name}.env", f"MODEL=/models/{name}\n")
    made.clock.advance(60)
    return made


def case(node: Node, cause: str) -> ActCase:
    profiles = {name: f"/etc/w/{name}.env" for name in ("fp16", "int8")}
    own = service(profiles=profiles, start_profile="fp16")
    sick = (OWN,) if cause == "card_lost" else ()
    return case_of(node, own, cause, sick=sick, spares=(SPARE,))


def test_every_act_of_a_policy_is_there_under_its_name() -> None:
    assert set(REMEDIATIONS) == set(get_args(Act))
    assert all(name == act.name for name, act in REMEDIATIONS.items())


@pytest.mark.parametrize("act", REMEDIATIONS.values(), ids=lambda act: act.name)
def test_an_act_says_in_a_sentence_what_it_changes(act: Remediation) -> None:
    assert isinstance(act, Remediation)
    assert len(act.effect.split()) > 4


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("act", REMEDIATIONS.values(), ids=lambda act: act.name)
def test_a_plan_looks_only_and_is_the_same_again(node: Node, act: Remediation, cause: str) -> None:
    before = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}

    first = [step.name for step in act.plan(node.system, case(node, cause))]
    again = [step.name for step in act.plan(node.system, case(node, cause))]

    assert first == again
    assert len(first) == len(set(first))
    after = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}
    assert after == before
    assert node.log == []


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("act", REMEDIATIONS.values(), ids=lambda act: act.name)
def test_a_precheck_looks_only(node: Node, act: Remediation, cause: str) -> None:
    before = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}

    act.precheck(node.system, case(node, cause))

    after = {path: path.read_bytes() for path in node.root.rglob("*") if path.is_file()}
    assert after == before
    assert node.log == []


@pytest.mark.parametrize("act", REMEDIATIONS.values(), ids=lambda act: act.name)
def test_every_step_has_a_deadline_and_a_name_for_people(node: Node, act: Remediation) -> None:
    for step in act.plan(node.system, case(node, "engine_stalled")):
        assert step.deadline > 0
        assert step.poll > 0
        assert step.name.strip() == step.name != ""
        assert set(step.sets) <= {"serving", "front", "profile", "cards", "standby_cards"}
