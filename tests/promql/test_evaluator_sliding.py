"""An expression prepared once gives at each moment what a fresh evaluation gives, to the bit."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_watchdog.watchdog.model import Batch, Labels, Page, labelset
from vllm_watchdog.watchdog.promql import (
    EvaluationError,
    Evaluator,
    Vector,
    load,
    query,
    ranges,
    sums,
)
from vllm_watchdog.watchdog.promql.selection import unmarked
from vllm_watchdog.watchdog.window import Window

RANGE_CALLS = {
    name: f"{name}(m[1m])"
    for name in ranges.FUNCTIONS
    if name not in ("absent_over_time", "predict_linear", "quantile_over_time")
} | {
    "predict_linear": "predict_linear(m[1m], 60)",
    "quantile_over_time": "quantile_over_time(0.3, m[1m])",
}
EXPRESSIONS = [
    *RANGE_CALLS.values(),
    "m",
    "m > 3",
    "m > bool 3",
    "m offset 20s",
    "m / on (i) n",
    "m and on (i) n > 2",
    "m or n",
    "m unless on (i) n",
    "sum by (g) (rate(m[30s]))",
    "avg without (i) (m)",
    "topk(2, m)",
    "quantile by (g) (0.4, m)",
    "histogram_quantile(0.9, sum by (le) (rate(h_bucket[40s])))",
    "max_over_time(rate(m[20s])[1m:10s])",
    'count_values by (g) ("v", round(m))',
    'label_replace(m, "z", "$1", "i", "(.)")',
    "timestamp(m)",
    "absent(m)",
    "absent_over_time(m[10s])",
    "abs(m) + 1",
    "-m",
    "sort(m)",
    "scalar(sum(m)) * n",
    "rate(m[1m] offset 15s)",
    "rate(m[30s] @ end())",
]
KEYS: tuple[Labels, ...] = (
    *(labelset({"i": str(i), "g": str(i % 2)}, "m") for i in range(5)),
    *(labelset({"i": str(i)}, "n") for i in range(3)),
    *(labelset({"le": le}, "h_bucket") for le in ("1", "5", "+Inf")),
)


def bits(value: float) -> bytes:
    return b"nan" if value != value else struct.pack("<d", value)


def answer(result: Any) -> Any:
    assert isinstance(result, Vector)
    return [(labels, bits(value)) for labels, value in result.elements]


class Story:
    """Writes a window in awkward ways: pages that lack series, failures, gaps, resets, jumps."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.window = Window(120_000)
        self.ms = 1_000_000
        self._values = dict.fromkeys(KEYS, 0.0)
        self._page = KEYS

    def step(self) -> None:
        pick = self.random
        self.ms += pick.choice(
            [5000, 5000, 5000, 5000, 7000, 1, 40_000, 200_000][: pick.choice([4, 8])]
        )
        roll = pick.random()
        if roll < 0.06:
            self.window.mark_stale("page", self.ms)
            return
        if roll < 0.12:
            key = labelset({"i": "w", "g": "1"}, "m")
            self.window.write(key, self.ms, self._next(1.0), "rule")
            return
        if roll < 0.25:
            self._page = tuple(key for key in KEYS if pick.random() < 0.8)
        for key in self._page:
            self._values[key] = self._next(self._values[key])
        values = tuple(self._values[key] for key in self._page)
        self.window.append(Batch("page", (Page(self._page, values),)), self.ms)

    def _next(self, value: float) -> float:
        pick = self.random
        roll = pick.random()
        if roll < 0.03:
            return pick.choice([math.nan, math.inf, -0.0, -math.inf])
        if roll < 0.1 or value - value != 0:
            return 0.0
        return value + pick.choice([1.0, 0.1, 3.0, 0.0, 1e16 if roll > 0.99 else 2.0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_prepared_expression_answers_like_a_fresh_one(seed: int) -> None:
    story = Story(seed)
    evaluator = Evaluator(story.window)
    prepared = [evaluator.prepare(load(text)) for text in EXPRESSIONS]
    for _ in range(40):
        story.step()
        moment = story.ms - story.random.choice([0, 0, 0, 1, 5000, 20_000])
        for each in story.random.sample(prepared, 12):
            try:
                expected = answer(query(each.expr, story.window, moment))
            except EvaluationError as error:
                with pytest.raises(EvaluationError, match=error.message[:20]):
                    each.query(moment)
                continue
            assert expected == answer(each.query(moment)), each.expr.text


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 32))
def test_sliding_along_a_range_gives_what_reading_it_gives(seed: int) -> None:
    story = Story(seed)
    evaluator = Evaluator(story.window)
    prepared = {name: evaluator.prepare(load(text)) for name, text in RANGE_CALLS.items()}
    param = {"predict_linear": 60.0, "quantile_over_time": 0.3}
    matchers = load("m").node.matchers  # type: ignore[attr-defined]
    for _ in range(40):
        story.step()
        name = story.random.choice(list(prepared))
        frame = ranges.Frame(story.ms - 60_000, story.ms, story.ms, param.get(name, 0.0))
        expected = {}
        for series in story.window.select(matchers):
            times, values = unmarked(series.block.times, series.values)
            inside = [at for at, ms in enumerate(times) if frame.start < ms <= frame.end]
            if inside:
                low, high = inside[0], inside[-1] + 1
                value = ranges.FUNCTIONS[name](times[low:high], values[low:high], frame)
                if value is not None:
                    labels = tuple(p for p in series.key if p[0] != "__name__")
                    expected[series.key if name == "last_over_time" else labels] = bits(value)

        assert expected == dict(answer(prepared[name].query(story.ms))), name


awkward = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-1e3, 1e3),
    st.integers(-100, 100).map(float),
    st.sampled_from([0.1, 1e16, -1e16, 1e-300, 1e300, 5e-324, -0.0]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(awkward, min_size=1, max_size=60))
def test_sums_means_and_spreads_are_those_of_adding_one_by_one(values: list[float]) -> None:
    total = error = 0.0
    for value in values:
        total, error = sums.add(value, total, error)
    by_steps = total if total in (math.inf, -math.inf) else total + error
    mean, rest, incremental = values[0], 0.0, False
    for count, value in enumerate(values[1:], 2):
        if not incremental:
            new, moved = sums.add(value, mean, rest)
            if new not in (math.inf, -math.inf):
                mean, rest = new, moved
                continue
            incremental, mean, rest = True, mean / (count - 1), rest / (count - 1)
        share = (count - 1) / count
        mean, rest = sums.add(value / count, share * mean, share * rest)
    expected = mean + rest if incremental else mean / len(values) + rest / len(values)

    count = center = rest = squares = error = 0.0
    for value in values:
        count += 1
        delta = value - (center + rest)
        center, rest = sums.add(delta / count, center, rest)
        squares, error = sums.add(delta * (value - (center + rest)), squares, error)

    assert bits((squares + error) / count) == bits(sums.variance_over(values))
    assert bits(by_steps) == bits(sums.sum_over(values))
    assert bits(expected) == bits(sums.mean_over(values))
