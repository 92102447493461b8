"""Recordings on disk: whole, cut, foreign."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.model import Batch, Decisions, Event, Inputs, Page, Tick, labelset
from vllm_watchdog.watchdog.recording import Manifest, Recorder, Recording

MANIFEST = Manifest("1", 100.0, 5.0, 300.0, ("*",), ("hardware",), {"job": "j"}, ("00-r.yaml",))


def inputs(value: float) -> Inputs:
    return Inputs((Batch("c", (Page((labelset({}, "m"),), (value,)),)),))


def record(folder: Path, ticks: int) -> None:
    with Recorder(folder, MANIFEST, "{}\n", [("00-r.yaml", b"groups: []\n")], {"a": 1}) as recorder:
        for n in range(1, ticks + 1):
            recorder.write(Tick(n, float(n), 100.0 + n), inputs(n), Decisions(events=(Event("e"),)))


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    record(tmp_path / "r", 3)

    recording = Recording(tmp_path / "r")

    assert recording.manifest == MANIFEST
    assert recording.state == {"a": 1}
    assert [tick.number for tick, _, _ in recording.inputs()] == [1, 2, 3]
    assert [found for _, found, _ in recording.inputs()] == [inputs(1), inputs(2), inputs(3)]
    assert recording.rule_files[0].read_bytes() == b"groups: []\n"


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    record(tmp_path / "r", 3)
    path = tmp_path / "r" / "inputs.jsonl"
    path.write_bytes(path.read_bytes()[:-10])

    assert [tick.number for tick, _, _ in Recording(tmp_path / "r").inputs()] == [1, 2]


def test_a_garbled_line_is_named(tmp_path: Path) -> None:
    record(tmp_path / "r", 2)
    path = tmp_path / "r" / "inputs.jsonl"
    path.write_bytes(b'{"tick": 1}\n' + path.read_bytes())

    with pytest.raises(ConfigError, match=r"inputs\.jsonl:1: "):
        list(Recording(tmp_path / "r").inputs())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"format": 1}', "\x00"])
def test_a_foreign_manifest_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(ConfigError) as caught:
        Recording(tmp_path)
    assert len(caught.value.problems) == 1


def test_an_empty_folder_holds_no_recording(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no recording"):
        Recording(tmp_path)


def test_recordings_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    record(tmp_path / "r", 1)

    modes = {
        path.name: path.stat().st_mode & 0o077
        for path in (tmp_path / "r").iterdir()
        if path.is_file()
    }
    assert set(modes.values()) == {0}
