"""Acts as the worker carries them, on a node in virtual time: how they end and what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.node import (
    ENV,
    INCLUDE,
    OWN,
    SPARE,
    STANDBY,
    Node,
    case_of,
    service,
)
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.watchdog.model import Outcome
from vllm_watchdog.watchdog.scheduler import Inbox
from vllm_watchdog.watchdog.workers.carrying import Carrying
from vllm_watchdog.watchdog.workers.tools import Tools
from vllm_watchdog.watchdog.workers.words import StopWord

LIMIT = 900.0


@pytest.fixture
def node(tmp_path: Path) -> Node:
    made = Node(tmp_path)
    made.write(INCLUDE, "server 127.0.0.1:8000;\n")
    made.write(ENV, "MODEL=/models/fp16\n")
    for name, size in (("fp16", 4000), ("int8", 2000)):
        config = {"quantization_config": {"quant_method": "x"}} if name == "int8" else {}
        made.write(f"/etc/w/{name}.env", f"MODEL=/models/{name}\n")
        made.write(f"/models/{name}/config.json", json.dumps(config))
        made.write(f"/models/{name}/model.safetensors", "x" * size)
    made.clock.advance(60)
    return made


def carry(node: Node, act: str, cause: str, **more: Any) -> Outcome:
    standby = {"url": STANDBY, "cards": ["0000:75:00"]} if more.get("standby") else None
    profiles = {name: f"/etc/w/{name}.env" for name in ("fp16", "int8")}
    own = service(standby=standby, profiles=profiles, start_profile="fp16")
    case = case_of(node, own, cause, **more)
    tools = Tools(node.system, Inbox(), node.clock.wall)
    outcome = Carrying(tools, REMEDIATIONS[act], case, StopWord(), LIMIT).run()
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(
    ("act", "cause", "more"),
    [
        ("restart", "output_corrupt", {}),
        ("quantize", "device_memory", {}),
        ("defragment", "fragmentation", {}),
        ("card_failover", "card_lost", {"standby": True, "sick": (OWN,)}),
        ("card_failover", "card_lost", {"spares": (SPARE,), "sick": (OWN,)}),
    ],
)
def test_it_ends_done_with_users_served(
    node: Node, act: str, cause: str, more: dict[str, Any]
) -> None:
    if cause == "card_lost":
        node.lost.add(OWN)

    outcome = carry(node, act, cause, **more)

    assert (outcome.status, outcome.duration < 30) == ("done", True)
    port = 8001 if more.get("standby") else 8000
    assert f"server 127.0.0.1:{port};" in node.files.text(INCLUDE)


def test_users_stay_on_the_standby_though_it_fails_later(node: Node) -> None:
    node.lost.add(OWN)
    node.hung = True
    before = node.request

    def failing(method: str, url: str, **more: Any) -> Any:
        node.standby_answers = node.unit.active == "active"  # until the sick one is stopped
        return before(method, url, **more)

    node.request = failing  # type: ignore[method-assign]
    outcome = carry(node, "card_failover", "card_lost", standby=True, sick=(OWN,))

    assert outcome.status == "timed_out"
    assert "server 127.0.0.1:8001;" in node.files.text(INCLUDE)


def test_a_drain_that_no_front_can_carry_out_changes_nothing(node: Node) -> None:
    node.nginx_fails = True

    outcome = carry(node, "drain", "none")

    assert outcome.status == "failed"
    assert node.files.text(INCLUDE) == "server 127.0.0.1:8000;\n"
