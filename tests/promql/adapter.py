"""Our engine as the conformance runner sees it (its interface stands at the top of the runner)."""

from __future__ import annotations

import sys
from typing import Any

from vllm_watchdog.watchdog.model import labelset
from vllm_watchdog.watchdog.promql import (
    Matrix,
    Scalar,
    String,
    Vector,
    load,
    query,
    query_range,
)
from vllm_watchdog.watchdog.window import Window

YEARS = 1 << 50
Points = list[tuple[dict[str, str], list[tuple[int, float]]]]


class Adapter:
    """An empty window with the engine on it."""

    native_histograms = False
    start_timestamps = False
    annotations = False
    lookback_ms = 300_000
    default_subquery_step_ms = 60_000

    def __init__(self) -> None:
        self._samples: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
        self._window: Window | None = None

    def load(self, series: Points) -> None:
        for labels, samples in series:
            self._samples.setdefault(labelset(labels), {}).update(samples)
        self._window = None

    @property
    def window(self) -> Window:
        """A window with all that was loaded, later samples of a series before earlier ones too."""
        if self._window is None:
            self._window = Window(YEARS, max_series=1 << 30, max_points=1 << 30)
            for key, samples in self._samples.items():
                for ms, value in sorted(samples.items()):
                    self._window.write(key, ms, value, "script")
        return self._window

    def instant_query(self, expr: str, t_ms: int) -> Any:
        result = query(load(expr), self.window, t_ms)
        if isinstance(result, Scalar | String):
            return result.value
        if isinstance(result, Vector):
            return [(dict(labels), value) for labels, value in result.elements]
        return _matrix(result)

    def range_query(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Any:
        return _matrix(query_range(load(expr), self.window, start_ms, end_ms, step_ms))


def _matrix(result: Matrix) -> Any:
    runner: Any = sys.modules.get("run_promqltest") or sys.modules["__main__"]
    return runner.Matrix([(dict(labels), points) for labels, points in result.series])
