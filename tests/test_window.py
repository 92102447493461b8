"""The window: ownership, staleness, bounds, selection, saving."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest

from vllm_watchdog.watchdog.model import Batch, Labels, Page, labelset
from vllm_watchdog.watchdog.series import STALE, is_stale
from vllm_watchdog.watchdog.window import MINUTE, Window


@dataclass(frozen=True)
class M:
    """A matcher."""

    name: str
    op: str
    value: str


def key(name: str, **labels: str) -> Labels:
    return labelset(labels, name)


A, B, C = key("a", x="1"), key("b", x="1"), key("c", x="1")


def batch(owner: str, *samples: tuple[Labels, float]) -> Batch:
    page = Page(tuple(each for each, _ in samples), tuple(value for _, value in samples))
    return Batch(owner, (page,))


def history(window: Window, of: Labels) -> list[tuple[int, float | str]]:
    """A series' samples; staleness markers as "stale"."""
    name = dict(of)["__name__"]
    found = [s for s in window.select([M("__name__", "=", name)]) if s.key == of]
    if not found:
        return []
    values = ["stale" if is_stale(value) else value for value in found[0].values]
    return list(zip(found[0].block.times, values, strict=True))


def now(window: Window, ms: int) -> dict[Labels, float]:
    return {each: value for each, value, _ in window.latest(ms)}


def test_a_series_that_a_batch_lacks_ends_at_that_batch() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0), (B, 2.0)), 1000)
    window.append(batch("o", (A, 3.0)), 2000)

    assert history(window, B) == [(1000, 2.0), (2000, "stale")]
    assert now(window, 2000) == {A: 3.0}


def test_a_series_that_comes_back_goes_on_after_its_marker() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0), (B, 2.0)), 1000)
    window.append(batch("o", (A, 1.0)), 2000)
    window.append(batch("o", (A, 1.0)), 3000)
    window.append(batch("o", (A, 1.0), (B, 5.0)), 4000)

    assert history(window, B) == [(1000, 2.0), (2000, "stale"), (4000, 5.0)]
    assert history(window, A) == [(1000, 1.0), (2000, 1.0), (3000, 1.0), (4000, 1.0)]


def test_the_same_keys_object_is_written_like_any_other_page() -> None:
    plain, known = Window(), Window()
    keys = (A, B, C)
    for n in range(50):
        values = (float(n), n * 2.0, math.nan if n == 7 else -1.0)
        known.append(Batch("o", (Page(keys, values),)), n * 5000)
        plain.append(Batch("o", (Page(keys[:1] + keys[1:], values),)), n * 5000)

    for each in keys:
        assert repr(history(plain, each)) == repr(history(known, each))


def test_other_collectors_series_do_not_end() -> None:
    window = Window()
    window.append(batch("one", (A, 1.0)), 1000)
    window.append(batch("two", (B, 1.0)), 1000)
    window.append(batch("one"), 2000)

    assert now(window, 2000) == {B: 1.0}


def test_mark_stale_ends_all_series_of_the_owner_once() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0), (B, 1.0)), 1000)
    window.mark_stale("o", 2000)
    window.mark_stale("o", 3000)

    assert history(window, A) == [(1000, 1.0), (2000, "stale")]
    assert now(window, 3000) == {}


def test_series_that_were_written_at_that_very_time_end_right_after_it() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0)), 1000)
    window.mark_stale("o", 1000)

    assert history(window, A) == [(1000, 1.0), (1001, "stale")]


def test_a_late_batch_ends_nothing() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0), (B, 1.0)), 2000)
    window.append(batch("o", (A, 1.0), (B, 1.0)), 1000)

    assert now(window, 2000) == {A: 1.0, B: 1.0}
    assert window.counts.out_of_order == 2


def test_a_page_after_mark_stale_is_written_again_quickly_and_rightly() -> None:
    window = Window()
    keys = (A, B)
    window.append(Batch("o", (Page(keys, (1.0, 2.0)),)), 1000)
    window.mark_stale("o", 2000)
    window.append(Batch("o", (Page(keys, (3.0, 4.0)),)), 3000)
    window.append(Batch("o", (Page(keys, (5.0, 6.0)),)), 4000)

    assert history(window, B) == [(1000, 2.0), (2000, "stale"), (3000, 4.0), (4000, 6.0)]


def test_samples_not_newer_than_the_last_are_left_out_and_counted() -> None:
    window = Window()
    keys = (A, B)
    for ms in (1000, 2000, 2000, 1500):
        window.append(Batch("o", (Page(keys, (1.0, 1.0)),)), ms)

    assert [ms for ms, _ in history(window, A)] == [1000, 2000]
    assert window.counts.out_of_order == 4


def test_a_series_twice_in_one_batch_counts_once() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0), (A, 2.0)), 1000)
    window.append(batch("o", (A, 3.0), (A, 4.0)), 2000)

    assert history(window, A) == [(1000, 1.0), (2000, 3.0)]
    assert window.counts.out_of_order == 2


def test_a_live_series_of_another_owner_is_refused_and_an_ended_one_taken_over() -> None:
    window = Window()
    window.append(batch("one", (A, 1.0)), 1000)
    window.append(batch("two", (A, 9.0)), 2000)
    window.mark_stale("one", 3000)
    window.append(batch("two", (A, 9.0)), 4000)

    assert window.counts.conflicts == 1
    assert history(window, A) == [(1000, 1.0), (3000, "stale"), (4000, 9.0)]
    assert window.owners("a") == {"two"}


def test_a_refused_series_is_counted_at_each_repetition_of_the_page() -> None:
    window = Window()
    window.append(batch("one", (A, 1.0)), 1000)
    keys = (A, B)
    for ms in (1000, 2000, 3000):
        window.append(Batch("two", (Page(keys, (7.0, 8.0)),)), ms)

    assert window.counts.conflicts == 3
    assert [value for _, value in history(window, B)] == [8.0, 8.0, 8.0]


def test_owners_are_known_while_ended_series_are_in_the_window() -> None:
    window = Window(MINUTE)
    window.append(batch("o", (A, 1.0)), 0)
    window.mark_stale("o", 1000)

    assert window.owners("a") == {"o"}
    window.append(batch("p", (B, 1.0)), 10 * MINUTE)
    assert window.owners("a") == set()


def test_series_beyond_the_limit_are_refused_and_counted() -> None:
    window = Window(max_series=1)
    keys = (A, B, C)
    for ms in (1000, 2000):
        window.append(Batch("o", (Page(keys, (1.0, 1.0, 1.0)),)), ms)

    assert len(window) == 1
    assert window.counts.series_refused == 4


def test_points_beyond_the_limit_cut_the_oldest_and_are_counted() -> None:
    window = Window(max_points=3)
    for n in range(5):
        window.append(batch("o", (A, float(n))), n * 1000)

    assert [value for _, value in history(window, A)] == [2.0, 3.0, 4.0]
    assert window.counts.points_cut == 2


def test_samples_older_than_the_retention_go_but_nothing_younger() -> None:
    window = Window(MINUTE)
    for n in range(100):
        window.append(batch("o", (A, float(n))), n * 1000)
    oldest = history(window, A)[0][0]

    assert 99_000 - MINUTE - MINUTE // 32 < oldest <= 99_000 - MINUTE + 1000


def test_keep_holds_only_that_metric_longer() -> None:
    window = Window(MINUTE)
    window.keep("b", 10 * MINUTE)
    for n in range(300):
        window.append(batch("o", (A, 1.0), (B, 1.0)), n * 1000)

    assert len(history(window, A)) < 65
    assert len(history(window, B)) == 300


def test_keep_holds_longer_what_is_there_already() -> None:
    window = Window(MINUTE)
    keys = (A, B)
    for n in range(300):
        if n == 10:
            window.keep("b", 10 * MINUTE)
        window.append(Batch("o", (Page(keys, (1.0, float(n))),)), n * 1000)

    assert len(history(window, A)) < 65
    assert [value for _, value in history(window, B)] == [float(n) for n in range(300)]


def test_a_written_series_ends_by_the_stale_value() -> None:
    window = Window()
    window.write(A, 1000, 1.0, "rules")
    window.write(A, 2000, STALE, "rules")

    assert history(window, A) == [(1000, 1.0), (2000, "stale")]
    assert now(window, 2000) == {}


def test_latest_gives_no_value_older_than_the_lookback() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0)), 1000)

    assert now(window, 1000 + 5 * MINUTE - 1) == {A: 1.0}
    assert now(window, 1000 + 5 * MINUTE) == {}


@pytest.mark.parametrize(
    ("matchers", "found"),
    [
        ([M("__name__", "=", "m")], ["m1", "m2", "m3"]),
        ([M("__name__", "=", "m"), M("l", "=", "x")], ["m1"]),
        ([M("__name__", "=", "m"), M("l", "!=", "x")], ["m2", "m3"]),
        ([M("__name__", "=", "m"), M("l", "=", "")], ["m3"]),
        ([M("__name__", "=", "m"), M("l", "=~", "x|y")], ["m1", "m2"]),
        ([M("__name__", "=", "m"), M("l", "=~", "x|")], ["m1", "m3"]),
        ([M("__name__", "=", "m"), M("l", "!~", "x.*")], ["m2", "m3"]),
        ([M("__name__", "=~", "m|n"), M("l", "=~", ".+")], ["m1", "m2", "n1"]),
        ([M("__name__", "=~", "m."), M("l", "=~", ".+")], []),
        ([M("l", "=", "line\nbreak")], ["n1"]),
        ([M("l", "=~", "line.break")], ["n1"]),
        ([M("id", "!=", "m1"), M("__name__", "!=", "n")], ["m2", "m3"]),
    ],
)
def test_matchers_select(matchers: list[M], found: list[str]) -> None:
    window = Window()
    for name, value, ident in [
        ("m", "x", "m1"),
        ("m", "y", "m2"),
        ("m", "", "m3"),
        ("n", "line\nbreak", "n1"),
    ]:
        window.write(key(name, l=value, id=ident), 0, 1.0, "o")

    assert found == [dict(series.key)["id"] for series in window.select(matchers)]


def test_the_generation_of_a_metric_changes_with_its_series_alone() -> None:
    window = Window()
    window.append(batch("o", (A, 1.0)), 1000)
    before = window.generation("a"), window.generation()
    window.append(batch("p", (B, 1.0)), 1000)

    assert before[0] == window.generation("a")
    assert before[1] != window.generation()


def test_a_saved_window_reads_back_to_the_bit() -> None:
    window, copy = Window(), Window()
    window.append(batch("o", (A, 1.5), (B, math.nan)), 1000)
    window.append(batch("o", (A, math.inf)), 2000)
    document = json.loads(json.dumps(window.dump()))

    assert copy.restore(document, 2000 + MINUTE) == 2
    assert repr(history(window, A)) == repr(history(copy, A))
    assert repr(history(window, B)) == repr(history(copy, B))
    assert copy.owners("a") == {"o"}


def test_a_restored_series_that_does_not_come_again_ends() -> None:
    window, copy = Window(), Window()
    window.append(batch("o", (A, 1.0), (B, 1.0)), 1000)
    copy.restore(window.dump(), 2000)
    copy.append(batch("o", (A, 2.0)), 60_000)

    assert history(copy, A) == [(1000, 1.0), (60_000, 2.0)]
    assert history(copy, B) == [(1000, 1.0), (60_000, "stale")]


@pytest.mark.parametrize("now_ms", [1000 + 15 * MINUTE, 999])
def test_a_saved_window_too_old_or_of_the_future_is_not_read(now_ms: int) -> None:
    window, copy = Window(), Window()
    window.append(batch("o", (A, 1.0)), 1000)

    assert copy.restore(window.dump(), now_ms) == 0
    assert len(copy) == 0


def saved_block(**changed: object) -> dict[str, object]:
    """A saved window of one series at 1 and 2 ms, with something wrong in its block."""
    block = {
        "times": "AQAAAAAAAAACAAAAAAAAAA==",
        "series": [[{"__name__": "a", "x": "1"}, "o"]],
        "values": "AAAAAAAA8D8AAAAAAAAAQA==",
    }
    return {"version": 2, "saved_ms": 0, "blocks": [{**block, **changed}]}


def test_a_saved_window_is_read_as_it_is_written_down() -> None:
    window = Window()

    assert window.restore(saved_block(), 1) == 1
    assert history(window, A) == [(1, 1.0), (2, 2.0)]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"version": 2, "saved_ms": 0, "blocks": [{}]},
        {"version": 2, "saved_ms": 0, "blocks": 3},
        saved_block(times="AQAAAAAAAAA="),
        saved_block(times=""),
        saved_block(times="AQAAAAAAAAABAAAAAAAAAA=="),
        saved_block(series=[[{"__name__": "a"}]]),
        saved_block(series=[["a", "o"]]),
        saved_block(values="AQ=="),
        saved_block(values=3),
    ],
)
def test_a_foreign_document_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a saved window"):
        Window().restore(document, 1)


def test_a_stale_marker_in_a_repeated_page_ends_that_series() -> None:
    window = Window()
    keys = (A, B)
    window.append(Batch("o", (Page(keys, (1.0, 1.0)),)), 1000)
    window.append(Batch("o", (Page(keys, (2.0, STALE)),)), 2000)
    window.append(Batch("o", (Page(keys, (3.0, 3.0)),)), 3000)

    assert history(window, B) == [(1000, 1.0), (2000, "stale"), (3000, 3.0)]


def test_one_owner_of_ever_new_series_leaves_room_for_the_others() -> None:
    window = Window(max_series=100)
    for second in range(30):
        flood = [(key("x", request=f"{second}-{n}"), 1.0) for n in range(10)]
        window.append(batch("vllm_metrics/a", *flood), second * 1000)

    cards = [(key("accelerator_healthy", card=str(n)), 1.0) for n in range(4)]
    window.append(batch("npu_smi", *cards), 30_000)

    assert sum(owner == "npu_smi" for _, _, owner in window.latest(30_000)) == 4
    assert window.counts.series_refused == 300 - 80
