"""Following log files over rotation, truncation, backlogs and restarts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_watchdog.watchdog import logtail
from vllm_watchdog.watchdog.logtail import LogTail
from vllm_watchdog.watchdog.system import Files


class Follower:
    """One tail after the other over a folder, each from where the last one stood."""

    def __init__(self, root: Path, pattern: str = "/*.log", **settings: Any) -> None:
        self.root, self.pattern, self.settings = root, pattern, settings
        self.state: Mapping[str, Any] | None = None
        self.tail: LogTail | None = None

    def read(self) -> bytes:
        return b"".join(data for _, data in self.blocks())

    def blocks(self) -> list[tuple[str, bytes]]:
        self.tail = LogTail(Files(self.root), (self.pattern,), self.state, **self.settings)
        found = list(self.tail.blocks())
        self.state = self.tail.position()
        return found


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_a_file_there_at_first_sight_is_read_from_its_end(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old\n")
    follower = Follower(tmp_path)
    first = follower.read()
    append(tmp_path / "a.log", "new\n")

    assert (first, follower.read(), follower.read()) == (b"", b"new\n", b"")


def test_a_file_can_be_read_from_its_beginning(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old\n")

    assert Follower(tmp_path, from_start=True).read() == b"old\n"


def test_the_rest_of_a_line_that_was_being_written_at_first_sight_is_passed_over(
    tmp_path: Path,
) -> None:
    append(tmp_path / "a.log", "ol")
    follower = Follower(tmp_path)
    follower.read()
    append(tmp_path / "a.log", "d\nnew\n")

    assert follower.read() == b"new\n"


def test_a_file_that_appears_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.read()
    append(tmp_path / "a.log", "first\n")

    assert follower.read() == b"first\n"


def test_a_line_waits_until_it_is_whole(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.read()
    append(tmp_path / "a.log", "begin")
    half = follower.read()
    append(tmp_path / "a.log", "ning\n")

    assert (half, follower.read()) == (b"", b"beginning\n")


def test_a_renamed_file_is_read_to_its_end_and_the_new_one_from_its_beginning(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.log"
    append(path, "1\n")
    follower = Follower(tmp_path)
    follower.read()
    append(path, "2\n")
    path.rename(tmp_path / "a.log.1")
    append(path, "3\n")

    assert follower.read() == b"2\n3\n"
    assert follower.read() == b""


def test_a_line_cut_by_rotation_is_joined(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "1\n")
    follower = Follower(tmp_path, "/a.log*")
    follower.read()
    append(path, "2\nthe engine di")
    follower.read()
    path.rename(tmp_path / "a.log.1")
    append(path, "ed\n3\n")

    assert follower.read() == b"the engine died\n3\n"
    assert follower.read() == b""


def test_a_cut_line_waits_for_the_new_file_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "1\n")
    follower = Follower(tmp_path)
    follower.read()
    append(path, "be")
    path.rename(tmp_path / "a.log.1")
    append(path, "gi")
    nothing = follower.read()
    append(path, "n\n")

    assert (nothing, follower.read()) == (b"", b"begin\n")


def test_rotated_names_that_the_pattern_matches_are_not_read_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    append(path, "1\n")
    follower = Follower(tmp_path, "/a*")
    follower.read()
    append(path, "2\n")
    path.rename(tmp_path / "a-20260101.log")
    append(path, "3\n")

    assert sorted(follower.read().split()) == [b"2", b"3"]
    append(tmp_path / "a-20260101.log", "late\n")
    assert follower.read() == b"late\n"


def test_a_file_that_only_changes_its_name_goes_on(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n")
    follower = Follower(tmp_path)
    follower.read()
    (tmp_path / "a.log").rename(tmp_path / "b.log")
    append(tmp_path / "b.log", "2\n")

    assert follower.read() == b"2\n"


@pytest.mark.parametrize("text", ["2\n", "2 and much more than there was before\n"])
def test_a_truncated_file_is_read_from_its_beginning(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.log"
    append(path, "something\n")
    follower = Follower(tmp_path)
    follower.read()
    os.truncate(path, 0)
    append(path, text)

    assert follower.read() == text.encode()


def test_a_restart_goes_on_where_it_stood(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n")
    follower = Follower(tmp_path)
    follower.read()
    append(tmp_path / "a.log", "2\n")
    again = Follower(tmp_path)
    again.state = follower.state

    assert again.read() == b"2\n"


def test_a_backlog_is_caught_up_in_bounded_blocks_over_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logtail, "BLOCK", 64)
    follower = Follower(tmp_path, budget=160)
    follower.read()
    lines = [f"line {number}\n" for number in range(100)]
    append(tmp_path / "a.log", "".join(lines))
    runs = []
    while blocks := follower.blocks():
        assert all(len(data) <= 64 for _, data in blocks)
        runs.append(b"".join(data for _, data in blocks))
        if len(runs) == 1:
            assert follower.tail is not None and follower.tail.behind

    assert b"".join(runs).decode() == "".join(lines)
    assert len(runs) > 4


def test_a_line_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logtail, "BLOCK", 64)
    follower = Follower(tmp_path)
    follower.read()
    append(tmp_path / "a.log", "x" * 200 + "\nnext\n")

    assert follower.read() == b"next\n"


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.read()
    (tmp_path / "a.log").mkdir()
    os.mkfifo(tmp_path / "b.log")
    append(tmp_path / "c.log", "1\n")

    assert follower.read() == b"1\n"
    assert follower.tail is not None
    assert {"/a.log", "/b.log"} == set(follower.tail.problems)


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    append(tmp_path / "a.log", "1\n")
    follower = Follower(tmp_path)
    follower.read()
    (tmp_path / "a.log").unlink()
    follower.read()

    assert follower.state == {"places": {}}
