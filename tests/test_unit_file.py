"""The systemd unit, judged by systemd's own tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import peers

FOLDER = Path(__file__).parents[1] / "deploy" / "systemd"
UNIT = FOLDER / "vllm-watchdog.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with this machine's units, our unit, and a stub for each program that it starts."""
    peers.require("systemd-analyze")
    units = next(
        p for p in map(Path, ("/usr/lib/systemd/system", "/lib/systemd/system")) if p.exists()
    )
    shutil.copytree(units, tmp_path / "usr/lib/systemd/system", symlinks=True)
    own = tmp_path / "etc/systemd/system"
    own.mkdir(parents=True)
    shutil.copy(UNIT, own)
    for program in ("usr/bin/vllm-watchdog", "bin/kill"):
        stub = tmp_path / program
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("#!/bin/sh\n")
        stub.chmod(0o755)
    return tmp_path


def verify(root: Path) -> str:
    """What systemd-analyze says; it exits 0 for unknown keys, so only silence is good."""
    argv = ["systemd-analyze", f"--root={root}", "verify", UNIT.name]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def settings() -> dict[str, list[str]]:
    """The unit's settings by name; a name may come more than once."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_systemd_has_nothing_to_say_about_the_unit(root: Path) -> None:
    assert verify(root) == ""


@pytest.mark.parametrize(
    ("good", "spoilt"),
    [("Restart=always", "Restrt=always"), ("Type=notify", "Type=nottify"), ("ExecStart=/usr", "ExecStart=/usx")],
)  # fmt: skip
def test_a_spoilt_unit_would_be_noticed(root: Path, good: str, spoilt: str) -> None:
    unit = root / "etc/systemd/system" / UNIT.name
    unit.write_text(unit.read_text().replace(good, spoilt, 1))

    assert verify(root) != ""


def test_its_exposure_stays_low() -> None:
    peers.require("systemd-analyze")
    argv = ["systemd-analyze", "security", "--offline=true", "--threshold=33", "--no-pager"]
    done = subprocess.run([*argv, str(UNIT)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-200:]


def test_no_hardening_hides_what_the_daemon_must_see() -> None:
    found = settings()

    for hiding in ("PrivateDevices", "ProtectClock", "DeviceAllow", "ProtectKernelLogs"):
        assert hiding not in found
    for hiding in ("ProtectProc", "PrivateUsers", "PrivateNetwork", "DynamicUser"):
        assert hiding not in found
    assert "perf_event_open" in found["SystemCallFilter"][0]
    assert found["SupplementaryGroups"] == ["systemd-journal"]


def test_it_runs_without_root_and_only_with_what_observing_needs() -> None:
    found = settings()

    assert found["User"] == ["vllm-watchdog"]
    assert set(found["CapabilityBoundingSet"][0].split()) == {
        "CAP_PERFMON",
        "CAP_SYSLOG",
        "CAP_NET_RAW",
        "CAP_SYS_PTRACE",
    }
    assert found["CapabilityBoundingSet"] == found["AmbientCapabilities"]
    assert found["NoNewPrivileges"] == ["yes"]


def test_it_is_watched_and_started_again_for_ever() -> None:
    found = settings()

    assert (found["Type"], found["NotifyAccess"]) == (["notify"], ["main"])
    assert (found["Restart"], found["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert int(found["WatchdogSec"][0]) >= 30


def test_the_user_that_it_runs_as_is_made_by_sysusers(tmp_path: Path) -> None:
    peers.require("systemd-sysusers")
    made = tmp_path / "usr/lib/sysusers.d"
    made.mkdir(parents=True)
    shutil.copy(FOLDER / "vllm-watchdog.sysusers.conf", made / "vllm-watchdog.conf")
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}"], capture_output=True, text=True, check=False
    )

    passwd = (tmp_path / "etc/passwd").read_text() if done.returncode == 0 else done.stderr
    assert "vllm-watchdog:x:" in passwd
    assert ":/var/lib/vllm-watchdog:" in passwd
