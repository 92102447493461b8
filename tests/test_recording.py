"""Recordings on disk: whole, cut, foreign."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.model import Batch, Decisions, Event, Inputs, Page, Tick, labelset
from vllm_watchdog.watchdog.recording import Manifest, Recorder, Recording, beside
from vllm_watchdog.watchdog.replay import replay

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


def garble(folder: Path, change: object) -> None:
    """Change the first tick of a recording's inputs."""
    path = folder / "inputs.jsonl"
    first, *rest = path.read_text().splitlines(keepends=True)
    doc = json.loads(first)
    change(doc)  # type: ignore[operator]
    path.write_text("".join([json.dumps(doc) + "\n", *rest]))


@pytest.mark.parametrize(
    "change",
    [
        lambda doc: doc.update(wall="soon"),
        lambda doc: doc.update(wall=float("inf")),
        lambda doc: doc.update(tick=1e300),
        lambda doc: doc.update(urgent="yes"),
        lambda doc: doc["batches"][0].update(collector={"a": 1}),
        lambda doc: doc["batches"][0].update(error=["x"]),
        lambda doc: doc["batches"][0].update(scope={"a": []}),
        lambda doc: doc["batches"][0]["pages"][0].update(values=[1, 2]),
        lambda doc: doc["batches"][0]["pages"][0].update(keys=[{"__name__": ["m"]}]),
        lambda doc: doc["batches"][0].update(events=[{"kind": 3}]),
    ],
)
def test_a_value_of_another_form_is_a_problem_of_its_line(tmp_path: Path, change: object) -> None:
    record(tmp_path / "r", 2)
    garble(tmp_path / "r", change)

    with pytest.raises(ConfigError, match=r"inputs\.jsonl:1: is no line of a recording") as caught:
        list(Recording(tmp_path / "r").inputs())

    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("name", ["manifest.json", "state.json", "inputs.jsonl"])
def test_json_nested_without_end_is_one_problem(tmp_path: Path, name: str) -> None:
    record(tmp_path / "r", 1)
    (tmp_path / "r" / "state.json").unlink()
    (tmp_path / "r" / name).write_text("[" * 200_000 + "\n")

    with pytest.raises(ConfigError, match=name.replace(".", r"\.")) as caught:
        replay(tmp_path / "r")

    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("name", ["manifest.json", "inputs.jsonl", "decisions.jsonl"])
def test_a_folder_or_pipe_in_a_files_place_is_one_problem(tmp_path: Path, name: str) -> None:
    record(tmp_path / "r", 1)
    (tmp_path / "r" / "state.json").unlink()
    for make in (Path.mkdir, os.mkfifo):
        path = tmp_path / "r" / name
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)

        with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
            replay(tmp_path / "r")


@pytest.mark.parametrize(
    "change",
    [{"interval": 1e308}, {"interval": 0}, {"groups": [1]}, {"rules": [1]}, {"labels": {"a": 1}}],
)
def test_a_manifest_of_another_form_is_one_problem(
    tmp_path: Path, change: dict[str, object]
) -> None:
    record(tmp_path / "r", 1)
    path = tmp_path / "r" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(ConfigError, match="lacks or garbles"):
        Recording(tmp_path / "r")


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


def test_a_daemon_that_is_started_again_records_beside_what_is_there(tmp_path: Path) -> None:
    assert beside(tmp_path / "r") == tmp_path / "r"
    record(tmp_path / "r", 1)
    record(tmp_path / "r.1", 1)

    assert beside(tmp_path / "r") == tmp_path / "r.2"
