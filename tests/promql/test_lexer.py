"""The lexer: what is one token, what is none, and where each stands."""

from __future__ import annotations

import pytest

from vllm_watchdog.watchdog.promql.lexer import tokens


def kinds(text: str) -> list[str]:
    return [token.kind for token in tokens(text)]


def test_tokens_carry_their_place_in_the_text() -> None:
    assert [tuple(token) for token in tokens("up == 1.5")] == [
        ("name", "up", 0, 2),
        ("==", "==", 3, 5),
        ("number", "1.5", 6, 9),
        ("end", "", 9, 9),
    ]


def test_an_empty_text_is_only_an_end() -> None:
    assert kinds("") == ["end"]


def test_blanks_and_comments_are_skipped_in_every_mode() -> None:
    text = "up{ # one\n a = 'b' # two\n}[ # three\n 5m # four\r] # five"

    assert kinds(text) == ["name", "{", "name", "=", "string", "}", "[", "duration", "]", "end"]


def test_a_hash_inside_a_string_begins_no_comment() -> None:
    assert kinds('"a # b"') == ["string", "end"]


@pytest.mark.parametrize("text", ["a", "_", ":", "a:b", "A9_", ":a:", "without", "sum"])
def test_a_word_with_colons_is_one_name(text: str) -> None:
    assert kinds(text) == ["name", "end"]


@pytest.mark.parametrize("text", ["inf", "Inf", "INF", "nan", "NaN"])
def test_inf_and_nan_are_numbers_in_any_case(text: str) -> None:
    assert kinds(text) == ["number", "end"]


def test_inside_braces_every_word_is_a_name() -> None:
    assert kinds("{inf='a'}") == ["{", "name", "=", "string", "}", "end"]


def test_inside_braces_a_name_has_no_colon() -> None:
    assert kinds("{a:b='c'}") == ["{", "name", "error"]


def test_inside_brackets_a_colon_parts_two_durations() -> None:
    assert kinds("[5m:1m]") == ["[", "duration", ":", "duration", "]", "end"]


@pytest.mark.parametrize(
    "text",
    ["0", "12", "1.", ".5", "1.5", "1e3", "1E-3", "1.5e+3", "017", "0x1f", "0X1F", "0x_1", "1_0"],
)
def test_a_number_is_one_token(text: str) -> None:
    assert kinds(text) == ["number", "end"]


@pytest.mark.parametrize("text", ["5m", "100ms", "1h30m", "1y2w3d4h5m6s7ms", "5m1h"])
def test_a_duration_is_one_token(text: str) -> None:
    assert kinds(text) == ["duration", "end"]


@pytest.mark.parametrize(
    "text", ["1..2", "1e", "1_", "1__0", "0x", "0xg", "0x1.8", "5mm", "5m5", "12ab", "1.5h", "1_m"]
)
def test_what_clings_to_a_number_spoils_it(text: str) -> None:
    assert kinds(text) == ["error"]


@pytest.mark.parametrize("text", ['"a\\"b"', "'a\\'b'", "`a\\`", '"\'"', "`a\nb`", '""', "'é'"])
def test_a_string_ends_at_its_own_quote(text: str) -> None:
    assert kinds(text) == ["string", "end"]


@pytest.mark.parametrize("text", ['"a', "'a", "`a", '"a\\"', '"a\nb"', '"a\\\nb"'])
def test_an_open_string_is_an_error_where_it_begins(text: str) -> None:
    (token,) = tokens(text)

    assert (token.kind, token.start) == ("error", 0)


def test_the_lexer_stops_at_the_first_error() -> None:
    assert kinds("a + $b $c") == ["name", "+", "error"]


def test_operators_are_taken_as_long_as_they_go() -> None:
    assert kinds("<= < >= > == != ^ %") == ["<=", "<", ">=", ">", "==", "!=", "^", "%", "end"]
