"""A corpus of faulty expressions: we refuse each, at its place, and so does promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.promql.expression_lists import refusals, right, wrong
from tests.support.peers import require
from vllm_watchdog.watchdog.promql.errors import PromqlError
from vllm_watchdog.watchdog.promql.parser import parse


@pytest.mark.parametrize(("place", "text"), wrong())
def test_a_wrong_expression_is_refused_at_its_place(place: str, text: str) -> None:
    with pytest.raises(PromqlError) as caught:
        parse(text)

    assert f"{caught.value.line}:{caught.value.column}" == place
    assert str(caught.value) == f"{place}: parse error: {caught.value.message}"


def test_the_offset_of_an_error_is_that_of_its_line_and_column() -> None:
    for _, text in wrong():
        with pytest.raises(PromqlError) as caught:
            parse(text)

        error = caught.value
        lines = text.split("\n")
        before = sum(len(line) + 1 for line in lines[: error.line - 1])
        assert before + error.column - 1 == error.offset


@pytest.mark.parametrize("text", right())
def test_a_right_expression_is_read(text: str) -> None:
    parse(text)


def test_the_corpus_is_large_and_without_repetition() -> None:
    bad, good = [text for _, text in wrong()], right()

    assert len(set(bad)) == len(bad) > 300
    assert len(set(good)) == len(good) > 250


@pytest.mark.peer
def test_promtool_refuses_every_wrong_expression(tmp_path: Path) -> None:
    texts = [text for _, text in wrong()]

    found = refusals(require("promtool"), texts, tmp_path)

    assert [text for text, said in zip(texts, found, strict=True) if said is None] == []


@pytest.mark.peer
def test_promtool_accepts_every_right_expression(tmp_path: Path) -> None:
    texts = right()

    found = refusals(require("promtool"), texts, tmp_path)

    assert {text: said for text, said in zip(texts, found, strict=True) if said} == {}
