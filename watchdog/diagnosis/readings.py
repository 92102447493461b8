"""The newest values of series, looked up by name and labels; selections are kept while they hold.

Reads the window and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model import NAME
from ..promql.nodes import Matcher
from ..series import Series, is_stale
from ..window import Window

PROGRESS = (
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:iteration_tokens_total_count",
)

Row = tuple[Mapping[str, str], Series]


class Readings:
    """Looks into one window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kept: dict[str, tuple[int, list[Row]]] = {}

    def rows(self, name: str, ms: int, **labels: str) -> Iterator[tuple[Mapping[str, str], Series]]:
        """The series of a metric that have a value as of ``ms`` and carry these labels."""
        generation = self._window.generation(name)
        kept = self._kept.get(name)
        if kept is None or kept[0] != generation:
            found = self._window.select((Matcher(NAME, "=", name),))
            kept = self._kept[name] = (generation, [(dict(s.key), s) for s in found])
        oldest = ms - self._window.lookback_ms
        for given, series in kept[1]:
            if series.ended or not series.block.times or not oldest < series.block.times[-1] <= ms:
                continue
            if all(given.get(key) == value for key, value in labels.items()):
                yield given, series

    def value(self, name: str, ms: int, **labels: str) -> float | None:
        """The smallest current value of the series with these labels."""
        return min((s.values[-1] for _, s in self.rows(name, ms, **labels)), default=None)

    def total(self, name: str, ms: int, **labels: str) -> float | None:
        """The sum of the current values; None where there is none."""
        values = [series.values[-1] for _, series in self.rows(name, ms, **labels)]
        return sum(values) if values else None

    def read_at(self, name: str, ms: int, **labels: str) -> float | None:
        """When the newest of these series was read, in Unix seconds."""
        times = [series.block.times[-1] for _, series in self.rows(name, ms, **labels)]
        return max(times) / 1000 if times else None

    def last(
        self, name: str, ms: int, within_ms: int, **labels: str
    ) -> Iterator[tuple[float, float]]:
        """Time (Unix seconds) and value of the last reading of each of these series, also of those
        that ended within ``within_ms``."""
        wanted = [Matcher(NAME, "=", name), *(Matcher(k, "=", v) for k, v in labels.items())]
        for series in self._window.select(wanted):
            for at in range(len(series.values) - 1, -1, -1):
                time, value = series.block.times[at], series.values[at]
                if ms - time > within_ms:
                    break
                if not is_stale(value):
                    yield time / 1000, value
                    break

    def moved(self, service: str, ms: int) -> tuple[float, float] | None:
        """Between which two samples the engine's counters last rose, in Unix seconds."""
        found: list[tuple[float, float]] = []
        for name in PROGRESS:
            for _, series in self.rows(name, ms, service=service):
                step = _last_rise(series)
                if step is not None:
                    found.append(step)
        return max(found, key=lambda step: step[1], default=None)

    def rise(self, name: str, ms: int, back_ms: int, **labels: str) -> float | None:
        """How much counters rose within ``back_ms``, gaps bridged; None where there is none."""
        wanted = [Matcher(NAME, "=", name), *(Matcher(k, "=", v) for k, v in labels.items())]
        rises = [_rise(s, ms - back_ms) for s in self._window.select(wanted)]
        return sum(rises) if rises else None


def _last_rise(series: Series, most: int = 60) -> tuple[float, float] | None:
    values, times = series.values, series.block.times
    for at in range(len(values) - 1, max(0, len(values) - most), -1):
        if values[at] > values[at - 1]:
            return times[at - 1] / 1000, times[at] / 1000
    return None


def _rise(series: Series, since_ms: int) -> float:
    values, times = series.values, series.block.times
    total = 0.0
    later: float | None = None
    for at in range(len(values) - 1, -1, -1):
        if times[at] < since_ms:
            break
        if is_stale(values[at]):
            continue
        if later is not None and later > values[at]:
            total += later - values[at]
        later = values[at]
    return total
