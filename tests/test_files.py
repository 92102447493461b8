"""The door to files: what is read without being waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.system import Files


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "include.conf")

    with pytest.raises(OSError, match="is a pipe"):
        Files().text(tmp_path / "include.conf")


def test_a_file_of_the_kernel_is_read_as_any_other() -> None:
    assert Files().text("/proc/self/comm", 64).strip()
