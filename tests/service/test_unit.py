"""The unit under a real systemd: it comes up, it is watched, it goes down."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.machines import Machine, hidden_paths, machine

REPOSITORY = Path(__file__).parents[2]
SYSTEMD = REPOSITORY / "deploy" / "systemd"
UNIT = "vllm-watchdog.service"
CONFIG = "{interval: 500ms, rules: {groups: [], files: []}}\n"
DROP_IN = "[Service]\nWatchdogSec=3\nRestartSec=100ms\n"


def prepare(root: Path) -> None:
    """Install the unit and its user in the machine's root, with a configuration."""
    program = Path(sys.executable).parent / "vllm-watchdog"
    for needed in (program, Path(sys.executable).resolve(), REPOSITORY):
        for folder in needed.parents:
            inside = root / str(folder).lstrip("/")
            inside.chmod(inside.stat().st_mode | 0o055)
    (root / "usr/bin/vllm-watchdog").symlink_to(program)
    units = root / "etc/systemd/system"
    shutil.copy(SYSTEMD / UNIT, units)
    (units / f"{UNIT}.d").mkdir()
    shown = "".join(f"BindReadOnlyPaths={path}\n" for path in hidden_paths())
    (units / f"{UNIT}.d/quick.conf").write_text(DROP_IN + shown)
    shutil.copy(
        SYSTEMD / "vllm-watchdog.sysusers.conf", root / "usr/lib/sysusers.d/vllm-watchdog.conf"
    )
    subprocess.run(["systemd-sysusers", f"--root={root}", "vllm-watchdog.conf"], check=True)
    own = root / "etc/vllm-watchdog"
    own.mkdir()
    (own / "config.yaml").write_text(CONFIG)
    (own / "environment").write_text("OPTIONS=--config /etc/vllm-watchdog/config.yaml\n")


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with machine(tmp_path_factory.mktemp("machine"), prepare) as running:
        yield running


@pytest.fixture
def started(booted: Machine) -> Iterator[Machine]:
    done = booted.run("systemctl", "start", UNIT)
    assert done.returncode == 0, booted.run("journalctl", "-u", UNIT, "-n", "30").stdout
    yield booted
    booted.run("systemctl", "stop", UNIT)
    booted.run("systemctl", "reset-failed", UNIT)


def get(running: Machine, path: str) -> str:
    script = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:9710{path}').read().decode())"
    return running.run(sys.executable, "-c", script).stdout


def eventually(check: Callable[[], bool], within: float = 30.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.1)
    return False


pytestmark = [pytest.mark.peer, pytest.mark.slow]


def test_it_is_active_once_a_tick_has_finished_and_says_how_it_stands(started: Machine) -> None:
    assert started.show(UNIT, "ActiveState") == "active"
    assert "ready" in get(started, "/-/ready")
    assert eventually(lambda: started.show(UNIT, "StatusText") != "")


def test_it_runs_as_its_own_user_with_four_capabilities(started: Machine) -> None:
    pid = started.show(UNIT, "MainPID")
    status = started.run("cat", f"/proc/{pid}/status").stdout
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)

    assert fields["Uid"].split()[0] == started.run("id", "-u", "vllm-watchdog").stdout.strip()
    assert bin(int(fields["CapEff"], 16)).count("1") == 4
    assert fields["CapBnd"] == fields["CapEff"]
    assert fields["NoNewPrivs"] == "1"


def test_its_state_lies_in_its_state_folder_alone(started: Machine) -> None:
    listed = started.run("stat", "-c", "%U %a %n", "/var/lib/vllm-watchdog/journal.db").stdout

    assert listed == "vllm-watchdog 600 /var/lib/vllm-watchdog/journal.db\n"


def test_it_reads_host_and_kernel_ring_under_its_hardening(started: Machine) -> None:
    collectors = json.loads(get(started, "/api/v1/status"))["collectors"]
    failed = {c["collector"]: c["error"] for c in collectors if c["state"] in ("failed", "stalled")}

    assert failed == {}


@pytest.mark.parametrize("sign", ["SIGSTOP", "SIGKILL"])
def test_a_frozen_or_killed_daemon_is_started_again(started: Machine, sign: str) -> None:
    before = started.show(UNIT, "MainPID")
    started.run("systemctl", "kill", f"--signal={sign}", "--kill-who=main", UNIT)

    def back() -> bool:
        active = started.show(UNIT, "ActiveState") == "active"
        return active and started.show(UNIT, "MainPID") not in ("0", before)

    assert eventually(back)


def test_a_reload_is_taken_by_the_same_process(started: Machine) -> None:
    before = started.show(UNIT, "MainPID")

    assert started.run("systemctl", "reload", UNIT).returncode == 0
    assert eventually(
        lambda: "configuration reloaded" in started.run("journalctl", "-u", UNIT).stdout
    )
    assert started.show(UNIT, "MainPID") == before


def test_it_stops_clean_within_ten_seconds(started: Machine) -> None:
    began = time.monotonic()
    started.run("systemctl", "stop", UNIT)

    assert time.monotonic() - began < 10.0
    assert (started.show(UNIT, "Result"), started.show(UNIT, "ExecMainStatus")) == ("success", "0")
