"""The public API of PromQL, and what an evaluation gives: each value worked out by hand."""

from __future__ import annotations

import math

import pytest

from vllm_watchdog.watchdog.model import Labels, labelset
from vllm_watchdog.watchdog.promql import (
    EVER,
    EvaluationError,
    Evaluator,
    Matrix,
    Need,
    ParseError,
    Scalar,
    String,
    Vector,
    load,
    needs,
    query,
    query_range,
)
from vllm_watchdog.watchdog.series import STALE
from vllm_watchdog.watchdog.window import Window

SECOND, MINUTE = 1000, 60_000


def window(**series: dict[int, float]) -> Window:
    """A window of series ``name__label_value`` with samples by second."""
    made = Window(1 << 50)
    for text, samples in series.items():
        name, *pairs = text.split("__")
        labels = labelset(dict(pair.split("_", 1) for pair in pairs), name)
        for second, value in samples.items():
            made.write(labels, second * SECOND, value, "test")
    return made


def values(text: str, of: Window, second: float) -> dict[Labels, float]:
    result = query(load(text), of, round(second * SECOND))
    assert isinstance(result, Vector)
    return dict(result.elements)


def value(text: str, of: Window | None = None, second: float = 0) -> float:
    """The only value of a scalar or vector."""
    result = query(load(text), of or Window(), round(second * SECOND))
    if isinstance(result, Scalar):
        return result.value
    assert isinstance(result, Vector)
    [(_, only)] = result.elements
    return only


def every(step: int, *samples: float) -> dict[int, float]:
    return {n * step: each for n, each in enumerate(samples)}


def test_a_query_gives_the_type_of_its_expression() -> None:
    of = window(a=every(60, 1.0, 2.0))

    assert query(load("1 + 1"), of, 5) == Scalar(5, 2.0)
    assert query(load('("x")'), of, 5) == String(5, "x")
    assert query(load("a"), of, 0) == Vector(0, [((("__name__", "a"),), 1.0)])
    assert query(load("a[5m]"), of, 60_000) == Matrix(
        [((("__name__", "a"),), [(0, 1.0), (60_000, 2.0)])]
    )


def test_a_range_query_gives_points_at_each_step_sorted_by_label_set() -> None:
    of = window(b__x_2=every(30, 1.0, 2.0, 3.0), b__x_1={60: 9.0})

    assert query_range(load("b + 0"), of, 0, 60_000, 30_000) == Matrix(
        [
            ((("x", "1"),), [(60_000, 9.0)]),
            ((("x", "2"),), [(0, 1.0), (30_000, 2.0), (60_000, 3.0)]),
        ]
    )


@pytest.mark.parametrize("text", ["a[1m]", '"text"'])
def test_a_range_query_of_another_type_is_refused(text: str) -> None:
    with pytest.raises(EvaluationError, match="a scalar or an instant vector"):
        query_range(load(text), Window(), 0, 1, 1)


def test_a_range_query_has_a_largest_number_of_points() -> None:
    with pytest.raises(EvaluationError, match="11000"):
        query_range(load("1"), Window(), 0, 11_000, 1)


def test_the_lookback_excludes_its_left_end() -> None:
    of = window(a={0: 1.0})

    assert values("a", of, 299.999) != {}
    assert values("a", of, 300) == {}


def test_a_range_excludes_its_left_end_and_staleness_markers() -> None:
    of = window(a={0: 1.0, 15: 2.0, 30: STALE, 45: math.nan, 60: 3.0})

    assert value("count_over_time(a[1m])", of, 60) == 3


def test_a_staleness_marker_ends_the_series_for_an_instant_selector() -> None:
    of = window(a={0: 1.0, 15: STALE})

    assert values("a", of, 14) != {}
    assert values("a", of, 15) == {}
    assert value("absent(a)", of, 15) == 1


def test_subquery_steps_are_multiples_of_the_step() -> None:
    of = window(a=every(10, *map(float, range(20))))

    result = query(load("a[1m:25s]"), of, 110_000)
    assert isinstance(result, Matrix)
    assert [point for _, points in result.series for point in points] == [
        (75_000, 7.0),
        (100_000, 10.0),
    ]


def test_a_subquery_without_a_step_takes_the_given_one() -> None:
    of = window(a=every(10, *map(float, range(20))))

    result = query(load("a[1m:]"), of, 60_000, step_ms=20_000)
    assert isinstance(result, Matrix)
    assert [ms for ms, _ in result.series[0][1]] == [20_000, 40_000, 60_000]


def test_at_and_offset_move_a_selector() -> None:
    of = window(a=every(10, *map(float, range(20))))

    assert value("a @ 50", of, 190) == 5
    assert value("a @ 50 offset 20s", of, 190) == 3
    assert value("a offset 20s", of, 100) == 8
    assert value("a offset -20s", of, 100) == 12


def test_start_and_end_are_those_of_the_whole_query() -> None:
    of = window(a=every(10, *map(float, range(20))))

    [(_, points)] = query_range(load("a @ end() - a @ start()"), of, 10_000, 50_000, 20_000).series
    assert points == [(10_000, 4.0), (30_000, 4.0), (50_000, 4.0)]


def test_rate_adds_what_was_lost_at_a_reset_and_extrapolates() -> None:
    of = window(c=every(15, 0.0, 15.0, 30.0, 5.0, 20.0))

    # samples at 15..60 in (0, 60]: 15 30 5 20: 20 - 15 + 30 = 35 in 45 s; 15 s to the left edge are
    # less than 1.1 spacings, but zero would be only 45 * 15/35 s away, which is further: all the way
    assert value("increase(c[1m])", of, 60) == 35 * ((45 + 15) / 45)
    assert value("rate(c[1m])", of, 60) == 35 * ((45 + 15) / 45 / 60)


def test_rate_does_not_extrapolate_a_counter_below_zero() -> None:
    of = window(c={10: 1.0, 20: 21.0, 30: 41.0})

    assert value("increase(c[30s])", of, 30) == 40 * ((20 + 20 * (1 / 40)) / 20)


def test_rate_needs_two_samples() -> None:
    assert values("rate(a[1m])", window(a={0: 1.0, 60: 2.0}), 60) == {}


def test_sums_are_compensated() -> None:
    of = window(
        a=every(10, 2.0, 8.0, 1e100, -1e100),
        b__i_1={0: 2.0},
        b__i_2={0: 8.0},
        b__i_3={0: 1e100},
        b__i_4={0: -1e100},
    )

    assert value("sum_over_time(a[1m])", of, 30) == 10
    assert value("sum(b)", of, 30) == 10
    assert value("avg(b)", of, 30) == 2.5


def test_an_average_beyond_the_largest_float_is_taken_step_by_step() -> None:
    of = window(a=every(10, 1.5e308, 1.5e308, 1.5e308))

    assert math.isclose(value("avg_over_time(a[1m])", of, 20), 1.5e308)


def test_one_to_one_matching_drops_the_names() -> None:
    of = window(a__x_1={0: 6.0}, b__x_1={0: 2.0}, b__x_2={0: 5.0})

    assert values("a / b", of, 0) == {(("x", "1"),): 3.0}


def test_group_left_takes_labels_of_the_one_side() -> None:
    of = window(a__x_1__y_1={0: 6.0}, a__x_1__y_2={0: 8.0}, b__x_1__z_7={0: 2.0})

    assert values("a / on (x) group_left (z) b", of, 0) == {
        (("x", "1"), ("y", "1"), ("z", "7")): 3.0,
        (("x", "1"), ("y", "2"), ("z", "7")): 4.0,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b / on (x) a", 'found duplicate series for the match group {x="1"} on the right'),
        ("a / on (x) b", "many-to-one matching must be explicit"),
        ("a > on (x) b", "many-to-one matching must be explicit"),
        ("a * on (x) group_left (y) b", "grouping labels must ensure unique matches"),
        ('{__name__=~"a|c",y="1"} + 1', "same labelset"),
        ('label_replace(a, "y", "", "", "")', "same labelset"),
        ("topk(scalar(none), a)", "is no number of elements"),
        ("topk(1e300, a)", "overflows"),
        ('label_replace(a, "y", "", "y", "(")', "invalid regular expression"),
    ],
)
def test_what_cannot_be_answered_is_refused(text: str, message: str) -> None:
    of = window(a__x_1__y_1={0: 1.0}, a__x_1__y_2={0: 1.0}, b__x_1={0: 2.0}, c__x_1__y_1={0: 1.0})

    with pytest.raises(EvaluationError) as caught:
        query(load(text), of, 0)
    assert message in str(caught.value)


def test_set_operators_look_at_labels_only() -> None:
    of = window(a__x_1={0: 1.0}, a__x_2={0: 2.0}, b__x_2={0: 9.0}, b__x_3={0: 9.0})

    assert list(values("a and b", of, 0).values()) == [2.0]
    assert list(values("a or b", of, 0).values()) == [1.0, 2.0, 9.0]
    assert list(values("a unless b", of, 0).values()) == [1.0]


def test_topk_and_sort_give_their_order() -> None:
    of = window(a__x_1={0: 1.0}, a__x_2={0: math.nan}, a__x_3={0: 3.0}, a__x_4={0: 2.0})

    assert list(values("topk(3, a)", of, 0).values()) == [3.0, 2.0, 1.0]
    assert list(values("bottomk(2, a)", of, 0).values()) == [1.0, 2.0]
    assert repr(list(values("sort_desc(a)", of, 0).values())) == "[3.0, 2.0, 1.0, nan]"


def test_count_values_writes_numbers_as_go_does() -> None:
    of = window(a__x_1={0: 1e21}, a__x_2={0: 0.1}, a__x_3={0: math.inf}, a__x_4={0: -0.0})

    assert [dict(labels)["v"] for labels in values('count_values("v", a)', of, 0)] == [
        "1000000000000000000000",
        "0.1",
        "+Inf",
        "-0",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7 % -3", 1.0),
        ("-7 % 3", -1.0),
        ("2 ^ 0.5 ^ 0", 2.0),
        ("0 ^ -1", math.inf),
        ("1 / 0", math.inf),
        ("-1 / 0", -math.inf),
        ("1e308 * 10", math.inf),
        ("10 ^ 400", math.inf),
        ("1 == bool 1", 1.0),
        ("3 > bool 4", 0.0),
        ("1 atan2 1", math.pi / 4),
    ],
)
def test_arithmetic_is_gos(text: str, expected: float) -> None:
    assert value(text) == expected


@pytest.mark.parametrize("text", ["0 / 0", "0 % 0", "Inf % 2", "(-8) ^ 0.5", "Inf - Inf"])
def test_what_has_no_value_is_nan(text: str) -> None:
    assert math.isnan(value(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ln(vector(0))", -math.inf),
        ("log2(vector(8))", 3.0),
        ("exp(vector(1000))", math.inf),
        ("round(vector(-2.5))", -2.0),
        ("round(vector(2.6), 5)", 5.0),
        ("sgn(vector(-3))", -1.0),
        ("clamp(vector(7), 1, 5)", 5.0),
        ("clamp_min(vector(NaN), Inf)", math.inf),
        ("year(vector(-1))", 1969.0),
        ("day_of_week(vector(86400))", 5.0),
        ("days_in_month(vector(1709164800))", 29.0),
        ("minute(vector(3660))", 1.0),
        ("year(vector(1e300))", 292277026596.0),
    ],
)
def test_functions_of_values(text: str, expected: float) -> None:
    assert value(text) == expected


def test_clamp_with_crossed_limits_is_empty() -> None:
    assert values("clamp(vector(1), 5, 2)", Window(), 0) == {}


def buckets(**counts: float) -> Window:
    made = Window()
    for le, count in counts.items():
        bound = "+Inf" if le == "inf" else le.strip("_").replace("_", ".")
        made.write(labelset({"le": bound}, "h"), 0, count, "test")
    return made


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    of = buckets(_1=10.0, _2=30.0, inf=40.0)

    assert value("histogram_quantile(0.5, h)", of) == 1 + (2 - 1) * ((20 - 10) / 20)
    assert value("histogram_quantile(0.125, h)", of) == 0.5
    assert value("histogram_quantile(0.99, h)", of) == 2


def test_equal_bounds_are_added_and_falling_counts_lifted() -> None:
    of = buckets(_1=10.0, _1_0=10.0, _2=15.0, inf=40.0)

    assert value("histogram_quantile(0.5, h)", of) == 1


def test_a_quantile_needs_an_infinite_bucket_and_observations() -> None:
    assert math.isnan(value("histogram_quantile(0.5, h)", buckets(_1=1.0, _2=2.0)))
    assert math.isnan(value("histogram_quantile(0.5, h)", buckets(_1=0.0, inf=0.0)))
    assert value("histogram_quantile(-1, h)", buckets(_1=1.0, inf=2.0)) == -math.inf


def test_absent_has_the_labels_that_one_equality_gives() -> None:
    found = values('absent(a{x="1", y="2", y="3", z=~"4"})', Window(), 0)

    assert found == {(("x", "1"),): 1.0}


def test_label_replace_fills_in_groups_as_go_does() -> None:
    of = window(a__x_ab={0: 1.0})

    text = 'label_replace(a, "y", "${1}-$2-$$-$9-$name", "x", "(?P<one>.)(.)")'
    assert [dict(labels)["y"] for labels in values(text, of, 0)] == ["a-b-$--"]


def test_timestamp_is_the_samples_own_time_for_a_selector_alone() -> None:
    of = window(a={7: 1.0})

    assert value("timestamp(a)", of, 60) == 7
    assert value("timestamp(a + 0)", of, 60) == 60


def test_long_chains_are_answered_and_longer_ones_refused_with_a_place() -> None:
    assert value(" + ".join(["1"] * 199)) == 199
    with pytest.raises(ParseError, match="1:1: parse error: more than 200 operations in a row"):
        load(" + ".join(["1"] * 5000))


def test_negative_zero_is_not_taken_for_zero() -> None:
    evaluator = Evaluator(Window())

    assert evaluator.prepare(load("1 / 0")).query(0) == Scalar(0, math.inf)
    assert evaluator.prepare(load("1 / -0")).query(0) == Scalar(0, -math.inf)
    assert evaluator.prepare(load("1 / -0 == bool 1 / 0")).query(0) == Scalar(0, 0.0)


def test_equal_parts_of_prepared_expressions_are_the_same_result() -> None:
    of = window(a=every(10, 1.0, 2.0, 3.0))
    evaluator = Evaluator(of)
    one = evaluator.prepare(load("rate(a[1m])")).query(20_000)
    two = evaluator.prepare(load("(rate(a[1m]))")).query(20_000)
    assert isinstance(one, Vector)
    assert isinstance(two, Vector)

    assert one.elements[0][0] is two.elements[0][0]


def need(text: str) -> list[tuple[str, int]]:
    return [(each.name, each.reach_ms) for each in needs(load(text))]


def test_needs_tell_how_far_back_each_selector_reaches() -> None:
    assert need("a") == [("a", 5 * MINUTE)]
    assert need("rate(a[10m] offset 1m) / b") == [("a", 11 * MINUTE), ("b", 5 * MINUTE)]
    assert need("max_over_time(rate(a[1m])[30m:1m] offset 2m)") == [("a", 33 * MINUTE)]
    assert need("topk(scalar(k), sum by (x) (a offset -10m))") == [("k", 5 * MINUTE), ("a", 0)]
    assert need("a @ 100") == [("a", EVER)]
    assert need("a[1h] @ end()") == [("a", 60 * MINUTE)]
    assert need("1 + time()") == []


def test_a_need_names_its_matchers() -> None:
    [found] = needs(load('{x="1"}'))

    assert isinstance(found, Need)
    assert (found.name, [m.value for m in found.matchers]) == ("", ["1"])
