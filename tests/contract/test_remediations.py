"""What every remediation promises: a name, an effect, a plan that is the same twice, steps with an end."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from tests.support.system import fake_system
from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.watchdog.acting import ActCase, Remediation
from vllm_watchdog.watchdog.config import parse
from vllm_watchdog.watchdog.config.models import Act
from vllm_watchdog.watchdog.guard import ACTS
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode, labelset

FOLDER = Path(__file__).parents[2] / "remediations"
SERVICE = """
services:
  chat:
    url: http://127.0.0.1:8000
    cards: ["0000:53:00"]
    spares: ["0000:75:00"]
    standby: {url: "http://127.0.0.1:8001", manager: {systemd: b.service}, cards: ["0000:64:00"]}
    manager: {systemd: a.service}
    front: {nginx: /etc/vllm-watchdog/chat.conf, url: "http://127.0.0.1:80"}
    profiles: {fp16: /p/fp16.env, int8: /p/int8.env}
    start_profile: fp16
"""
HOSTILE = "$(touch /tmp/pwned); `id`"


def case(name: str, tmp_path: Path, standby: bool = True, back: bool = False) -> ActCase:
    labels = labelset(
        {"alertname": "Any", "service": "chat", "card": "0000:53:00", "text": HOSTILE}
    )
    alert = Alert("g/Any", labels, "firing", 0.0, 1.0, (("summary", HOSTILE),))
    request = Request(name, alert, 1, "chat", "chat-1", "device_memory", ("0000:53:00",),
                      () if standby else ("0000:75:00",), standby, 600.0, back)  # fmt: skip
    settings = parse(SERVICE, "w.yaml").services["chat"]
    return ActCase(request, "chat", settings, ServiceMode(), ("0000:53:00",), ("0000:53:00",),
                   request.spares, 1_700_000_000.0, tmp_path, {"0000:53:00": "nvidia"})  # fmt: skip


def test_every_act_of_the_configuration_is_one_and_no_other_is() -> None:
    assert set(REMEDIATIONS) == set(get_args(Act)) == set(ACTS)


@pytest.mark.parametrize("name", sorted(REMEDIATIONS))
def test_it_says_in_one_sentence_what_it_changes(name: str) -> None:
    act = REMEDIATIONS[name]

    assert isinstance(act, Remediation)
    assert act.name == name
    assert 10 < len(act.effect) < 200
    assert "\n" not in act.effect


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("standby", [True, False])
@pytest.mark.parametrize("name", sorted(REMEDIATIONS))
def test_its_plan_is_the_same_twice_and_every_step_ends(
    name: str, standby: bool, back: bool, tmp_path: Path
) -> None:
    system = fake_system(root=tmp_path)
    one = case(name, tmp_path, standby, back)

    first = REMEDIATIONS[name].plan(system, one)
    second = REMEDIATIONS[name].plan(system, replace(one))

    names = [step.name for step in first]
    assert names == [step.name for step in second]
    assert len(set(names)) == len(names)
    assert all(0 < step.deadline <= 3600 for step in first)
    assert all(0 < step.poll <= 5 for step in first)
    assert not any(HOSTILE in step.name for step in first)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda p: p.name)
def test_it_neither_sleeps_nor_looks_at_texts_of_the_alert(path: Path) -> None:
    tree = ast.parse(path.read_text())
    called = {node.func.attr for node in ast.walk(tree)
              if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}  # fmt: skip

    assert "sleep" not in called
    assert not re.search(r"alert\.(labels|annotations)", path.read_text())
