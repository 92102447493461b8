"""Functions over a selector's range that read only what is new since the last evaluation.

A range at the next evaluation is nearly the last one: a sample more at the right, one less at the
left. Per run (series that share their times) a *track* keeps what it needs to go on: where
counters were reset, where the greatest value lies, sums of whole numbers. Its results are equal, to
the bit, to those of ``ranges.py`` on the whole range; a column with a staleness marker in the range
is computed there. Nothing is kept that a look at the window could not give again.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
# ruff: noqa: ARG002 - tracks have one signature; some need not look at the frame
from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import zip_longest
from operator import le, lt, sub

from . import ranges, sums
from .ranges import Frame, RangeFunction
from .selection import Run, Selection, unmarked
from .values import EMPTY, Columns

Results = list[float | None]


class Track:
    """Goes along one run: ``results`` for the samples at indices [low, high), high > low."""

    moving = True
    """Does the result depend on where the frame lies, not on the samples in it alone?"""

    def __init__(self, run: Run, function: RangeFunction) -> None:
        self.run = run
        self.function = function
        self._key: tuple[float, ...] = ()
        self._part: Results | None = None

    def part(self, frame: Frame) -> Results | None:
        """One result per column, None where there is none; the last object while nothing that
        they depend on has changed. None where no column has a result."""
        run = self.run
        low, high = run.span(frame.start, frame.end)
        base = run.block.base
        key: tuple[float, ...] = (base + low, base + high, frame.param)
        if self.moving:
            key = (*key, frame.start, frame.end, frame.now)
        if key != self._key:
            self._key = key
            self._part = self._computed(low, high, frame) if low < high else None
        return self._part

    def _computed(self, low: int, high: int, frame: Frame) -> Results | None:
        run = self.run
        results = self.results(low, high, frame)
        for index in run.marked_since(low):
            if not isinstance(results, Holed):
                results = Holed([None] * len(run.columns) if results is None else results)
            times, values = unmarked(run.block.times[low:high], run.columns[index][low:high])
            results[index] = self.function(times, values, frame) if times else None
        return results

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """One result per column, staleness markers left aside."""
        times = self.run.block.times[low:high]
        function = self.function
        columns = self.run.columns
        results = [function(times, column[low:high].tolist(), frame) for column in columns]
        return None if results[0] is None else results  # too few samples, equally for all


class Holed(list["float | None"]):
    """Results of a run with staleness markers: some may be None."""


class ValueTrack(Track):
    """For functions of the values alone."""

    moving = False


class CountTrack(ValueTrack):
    """``count_over_time`` and ``present_over_time``: the columns need not be read."""

    def __init__(self, run: Run, function: RangeFunction, *, counts: bool) -> None:
        super().__init__(run, function)
        self._counts = counts

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """The same number for each column."""
        return [float(high - low) if self._counts else 1.0] * len(self.run.columns)


class LastTrack(ValueTrack):
    """``last_over_time``."""

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """The last value of each column."""
        return [column[high - 1] for column in self.run.columns]


class ExtremeTrack(ValueTrack):
    """``max_over_time`` and ``min_over_time``: the extreme and where it lies."""

    def __init__(
        self, run: Run, function: RangeFunction, beats: Callable[[float, float], bool]
    ) -> None:
        super().__init__(run, function)
        self._beats = beats
        self._best: list[float] = []
        self._at: list[int] = []
        self._seen = (0, 0)

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """Look at new values only, unless the extreme has left the range."""
        base = self.run.block.base
        start = base + low
        new = self._seen[1] - base
        if start < self._seen[0] or not low < new <= high:
            return self._afresh(low, high)
        best, at, beats = self._best, self._at, self._beats
        for column, values in enumerate(self.run.columns):
            if at[column] < start or best[column] != best[column]:
                self._look(column, values, low, high)
                continue
            for index in range(new, high):
                if beats(values[index], best[column]):
                    best[column] = values[index]
                    at[column] = base + index
        self._seen = (start, base + high)
        return list(best)

    def _afresh(self, low: int, high: int) -> Results:
        count = len(self.run.columns)
        self._best, self._at = [0.0] * count, [0] * count
        for column, values in enumerate(self.run.columns):
            self._look(column, values, low, high)
        base = self.run.block.base
        self._seen = (base + low, base + high)
        return list(self._best)

    def _look(self, column: int, values: array[float], low: int, high: int) -> None:
        part = values[low:high]
        best = self.function((), part, _ANY)
        assert best is not None
        self._best[column] = best
        self._at[column] = self.run.block.base + low + (part.index(best) if best == best else 0)


class GaugeTrack(Track):
    """``delta``: first and last value."""

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """The extrapolated differences."""
        if high - low < 2:
            return None
        edges = ranges.extrapolation(self.run.block.times, low, high - 1, frame, False)
        factor = edges.factor(edges.to_start)
        last = high - 1
        return [(column[last] - column[low]) * factor for column in self.run.columns]


class CounterTrack(Track):
    """``rate`` and ``increase``: first and last value, and where counters were reset."""

    def __init__(self, run: Run, function: RangeFunction, *, per_second: bool) -> None:
        super().__init__(run, function)
        self._per_second = per_second
        self._seen = (0, 0)
        self._resets: dict[int, list[int]] = {}
        self._last: list[float] = []

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """The extrapolated increases."""
        if high - low < 2:
            return None
        lasts = self._find_resets(low, high)
        firsts = [column[low] for column in self.run.columns]
        rises = list(map(sub, lasts, firsts))
        edges = ranges.extrapolation(self.run.block.times, low, high - 1, frame, self._per_second)
        results: Results = list(map(edges.factor(edges.to_start).__mul__, rises))
        near_zero = edges.to_start / edges.sampled * _MARGIN
        if any(map(le, firsts, map(near_zero.__mul__, rises))):
            self._clip(results, firsts, rises, edges)
        if self._resets:
            self._with_resets(results, low, high, edges)
        return results

    @staticmethod
    def _clip(
        results: Results, firsts: list[float], rises: list[float], edges: ranges.Extrapolation
    ) -> None:
        """Counters so near zero that they are not extrapolated all the way."""
        for index, (first, rise) in enumerate(zip(firsts, rises, strict=True)):
            to_start = edges.clipped(first, rise)
            if to_start != edges.to_start:
                results[index] = rise * edges.factor(to_start)

    def _with_resets(
        self, results: Results, low: int, high: int, edges: ranges.Extrapolation
    ) -> None:
        base = self.run.block.base
        for index, positions in list(self._resets.items()):
            while positions and positions[0] <= base + low:
                positions.pop(0)
            if not positions:
                del self._resets[index]
                continue
            column = self.run.columns[index]
            rise = column[high - 1] - column[low]
            for position in positions:
                if position < base + high:
                    rise += column[position - base - 1]
            results[index] = rise * edges.factor(edges.clipped(column[low], rise))

    def _find_resets(self, low: int, high: int) -> list[float]:
        """Note the resets up to ``high``; return the last values."""
        base = self.run.block.base
        last = high - 1
        lasts = [column[last] for column in self.run.columns]
        new = self._seen[1] - base
        if base + low < self._seen[0] or not low < new <= high:
            self._resets.clear()
            self._scan(low + 1, high)
        elif new < last:
            self._scan(new, high)
        elif new == last and any(map(lt, lasts, self._last)):
            for index, (value, before) in enumerate(zip(lasts, self._last, strict=True)):
                if value < before:
                    self._resets.setdefault(index, []).append(base + last)
        self._seen = (base + low, base + high)
        self._last = lasts
        return lasts

    def _scan(self, start: int, high: int) -> None:
        base = self.run.block.base
        for index, column in enumerate(self.run.columns):
            part = column[start - 1 : high]
            if any(map(lt, part[1:], part)):
                self._resets.setdefault(index, []).extend(
                    base + start + at - 1 for at in range(1, len(part)) if part[at] < part[at - 1]
                )


class LineTrack(Track):
    """``deriv`` and ``predict_linear``: what only depends on the times is computed once."""

    def __init__(self, run: Run, function: RangeFunction, *, slope: bool) -> None:
        super().__init__(run, function)
        self._slope = slope

    def results(self, low: int, high: int, frame: Frame) -> Results | None:
        """The slopes, or the predicted values."""
        if high - low < 2:
            return None
        times = self.run.block.times[low:high]
        columns = [column[low:high].tolist() for column in self.run.columns]
        abscissas = sums.Abscissas(times, times[0] if self._slope else frame.now)
        if self._slope:
            return [abscissas.line(column)[0] for column in columns]
        return [ranges.predicted(abscissas, column, frame.param) for column in columns]


class Sliding:
    """A range function over a selection."""

    def __init__(self, selection: Selection, name: str) -> None:
        self._selection = selection
        self._function = ranges.FUNCTIONS[name]
        self._make = TRACKS.get(name, Track if name in ranges.MOVING else ValueTrack)
        self._generation = -1
        self._tracks: list[Track] = []
        self._parts: list[Results | None] = []
        self._result: Columns = EMPTY

    def vector(self, frame: Frame) -> Columns:
        """The function's result per series; the same object while nothing has changed."""
        selection = self._selection
        generation = selection.refresh()
        if generation != self._generation:
            self._generation = generation
            self._tracks = [self._make(run, self._function) for run in selection.runs]
            self._parts = []
            self._result = EMPTY
        parts = [track.part(frame) for track in self._tracks]
        if any(new is not old for new, old in zip_longest(parts, self._parts)):
            self._parts = parts
            self._result = self._join(parts)
        return self._result

    def _join(self, parts: list[Results | None]) -> Columns:
        selection = self._selection
        holes = any(part is None or isinstance(part, Holed) for part in parts)
        if len(parts) == 1 and parts[0] is not None:
            return selection.present(parts[0], not holes)
        values: Results = [None] * len(selection.labels)
        for track, part in zip(self._tracks, parts, strict=True):
            if part is not None:
                for slot, value in zip(track.run.slots, part, strict=True):
                    values[slot] = value
        return selection.present(values, not holes)


_ANY = Frame(0, 0, 0)
_MARGIN = 1 + 1e-9

TRACKS: dict[str, Callable[[Run, RangeFunction], Track]] = {
    "count_over_time": lambda run, function: CountTrack(run, function, counts=True),
    "delta": GaugeTrack,
    "deriv": lambda run, function: LineTrack(run, function, slope=True),
    "increase": lambda run, function: CounterTrack(run, function, per_second=False),
    "last_over_time": LastTrack,
    "max_over_time": lambda run, function: ExtremeTrack(run, function, float.__gt__),
    "min_over_time": lambda run, function: ExtremeTrack(run, function, float.__lt__),
    "predict_linear": lambda run, function: LineTrack(run, function, slope=False),
    "present_over_time": lambda run, function: CountTrack(run, function, counts=False),
    "rate": lambda run, function: CounterTrack(run, function, per_second=True),
}
"""The functions that do better than reading the range; the others read it again."""
