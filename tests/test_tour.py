"""The outputs that the tour shows are what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.cli import run

REPOSITORY = Path(__file__).parents[1]
TOUR = (REPOSITORY / "README.md").read_text()
SHOWN = re.findall(r"^    \$ vllm-watchdog explain (\S+)\n((?:    .*\n)+)", TOUR, re.M)


def test_the_tour_shows_five_incidents() -> None:
    assert len(SHOWN) == 5


@pytest.mark.parametrize(("file", "output"), SHOWN, ids=[Path(file).stem for file, _ in SHOWN])
def test_an_output_of_the_tour_is_what_the_command_prints(
    file: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", str(REPOSITORY / file)]) == 0

    printed = capsys.readouterr().out.rstrip().splitlines()
    assert [line.rstrip() for line in printed] == [line[4:] for line in output.splitlines()]
