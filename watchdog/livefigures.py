"""The figures that the page draws: the last minutes of each live signal, worked out once for all
who look, however many look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .errors import WatchdogError
from .model import Json
from .signals import SIGNALS

SPAN = 900_000  # milliseconds shown
STEP = 15_000  # milliseconds between two points
MOST_LINES = 16  # of one plot

Ask = Callable[[str, int, int, int], Json]
"""A range query: expression, start, end, step in milliseconds."""


class LiveFigures:
    """Answers from a cache that is renewed once a step."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._end = -1
        self._doc: dict[str, Any] = {}

    def at(self, ms: int) -> Json:
        """The figures as of a moment: ``{times, plots: [{name, unit, title, lines}]}``; values are
        aligned to ``times`` (Unix seconds), null where there is none."""
        end = ms // STEP * STEP
        with self._lock:
            if end != self._end:
                self._doc, self._end = self._made(end), end
            return self._doc

    def _made(self, end: int) -> dict[str, Any]:
        times = [at // 1000 for at in range(end - SPAN, end + 1, STEP)]
        plots = []
        for signal in SIGNALS:
            if not signal.live:
                continue
            try:
                found = self._ask(signal.expression(), end - SPAN, end, STEP)["result"]
            except WatchdogError:  # too much to ask just now: the others may still be shown
                continue
            lines = [
                {"name": each["metric"].get(signal.scope, ""), "values": _aligned(each, times)}
                for each in found[:MOST_LINES]
            ]
            plots.append(
                {"name": signal.name, "title": signal.title, "unit": signal.unit,
                 "scope": signal.scope, "lines": lines}
            )  # fmt: skip
        return {"times": times, "plots": plots}


def _aligned(series: Json, times: list[int]) -> list[float | None]:
    values = {round(at): float(value) for at, value in series["values"]}
    found = [values.get(at) for at in times]
    return [None if v is None or v != v or v in _ENDLESS else v for v in found]  # noqa: PLR0124


_ENDLESS = (float("inf"), float("-inf"))
