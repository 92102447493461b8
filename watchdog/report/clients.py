"""What clients saw of a service during an incident, read off its plots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .model import Plot, Points, Seen
from .words import figure, span

_ROWS = ("failures", "latency", "first_token", "waiting", "tokens")
SOON = 15.0  # seconds after the end in which "at the end" is looked up
_LOW_IS_BAD = frozenset({"tokens"})


def seen(plots: Sequence[Plot], begin: float, first: float, stop: float) -> Iterable[Seen]:
    """For each service of the plots: how its requests fared from ``begin`` to the ``first`` sign,
    then until ``stop``, and at the end."""
    lines = {
        (plot.name, name): (plot, tuple(p for p in points if begin <= p[0] <= stop + SOON))
        for plot in plots
        if plot.scope == "service"
        for name, points in plot.lines
    }
    for service in dict.fromkeys(name for _, name in lines):
        rows = [
            _row(*lines[(name, service)], first, stop) for name in _ROWS if (name, service) in lines
        ]
        probe = lines.get(("probe", service))
        failed = None
        if probe is not None and probe[1]:
            plot, points = probe
            bad = [at for at, value in points if value == 0 and first <= at <= stop]
            failed = len(bad) * plot.step
            rows.insert(0, _probe_row(points, first, stop, failed))
        if rows:
            yield Seen(service, tuple(rows), failed)


def _row(plot: Plot, points: Points, opened: float, stop: float) -> tuple[str, str, str, str]:
    before = [value for at, value in points if at < opened and math.isfinite(value)]
    during = [value for at, value in points if opened <= at <= stop and math.isfinite(value)]
    worst = (min if plot.name in _LOW_IS_BAD else max)(during, default=None)
    last = next((value for _, value in reversed(points) if math.isfinite(value)), None)
    mean = sum(before) / len(before) if before else None
    return plot.title, _shown(mean, plot), _shown(worst, plot), _shown(last, plot)


def _shown(value: float | None, plot: Plot) -> str:
    return "no requests" if value is None else figure(value, plot.unit)


def _probe_row(
    points: Points, opened: float, stop: float, failed: float
) -> tuple[str, str, str, str]:
    words = {True: "answered", False: "failed", None: "unknown"}
    before = [value for at, value in points if at < opened]
    during = [value for at, value in points if opened <= at <= stop]
    worst = f"failed for about {span(failed)}" if failed else words[bool(during) or None]
    return (
        "A real request of ours",
        words[all(before) if before else None],
        worst,
        words[bool(points[-1][1])],
    )
