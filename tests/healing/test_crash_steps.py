"""The daemon is killed (SIGKILL) at each step of every act and started again by its unit: no act is
repeated, none is forgotten, front, servers and cards end as the act wants them.

A sample of the moments runs with the other tests; ``make crash-steps`` runs them all (STEPS=all).
A kill in the midst of a tool's call is for tests/remediations, in virtual time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.healing.rig import (
    FAR_FRONT,
    FRONT,
    OWN,
    PORTS,
    REPOSITORY,
    SPARE,
    STATE,
    THIRD,
    UNIT,
    Act,
    Rig,
    chat,
    far,
    front,
    rig,
)
from vllm_watchdog.remediations import REMEDIATIONS

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ALL = os.environ.get("STEPS") == "all"
MOMENTS = ("started", "done")
EVERY = """
[Service]
ExecStart=
ExecStart={python} -P {program} run $OPTIONS
# the scripted tool keeps there what it was told to set
ReadWritePaths=/srv/cards
"""
PRIMARY, ASIDE = str(PORTS["chat"]), str(PORTS["chat-standby"])
RULES = "/etc/vllm-watchdog/own.yaml"
SHIPPED = ("card-failover", "memory-overflow", "engine-dead", "engine-stalled", "night-frequency")
NO_STEPS = {"page"}
FULL, LONG = 'vllm:kv_cache_usage_perc{service="chat"} > 0.9', "vllm:num_requests_waiting > 0"
IDLE = f'accelerator_utilization_ratio{{card="{THIRD}"}} < 0.1'
ASKS = "accelerator_reset_required == 1"
RELOADED = 2.0  # seconds until nginx's new workers have taken over
LOWERED = "210,990"  # MHz: the lowest clock of the cards, and the half of their highest


def kill_engine(node: Rig) -> None:
    node.signal("chat", "engine", "KILL")


def lose_card(node: Rig) -> None:
    node.signal("chat", "engine", "STOP")
    node.cards(OWN, lost=True)


def cut(node: Rig) -> None:
    node.link("down")


def mend(node: Rig) -> None:
    node.wait_for(lambda: any(a.steps for a in node.acts()), 60.0, "cache-only mode")
    node.link("up")


def ease(node: Rig) -> None:
    """Once the front has refused a request, nobody waits any more."""

    def refused() -> bool:
        answer = node.post(FRONT, {"prompt": "2+2="})
        return answer.status == 503 and json.loads(answer.body)["error"]["code"] == "overloaded"

    node.wait_for(refused, 60.0, "a refused request")
    node.word("chat", "waiting", "0")


def fill_and_ask(node: Rig) -> None:
    """While a user's long answer is on its way."""
    node.must("install", "-d", "-m", "777", "/srv/long")
    body = {"prompt": "2+2=", "max_tokens": 1800, "stream": True}
    node.must(
        "systemd-run", "--collect", "curl", "-s", "--max-time", "60", "-o", "/srv/long/answer",
        "-H", "Content-Type: application/json", "-d", json.dumps(body), f"{FRONT}/v1/completions",
    )  # fmt: skip
    node.word("chat", "cache_use", "0.95")


def word(name: str, text: str) -> Callable[[Rig], None]:
    return lambda node: node.word("chat", name, text)


def mark(**marks: Any) -> Callable[[Rig], None]:
    """Marks on a card that no service uses."""
    return lambda node: node.cards(THIRD, **marks)


# What must hold of the node after an act


def on_the_standby(node: Rig) -> None:
    assert node.machine.show("vllm@chat.service", "ActiveState") in ("inactive", "failed")


def on_the_spare(node: Rig) -> None:
    assert node.holders(SPARE) == node.engines("chat")


def on_int8(node: Rig) -> None:
    assert "/models/int8" in node.must("cat", f"/proc/{node.pid('chat')}/cmdline")


def in_segments(node: Rig) -> None:
    environment = node.must("cat", f"/proc/{node.pid('chat')}/environ").split("\0")
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in environment


def left_running(node: Rig) -> None:
    """What ran was let finish, the server runs on, and users reach it when a person resumes."""
    assert node.path("/srv/long/answer").read_text().endswith("data: [DONE]\n\n")
    assert node.post(f"http://127.0.0.1:{PRIMARY}", {"prompt": "2+2="}).status == 200
    assert "takes requests again" in node.must("vllm-watchdog", "resume", "--service", "chat")
    node.wait_for(lambda: node.post(FRONT, {"prompt": "2+2="}).status == 200, 20.0, "an open front")
    assert node.include() == PRIMARY


def reset_once(node: Rig) -> None:
    """One reset; persistence mode as it was; the card read again, well, and free for all uses."""

    def well() -> bool:
        rows = [line for line in node.metrics().splitlines() if THIRD in line]
        return any(row.startswith("accelerator_healthy{") and row.endswith(" 1.0") for row in rows)

    assert [line.split()[1:] for line in calls(node, "--gpu-reset")] == [
        ["--gpu-reset", "-i", f"{THIRD}.0"]
    ]
    assert marks_of(node, "persistent") == {THIRD: True}
    assert marks_of(node, "sick") == {}
    assert not node.path(f"{STATE}/readers.json").exists()
    node.wait_for(lambda: node.events("card_released"), 10.0, "the end of its quarantine")
    node.wait_for(well, 20.0, "the card read as healthy")
    assert len(node.events("card_quarantined")) == len(node.events("card_released")) == 1


def lowered_once(node: Rig) -> None:
    """One change; with load on the card its clock is as it was found."""
    assert marks_of(node, "clocks") == {THIRD: LOWERED}
    node.cards(THIRD, busy=True)
    node.wait_for(lambda: marks_of(node, "clocks") == {}, 30.0, "the clock given back")
    node.wait_for(lambda: [a.status for a in node.acts()] == ["done"] * 2, 20.0, "the way back")
    assert [len(calls(node, option)) for option in ("-lgc", "-rgc")] == [1, 1]


def calls(node: Rig, word: str) -> list[str]:
    """The calls of the cards' tool that have a word."""
    lines = node.path("/srv/cards/calls.log").read_text().splitlines()
    return [line for line in lines if word in line.split()]


def marks_of(node: Rig, mark: str) -> dict[str, Any]:
    """What the cards have of a mark, by card."""
    known = json.loads(node.path("/srv/cards/cards.json").read_text())
    return {card: about[mark] for card, about in known.items() if mark in about}


def nothing_more(node: Rig) -> None:
    """What is asked of every scene is enough."""


@dataclass(frozen=True)
class Scene:
    """One fault and the act that answers it. ``rule``: an operator's own alert and its expression,
    which ``policy`` binds to the act; ``before``: how the node is before the daemon starts;
    ``starts``: engines that the act starts on ``chat``; ``answer``: what users get afterwards;
    ``holds``: what else must be so then; ``sample``: the moments that run with the other tests."""

    act: str
    fault: Callable[[Rig], None]
    include: str = PRIMARY
    starts: int = 1
    services: Mapping[str, Any] = field(default_factory=lambda: {"chat": chat(standby=None)})
    rule: tuple[str, str] | None = None
    policy: bool = True
    before: Callable[[Rig], None] = nothing_more
    after: Callable[[Rig], None] = nothing_more
    holds: Callable[[Rig], None] = nothing_more
    front: str = FRONT
    answer: int = 200
    sample: tuple[tuple[str, str], ...] = ()

    def serve(self, node: Rig) -> None:
        node.serve(self.services, **({} if self.rule is None else self._own(node, *self.rule)))

    def _own(self, node: Rig, alert: str, expression: str) -> dict[str, Any]:
        """The keys of a configuration with a rule of its own beside the shipped ones."""
        group = {"name": "own", "rules": [{"alert": alert, "expr": expression}]}
        node.path(RULES).write_text(yaml.safe_dump({"groups": [group]}))
        own = {"name": "own", "when": [alert], "do": [self.act, "page"]}
        shipped = [{"use": name} for name in SHIPPED]
        return {
            "guard": {"node": "99/h"},  # with the usual cooldown: these alerts outlast their act
            "rules": {"files": [str(REPOSITORY / "rules/documented.yaml"), RULES]},
            "policies": [own, *shipped] if self.policy else shipped,
        }


SCENES = {
    "restart": Scene(
        "restart", kill_engine, sample=(("start", "started"), ("start", "done"))
    ),
    "restart beside a standby": Scene(
        "restart", kill_engine, services={"chat": chat(spares=[])},
        sample=(("keep users on the standby meanwhile", "done"),),
    ),
    "failover to the standby": Scene(
        "card_failover", lose_card, ASIDE, 0, {"chat": chat(spares=[])}, holds=on_the_standby,
        sample=tuple(("point the front at the standby", when) for when in MOMENTS),
    ),
    "failover to a spare": Scene("card_failover", lose_card, holds=on_the_spare),
    "quantize": Scene("quantize", word("oom", ""), holds=on_int8),
    "defragment": Scene(
        "defragment", word("cache_use", "0.95"), rule=("MemoryFragmented", FULL),
        services={"chat": chat(standby=None, expandable_segments=True)}, holds=in_segments,
    ),
    "drain": Scene(
        "drain", fill_and_ask, "down", 0, rule=("CacheFull", FULL),
        answer=503, holds=left_running,
        sample=(("drain the front", "started"),),
    ),
    "cache-only": Scene(
        "cache_only", cut, "", 0, {"far": far()}, after=mend, front=FAR_FRONT,
    ),
    "shed load": Scene(
        "shed_load", word("waiting", "5"), starts=0, rule=("QueueLong", LONG), after=ease,
        services={"chat": chat(standby=None, front={**front("chat", FRONT), "shed_percent": 50})},
    ),
    "reset a card": Scene(
        "reset_card", mark(sick=True), starts=0, rule=("CardAsks", ASKS),
        before=mark(persistent=True), holds=reset_once,
        sample=(("reset, try 1", "done"),),
    ),
    "lower the clocks": Scene(
        "lower_frequency", mark(busy=False), starts=0, rule=("LowLoadNight", IDLE), policy=False,
        before=mark(busy=True), holds=lowered_once,
        sample=((f"lower {THIRD}", "done"),),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("node")) as made:
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
    scene.before(node)
    scene.serve(node)
    if when:
        die = node.path(f"{STATE}/die")
        die.write_text(json.dumps({"step": step, "when": when}))
        die.chmod(0o666)
    scene.fault(node)
    scene.after(node)
    return node.ended(scene.act, within=120.0)


def check(node: Rig, scene: Scene, act: Act) -> None:
    """What must hold after an act, however often the daemon was killed in it."""
    assert act.status == "done", f"{act.detail}\n{node.told()}"
    assert [each.remediation for each in node.acts()] == [scene.act]
    assert len(node.events("remediation_requested")) == 1
    begun = node.path("/var/log/vllm/chat.log").read_text().count("Initializing a V1 LLM engine")
    if "far" not in scene.services:
        assert begun == 1 + scene.starts
        assert node.include() == scene.include
    node.wait_for(
        lambda: node.post(scene.front, {"prompt": "2+2="}).status == scene.answer,
        0.0 if REMEDIATIONS[scene.act].verified else RELOADED,
        f"{scene.answer} for users",
    )
    flags = [*node.path("/etc/nginx/vllm-watchdog").glob("*.[cs]*")]
    assert [flag.name for flag in flags if flag.suffix != ".conf"] == []
    scene.holds(node)


def moments(act: Act) -> Sequence[tuple[str, str]]:
    """All that the journal is told of an act: each step begun, done, taken back; and its end."""
    after = {"done": MOMENTS, "undone": (*MOMENTS, "undone"), "failed": MOMENTS[:1]}
    steps = [(name, when) for name, how in act.steps.items() if name for when in after.get(how, ())]
    return [*steps, ("", "done")]


def test_each_act_that_does_anything_has_its_scene() -> None:
    assert {scene.act for scene in SCENES.values()} == set(REMEDIATIONS) - NO_STEPS


@pytest.mark.parametrize("name", [name for name, each in SCENES.items() if ALL or each.sample])
def test_a_daemon_killed_at_a_step_goes_on_and_repeats_nothing(booted: Rig, name: str) -> None:
    scene, wanted = SCENES[name], SCENES[name].sample
    if ALL:
        whole = play(booted, scene)
        check(booted, scene, whole)
        wanted = tuple(moments(whole))
        print(f"{name}: {dict(whole.steps)}", flush=True)
    for step, when in wanted:
        act = play(booted, scene, step, when)
        killed = not booted.path(f"{STATE}/die").exists()
        print(f"{name}: killed at {step!r}, {when}: {act.status}, {act.detail}", flush=True)
        check(booted, scene, act)

        assert killed or act.steps[step] in ("found", "failed")  # it did not come to this moment


def test_a_daemon_killed_while_clocks_are_lowered_gives_them_back(booted: Rig) -> None:
    scene = SCENES["lower the clocks"]
    play(booted, scene)
    assert marks_of(booted, "clocks") == {THIRD: LOWERED}
    booted.must("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", UNIT)
    booted.wait_for(lambda: marks_of(booted, "clocks") == {}, 20.0, "the clock given back")

    assert [len(calls(booted, option)) for option in ("-lgc", "-rgc")] == [1, 1]
