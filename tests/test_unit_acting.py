"""What the daemon may do once it acts: the drop-in, the polkit rule, the example of a unit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import peers

FOLDER = Path(__file__).parents[1] / "deploy" / "systemd"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with this machine's units, ours, the drop-in, and stubs of the programs."""
    peers.require("systemd-analyze")
    units = next(
        p for p in map(Path, ("/usr/lib/systemd/system", "/lib/systemd/system")) if p.exists()
    )
    shutil.copytree(units, tmp_path / "usr/lib/systemd/system", symlinks=True)
    own = tmp_path / "etc/systemd/system"
    drop_in = own / "vllm-watchdog.service.d"
    drop_in.mkdir(parents=True)
    for unit in ("vllm-watchdog.service", "vllm@.service"):
        shutil.copy(FOLDER / unit, own)
    shutil.copy(FOLDER / "acting.conf", drop_in)
    for program in ("usr/bin/vllm-watchdog", "usr/bin/vllm", "bin/kill"):
        stub = tmp_path / program
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("#!/bin/sh\n")
        stub.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("unit", ["vllm-watchdog.service", "vllm@deepseek.service"])
def test_systemd_has_nothing_to_say_about_them(root: Path, unit: str) -> None:
    argv = ["systemd-analyze", f"--root={root}", "verify", unit]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert done.stdout + done.stderr == ""


def test_acting_adds_two_capabilities_and_one_folder() -> None:
    lines = [line for line in (FOLDER / "acting.conf").read_text().splitlines() if "=" in line]
    active = [line for line in lines if not line.startswith("#")]

    assert active == [
        "AmbientCapabilities=CAP_KILL CAP_DAC_READ_SEARCH",
        "CapabilityBoundingSet=CAP_KILL CAP_DAC_READ_SEARCH",
        "ReadWritePaths=-/etc/nginx/vllm-watchdog",
    ]


def test_our_file_is_the_last_one_that_the_example_reads() -> None:
    files = re.findall(r"^EnvironmentFile=(.*)$", (FOLDER / "vllm@.service").read_text(), re.M)

    assert files[-1] == "-/var/lib/vllm-watchdog/services/%i.env"


def test_the_rule_asks_for_user_unit_and_verb() -> None:
    rule = (FOLDER / "vllm-watchdog.rules").read_text()

    for asked in ('subject.user != "vllm-watchdog"', "units.indexOf(unit)", "verbs.indexOf(verb)"):
        assert asked in rule
