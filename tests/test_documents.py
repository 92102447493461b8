"""Documents that people write: read within bounds, refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vllm_watchdog.watchdog import documents
from vllm_watchdog.watchdog.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        documents.parse(text, "d.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def test_aliases_that_multiply_are_refused_before_they_fill_the_memory() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]

    assert "too many values, counting what its aliases (*) repeat" in refusal("\n".join(rows))


def test_an_alias_of_itself_is_refused() -> None:
    assert "nested deeper" in refusal("a: &a [*a]")


def test_aliases_in_measure_are_read() -> None:
    read = documents.parse("a: &a {x: 1}\nb: *a\n", "d.yaml")

    assert read.value == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (lambda path: path.symlink_to("/dev/zero"), "is larger than"),
        (lambda path: path.write_bytes(b"mode: \xff"), "is not UTF-8"),
        (lambda path: None, "No such file"),
    ],
    ids=["folder", "loop", "endless", "not utf-8", "missing"],
)
def test_what_is_no_readable_file_is_refused_in_one_line(
    tmp_path: Path, make: object, words: str
) -> None:
    make(tmp_path / "w.yaml")  # type: ignore[operator]

    with pytest.raises(ConfigError) as caught:
        documents.read(tmp_path / "w.yaml", "configuration")

    (problem,) = caught.value.problems
    assert str(problem).startswith(str(tmp_path / "w.yaml"))
    assert "configuration" in str(problem)
    assert words in str(problem)


def test_a_pipe_nobody_writes_to_is_not_waited_for_longer_than_its_patience(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="nothing more came within"):
        documents.read_input(tmp_path / "pipe", 100, patience=0.05)


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"mode: observe")
    os.close(writing)

    assert documents.read(f"/dev/fd/{reading}") == "mode: observe"

    os.close(reading)


def test_json_nested_without_end_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        documents.json_of("[" * 200_000)
