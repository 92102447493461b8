"""Static labels on series, and the form of a page that comes again."""

from __future__ import annotations

from vllm_watchdog.watchdog.labeller import Labeller
from vllm_watchdog.watchdog.model import Sample, labelset


def sample(name: str, value: float, card: str) -> Sample:
    return Sample(name, value, (("card", card),))


def test_loose_samples_that_repeat_have_the_same_keys_and_their_new_values() -> None:
    labeller = Labeller({"job": "j"})
    first = labeller.samples([sample("m", 1.0, "a"), sample("m", 2.0, "b")])
    again = labeller.samples([sample("m", 3.0, "a"), sample("m", 4.0, "b")])

    assert first.keys is again.keys
    assert again.values == (3.0, 4.0)


def test_of_a_series_that_comes_twice_the_last_value_counts_each_time() -> None:
    labeller = Labeller({})
    told = []
    for number in (1.0, 5.0):
        page = labeller.samples(
            [sample("m", number, "a"), sample("m", 9.0, "b"), sample("m", number + 1, "a")]
        )
        told.append(dict(zip(page.keys, page.values, strict=True)))

    a, b = labelset({"card": "a"}, "m"), labelset({"card": "b"}, "m")
    assert told == [{a: 2.0, b: 9.0}, {a: 6.0, b: 9.0}]


def test_samples_of_other_series_get_keys_of_their_own() -> None:
    labeller = Labeller({"job": "j"})
    labeller.samples([sample("m", 1.0, "a"), sample("m", 2.0, "b")])
    fewer = labeller.samples([sample("m", 3.0, "b")])
    other = labeller.samples([sample("n", 4.0, "b")])

    assert fewer.keys == (labelset({"card": "b", "job": "j"}, "m"),)
    assert other.keys == (labelset({"card": "b", "job": "j"}, "n"),)


def test_samples_told_in_another_way_of_the_same_series_keep_the_keys() -> None:
    labeller = Labeller({"job": "j"})
    first = labeller.samples([Sample("m", 1.0)])
    again = labeller.samples([Sample("m", 2.0, (("job", "j"),))])

    assert first.keys is again.keys
    assert again.values == (2.0,)
