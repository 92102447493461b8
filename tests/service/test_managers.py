"""Units under a real systemd, told by the daemon's user: with the shipped rule, and no more rights
than the shipped drop-in gives.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.test_unit import SYSTEMD, eventually
from tests.support.machines import Machine, hidden_paths, machine

REPOSITORY = Path(__file__).parents[2]
CHAT, FOREIGN = "vllm@chat.service", "vllm@foreign.service"
STATE = "/var/lib/vllm-watchdog"
ACTING = (SYSTEMD / "acting.conf").read_text()
ADDED = next(line for line in ACTING.splitlines() if line.startswith("AmbientCapabilities="))
RIGHTS = "CAP_SYS_PTRACE " + ADDED.partition("=")[2]  # of the unit, and what acting adds
ENGINE = "VLLM::EngineCore"
DRIVER = REPOSITORY / "tests/support/healing/driver.py"

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def prepare(root: Path) -> None:
    """The example unit with a stand-in server, the daemon's user, its rule."""
    for needed in (Path(sys.executable).resolve(), REPOSITORY / "watchdog"):
        for folder in needed.parents:
            inside = root / str(folder).lstrip("/")
            inside.chmod(inside.stat().st_mode | 0o055)
    sysusers = root / "usr/lib/sysusers.d"
    shutil.copy(SYSTEMD / "vllm-watchdog.sysusers.conf", sysusers / "vllm-watchdog.conf")
    (sysusers / "vllm.conf").write_text("u vllm - vllm\n")
    subprocess.run(
        ["systemd-sysusers", f"--root={root}", "vllm-watchdog.conf", "vllm.conf"], check=True
    )
    units = root / "etc/systemd/system"
    shutil.copy(SYSTEMD / "vllm@.service", units)
    server = root / "usr/bin/vllm"
    shutil.copy(REPOSITORY / "tests/support/healing/engine_server.py", server)
    server.chmod(0o755)
    rules = root / "etc/polkit-1/rules.d"
    rules.mkdir(parents=True, exist_ok=True)
    rule = (SYSTEMD / "vllm-watchdog.rules").read_text()
    rule = rule.replace("vllm@deepseek.", "vllm@chat.").replace('// "nginx.', '"front.')
    (rules / "50-vllm-watchdog.rules").write_text(rule)
    front = "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/true\n"
    (units / "front.service").write_text(front)
    for folder in ("srv/control", "srv/cards"):
        (root / folder).mkdir(parents=True)
        (root / folder).chmod(0o777)
    card = {"0000:53:00": {"uuid": "GPU-1"}}
    (root / "srv/cards/cards.json").write_text(json.dumps(card))
    own = root / "etc/vllm"
    own.mkdir()
    for name, port in (("chat", 8101), ("foreign", 8102)):
        text = f"MODEL=/models/fp16\nPORT={port}\nARGS=\nCONTROL=/srv/control\nCARDS=/srv/cards\n"
        (own / f"{name}.env").write_text(text)
    for name, size in (("fp16", 400), ("int8", 200)):
        (own / f"{name}.profile").write_text(f"MODEL=/models/{name}\n")
        model = root / "models" / name
        model.mkdir(parents=True)
        (model / "config.json").write_text('{"quantization_config": {"quant_method": "x"}}')
        (model / "model.safetensors").write_bytes(b"x" * size)


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("machine"), prepare) as running:
        made = ["install", "-d", "-o", "vllm-watchdog", "-g", "vllm-watchdog", STATE]
        assert running.run(*made).returncode == 0
        yield running


@pytest.fixture
def node(booted: Machine) -> Iterator[Machine]:
    yield booted
    for unit in (CHAT, FOREIGN):
        drop_in(booted, unit, "")
        booted.run("systemctl", "kill", "--signal=SIGKILL", unit)
        booted.run("systemctl", "stop", unit)
        booted.run("systemctl", "reset-failed", unit)
    booted.run("rm", "-rf", f"{STATE}/services")


def ask(node: Machine, name: str, verb: str, *words: str) -> Any:
    """A call of the adapter as the daemon's user, with the rights of the unit and its drop-in."""
    argv = [
        "systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--uid=vllm-watchdog",
        "-p", "NoNewPrivileges=yes", "-p", f"AmbientCapabilities={RIGHTS}",
        "-p", f"CapabilityBoundingSet={RIGHTS}", "-p", "ProtectSystem=strict",
        "-p", f"ReadWritePaths={STATE}", "-p", "UMask=0077",
        *(f"-pBindReadOnlyPaths={path}" for path in hidden_paths()),
        sys.executable, "-B", DRIVER, name, verb, *words,
    ]  # fmt: skip
    done = node.run(*argv)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def drop_in(node: Machine, unit: str, text: str) -> None:
    """A drop-in of the test's for one unit (not the daemon's way)."""
    script = 'mkdir -p "$1"; printf "%s" "$2" >"$1/test.conf"; systemctl daemon-reload'
    node.run("sh", "-c", script, "sh", f"/run/systemd/system/{unit}.d", text)


def serving(node: Machine) -> None:
    assert node.run("systemctl", "start", CHAT).returncode == 0
    seen: list[str] = []

    def both() -> bool:
        seen[:] = ask(node, "chat", "processes")
        return len(seen) == 2

    assert eventually(both, 60.0), (seen, node.run("systemctl", "status", CHAT).stdout)


def test_it_starts_and_stops_a_unit_that_the_rule_names(node: Machine) -> None:
    before = ask(node, "chat", "status")
    assert ask(node, "chat", "start") is None
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "running")
    running = ask(node, "chat", "status")
    assert eventually(lambda: ENGINE in ask(node, "chat", "processes"))
    assert ask(node, "chat", "stop") is None

    assert before["state"] == "stopped"
    assert 0 <= running["now"] - running["since"] < 30
    assert str(running["pid"]) != "0"
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "stopped")
    assert ask(node, "chat", "processes") == []


def test_another_unit_is_refused_with_a_word_on_what_to_do(node: Machine) -> None:
    told = ask(node, "foreign", "start")

    assert told["error"].startswith("SourceError")
    assert "vllm-watchdog.rules" in told["error"]
    assert node.show(FOREIGN, "ActiveState") == "inactive"


def test_the_front_s_unit_may_be_reloaded_and_no_more(node: Machine) -> None:
    node.run("systemctl", "start", "front.service")
    told = [
        node.run("setpriv", "--reuid=vllm-watchdog", "--clear-groups", "--no-new-privs",
                 "systemctl", "--no-ask-password", verb, "front.service").returncode
        for verb in ("reload", "stop")
    ]  # fmt: skip

    assert told == [0, 1]
    assert node.show("front.service", "ActiveState") == "active"


def test_the_unit_s_own_restart_is_seen_and_ends_with_our_stop(node: Machine) -> None:
    drop_in(node, CHAT, "[Service]\nRestartSec=60\n")
    serving(node)
    node.run("systemctl", "kill", "--signal=SIGKILL", CHAT)
    assert eventually(lambda: ask(node, "chat", "status")["restarting"])
    restarting = ask(node, "chat", "status")

    ask(node, "chat", "stop")

    assert restarting["state"] == "starting"
    assert eventually(lambda: ask(node, "chat", "status")["state"] in ("stopped", "failed"))
    assert not ask(node, "chat", "status")["restarting"]


def test_its_own_restarts_are_counted(node: Machine) -> None:
    drop_in(node, CHAT, "[Service]\nRestartSec=100ms\n")
    serving(node)
    node.run("systemctl", "kill", "--signal=SIGKILL", CHAT)

    assert eventually(lambda: ask(node, "chat", "status")["restarts"] == 1)
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "running")


def test_a_unit_that_gave_itself_up_is_started_again(node: Machine) -> None:
    text = "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=1\n[Service]\nRestartSec=100ms\n"
    drop_in(node, CHAT, text)
    serving(node)
    node.run("systemctl", "kill", "--signal=SIGKILL", CHAT)
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "failed")
    refused = node.run("systemctl", "start", CHAT)

    assert refused.returncode != 0
    assert ask(node, "chat", "start") is None
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "running")


def test_an_engine_that_outlived_its_server_is_found_in_the_cgroup_and_killed(
    node: Machine,
) -> None:
    drop_in(node, CHAT, "[Service]\nRestart=no\nKillMode=process\n")
    serving(node)
    node.run("kill", "-9", node.show(CHAT, "MainPID"))
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "failed")
    left = ask(node, "chat", "processes")

    ask(node, "chat", "kill")

    assert left == [ENGINE]
    assert eventually(lambda: ask(node, "chat", "processes") == [])


def test_an_engine_that_outlived_its_server_is_asked_to_end_by_a_stop(node: Machine) -> None:
    drop_in(node, CHAT, "[Service]\nRestart=no\nKillMode=process\n")
    serving(node)
    node.run("kill", "-9", node.show(CHAT, "MainPID"))
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "failed")
    left = ask(node, "chat", "processes")

    ask(node, "chat", "stop")

    assert left == [ENGINE]
    assert eventually(lambda: ask(node, "chat", "processes") == [])


def test_a_restart_leaves_no_engine_behind_and_users_served(node: Machine) -> None:
    drop_in(node, CHAT, "[Service]\nRestart=no\nKillMode=process\n")
    serving(node)
    old = set(node.run("pgrep", "-x", "VLLM::EngineCor").stdout.split())
    node.run("kill", "-9", node.show(CHAT, "MainPID"))
    assert eventually(lambda: ask(node, "chat", "status")["state"] == "failed")

    status, detail = ask(node, "chat", "restart")

    assert status == "done", detail
    new = set(node.run("pgrep", "-x", "VLLM::EngineCor").stdout.split())
    assert (len(new), old & new) == (1, set())


def test_a_server_is_given_the_int8_profile(node: Machine) -> None:
    serving(node)

    status, detail = ask(node, "chat", "quantize")

    assert status == "done", detail
    words = node.run("cat", f"/proc/{node.show(CHAT, 'MainPID')}/cmdline").stdout.split("\0")
    assert "/models/int8" in words


def test_a_server_that_ends_with_status_0_is_seen_as_stopped(node: Machine) -> None:
    serving(node)
    node.run("pkill", "-9", "-x", "VLLM::EngineCor")

    assert eventually(lambda: ask(node, "chat", "status")["state"] == "stopped")
    assert ask(node, "chat", "status")["result"] == "success"


def test_a_profile_reaches_the_server_by_the_last_environment_file(node: Machine) -> None:
    values = ("MODEL=/models/int8", 'QUOTES=a "b" $c `d` \\e', "CUDA_VISIBLE_DEVICES=0")
    why = ask(node, "chat", "takes_profile")
    ask(node, "chat", "configure", *values)
    serving(node)
    proved = ask(node, "chat", "proved")
    pid = node.show(CHAT, "MainPID")
    environ = node.run("cat", f"/proc/{pid}/environ").stdout.split("\0")

    assert why == ""
    assert proved == "yes"
    assert set(values) <= set(environ)


def test_the_environment_of_a_server_that_runs_is_still_the_old_one(node: Machine) -> None:
    serving(node)
    ask(node, "chat", "configure", "MODEL=/models/int8")

    assert ask(node, "chat", "proved") == "no"


def test_what_an_act_gave_is_taken_back(node: Machine) -> None:
    ask(node, "chat", "configure", "MODEL=/models/int8")
    mode = node.run("stat", "-c", "%a %U", f"{STATE}/services/chat.env").stdout
    ask(node, "chat", "restore")

    assert mode == "600 vllm-watchdog\n"
    assert node.run("ls", f"{STATE}/services").stdout == ""


def test_a_unit_whose_last_file_is_another_takes_no_profile(node: Machine) -> None:
    drop_in(node, CHAT, "[Service]\nEnvironmentFile=-/etc/vllm/after.env\n")

    told = ask(node, "chat", "takes_profile")

    assert told == f"{CHAT} lacks EnvironmentFile=-{STATE}/services/chat.env as its last one"


def test_a_unit_that_cannot_be_used_is_said_so(node: Machine) -> None:
    node.run("ln", "-s", "/dev/null", "/run/systemd/system/vllm@gone.service")
    node.run("systemctl", "daemon-reload")

    assert ask(node, "gone", "status") == {"error": "SourceError: vllm@gone.service: masked"}
