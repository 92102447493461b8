"""What one evaluation may cost: samples are counted, and whoever asks may end it."""

from __future__ import annotations

import pytest

from vllm_watchdog.watchdog.model import labelset
from vllm_watchdog.watchdog.promql import EvaluationError, load, query, query_range
from vllm_watchdog.watchdog.promql.plan import MAX_SAMPLES
from vllm_watchdog.watchdog.window import Window

HOUR = 3_600_000


@pytest.fixture
def window() -> Window:
    made = Window(1 << 50)
    for card in range(3):
        for second in range(10):
            made.write(labelset({"card": str(card)}, "m"), second * 1000, 1.0, "test")
    return made


def test_a_subquery_of_too_many_steps_is_refused_while_it_is_evaluated(window: Window) -> None:
    assert MAX_SAMPLES < 6 * HOUR

    with pytest.raises(EvaluationError, match=f"needs more than {MAX_SAMPLES} samples"):
        query(load("max_over_time(vector(1)[6h:1ms])"), window, 9000)


class Counting:
    """Ends an evaluation at its nth look."""

    def __init__(self, most: int) -> None:
        self.left = most

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise EvaluationError("enough")


@pytest.mark.parametrize(
    "expression",
    [
        "max_over_time(vector(1)[1m:1s])",
        "m or m or m or m or m or m or m or m or m or m or m",
        "sum(sum_over_time(sum(m)[1m:1s]))",
        "quantile_over_time(0.5, m[10s]) " + "+ quantile_over_time(0.5, m[10s] offset 1ms) " * 10,
        "timestamp(m) " + "+ timestamp(m offset 1ms) " * 10,
        "rate(m[10s]) " + "+ increase(m[10s]) + delta(m[9s]) + rate(m[8s]) + rate(m[7s])" * 2,
    ],
)
def test_whoever_asks_is_heard_throughout_an_evaluation(window: Window, expression: str) -> None:
    query(load(expression), window, 9000, watch=Counting(1000))

    with pytest.raises(EvaluationError, match="enough"):
        query(load(expression), window, 9000, watch=Counting(3))


def test_whoever_asks_is_heard_at_each_step_of_a_range_query(window: Window) -> None:
    with pytest.raises(EvaluationError, match="enough"):
        query_range(load("1"), window, 0, 9000, 1000, watch=Counting(5))
