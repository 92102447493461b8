"""The printer: Prometheus' canonical text, which reads as the same tree.

The canonical texts were made by `promtool promql format` of Prometheus 3.5.3, but for `Inf ^ a`:
there it writes a sign that reads back as another tree.
"""

from __future__ import annotations

import pytest

from tests.promql.expression_lists import right
from vllm_watchdog.watchdog.promql.nodes import Number, String
from vllm_watchdog.watchdog.promql.parser import parse
from vllm_watchdog.watchdog.promql.printer import number_text, render


@pytest.mark.parametrize("text", right())
def test_the_text_of_a_tree_reads_as_an_equal_tree(text: str) -> None:
    tree = parse(text)

    assert parse(render(tree)) == tree


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a   +b", "a + b"),
        ("sum(a) BY (x,y)", "sum by (x, y) (a)"),
        ("sum(a) without ()", "sum without () (a)"),
        ("sum by () (a)", "sum(a)"),
        ("topk(3,a)by(x)", "topk by (x) (3, a)"),
        ('a{y="1",x="2"}', 'a{x="2",y="1"}'),
        ('a{x="1",x1="2"}', 'a{x1="2",x="1"}'),
        ('{"a"}', '{__name__="a"}'),
        ('{"a.b",x="1"}', '{__name__="a.b",x="1"}'),
        ("a{x='it\\'s'}", 'a{x="it\'s"}'),
        ('a{"x.y"=~`\\d`}', 'a{"x.y"=~"\\\\d"}'),
        ("a>BOOL 1", "a > bool 1"),
        ("a*ON(x)GROUP_LEFT b", "a * on (x) group_left () b"),
        ("a * ignoring() group_right(y) b", "a * ignoring () group_right (y) b"),
        ("a + ignoring() b", "a + b"),
        ("a[300]", "a[5m]"),
        ("a[90m] offset -60", "a[1h30m] offset -1m"),
        ("a offset 1.5", "a offset 1s500ms"),
        ("a[366d]", "a[366d]"),
        ("a[365d]", "a[1y]"),
        ("a[2w]", "a[2w]"),
        ("a[15d]", "a[15d]"),
        ("a @ 10", "a @ 10.000"),
        ("a offset 5m @ start()", "a @ start() offset 5m"),
        ("a[5m:1m] offset 1m @ -1.5", "a[5m:1m] @ -1.500 offset 1m"),
        ("(a)[5m:]", "(a)[5m:]"),
        ("-a^2", "-a ^ 2"),
        ("--a", "--a"),
        ("vector(5m)", "vector(5m)"),
        ("vector(1e3)", "vector(1000)"),
        ("vector(1e-7)", "vector(0.0000001)"),
        ("vector(1e21)", "vector(1000000000000000000000)"),
        ("vector(inf)", "vector(+Inf)"),
        ("inf ^ a", "Inf ^ a"),
        ("inf * a", "+Inf * a"),
        ("vector(nan)", "vector(NaN)"),
        ("vector(-0)", "vector(-0)"),
        ("label_replace(a,'b','$1','c','(.*)')", 'label_replace(a, "b", "$1", "c", "(.*)")'),
    ],
)
def test_the_text_is_prometheus_canonical_form(text: str, canonical: str) -> None:
    assert render(parse(text)) == canonical


def test_labels_that_do_not_stand_bare_are_quoted() -> None:
    text = 'sum by ("without", "inf", "x.y", z) (a)'

    assert render(parse(text)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x7f\x1b", r'"\x00\x7f\x1b"'),
        ("é€😀", '"é€😀"'),
        ("\u200b\u2028\ufeff", r'"\u200b\u2028\ufeff"'),
        ("\U000e0001", r'"\U000e0001"'),
        ("\udcc5", r'"\xc5"'),
    ],
)
def test_a_string_is_quoted_as_go_quotes_it(value: str, text: str) -> None:
    assert render(String(value)) == text
    assert parse(text) == String(value)


def test_a_number_is_written_in_the_fewest_digits_without_exponent() -> None:
    assert [number_text(value) for value in (0.1, 100.0, 5e-324 * 0, 1.5e10, 2**53 + 0.0)] == [
        "0.1",
        "100",
        "0",
        "15000000000",
        "9007199254740992",
    ]
    assert render(Number(1e16)) == "10000000000000000"


def test_a_chain_of_many_terms_is_written_without_recursion() -> None:
    text = " + ".join(["a"] * 5_000)

    assert render(parse(text)) == text
