"""Vendor tools that print rubbish, too much, nothing, or never end: an error, never a healthy card."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest

from tests.support.gpus import answer
from vllm_watchdog.collectors import collector_class
from vllm_watchdog.watchdog.errors import CommandTimeout, NotSupported
from vllm_watchdog.watchdog.model import Batch
from vllm_watchdog.watchdog.scheduler import run_once
from vllm_watchdog.watchdog.system import Checkpoints, RealRunner, System

TOOLS = {"nvidia_smi": "nvidia-smi", "npu_smi": "npu-smi"}
SCRIPTS = {
    "empty": "exit 0",
    "binary": "head -c 200000 /dev/urandom",
    "too much": "head -c 100000000 /dev/zero | tr '\\0' 'x'",
    "endless": "exec yes '| 0  910B3 | OK | 93.9 36 0 / 0 |'",
    "words": "echo Segmentation fault; exit 139",
    "error only": "echo 'cannot open device' >&2; exit 1",
    "killed": "kill -9 $$",
    "silent": "sleep 60",
    "background": "sleep 60 & echo started",
}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: str, script: str) -> Batch:
    tool = tmp_path / TOOLS[collector]
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = collector_class(collector)(timeout=2.0, expected=("0000:53:00",))
    return run_once(made, System(checkpoints=Checkpoints()))


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
@pytest.mark.parametrize("collector", TOOLS)
def test_a_tool_that_says_nothing_of_use_is_an_error_and_no_card_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: str, script: str
) -> None:
    start = time.monotonic()

    batch = run(tmp_path, monkeypatch, collector, script)

    assert batch.error is not None
    assert len(batch.error.splitlines()) == 1
    assert batch.pages == ()
    assert time.monotonic() - start < 15


def test_a_flood_is_bounded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    for _ in range(3):
        run(tmp_path, monkeypatch, "nvidia_smi", SCRIPTS["too much"])

    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown_mb < 80  # the limit is 16 MiB of output, held twice while it is joined


def test_an_answer_cut_in_a_card_tells_no_healthy_card_beyond_the_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = answer({"0000:53:00": 50, "0000:64:00": 50})
    (tmp_path / "cut.xml").write_text(whole[: len(whole) * 3 // 4])

    batch = run(tmp_path, monkeypatch, "nvidia_smi", f"cat {tmp_path}/cut.xml")

    healthy = [s for s in batch.samples if s.name == "accelerator_healthy" and s.value == 1]
    assert healthy == []


def test_a_command_is_killed_with_its_children_at_its_deadline(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/child\nwait\n")
    tool.chmod(0o755)

    with pytest.raises(CommandTimeout):
        RealRunner().run([str(tool)], timeout=0.5)

    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or _zombie(child):
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    raise AssertionError("the tool's child outlived its deadline")


def test_a_grandchild_that_left_the_session_does_not_hold_the_call_past_its_deadline(
    tmp_path: Path,
) -> None:
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\nsetsid sleep 20 &\necho $! > {tmp_path}/child\necho started\n")
    tool.chmod(0o755)
    start = time.monotonic()

    with pytest.raises(CommandTimeout, match=r"did not end within 0\.5 s"):
        RealRunner().run([str(tool)], timeout=0.5)

    assert time.monotonic() - start < 5
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_absent_program_is_not_on_this_node() -> None:
    with pytest.raises(NotSupported, match="not on this node"):
        RealRunner().run(["no-such-tool-anywhere"], timeout=1)


def test_output_past_the_limit_ends_the_command() -> None:
    start = time.monotonic()

    done = RealRunner().run(["yes"], timeout=30, limit=100_000)

    assert (done.truncated, len(done.stdout)) == (True, 100_000)
    assert time.monotonic() - start < 10
