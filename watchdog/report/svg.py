"""A plot as an SVG picture: lines over time, acts as bands, moments as uprights. No scripts.

Colours come by class from the page's style, so that light, dark and paper each have their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from .model import Plot, Points
from .words import clock, figure, visible

WIDTH, HEIGHT = 720, 190
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 26
COLOURS = 8


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment (``end`` None) or a time on every plot; ``sort``: alert, act, over."""

    sort: str
    begin: float
    end: float | None
    text: str


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to places in the picture."""

    begin: float
    end: float
    low: float
    high: float

    def x(self, at: float) -> float:
        share = (at - self.begin) / max(self.end - self.begin, 1e-9)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.low) / max(self.high - self.low, 1e-12)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def picture(plot: Plot, begin: float, end: float, marks: Sequence[Mark]) -> str:
    """The plot between two moments."""
    ticks = _ticks(plot)
    scale = _Scale(begin, end, ticks[0], ticks[-1])
    parts = [
        *_bands(scale, marks),
        *_rows(scale, ticks, plot.unit),
        *_columns(scale),
        *(
            _line(scale, points, plot.step, number, plot.unit == "flag")
            for number, (_, points) in enumerate(plot.lines)
        ),
        *_uprights(scale, marks),
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(told(plot))}">'
        f"{''.join(parts)}</svg>"
    )


def told(plot: Plot) -> str:
    """The plot in words, for those who do not see it."""
    words = []
    for name, points in plot.lines:
        known = [value for _, value in points if math.isfinite(value)]
        if known:
            low, high, last = (figure(v, plot.unit) for v in (min(known), max(known), known[-1]))
            words.append(f"{visible(name) or plot.scope} from {low} to {high}, at the end {last}")
    return f"{plot.title}: {'; '.join(words) or 'no values'}"


def _ticks(plot: Plot) -> list[float]:
    """The marked values of the upright axis, lowest first."""
    if plot.unit == "flag":
        return [0.0, 1.0]
    known = [value for _, points in plot.lines for _, value in points if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    flat = high - low < 0.05 * high
    if low >= 0 and (flat or low < 0.6 * high or plot.unit == "ratio"):
        low = 0.0
    if plot.unit == "ratio" and 0.3 < high <= 1:
        return [0.0, 0.25, 0.5, 0.75, 1.0]
    if high <= low:
        high = low + (abs(low) or 1.0)
    step = _round_step((high - low) / 3)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _round_step(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= step * 0.999)


def _rows(scale: _Scale, ticks: Iterable[float], unit: str) -> Iterable[str]:
    for value in ticks:
        y = scale.y(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        text = escape(figure(value, unit))
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _columns(scale: _Scale) -> Iterable[str]:
    """Round moments below the plot."""
    span = scale.end - scale.begin
    step = next((s for s in _MOMENTS if span / s <= 6), _MOMENTS[-1])
    at = math.ceil(scale.begin / step) * step
    while at <= scale.end:
        x = scale.x(at)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        if LEFT + 10 <= x <= WIDTH - 26:
            shown = clock(at) if step < 60 else clock(at)[:5]
            yield f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{shown}</text>'
        at += step


_MOMENTS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)


def _line(scale: _Scale, points: Points, step: float, number: int, steps: bool) -> str:
    """One line, with ``steps`` for yes and no; it is broken where values are missing."""
    path: list[str] = []
    last: float | None = None
    for at, value in points:
        if not math.isfinite(value):
            last = None
            continue
        begins = last is None or at - last > 1.5 * step
        x, y = f"{scale.x(at):.1f}", f"{scale.y(value):.1f}"
        path.append(f"M{x} {y}" if begins else f"H{x}V{y}" if steps else f"L{x} {y}")
        last = at
    return f'<path class="line c{number % COLOURS}" d="{"".join(path)}"/>' if path else ""


def _bands(scale: _Scale, marks: Iterable[Mark]) -> Iterable[str]:
    for mark in marks:
        if mark.end is not None and mark.end >= scale.begin and mark.begin <= scale.end:
            x = scale.x(mark.begin)
            width = max(scale.x(mark.end) - x, 2.0)
            yield (
                f'<rect class="band" x="{x:.1f}" y="{TOP}" width="{width:.1f}" '
                f'height="{HEIGHT - TOP - BOTTOM}">'
                f"<title>{escape(visible(mark.text))}</title></rect>"
            )


def _uprights(scale: _Scale, marks: Iterable[Mark]) -> Iterable[str]:
    for mark in marks:
        if mark.end is None and scale.begin <= mark.begin <= scale.end:
            yield (
                f'<path class="mark {mark.sort}" d="M{scale.x(mark.begin):.1f} {TOP}'
                f'V{HEIGHT - BOTTOM}"><title>{escape(visible(mark.text))}</title></path>'
            )
