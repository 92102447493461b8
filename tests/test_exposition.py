"""The reader of Prometheus' text formats."""

from __future__ import annotations

import math

import pytest

from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.exposition import Exposition, Reading
from vllm_watchdog.watchdog.model import Labels, labelset


def read(text: str, **settings: object) -> Reading:
    return Exposition(**settings).read(text.encode())  # type: ignore[arg-type]


def values(reading: Reading) -> dict[Labels, float]:
    return dict(zip(reading.page.keys, reading.page.values, strict=True))


def test_a_sample_has_its_labels_sorted_and_the_service_added() -> None:
    reading = read('up{b="2",a="1"} 3\n', labels=(("service", "s"),))

    assert {labelset({"a": "1", "b": "2", "service": "s"}, "up"): 3.0} == values(reading)


def test_a_label_of_the_page_that_we_set_becomes_exported() -> None:
    reading = read('up{service="theirs"} 1\n', labels=(("service", "s"),))

    assert (labelset({"service": "s", "exported_service": "theirs"}, "up"),) == reading.page.keys


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.0322907136e+011", 103229071360.0),
        ("9.75e-06", 9.75e-06),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        (".5", 0.5),
        ("7 1700000000123", 7.0),
        ("7  ", 7.0),
        ('7 # {trace_id="a b"} 0.5 1700000000.1', 7.0),
    ],
)
def test_every_spelling_of_a_number_is_read(text: str, number: float) -> None:
    assert (number,) == read(f"m {text}\n").page.values


def test_not_a_number_is_read_as_such() -> None:
    assert math.isnan(read("m NaN\n").page.values[0])


def test_escapes_and_braces_in_label_values_are_understood() -> None:
    reading = read(r'm{a="x\"y\\z\n", b="}, {"} 1' + "\n")

    assert (labelset({"a": 'x"y\\z\n', "b": "}, {"}, "m"),) == reading.page.keys


def test_comments_created_stamps_and_the_end_mark_are_no_series() -> None:
    text = "# HELP m_total x\n# TYPE m_total counter\nm_total 4\nm_created 1.7e+09\n# EOF\n"

    assert {labelset({}, "m_total"): 4.0} == values(read(text))


def test_broken_lines_are_counted_and_the_others_read() -> None:
    reading = read('a 1\nb{x="1} 2\nc\nd 1_0\ne{} 5\nf x\n')

    assert (4, {labelset({}, "a"): 1.0, labelset({}, "e"): 5.0}) == (
        reading.broken,
        values(reading),
    )


def test_of_two_samples_of_one_series_the_last_counts() -> None:
    reading = read('m{a="1",b="2"} 1\nm{b="2",a="1"} 2\n')

    assert (reading.duplicates, reading.page.values) == (1, (2.0,))


def test_series_past_the_limit_are_left_out_and_counted() -> None:
    reading = read("a 1\nb 2\nc 3\n", limit=2)

    assert (reading.over_limit, reading.page.values) == (1, (1.0, 2.0))


@pytest.mark.parametrize("prefix", ["vllm:", "ray_vllm:", "kserve_vllm:"])
def test_renamed_engine_metrics_get_their_own_name_back(prefix: str) -> None:
    assert (labelset({}, "vllm:x"),) == read(f"{prefix}x 1\n").page.keys


def test_a_page_that_repeats_gives_the_same_keys_object_and_new_values() -> None:
    reader = Exposition()
    first = reader.read(b"# c\na 1\na_created 5\nb 2\n").page
    again = reader.read(b"# c\na 3\na_created 5\nb 4\n").page

    assert first.keys is again.keys
    assert again.values == (3.0, 4.0)


def test_a_page_with_times_keeps_its_keys_and_never_takes_a_time_for_a_value() -> None:
    reader = Exposition()
    first = reader.read(b"a 1 100\n").page
    again = reader.read(b"a 1 200\n").page

    assert first.keys is again.keys
    assert again.values == (1.0,)


def test_a_page_whose_series_change_gives_the_new_series() -> None:
    reader = Exposition()
    reader.read(b"a 1\nb 2\n")

    assert (labelset({}, "a"), labelset({}, "c")) == reader.read(b"a 1\nc 2\n").page.keys


def test_a_value_that_breaks_on_a_known_page_is_left_out() -> None:
    reader = Exposition()
    reader.read(b"a 1\nb 2\n")
    reading = reader.read(b"a 1\nb 1_0\n")

    assert (reading.broken, reading.page.values) == (1, (1.0,))


@pytest.mark.parametrize(
    ("page", "left"),
    [
        (b"nan\ninf 2\n", {"inf": 2.0}),  # a name that reads as a number lost its value
        (b"# nan 1\ninf 2\n", {"inf": 2.0}),
        (b"nan 3\ninf 2\nnew 5\n", {"nan": 3.0, "inf": 2.0, "new": 5.0}),
        (b"nan 3\n", {"nan": 3.0}),
        (b"inf 1\nnan 2\n", {"inf": 1.0, "nan": 2.0}),
        (b"nan 7 100\ninf 2\n", {"nan": 7.0, "inf": 2.0}),
        (b"nan  7\r\ninf 2", {"nan": 7.0, "inf": 2.0}),
    ],
)
def test_a_page_of_almost_the_known_form_is_read_anew(page: bytes, left: dict[str, float]) -> None:
    reader = Exposition()
    reader.read(b"nan 1\ninf 2\n")

    assert {labelset({}, name): value for name, value in left.items()} == values(reader.read(page))


def test_a_sample_in_the_place_of_a_comment_is_read() -> None:
    reader = Exposition()
    reader.read(b"# c\na 1\n")

    assert reader.read(b"b 7\na 2\n").page.values == (7.0, 2.0)


def test_a_comment_and_blank_lines_may_change() -> None:
    reader = Exposition()
    first = reader.read(b"# at 1\n\na 1\n").page
    again = reader.read(b"# at 10_000\n#\na 2\n").page

    assert first.keys is again.keys
    assert again.values == (2.0,)


def test_what_was_left_out_of_a_repeated_page_is_told_again() -> None:
    reader = Exposition(limit=2)
    for number in (1, 2):
        reading = reader.read(f"a 1\na {number}\nb 2\nc 3\n".encode())

    assert (reading.duplicates, reading.over_limit, reading.page.values) == (1, 1, (2.0, 2.0))


def test_a_name_without_a_blank_before_the_number_is_no_sample() -> None:
    reading = read('up1\nb{x="1"}2\n')

    assert (1, {labelset({"x": "1"}, "b"): 2.0}) == (reading.broken, values(reading))


@pytest.mark.parametrize(
    "body", [b"<!DOCTYPE html><p>a 1</p>", b" <html>", b'{"a": 1}', b"\x7fELF\0\0", b"no page\n"]
)
def test_another_kind_of_body_is_refused(body: bytes) -> None:
    with pytest.raises(SourceError, match="not a metrics page"):
        Exposition().read(body)


def test_an_empty_body_has_no_samples() -> None:
    assert read("").page.keys == ()


def test_an_endless_line_is_broken_and_not_read() -> None:
    reading = read('a{x="' + "y" * 100_000 + '"} 1\nb 2\n')

    assert (reading.broken, reading.page.values) == (1, (2.0,))
