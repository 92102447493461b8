"""The parser: which tree a text gives, and what it says of a text that gives none."""

from __future__ import annotations

import math

import pytest

from vllm_watchdog.watchdog.errors import WatchdogError
from vllm_watchdog.watchdog.promql.cursor import MAX_DEPTH, MAX_LENGTH
from vllm_watchdog.watchdog.promql.errors import PromqlError
from vllm_watchdog.watchdog.promql.nodes import (
    Aggregate,
    At,
    Binary,
    Call,
    Matcher,
    Matching,
    MatrixSelector,
    Node,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    VectorSelector,
    spine,
)
from vllm_watchdog.watchdog.promql.parser import parse
from vllm_watchdog.watchdog.promql.signatures import FUNCTIONS
from vllm_watchdog.watchdog.promql.typecheck import value_type

A, B, C = (VectorSelector(name, (Matcher("__name__", "=", name),)) for name in "abc")
PAIRS = Matching()


def grouped(text: str) -> str:
    """The text with parentheses around every operation, to show what binds to what."""
    return _grouped(parse(text))


def _grouped(node: Node) -> str:
    if isinstance(node, Binary):
        return f"({_grouped(node.left)} {node.op} {_grouped(node.right)})"
    if isinstance(node, Unary):
        return f"({node.op}{_grouped(node.expr)})"
    if isinstance(node, Number):
        return f"{node.value:g}"
    assert isinstance(node, VectorSelector)
    return node.name


def fault(text: str) -> PromqlError:
    with pytest.raises(PromqlError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b + c", "((a + b) + c)"),
        ("a - b - c", "((a - b) - c)"),
        ("a / b * c % d atan2 e", "((((a / b) * c) % d) atan2 e)"),
        ("a ^ b ^ c", "(a ^ (b ^ c))"),
        ("a + b * c", "(a + (b * c))"),
        ("a * b + c", "((a * b) + c)"),
        ("a * b ^ c", "(a * (b ^ c))"),
        ("a ^ b * c", "((a ^ b) * c)"),
        ("a == b + c", "(a == (b + c))"),
        ("a < b == c > d", "(((a < b) == c) > d)"),
        ("a and b == c", "(a and (b == c))"),
        ("a or b and c", "(a or (b and c))"),
        ("a unless b and c", "((a unless b) and c)"),
        ("a or b unless c or d", "((a or (b unless c)) or d)"),
        ("-a ^ b", "(-(a ^ b))"),
        ("-a * b", "((-a) * b)"),
        ("-a + b", "((-a) + b)"),
        ("a * -b ^ c", "(a * (-(b ^ c)))"),
        ("a ^ -b ^ c * d", "((a ^ (-(b ^ c))) * d)"),
        ("a - -b", "(a - (-b))"),
        ("+-a", "(+(-a))"),
        ("a + 2 ^ -1", "(a + (2 ^ -1))"),
    ],
)
def test_operators_bind_as_prometheus_binds_them(text: str, expected: str) -> None:
    assert grouped(text) == expected


def test_a_sign_before_a_number_is_part_of_it() -> None:
    assert parse("-1") == Number(-1.0)
    assert parse("--1") == Number(1.0)


def test_a_sign_before_a_power_stays_outside() -> None:
    assert parse("-1 ^ 2") == Unary("-", Binary("^", Number(1.0), Number(2.0)))


def test_a_sign_before_parentheses_stays_outside() -> None:
    assert parse("-(1)") == Unary("-", Paren(Number(1.0)))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1f", 31.0),
        ("0X_1f", 31.0),
        ("017", 15.0),
        ("018", 18.0),
        ("017.5", 17.5),
        ("1_000.5", 1000.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1.5e-3", 0.0015),
        ("InF", math.inf),
        ("-inf", -math.inf),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1d250ms", 86400.25),
        ("-1m", -60.0),
        ("0x7fffffffffffffff", 2.0**63),
    ],
)
def test_a_number_has_gos_value(text: str, value: float) -> None:
    assert parse(text) == Number(value)


def test_trees_with_nan_are_equal() -> None:
    assert parse("a + NaN") == parse("a + -nan")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"a\tb\n\\\""', 'a\tb\n\\"'),
        (r"'it\'s'", "it's"),
        (r"`a\n`", r"a\n"),
        (r'"\x41\101\u00e9\U0001F600"', "AAé😀"),
        (r'"\xc3\xa9"', "é"),
        (r'"a\xc5z"', "a\udcc5z"),
        ('"é😀"', "é😀"),
    ],
)
def test_a_string_has_gos_value(text: str, value: str) -> None:
    assert parse(text) == String(value)


def test_a_selector_keeps_its_name_and_all_matchers_in_one_order() -> None:
    expected = VectorSelector(
        "a",
        (
            Matcher("__name__", "=", "a"),
            Matcher("x", "!=", "1"),
            Matcher("y", "=~", "2"),
            Matcher("z", "!~", "3"),
        ),
    )

    assert parse('a{z!~"3",x!="1",y=~"2"}') == expected
    assert parse('a{y=~"2",z!~"3",x!="1",}') == expected


def test_matchers_of_one_label_stay_in_the_order_of_the_text() -> None:
    node = parse('a{y="1",x="2",y!="3",x1="4"}')

    assert isinstance(node, VectorSelector)
    assert [(item.name, item.value) for item in node.matchers[1:]] == [
        ("x1", "4"),
        ("x", "2"),
        ("y", "1"),
        ("y", "3"),
    ]


def test_a_name_in_quotes_is_a_matcher_on_the_name() -> None:
    assert parse('{"a.b", "x.y"="1"}') == VectorSelector(
        "", (Matcher("x.y", "=", "1"), Matcher("__name__", "=", "a.b"))
    )


@pytest.mark.parametrize(
    "name", ["sum", "by", "and", "or", "unless", "offset", "start", "group", "Sum", "a:b", ":"]
)
def test_a_word_of_the_grammar_can_be_a_metric(name: str) -> None:
    assert parse(name) == VectorSelector(name, (Matcher("__name__", "=", name),))


def test_a_metric_called_as_an_operator_stands_between_operators() -> None:
    assert grouped("and and and or or") == "((and and and) or or)"


def test_words_of_the_grammar_are_read_in_any_case() -> None:
    assert parse("SUM BY (x) (a) AND ON (x) b OFFSET 5m") == parse(
        "sum by (x) (a) and on (x) b offset 5m"
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [("a[5m]", 300_000), ("a[300]", 300_000), ("a[1.5]", 1500), ("a[1h1ms]", 3_600_001)],
)
def test_a_range_is_in_milliseconds(text: str, ms: int) -> None:
    assert parse(text) == MatrixSelector(A, ms)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("a offset 5m", 300_000),
        ("a offset -5m", -300_000),
        ("a offset - 5m", -300_000),
        ("a offset +5m", 300_000),
        ("a offset -60", -60_000),
        ("a offset 0.25", 250),
        ("a offset --1", 1000),
        ("a offset 0", 0),
    ],
)
def test_an_offset_is_in_milliseconds_and_may_be_negative(text: str, ms: int) -> None:
    assert parse(text) == VectorSelector("a", A.matchers, offset=ms)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("a @ 10", At(ms=10_000)),
        ("a @ -1.5", At(ms=-1500)),
        ("a @ 1e3", At(ms=1_000_000)),
        ("a @ 0.0005", At(ms=1)),
        ("a @ -0.0005", At(ms=-1)),
        ("a @ 5m", At(ms=300_000)),
        ("a @ start()", At(edge="start")),
        ("a @ END ( )", At(edge="end")),
    ],
)
def test_at_fixes_a_time_in_milliseconds_or_an_edge(text: str, at: At) -> None:
    assert parse(text) == VectorSelector("a", A.matchers, at=at)


def test_at_and_offset_stand_in_any_order() -> None:
    expected = MatrixSelector(VectorSelector("a", A.matchers, 60_000, At(ms=5000)), 300_000)

    assert parse("a[5m] @ 5 offset 1m") == expected
    assert parse("a[5m] offset 1m @ 5") == expected


def test_offset_binds_to_the_nearest_selector() -> None:
    assert parse("a + b offset 1m") == Binary(
        "+", A, VectorSelector("b", B.matchers, 60_000), matching=PAIRS
    )


def test_a_subquery_stands_behind_any_instant_vector() -> None:
    assert parse("a[5m:1m]") == Subquery(A, 300_000, 60_000)
    assert parse("(a)[5m:] @ end() offset 1m") == Subquery(
        Paren(A), 300_000, None, 60_000, At(edge="end")
    )
    assert parse("sum(a)[300:60]") == Subquery(Aggregate("sum", A), 300_000, 60_000)


def test_an_aggregation_takes_its_labels_before_or_behind() -> None:
    expected = Aggregate("sum", A, grouping=("x", "y"))

    assert parse("sum by (x, y) (a)") == expected
    assert parse("sum(a) by (x, y,)") == expected
    assert parse("sum(a) without (x)") == Aggregate("sum", A, grouping=("x",), without=True)


def test_an_aggregation_by_nothing_is_one_over_all() -> None:
    assert parse("sum by () (a)") == parse("sum(a)")


def test_an_aggregation_with_a_parameter_keeps_it_apart() -> None:
    assert parse("topk(3, a)") == Aggregate("topk", A, Number(3.0))
    assert parse('count_values without () ("x", a)') == Aggregate(
        "count_values", A, String("x"), (), without=True
    )


def test_a_call_keeps_its_arguments_in_order() -> None:
    assert parse("clamp(a, 1, 2)") == Call("clamp", (A, Number(1.0), Number(2.0)))
    assert parse("time()") == Call("time", ())


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("a + b", Matching()),
        ("a + on() b", Matching(on=True)),
        ("a + on(x) b", Matching(on=True, labels=("x",))),
        ("a + ignoring(x, y) b", Matching(labels=("x", "y"))),
        ('a + on("x.y", sum) b', Matching(on=True, labels=("x.y", "sum"))),
        ("a + on(x) group_left b", Matching(True, ("x",), "many-to-one")),
        ("a + on(x) group_left(y) b", Matching(True, ("x",), "many-to-one", ("y",))),
        ("a + ignoring(x) group_right(x) b", Matching(False, ("x",), "one-to-many", ("x",))),
        ("a and b", Matching(card="many-to-many")),
        ("a unless on(x) b", Matching(True, ("x",), "many-to-many")),
        ("a + 1", None),
        ("1 + on() a", None),
        ("a > bool 1", None),
    ],
)
def test_matching_is_as_written_and_none_beside_a_scalar(
    text: str, matching: Matching | None
) -> None:
    node = parse(text)

    assert isinstance(node, Binary)
    assert node.matching == matching


def test_zero_and_minus_zero_are_two_numbers() -> None:
    assert parse("1 / -0") != parse("1 / 0")
    assert {parse("0"): "zero", parse("-0"): "minus"}[parse("0")] == "zero"


def test_equal_trees_are_one_key_however_long() -> None:
    text = "+".join(["a"] * 5_000)
    table = {parse(text): "found"}

    assert table[parse(text)] == "found"
    assert parse(text + "+b") not in table
    assert parse(text + "+a") != parse(text + "-a")


def test_bool_is_kept_on_comparisons() -> None:
    assert parse("1 >= bool 2") == Binary(">=", Number(1.0), Number(2.0), return_bool=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "scalar"),
        ("-(1 + 2)", "scalar"),
        ("time() * pi()", "scalar"),
        ("1 < bool 2", "scalar"),
        ("scalar(a)", "scalar"),
        ('"a"', "string"),
        ('("a")', "string"),
        ("a", "vector"),
        ("-a + 1", "vector"),
        ("1 == a", "vector"),
        ("sum(a)", "vector"),
        ("rate(a[5m])", "vector"),
        ("vector(1)", "vector"),
        ("a[5m]", "matrix"),
        ("(a[5m:])", "matrix"),
    ],
)
def test_every_expression_has_a_type(text: str, expected: str) -> None:
    assert value_type(parse(text)) == expected


def test_nodes_know_their_place_in_the_text() -> None:
    text = "sum by (x) (rate(a{y='1'}[5m] offset 1m)) / (b) > 1"
    node = parse(text)
    assert isinstance(node, Binary)
    ratio = node.left
    assert isinstance(ratio, Binary)
    total = ratio.left
    assert isinstance(total, Aggregate)
    call = total.expr
    assert isinstance(call, Call)

    assert [text[slice(*part.pos)] for part in (node, ratio, total, call, call.args[0])] == [
        text,
        "sum by (x) (rate(a{y='1'}[5m] offset 1m)) / (b)",
        "sum by (x) (rate(a{y='1'}[5m] offset 1m))",
        "rate(a{y='1'}[5m] offset 1m)",
        "a{y='1'}[5m] offset 1m",
    ]


def test_places_take_no_part_in_equality() -> None:
    assert parse("a+b") == parse("  a  +  b  ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: parse error: there is no expression"),
        ("a b", "1:3: parse error: unexpected name 'b' after an expression, expected an operator or the end"),
        ("a +", "1:4: parse error: unexpected end of the expression, expected an expression"),
        ("(a", "1:1: parse error: this '(' is never closed"),
        ("rate(a[5m]", "1:5: parse error: this '(' is never closed"),
        ("a)", "1:2: parse error: unexpected ')' after an expression, expected an operator or the end"),
        ("a = 1", "1:3: parse error: '=' and '=~' stand only inside braces (a comparison is written '==')"),
        ("a{x=1}", "1:5: parse error: unexpected character '1' inside braces"),
        ("a{x}", "1:4: parse error: unexpected '}' inside braces, expected one of '=' '!=' '=~' '!~'"),
        ("a{x='(', y=~'('}", "1:13: parse error: '(' is no RE2 regular expression: missing ): ("),
        ("{x=~'.*'}", "1:1: parse error: a selector without a metric name needs a matcher that the empty value does not pass"),
        ("a{__name__='b'}", "1:1: parse error: the metric name is set twice: 'a' and 'b'"),
        ("a[5m", "1:5: parse error: unexpected end of the expression after a range, expected ']', or ':' for a subquery"),
        ("a[0]", "1:3: parse error: a duration inside brackets must be longer than 0"),
        ("a[1h2h]", "1:3: parse error: '1h2h' is no duration: units stand once each, in the order y w d h m s ms"),
        ("a[5m*2]", "1:5: parse error: unexpected '*': arithmetic on durations is experimental and not supported"),
        ("sum(a)[5m]", "1:7: parse error: a range fits only a selector; a subquery has a colon: [5m:]"),
        ("rate(a)", "1:6: parse error: argument 1 of 'rate' must be a range vector, found an instant vector (write a range behind it, such as [5m])"),
        ("abs(a, b)", "1:1: parse error: the function 'abs' takes 1 argument, found 2"),
        ("round()", "1:1: parse error: the function 'round' takes 1 to 2 arguments, found 0"),
        ("label_join(a)", "1:1: parse error: the function 'label_join' takes at least 3 arguments, found 1"),
        ("rte(a[5m])", "1:1: parse error: unknown function 'rte', did you mean 'rate'?"),
        ("mad_over_time(a[5m])", "1:1: parse error: the function 'mad_over_time' is experimental and not supported"),
        ("limitk(1, a)", "1:1: parse error: the aggregation 'limitk' is experimental and not supported"),
        ("a + on(x) fill(0) b", "1:11: parse error: the modifier 'fill' is experimental and not supported"),
        ("topk(a)", "1:1: parse error: the aggregation 'topk' takes a parameter and a vector, found 1"),
        ("topk('1', a)", "1:6: parse error: the parameter of 'topk' must be a scalar, found a string"),
        ("sum(1)", "1:5: parse error: the operand of 'sum' must be an instant vector, found a scalar"),
        ("1 == 2", "1:3: parse error: a comparison of two scalars must be written '== bool'"),
        ("a + bool b", "1:3: parse error: 'bool' fits comparisons only, not '+'"),
        ("a and 1", "1:3: parse error: 'and' joins instant vectors, found a scalar"),
        ("a[5m] + 1", "1:1: parse error: '+' joins scalars and instant vectors, found a range vector"),
        ("-'a'", "1:1: parse error: '-' needs a scalar or an instant vector, found a string"),
        ("a and on(x) group_left b", "1:3: parse error: 'and' takes no group modifier"),
        ("a * on(x) group_left(x) b", "1:3: parse error: the label 'x' stands in both 'on' and the group modifier"),
        ("a @ 1 @ 2", "1:7: parse error: '@' may stand only once"),
        ("a offset 1m offset 2m", "1:13: parse error: 'offset' may stand only once"),
        ("(a) offset 1m", "1:1: parse error: 'offset' must follow a selector, a range or a subquery"),
        ("a +\n  b c", "2:5: parse error: unexpected name 'c' after an expression, expected an operator or the end"),
        ("# ä\n'é' +\n\té", "3:2: parse error: unexpected character 'é'"),
        ("'\ud800'", "1:2: parse error: the string is not valid Unicode"),
        ("{x=~'\\xff'}", "1:5: parse error: '\\udcff' is no RE2 regular expression: it is not valid Unicode"),
    ],
)  # fmt: skip
def test_an_error_says_where_and_what_and_what_was_expected(text: str, message: str) -> None:
    assert str(fault(text)) == message


def test_an_error_is_one_of_the_daemons_own() -> None:
    assert isinstance(fault("("), WatchdogError)


def test_the_first_fault_in_the_text_is_named() -> None:
    assert fault("a b 'c").offset == 2


def test_a_long_text_is_cut_in_the_message() -> None:
    assert len(str(fault("x" * 5000 + "()"))) < 150
    assert len(str(fault("{a=~'(" + "x" * 5000 + "'}"))) < 400


@pytest.mark.parametrize("opening", ["(", "-", "abs(", "a ^ ", "sum by (x) (", "2 * ("])
def test_nesting_beyond_the_limit_is_a_clear_error(opening: str) -> None:
    error = fault(opening * 10_000 + "a")

    assert error.message == "the expression is nested too deeply, 100 levels are the most"
    assert error.offset <= len(opening) * (MAX_DEPTH + 1)


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("(", ")"), ("-", ""), ("abs(", ")"), ("a ^ ", ""), ("sum_over_time(", "[5m:])")],
)
def test_nesting_up_to_the_limit_is_read(opening: str, closing: str) -> None:
    parse(opening * MAX_DEPTH + "a" + closing * MAX_DEPTH)


def test_a_chain_of_many_terms_is_no_nesting() -> None:
    first, chain = spine(parse("+".join(["a"] * 5_000)))

    assert (first, len(chain)) == (A, 4_999)
    assert all(link.right == A for link in chain)


def test_a_text_beyond_the_limit_is_refused_unread() -> None:
    assert fault("a" + " " * MAX_LENGTH).message == (
        "the expression has 131073 characters, 131072 are the most"
    )


def test_a_text_at_the_limit_is_read() -> None:
    assert parse("a" + " " * (MAX_LENGTH - 1)) == A


def test_every_function_is_read_with_arguments_of_its_types() -> None:
    samples = {"scalar": "1", "string": "'s'", "vector": "a", "matrix": "a[5m]"}

    for name, signature in FUNCTIONS.items():
        for count in range(signature.fewest, len(signature.arguments) + 1):
            args = [samples[kind] for kind in signature.arguments[:count]]
            node = parse(f"{name}({', '.join(args)})")
            assert value_type(node) == signature.result
