"""Hostile and random texts: the parser gives a tree or a PromqlError, whatever comes.

Sizes are bounded by the strategies; no clock is read here.
"""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_watchdog.watchdog.promql.errors import PromqlError
from vllm_watchdog.watchdog.promql.lexer import tokens
from vllm_watchdog.watchdog.promql.parser import parse
from vllm_watchdog.watchdog.promql.printer import render
from vllm_watchdog.watchdog.promql.typecheck import value_type

PIECES = [
    "a",
    "b:c",
    "sum",
    "topk",
    "count_values",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "and",
    "or",
    "unless",
    "atan2",
    "offset",
    "start",
    "end",
    "inf",
    "NaN",
    "rate",
    "abs",
    "time",
    "label_join",
    "limitk",
    "fill",
    "anchored",
    "histogram_quantile",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "!=",
    "=~",
    "!~",
    "==",
    "<",
    "<=",
    ">",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "@",
    "#",
    '"',
    "'",
    "`",
    "\\",
    ".",
    "_",
    "0",
    "1",
    "1.5",
    "1e3",
    "0x1f",
    "017",
    "5m",
    "1h30m",
    "0s",
    "1e",
    "5x",
    "''",
    '"x"',
    "`y`",
    "'\\n'",
    '"\\xff"',
    "'('",
    "[5m]",
    "[5m:]",
    "[5m:1m]",
    '{x="1"}',
    "{}",
    "()",
    "é",
    "�",
]

words = st.lists(st.sampled_from([*PIECES, " ", "\n", "\t"]), max_size=60)


def check(text: str) -> None:
    """A tree that prints and reads back, or an error with a place inside the text."""
    try:
        tree = parse(text)
    except PromqlError as error:
        lines = text.split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 1
        assert 0 <= error.offset <= len(text)
        assert error.message
        str(error).encode()
    else:
        assert value_type(tree) in ("scalar", "string", "vector", "matrix")
        assert parse(render(tree)) == tree


@given(st.binary(max_size=400))
def test_any_bytes_give_a_tree_or_a_placed_error(data: bytes) -> None:
    check(data.decode("utf-8", errors="surrogateescape"))


@given(st.text(max_size=400))
def test_any_text_gives_a_tree_or_a_placed_error(text: str) -> None:
    check(text)


@given(words)
def test_pieces_of_the_language_in_a_row_give_a_tree_or_a_placed_error(pieces: list[str]) -> None:
    check("".join(pieces))


@given(words)
def test_pieces_apart_give_a_tree_or_a_placed_error(pieces: list[str]) -> None:
    check(" ".join(pieces))


@given(
    st.sampled_from(PIECES),
    st.sampled_from(PIECES),
    st.sampled_from(PIECES),
    st.sampled_from([" ", ""]),
    st.integers(1, 3000),
)
@settings(max_examples=60)
def test_long_repetition_gives_a_tree_or_an_error(
    before: str, piece: str, behind: str, gap: str, count: int
) -> None:
    with contextlib.suppress(PromqlError):
        parse(before + gap + gap.join([piece] * count) + gap + behind)


@given(st.text(max_size=300))
def test_tokens_lie_in_the_text_one_behind_the_other(text: str) -> None:
    found = tokens(text)

    assert found[-1].kind in ("end", "error")
    at = 0
    for token in found:
        assert at <= token.start <= token.end <= max(len(text), token.end)
        if token.kind not in ("end", "error"):
            assert text[token.start : token.end] == token.text
        at = token.end


# Texts by the grammar: well-typed, so each must give a tree.

names = st.sampled_from(["a", "up", "job:x:rate5m", "sum", "by", "offset", "_", "and", "start"])
labels = st.sampled_from(["x", "y", "le", "by", "bool", "'a.b'", '"ü"'])
numbers = st.sampled_from(["0", "1", "-1", ".5", "1e3", "0x1f", "017", "1_0", "Inf", "NaN", "5m"])
durations = st.sampled_from(["5m", "1h30m", "300", "0.5", "1y2w", "250ms"])
strings = st.text(st.characters(exclude_characters="'\\\n", exclude_categories=["Cs"]), max_size=8)
ops = st.sampled_from(["=", "!=", "=~", "!~"])
regexes = st.sampled_from(["'a'", "'a|b'", '"x.*"', "`\\d+`", "''", "'[[:alpha:]]'"])
matchers = st.builds("{}{}{}".format, labels.filter(lambda name: name != "bool"), ops, regexes)
ARITHMETIC = ["+", "-", "*", "/", "%", "^", "atan2"]
COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]
matchings = st.sampled_from(
    ["", "on()", "on(x)", "ignoring(x, y)", "on(x) group_left ()", "ignoring(x) group_right (y)"]
)
times = st.sampled_from(["", " @ 5", " @ -1.5", " @ start()", " @ end()"])
offsets = st.sampled_from(["", " offset 5m", " offset -5m", " offset 60"])
moments = st.builds("{}{}".format, times, offsets) | st.builds("{}{}".format, offsets, times)


@st.composite
def selectors(draw: st.DrawFn) -> str:
    inside = draw(st.lists(matchers, max_size=3))
    braces = "{" + ",".join(inside) + "}" if inside or draw(st.booleans()) else ""
    return draw(names) + braces


def ranges(vector: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    steps = durations | st.just("")
    return st.builds("{}[{}]{}".format, selectors(), durations, moments) | st.builds(
        "({})[{}:{}]{}".format, vector, durations, steps, moments
    )


def vectors_over(vector: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    scalar = numbers | st.just("time()") | st.builds("scalar({})".format, vector)
    lists = st.lists(labels, max_size=2).map(", ".join)
    grouping = st.builds(" {} ({}) ".format, st.sampled_from(["by", "without"]), lists)
    return st.one_of(
        st.builds("({})".format, vector),
        st.builds("{}{}".format, st.sampled_from(["-", "+", "- -"]), vector),
        st.builds("{} {} {}".format, vector, st.sampled_from([*ARITHMETIC, *COMPARISONS]), vector),
        st.builds("({}) {} {} ({})".format, vector, st.sampled_from(ARITHMETIC), matchings, vector),
        st.builds(
            "({}) {} {} {} ({})".format,
            vector,
            st.sampled_from(COMPARISONS),
            st.sampled_from(["", "bool"]),
            matchings,
            vector,
        ),
        st.builds("({}) {} ({})".format, vector, st.sampled_from(["and", "or", "unless"]), vector),
        st.builds("({}) {} {}".format, vector, st.sampled_from(ARITHMETIC), scalar),
        st.builds("{} {} ({})".format, scalar, st.sampled_from(["<", ">= bool", "=="]), vector),
        st.builds("rate({})".format, ranges(vector)),
        st.builds("quantile_over_time({}, {})".format, scalar, ranges(vector)),
        st.builds("abs({})".format, vector),
        st.builds("round({}, {})".format, vector, scalar),
        st.builds("label_replace({}, 'x', '$1', 'y', '{}')".format, vector, strings),
        st.builds("sum({})".format, vector),
        st.builds("avg {} ({})".format, grouping, vector),
        st.builds("topk({}, {}) {}".format, scalar, vector, grouping),
    )


expressions = st.recursive(
    st.builds("{}{}".format, selectors(), moments) | st.builds("vector({})".format, numbers),
    vectors_over,
    max_leaves=12,
)


@given(expressions)
@settings(max_examples=300)
def test_texts_by_the_grammar_are_read_and_written_back(text: str) -> None:
    tree = parse(text)
    written = render(tree)

    assert parse(written) == tree
    assert render(parse(written)) == written


@given(expressions, st.data())
def test_a_damaged_text_gives_a_tree_or_a_placed_error(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    check(text[:start] + data.draw(st.sampled_from([*PIECES, ""])) + text[end:])
