"""People and the running daemon: each command over its control socket, from the terminal to the journal."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import Running, command, daemon, wait_for
from tests.support.gpus import ScriptedGpus

CARDS = ["0000:53:00", "0000:64:00"]
CONFIG: dict[str, Any] = {
    "interval": "500ms",
    "services": {"chat": {"url": "http://127.0.0.1:1", "cards": [CARDS[0]]}},
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Running]:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    with daemon(tmp_path / "d", CONFIG, path=[gpus.folder]) as running:
        yield running


def give(node: Running, *words: str) -> subprocess.CompletedProcess[bytes]:
    return command(*words, env={"VLLM_WATCHDOG_SOCKET": str(node.folder / "control.sock")})


def said(node: Running, *words: str) -> list[str]:
    done = give(node, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode().splitlines()


def complaint(node: Running, *words: str) -> str:
    done = give(node, *words)
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    return line


def history(node: Running, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.server.get(f"/api/v1/events?kind={kind}")
    return found


def test_a_pause_is_said_journaled_with_who_and_outlives_a_restart(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", CONFIG) as node:
        (line,) = said(node, "pause", "--service", "chat", "--for", "2h", "--reason", "new driver")
        assert line.startswith("healing of chat is paused until 20")
        (event,) = wait_for(lambda: history(node, "healing_paused"))
        assert f"(uid {os.geteuid()}, pid" in event["fields"]["who"]
        assert event["fields"]["reason"] == "new driver"

    with daemon(tmp_path / "d", CONFIG) as node:
        assert any("paused: healing of chat" in line for line in said(node, "approve"))
        assert said(node, "resume")[0] == "healing of every service goes on"
        assert said(node, "approve") == ["no act waits for approval"]


def test_a_card_is_quarantined_by_any_of_its_names_and_released(node: Running) -> None:
    wait_for(lambda: node.server.get("/api/v1/status")["cards"])
    (line,) = said(node, "quarantine", "gpu 1", "--reason", "rma")

    assert line.startswith("0000:64:00 is quarantined")
    assert "already" in complaint(node, "quarantine", "00000000:64:00.0")
    assert said(node, "release", "0000:64:00") == [
        "0000:64:00 is released (it was quarantined: rma)"
    ]
    assert "not quarantined" in complaint(node, "release", "0000:64:00")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["pause"], "--reason"),
        (["pause", "--reason", ""], "reason: is missing"),
        (["pause", "--reason", "x", "--service", "caht"], "did you mean 'chat'"),
        (["pause", "--reason", "x", "--for", "soon"], "duration"),
        (["approve", "chat"], "no act waits for approval"),
        (["cancel"], "nothing is under way"),
        (["quarantine", "0000:99:00"], "no such card"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_cannot_be_done_is_one_line_and_exit_2(
    node: Running, words: list[str], told: str
) -> None:
    assert told in complaint(node, *words)


RULES = """\
groups:
  - name: hardware
    rules:
      - {alert: TooBusy, expr: accelerator_utilization_ratio > 0.85, labels: {severity: warning}}
"""


def test_what_waits_for_approval_is_listed_approved_and_refused_a_second_time(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    config = {
        **CONFIG,
        "mode": "confirm",
        "rules": {"files": [str(tmp_path / "rules.yaml")]},
        "policies": [{"when": ["TooBusy"], "services": ["chat"], "do": ["drain"]}],
    }
    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        gpus.set(c53=95)
        wait_for(lambda: json.loads(give(node, "approve", "--json").stdout)["waiting"])
        listed = said(node, "approve")
        assert listed[-1] == "approve it with `vllm-watchdog approve 'chat|TooBusy'`"
        assert any("chat" in line and "drain" in line for line in listed)
        assert "did you mean" in complaint(node, "approve", "chta")

        (line, *_) = said(node, "approve", "--service", "chat")
        assert line.startswith("drain for chat")
        assert wait_for(lambda: history(node, "remediation_approved"))
        assert "no act waits" in complaint(node, "approve", "--service", "chat")


@pytest.mark.parametrize("words", [["cancel"], ["pause", "--reason", "wait"]], ids=lambda w: w[0])
def test_a_persons_word_stops_an_act_under_way_between_its_steps(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    never = {**CONFIG["services"]["chat"], "manager": {"command": ["sleep", "20"]}}
    config = {
        **CONFIG,
        "mode": "act",
        "services": {"chat": never},
        "rules": {"files": [str(tmp_path / "rules.yaml")]},
        "policies": [{"when": ["TooBusy"], "do": ["restart"]}],
    }
    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        gpus.set(c53=95)
        wait_for(lambda: json.loads(give(node, "approve", "--json").stdout)["acts"])
        lines = said(node, *words)
        assert lines[-1].startswith("restart of chat is stopped")

        (event,) = wait_for(lambda: history(node, "remediation_ended"))
        assert event["fields"]["status"] == "cancelled"
        assert f"(uid {os.geteuid()}, pid" in event["message"]
        assert json.loads(give(node, "approve", "--json").stdout)["acts"] == []


def test_programs_get_json(node: Running) -> None:
    done = give(node, "pause", "--reason", "x", "--json")
    doc = json.loads(done.stdout)

    assert (doc["verb"], doc["heard"]) == ("pause", True)
    assert doc["paused"] == [{"service": None, "until": None}]


def test_without_a_daemon_it_says_where_it_looked(tmp_path: Path) -> None:
    done = command("resume", "--socket", str(tmp_path / "none.sock"))

    assert done.returncode == 2
    assert f"{tmp_path}/none.sock: no daemon answers there" in done.stderr.decode()


def test_the_socket_goes_with_the_daemon(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", CONFIG) as node:
        path = node.folder / "control.sock"
        assert path.is_socket()

    assert not path.exists()


def test_a_command_before_the_first_tick_does_not_keep_the_service_manager_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        with daemon(tmp_path / "d", CONFIG | {"interval": "5s"}, ready="/-/healthy") as node:
            said(node, "pause", "--reason", "boot")

            assert manager.recv(1000) == b"READY=1"
