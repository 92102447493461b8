"""A real Prometheus as the judge: random series and well-typed expressions, the same answers.

A few hundred questions in an ordinary run; ``N=20000 pytest tests/promql/test_oracle.py`` asks more.
``SEED`` starts elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promql import judge, remote_write
from tests.promql.expressions import Dataset
from tests.promql.judge import Judge, Question
from tests.support import servers
from vllm_watchdog.watchdog.window import Window

N = int(os.environ.get("N", "400"))
SEED = int(os.environ.get("SEED", "1"))
PER_DATASET = 250
ENOUGH = 10  # differences shown before giving up

pytestmark = [pytest.mark.peer]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    with servers.prometheus(Path(folder), flags=["--log.level=error"]) as server:
        yield server.url


def window_of(dataset: Dataset) -> Window:
    window = Window(1 << 50, max_points=1 << 30)
    for key, samples in dataset.series:
        for at, value in samples:
            window.write(key, at, value, "test")
    return window


def question(dataset: Dataset) -> Question:
    start = dataset.moment()
    if dataset.random.random() < 0.7:
        return Question(dataset.expression(moments=False), start, start, 0)
    step = dataset.random.choice([15_000, 60_000, 47_000])
    end = start + step * dataset.random.randint(0, 12)
    return Question(dataset.expression(moments=True), start, end, step)


def test_answers_are_those_of_a_real_prometheus(prometheus: str) -> None:
    asked, repaired, failed, wrong = 0, 0, 0, []
    asking = Judge(prometheus)
    answered = 0
    for number in range((N + PER_DATASET - 1) // PER_DATASET):
        dataset = Dataset(SEED, number)
        remote_write.write(prometheus, dataset.series)
        window = window_of(dataset)
        for _ in range(min(PER_DATASET, N - asked)):
            asked += 1
            each = question(dataset)
            mine, theirs = judge.ours(each, window), asking.ask(each)
            failed += bool(theirs.error)
            answered += bool(theirs.series)
            ordered = each.instant and each.expr.startswith(("sort", "topk", "bottomk"))
            told = judge.difference(mine, theirs, ordered=ordered)
            if told and judge.newer(each, mine, theirs):
                repaired += 1
            elif told:
                wrong.append(f"{each}\n    {told}")
        if len(wrong) >= ENOUGH:
            break
    asking.close()
    print(
        f"{asked} asked: {answered} with a result, {failed} refused by Prometheus, "
        f"{repaired} repaired after 3.5, {len(wrong)} wrong"
    )

    assert not wrong, "\n".join([f"SEED={SEED}", *wrong[:ENOUGH]])
    assert repaired < asked / 20 and answered > asked / 2
