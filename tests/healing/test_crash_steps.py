"""The daemon is killed (SIGKILL) at each step of an act and started again by its unit: no act is
repeated, none is forgotten, front and servers end as the act wants them.

A sample of the moments runs with the other tests; ``make crash-steps`` runs them all (STEPS=all).
The acts on cards alone (reset, clocks) are killed at every command in tests/remediations, where
``defragment`` and ``drain``, whose steps are those of ``restart``, are walked as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.rig import (
    FAR_FRONT,
    FRONT,
    OWN,
    PORTS,
    SPARE,
    STATE,
    UNIT,
    Act,
    Rig,
    chat,
    far,
    rig,
)

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ALL = os.environ.get("STEPS") == "all"
MOMENTS = ("started", "done")
EVERY = "\n[Service]\nExecStart=\nExecStart={python} -P {program} run $OPTIONS\n"
PRIMARY, ASIDE = str(PORTS["chat"]), str(PORTS["chat-standby"])


def kill_engine(node: Rig) -> None:
    node.signal("chat", "engine", "KILL")


def lose_card(node: Rig) -> None:
    node.signal("chat", "engine", "STOP")
    node.cards(OWN, lost=True)


@dataclass(frozen=True)
class Scene:
    """One fault and the act that answers it. ``starts``: engines that the act starts on ``chat``;
    ``sample``: the moments that run with the other tests."""

    act: str
    fault: Callable[[Rig], None]
    include: str = PRIMARY
    starts: int = 1
    services: Mapping[str, Any] = field(default_factory=dict)
    after: Callable[[Rig], None] = lambda node: None
    front: str = FRONT
    sample: tuple[tuple[str, str], ...] = ()

    def serve(self, node: Rig) -> None:
        node.serve(self.services or {"chat": chat(standby=None)})


def cut(node: Rig) -> None:
    node.link("down")


def mend(node: Rig) -> None:
    node.wait_for(lambda: any(a.steps for a in node.acts()), 60.0, "cache-only mode")
    node.link("up")


SCENES = {
    "restart": Scene(
        "restart", kill_engine, sample=(("start", "started"), ("start", "done"))
    ),
    "failover to the standby": Scene(
        "card_failover", lose_card, ASIDE, 0, {"chat": chat(spares=[])},
        sample=(("point the front", "started"), ("point the front", "done")),
    ),
    "failover to a spare": Scene("card_failover", lose_card),
    "quantize": Scene("quantize", lambda node: node.word("chat", "oom")),
    "cache-only": Scene(
        "cache_only", cut, "", 0, {"far": far()}, after=mend, front=FAR_FRONT,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("node")) as made:
        import sys

        program = Path(__file__).parents[1] / "support/healing/dying.py"
        drop_in = made.path(f"/etc/systemd/system/{UNIT}.d/zz-dying.conf")
        drop_in.write_text(EVERY.format(python=sys.executable, program=program))
        made.must("systemctl", "daemon-reload")
        yield made


def play(node: Rig, scene: Scene, step: str = "", when: str = "") -> Act:
    """One fault from fresh, with a kill at a step's moment; the act's end."""
    node.fresh()
    if "far" in scene.services:
        node.far_server()
    scene.serve(node)
    if step:
        word = node.path(f"{STATE}/die")
        word.write_text(json.dumps({"step": step, "when": when}))
        word.chmod(0o666)
    scene.fault(node)
    scene.after(node)
    return node.ended(scene.act, within=90.0)


def check(node: Rig, scene: Scene, act: Act) -> None:
    """What must hold after an act, however often the daemon was killed in it."""
    assert act.status == "done", f"{act.detail}\n{node.told()}"
    assert [each.remediation for each in node.acts()] == [scene.act]
    assert len(node.events("remediation_requested")) == 1
    begun = node.path("/var/log/vllm/chat.log").read_text().count("Initializing a V1 LLM engine")
    if "far" not in scene.services:
        assert begun == 1 + scene.starts
        assert node.include() == scene.include
    assert node.post(scene.front, {"prompt": "2+2="}).status == 200
    flags = list(node.path("/etc/nginx/vllm-watchdog").glob("*.cache-only"))
    assert flags == []
    if scene.include == ASIDE:
        assert node.machine.show("vllm@chat.service", "ActiveState") in ("inactive", "failed")
    if scene.act == "card_failover" and scene.starts:
        assert node.holders(SPARE) == node.engines("chat")


def named(act: Act, beginning: str) -> str:
    """The act's step whose name begins so."""
    return next(name for name in act.steps if name.startswith(beginning))


@pytest.mark.parametrize("name", [name for name, each in SCENES.items() if ALL or each.sample])
def test_a_daemon_killed_at_a_step_goes_on_and_repeats_nothing(booted: Rig, name: str) -> None:
    scene = SCENES[name]
    whole = play(booted, scene)
    check(booted, scene, whole)
    moments = [(step, when) for step in whole.steps if step for when in MOMENTS]
    if not ALL:
        moments = [(named(whole, step), when) for step, when in scene.sample]
    killed = []
    for step, when in moments:
        if whole.steps[step] == "found" and when == "done":
            continue  # it was so already: nothing is done, nothing to be killed after
        act = play(booted, scene, step, when)
        if not booted.path(f"{STATE}/die").exists():
            killed.append((step, when))
        check(booted, scene, act)
        print(f"{name}: killed at {step!r}, {when}: {act.status}, {act.detail}", flush=True)

    assert len(killed) >= (len(scene.sample) or 1)
