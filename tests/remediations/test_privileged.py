"""The one door for what needs rights: answers to prompts, settings of the kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.remediations.adapters.privileged import MAX_OUTPUT, Privileged
from vllm_watchdog.watchdog.commands import RealRunner
from vllm_watchdog.watchdog.system import Files, System


def node(root: Path) -> System:
    return replace(fake_system(clock=VirtualClock()), files=Files(root))


def test_a_setting_of_the_kernel_is_written_where_it_is_and_to_its_end(tmp_path: Path) -> None:
    setting = tmp_path / "setting"
    setting.write_text("3000000\n")
    before = setting.stat().st_ino

    Privileged.write_in_place(node(tmp_path), "/setting", b"990")

    assert (setting.read_text(), setting.stat().st_ino) == ("990", before)


def test_a_setting_that_the_kernel_has_not_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Privileged.write_in_place(node(tmp_path), "/setting", b"990")

    assert not (tmp_path / "setting").exists()


def test_a_command_is_given_its_answers_and_only_so_much_is_read(tmp_path: Path) -> None:
    system = replace(node(tmp_path), runner=RealRunner())

    ended = Privileged.run(system, ("cat",), 10.0, stdin=b"Y\n")
    assert (ended.code, ended.text) == (0, "Y\n")

    many = Privileged.run(system, ("head", "-c", str(MAX_OUTPUT + 9), "/dev/zero"), 10.0)
    assert len(many.text) <= MAX_OUTPUT
