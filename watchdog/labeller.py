"""Static labels on series: ``job`` and ``instance``, as the central scrape would add them.

Labels only; where a page goes is for the rooms above.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .model import Labels, Page, Sample, labelset


@dataclass(frozen=True, slots=True)
class _Loose:
    """The last page of loose samples: their series as they came, the keys made of them, and where
    among the samples the value of each key stands."""

    series: list[tuple[str, Labels]]
    keys: tuple[Labels, ...]
    places: tuple[int, ...]


class Labeller:
    """Adds the static labels to a collector's series, once per series.

    Keys that repeat give the identical tuple again, so that the window can recognise a page.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = dict(static)
        self._pages: dict[int, tuple[tuple[Labels, ...], tuple[Labels, ...]]] = {}
        self._loose = _Loose([], (), ())

    def page(self, page: Page, position: int) -> Page:
        """The page with the static labels on each series that lacks them."""
        known = self._pages.get(position)
        if known is None or (known[0] is not page.keys and known[0] != page.keys):
            known = (page.keys, tuple(self._labelled(key) for key in page.keys))
            self._pages[position] = known
        return Page(known[1], page.values)

    def samples(self, samples: Sequence[Sample]) -> Page:
        """One page of loose samples; of equal series the last counts."""
        series = [(sample.name, sample.labels) for sample in samples]
        if series != self._loose.series:
            places = {self._labelled(sample.key): at for at, sample in enumerate(samples)}
            keys = tuple(places)
            keys = self._loose.keys if keys == self._loose.keys else keys
            self._loose = _Loose(series, keys, tuple(places.values()))
        return Page(self._loose.keys, tuple(samples[at].value for at in self._loose.places))

    def _labelled(self, key: Labels) -> Labels:
        return labelset({**self._static, **dict(key)})
