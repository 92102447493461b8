"""The page on PromQL: its example runs and prints what it says, its lists are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.promql.cursor import MAX_DEPTH, MAX_LENGTH
from vllm_watchdog.watchdog.promql.evaluator import MAX_STEPS
from vllm_watchdog.watchdog.promql.signatures import (
    AGGREGATIONS,
    EXPERIMENTAL_AGGREGATIONS,
    EXPERIMENTAL_FUNCTIONS,
    FUNCTIONS,
)

PAGE = (Path(__file__).parents[2] / "docs/promql.md").read_text(encoding="utf-8")


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    said = re.findall(r"^# (.*)$", code, re.MULTILINE)

    exec(compile(code, "docs/promql.md", "exec"), {})

    assert capsys.readouterr().out.splitlines() == said


def test_every_function_and_aggregation_stands_on_the_page() -> None:
    written = set(re.findall(r"`(\w+)(?:\(\))?`", PAGE))
    known = {*FUNCTIONS, *AGGREGATIONS, *EXPERIMENTAL_FUNCTIONS, *EXPERIMENTAL_AGGREGATIONS}

    assert known - written == set()


def test_the_limits_on_the_page_are_those_of_the_code() -> None:
    for limit in (MAX_LENGTH, MAX_DEPTH, MAX_STEPS):
        assert f"| {limit:,}" in PAGE
