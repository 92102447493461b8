"""Users on the standby while their own server is renewed: only if it answers, back only to what does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.node import ENV, INCLUDE, STANDBY, Node, case_of, service
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.remediations.quantize import Quantize
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.errors import Temporary
from vllm_watchdog.watchdog.model import Outcome, ServiceMode
from vllm_watchdog.watchdog.scheduler import Inbox
from vllm_watchdog.watchdog.workers.carrying import Carrying
from vllm_watchdog.watchdog.workers.tools import Tools
from vllm_watchdog.watchdog.workers.words import StopWord

STANDBY_CARD = "0000:75:00"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.write(INCLUDE, "server 127.0.0.1:8000;\n")
    for name, size in (("fp16", 4000), ("int8", 2000)):
        config = {"quantization_config": {"quant_method": "x"}} if name == "int8" else {}
        made.write(f"/etc/w/{name}.env", f"MODEL=/models/{name}\n")
        made.write(f"/models/{name}/config.json", json.dumps(config))
        made.write(f"/models/{name}/model.safetensors", "x" * size)
    made.clock.advance(60)
    return made


def case(node: Node, cause: str, *, ready: bool = True, profile: str = "", **more: Any) -> ActCase:
    own = service(
        standby={"url": STANDBY, "cards": [STANDBY_CARD]},
        profiles={name: f"/etc/w/{name}.env" for name in ("fp16", "int8")},
        start_profile="fp16",
    )
    mode = more.pop("mode", ServiceMode(profile=profile))
    return case_of(node, own, cause, standby=ready, mode=mode, **more)


def carry(node: Node, act: str, of: ActCase) -> tuple[Outcome, list[str]]:
    """How the act ended, and which instance served by the service's mode, one after the other."""
    inbox = Inbox()
    tools = Tools(node.system, inbox, node.clock.wall)
    outcome = Carrying(tools, REMEDIATIONS[act], of, StopWord(), 900.0).run()
    assert outcome is not None
    told = [each.args["sets"].get("serving") for each in inbox.gather().commands]
    return outcome, [each for each in told if each]


def ports(node: Node) -> list[str]:
    """Where new requests went, one after the other: the port, or 503."""
    return [port for line in node.log if (port := line.removeprefix("to ")) != line]


@pytest.fixture(autouse=True)
def noted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reload of nginx with what its include says by then."""
    run = node.run

    def running(argv: Any, **more: Any) -> Any:
        if list(argv[:3]) == ["nginx", "-s", "reload"]:
            text = node.files.text(INCLUDE)
            node.log.append("to " + next((p for p in ("8000;", "8001;") if p in text), "503"))
        return run(argv, **more)

    monkeypatch.setattr(node, "run", running)


@pytest.mark.parametrize(
    ("act", "cause"), [("restart", "engine_dead"), ("defragment", "fragmentation")]
)
def test_users_are_on_the_standby_while_their_server_is_started_anew(
    node: Node, act: str, cause: str
) -> None:
    if act == "restart":
        node.crash()

    outcome, serving = carry(node, act, case(node, cause))

    assert outcome.status == "done"
    assert ports(node) == ["8001;", "8000;"]
    assert node.log.index("to 8001;") < node.log.index("systemctl start")
    assert serving == ["standby", "primary"]


def test_a_standby_that_is_silent_by_then_leaves_the_usual_way(node: Node) -> None:
    node.standby_answers, node.deaf = False, True
    kill, node.hung = node.kill, True

    def killed(process: Any, number: int) -> bool:
        node.hung = False
        return kill(process, number)

    node.kill = killed  # type: ignore[method-assign]
    outcome, serving = carry(node, "restart", case(node, "engine_stalled"))

    assert outcome.status == "done"
    assert ports(node) == ["503", "8000;"]
    assert "standby" not in serving


def test_a_restart_that_fails_leaves_users_where_they_are_served(node: Node) -> None:
    node.crash()
    node.dies = 2.0  # before its first answer

    outcome, serving = carry(node, "restart", case(node, "engine_dead"))

    assert outcome.status == "failed"
    assert "the configured instance gives no completion" in outcome.detail
    assert ports(node) == ["8001;"]
    assert serving == ["standby"]


def test_a_lack_of_memory_is_not_handed_to_the_standby(node: Node) -> None:
    outcome, serving = carry(node, "quantize", case(node, "device_memory"))

    assert outcome.status == "done"
    assert "8001;" not in ports(node)
    assert serving == []


def test_the_way_back_from_int8_is_gone_with_users_on_the_standby(node: Node) -> None:
    node.write(ENV, "# act-0 int8\nMODEL=/models/int8\n")

    outcome, serving = carry(
        node, "quantize", case(node, "device_memory", profile="int8", back=True)
    )

    assert outcome.status == "done"
    assert ports(node) == ["8001;", "8000;"]
    assert "MODEL=/models/fp16" in node.files.text(f"/proc/{node.unit.main}/environ")
    assert serving == ["standby", "primary"]


def test_the_way_back_waits_for_a_standby_that_answers(node: Node) -> None:
    node.standby_answers = False
    back = case(node, "device_memory", profile="int8", back=True)

    with pytest.raises(Temporary, match="the standby gives no completion"):
        Quantize().precheck(node.system, back)

    outcome, _ = carry(node, "quantize", back)
    assert outcome.status == "declined"
    assert "systemctl stop" not in node.log


def test_the_way_back_of_an_instance_that_users_have_left_touches_no_front(node: Node) -> None:
    carry(node, "quantize", case(node, "device_memory"))
    node.write(INCLUDE, "server 127.0.0.1:8001;\n")
    node.log.clear()

    mode = ServiceMode(serving="standby", profile="int8")
    outcome, serving = carry(
        node, "quantize", case(node, "device_memory", mode=mode, back=True, id="act-2")
    )

    assert outcome.status == "done"
    assert ports(node) == []
    assert "MODEL=/models/fp16" in node.files.text(f"/proc/{node.unit.main}/environ")
    assert serving == []
