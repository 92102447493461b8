"""Ways back wait until what an act rested on was read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.acts import Scripted, World, daemon_with, kinds, run
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.daemon import Daemon
from vllm_watchdog.watchdog.desk import DaemonDesk
from vllm_watchdog.watchdog.model import Command

TEXT = """\
mode: act
services: {chat: {url: "http://chat", cards: ["0000:53:00"]}}
policies: [{when: [Idle], do: [lower_frequency, page]}]
"""
RULES = """\
groups:
  - name: g
    rules:
      - alert: Idle
        expr: load < 0.1
        labels: {service: chat, card: "0000:53:00"}
"""


@pytest.fixture
def world() -> Iterator[World]:
    made = World(VirtualClock())
    yield made
    made.close()


def daemon(folder: Path, world: World) -> Daemon:
    class Lower(Scripted):
        def plan(self, system: object, case: ActCase) -> Sequence[Step]:
            self.cases.append(case)
            return [world.step("restore" if case.back else "lower")]

    return daemon_with(folder, world, Lower(world, [], "lower_frequency"), text=TEXT, rules=RULES)


def killed_at_the_end_of_its_act(folder: Path, world: World) -> None:
    """The act is done, and nobody has heard of it yet."""
    run(daemon(folder, world), 0.0, 0.0)

    assert world.did == ["lower"]


def test_what_was_lowered_stays_so_until_the_card_is_read_after_a_restart(
    tmp_path: Path, world: World
) -> None:
    killed_at_the_end_of_its_act(tmp_path, world)

    run(daemon(tmp_path, world), None, 0.0, 0.0)
    assert world.did == ["lower"]


def test_a_card_that_is_read_as_busy_after_a_restart_is_given_back_at_once(
    tmp_path: Path, world: World
) -> None:
    killed_at_the_end_of_its_act(tmp_path, world)

    run(daemon(tmp_path, world), None, 0.9)
    assert world.did == ["lower", "restore"]


@pytest.mark.parametrize(("ticks", "did"), [(13, ["lower"]), (14, ["lower", "restore"])])
def test_a_card_that_is_never_read_again_is_given_back_after_65_seconds(
    tmp_path: Path, world: World, ticks: int, did: list[str]
) -> None:
    killed_at_the_end_of_its_act(tmp_path, world)

    run(daemon(tmp_path, world), *[None] * ticks)
    assert did == world.did


def test_an_alert_that_outlasts_its_act_asks_for_no_second_one_after_a_kill_at_the_act_s_end(
    tmp_path: Path, world: World
) -> None:
    text = TEXT.replace("lower_frequency", "drain") + "guard: {cooldown: 1s}\n"

    def node() -> Daemon:
        act = Scripted(world, [world.step("drain")], "drain")
        return daemon_with(tmp_path, world, act, text=text, rules=RULES)

    run(node(), 0.0, 0.0)
    later = node()
    run(later, None, None, *[0.0] * 20)  # 110 s; after 120 s it is asked for anew

    assert kinds(later, "remediation_requested") == ["remediation_requested"]

    run(later, *[0.0] * 6)
    assert len(kinds(later, "remediation_requested")) == 2


@pytest.mark.parametrize("verb", ["resume", "approve"])
def test_a_drained_front_opens_when_a_person_resumes_and_not_before(
    tmp_path: Path, world: World, verb: str
) -> None:
    class Drained(Scripted):
        def plan(self, system: object, case: ActCase) -> Sequence[Step]:
            front = "open" if case.back else "drained"
            return [world.step(front, sets={"front": front})]

    text = TEXT.replace("lower_frequency", "drain")
    later = daemon_with(tmp_path, world, Drained(world, [], "drain"), text=text, rules=RULES)
    run(later, 0.0, 0.0, *[0.9] * 400)  # the alert is long over
    (waiting,) = DaemonDesk(later).standing().waiting
    before = list(world.did)

    later.command(Command(verb, {"service": "chat", "id": waiting.id}, "ann"))
    run(later, 0.9, 0.9)

    assert (before, waiting.act, waiting.back) == (["drained"], "drain", True)
    assert world.did == ["drained", "open"]
    assert later.engine.healer.standing.mode("chat").front == "open"
    assert DaemonDesk(later).standing().waiting == []
