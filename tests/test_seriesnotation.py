"""Series as people write them in tests."""

from __future__ import annotations

import math

import pytest

from vllm_watchdog.watchdog.model import labelset
from vllm_watchdog.watchdog.series import STALE, is_stale
from vllm_watchdog.watchdog.seriesnotation import MOST, NotationError, series, values

VALUES = [
    ("1 2.5 -3", [1.0, 2.5, -3.0]),
    ("1x3", [1.0, 1.0, 1.0, 1.0]),
    ("0x2 1x0", [0.0, 0.0, 0.0, 1.0]),
    ("1+2x3", [1.0, 3.0, 5.0, 7.0]),
    ("-1-1x2", [-1.0, -2.0, -3.0]),
    ("_ 1 _x2 2", [None, 1.0, None, None, 2.0]),
    ("1e3 Inf -Inf .5", [1000.0, math.inf, -math.inf, 0.5]),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), VALUES)
def test_values_are_read_as_promtool_reads_them(text: str, expected: list[float | None]) -> None:
    assert expected == values(text)


def test_stale_ends_the_series() -> None:
    got = values("1 stale")

    assert got[1] is not None
    assert is_stale(got[1])
    assert math.isnan(STALE)


WRONG_VALUES = [
    ("1 2y3", "'2y3' is no series value", 2),
    ("1+2", "'1+2' has a step but no count (as in 1+2x3)", 0),
    ("stalex3", "'stale' cannot be repeated", 0),
    ("{{schema:0}}", "'{{schema:0}}' is no series value (native histograms are not supported)", 0),
    (f"1 0x{MOST}", f"more than {MOST} values", 2),
]


@pytest.mark.parametrize(("text", "message", "offset"), WRONG_VALUES)
def test_wrong_values_are_refused_with_their_place(text: str, message: str, offset: int) -> None:
    with pytest.raises(NotationError) as refused:
        values(text)

    assert (message, offset) == (str(refused.value), refused.value.offset)


SERIES = [
    ("up", {"__name__": "up"}),
    ("up{job=\"a\", instance='b'}", {"__name__": "up", "job": "a", "instance": "b"}),
    ('vllm:x{a="q\\"\\u00e9\\n",}', {"__name__": "vllm:x", "a": 'q"é\n'}),
    ('{__name__="up", a="b"}', {"__name__": "up", "a": "b"}),
    ('{"my metric", "a b"="c"}', {"__name__": "my metric", "a b": "c"}),
    ("up{}", {"__name__": "up"}),
    ('up{a="`}"}', {"__name__": "up", "a": "`}"}),
]


@pytest.mark.parametrize(("text", "expected"), SERIES)
def test_series_is_a_label_set_with_its_name(text: str, expected: dict[str, str]) -> None:
    assert labelset(expected) == series(text)


@pytest.mark.parametrize(
    "text",
    ["", "up{", 'up{a="b"', "up{a=}", 'up{a=~"b"}', 'up{a="b" c="d"}', "up x", "1up", 'up{a="1",a="2"}',
     'up{a="\\q"}'],
)  # fmt: skip
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(NotationError):
        series(text)
