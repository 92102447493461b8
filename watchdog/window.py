"""The window: the node's store of time series, bounded in time, series and points.

Every collector owns its series: what a batch no longer holds has ended and gets a staleness
marker, as in Prometheus. A page whose ``keys`` tuple is the very object of the last one is written
without looking at labels. How samples lie in memory stands in ``series.py``.

The window stores and selects; it evaluates nothing, reads no clock and takes no lock: one thread
at a time.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from .model import NAME, Batch, Labels
from .pageplan import Counts, Plan, discard
from .savedseries import VERSION, Column, read, saved
from .series import STALE, Block, LabelMatcher, Series, is_stale, predicate

MINUTE = 60_000
RETENTION = 15 * MINUTE
LOOKBACK = 5 * MINUTE
_SLACK = 32  # a block is trimmed when 1/32 of its time is too old: few large deletions
_SWEEP = 16  # ended series are looked for 16 times per retention


class Window:
    """Series of one node. Times are milliseconds since the epoch throughout.

    ``retention_ms`` is how long samples stay, unless ``keep`` says longer for a metric name;
    ``lookback_ms`` how old a series' last sample may be to count as its value now.
    """

    def __init__(
        self,
        retention_ms: int = RETENTION,
        *,
        lookback_ms: int = LOOKBACK,
        max_series: int = 50_000,
        max_points: int = 20_000,
    ) -> None:
        self.retention_ms = retention_ms
        self.lookback_ms = lookback_ms
        self.max_series = max_series
        self.max_points = max_points
        self.counts = Counts()
        self.newest_ms = 0
        self._keep: dict[str, int] = {}
        self._series: dict[Labels, Series] = {}
        self._names: dict[str, dict[int, Series]] = {}
        self._owned: dict[str, dict[int, Series]] = {}
        self._plans: dict[str, Plan] = {}
        self._generations: dict[str, int] = {}
        self._generation = 0
        self._number = 0
        self._next_sweep = 0

    def __len__(self) -> int:
        """The number of series, ended ones included while they hold samples."""
        return len(self._series)

    @property
    def points(self) -> int:
        """The number of samples held."""
        return sum(len(series.values) for series in self._series.values())

    # Writing

    def append(self, batch: Batch, ms: int) -> None:
        """Write one run of a collector at ``ms``; its series that are not in it end.

        Samples that a bound or an owner refuses are counted in ``counts``, never raised.
        """
        plan = self._plans.get(batch.collector)
        if plan is None or not plan.fits(batch.pages, ms):
            self._learn(batch, ms)
        else:
            for page, pushes in zip(batch.pages, plan.pushes, strict=True):
                for push, value in zip(pushes, page.values, strict=True):
                    push(value)
            for block in plan.blocks:
                block.times.append(ms)
                self._trim(block, ms)
            self._count(plan.refused)
        self._tick(ms)

    def mark_stale(self, owner: str, ms: int) -> None:
        """End every series of ``owner`` at ``ms`` (its collector failed, stalled or went away)."""
        self._plans.pop(owner, None)
        self._end(self._owned.get(owner, {}).values(), ms)
        self._tick(ms)

    def write(self, key: Labels, ms: int, value: float, owner: str) -> None:
        """Write one sample (a rule's output); ``STALE`` as value ends the series."""
        series = self._claim(key, owner)
        if series is not None and not _after(series.block, ms):
            self.counts.out_of_order += 1
        elif series is not None:
            block = series.block
            if len(block.members) > 1:
                self._plans.pop(owner, None)
                block = self._split(block, [series])
            self._write_block(block, [(series, value)], ms)
            self._trim(block, ms)
        self._tick(ms)

    def keep(self, name: str, ms: int) -> None:
        """Keep series of metric ``name`` for ``ms`` if that is longer ("": every series)."""
        if not name:
            self.retention_ms = max(self.retention_ms, ms)
        self._keep[name] = max(ms, self._keep.get(name, 0))
        self._plans.clear()
        names = [name] if name else list(self._names)
        moved: dict[int, list[Series]] = {}
        for each in names:
            for series in self._names.get(each, {}).values():
                if series.block.keep < self._keep_of(each):
                    moved.setdefault(id(series.block), []).append(series)
        for group in moved.values():
            for longer in {self._keep_of(series.name) for series in group}:
                members = [series for series in group if self._keep_of(series.name) == longer]
                self._split(members[0].block, members, longer)

    # Reading

    def select(self, matchers: Sequence[LabelMatcher]) -> list[Series]:
        """Return the series that all matchers accept, oldest series first."""
        on_name = [predicate(m.op, m.value) for m in matchers if m.name == NAME]
        others = [(m.name, predicate(m.op, m.value)) for m in matchers if m.name != NAME]
        exact = [m.value for m in matchers if m.name == NAME and m.op == "="]
        names = exact[:1] if exact else list(self._names)
        found: list[Series] = []
        for name in names:
            if name in self._names and all(test(name) for test in on_name):
                found += [s for s in self._names[name].values() if _accepts(s.key, others)]
        if len(names) > 1:
            found.sort(key=lambda series: series.number)
        return found

    def generation(self, name: str = "") -> int:
        """A number that changes when series of this metric (""= any) appear, vanish or move."""
        return self._generations.get(name, 0) if name else self._generation

    def owners(self, name: str) -> set[str]:
        """The collectors that own series of a metric, ended ones included while in the window."""
        return {series.owner for series in self._names.get(name, {}).values()}

    def since(self, name: str) -> int | None:
        """The time of the oldest sample of a metric, or None."""
        return min((s.block.times[0] for s in self._names.get(name, {}).values()), default=None)

    def latest(self, ms: int) -> Iterator[tuple[Labels, float, str]]:
        """Yield (key, value, owner) of each series that has a value as of ``ms``."""
        for series in self._series.values():
            last = series.block.times[-1]
            if ms - self.lookback_ms < last <= ms and not series.ended:
                yield series.key, series.values[-1], series.owner

    # Saving

    def dump(self) -> dict[str, Any]:
        """Return the window as a JSON document; columns are base64 of little-endian words."""
        blocks = {id(series.block): series.block for series in self._series.values()}
        return {
            "version": VERSION,
            "saved_ms": self.newest_ms,
            "blocks": [saved(block) for block in blocks.values()],
        }

    def restore(self, doc: Mapping[str, Any], now_ms: int, *, max_age_ms: int = RETENTION) -> int:
        """Read back what ``dump`` gave, if it is younger than ``max_age_ms``; return the series.

        Nothing is written for the time between: the gap stays a gap. Series that the window has
        already are left as they are. Raises ValueError when the document is not one of ours.
        """
        try:
            age = now_ms - int(doc["saved_ms"])
            if doc["version"] != VERSION or not 0 <= age < max_age_ms:
                return 0
            blocks = [read(block) for block in doc["blocks"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a saved window: {error!r}") from error
        count = sum(self._adopt(times, series) for times, series in blocks)
        self._tick(now_ms)
        return count

    def _adopt(self, times: array[int], columns: list[Column]) -> int:
        """Take over the saved series that are not known yet."""
        homes: dict[int, Block] = {}
        count = 0
        for key, owner, values in columns:
            series = None if key in self._series else self._create(key, owner)
            if series is not None:
                keep = series.block.keep
                home = homes.setdefault(keep, Block(keep, times[:]))
                series.block = home
                home.members.append(series)
                series.values = values
                series.marks = tuple(at for at, value in enumerate(values) if is_stale(value))
                home.marked |= bool(series.marks)
                count += 1
        return count

    # Inside

    def _learn(self, batch: Batch, ms: int) -> None:
        """Write a batch series by series, end what it lacks, and remember its layout."""
        owner = batch.collector
        self._plans.pop(owner, None)
        plan = Plan(tuple(page.keys for page in batch.pages))
        writes: dict[int, tuple[Series, float]] = {}
        late: set[int] = set()
        total, self.counts = self.counts, plan.refused
        for page in batch.pages:
            pushes: list[Any] = []
            for key, value in zip(page.keys, page.values, strict=True):
                series = self._claim(key, owner)
                push: Callable[[float], None] = discard
                if series is not None and not _after(series.block, ms):
                    late.add(series.number)
                elif series is not None and series.number in writes:
                    self.counts.out_of_order += 1
                elif series is not None:
                    writes[series.number] = (series, value)
                    push = series.values.append
                pushes.append(push)
            plan.pushes.append(pushes)
        self.counts = total
        self._count(plan.refused)
        self.counts.out_of_order += len(late)
        whole = not late and not any(is_stale(value) for _, value in writes.values())
        live = [series for series, _ in writes.values()]
        lacking = [
            series
            for number, series in self._owned.get(owner, {}).items()
            if number not in writes and number not in late
        ]
        self._put(writes.values(), ms)
        self._end(lacking, ms)
        if whole:
            plan.blocks = list({id(series.block): series.block for series in live}.values())
            self._plans[owner] = plan

    def _end(self, candidates: Iterable[Series], ms: int) -> None:
        """Write staleness markers, right after the last sample where that is not before ``ms``."""
        times: dict[int, list[tuple[Series, float]]] = {}
        for series in candidates:
            if not series.ended:
                at = max(ms, series.block.times[-1] + 1)
                times.setdefault(at, []).append((series, STALE))
        for at, writes in times.items():
            self._put(writes, at)

    def _count(self, refused: Counts) -> None:
        counts = self.counts
        counts.series_refused += refused.series_refused
        counts.out_of_order += refused.out_of_order
        counts.conflicts += refused.conflicts

    def _claim(self, key: Labels, owner: str) -> Series | None:
        """The series of ``key`` if ``owner`` may write it; made if it is new."""
        series = self._series.get(key)
        if series is None:
            return self._create(key, owner)
        if series.owner != owner:
            if not series.ended:
                self.counts.conflicts += 1
                return None
            self._plans.pop(series.owner, None)
            del self._owned[series.owner][series.number]
            self._owned.setdefault(owner, {})[series.number] = series
            series.owner = owner
        return series

    def _create(self, key: Labels, owner: str) -> Series | None:
        # The last fifth is for those that hold few: one page of ever new labels hides no card.
        many = len(self._owned.get(owner, ())) >= self.max_series // 25
        if len(self._series) >= self.max_series - (self.max_series // 5 if many else 0):
            self.counts.series_refused += 1
            return None
        name = next((value for label, value in key if label == NAME), "")
        self._number += 1
        block = Block(self._keep_of(name), array("q"))
        series = Series(key, name, self._number, owner, block)
        block.members.append(series)
        self._series[key] = series
        self._names.setdefault(name, {})[series.number] = series
        self._owned.setdefault(owner, {})[series.number] = series
        self._changed([series])
        return series

    def _keep_of(self, name: str) -> int:
        return max(self.retention_ms, self._keep.get(name, 0))

    def _put(self, writes: Iterable[tuple[Series, float]], ms: int) -> None:
        """Write values at one time, keeping together in blocks what is written together."""
        groups: dict[int, list[tuple[Series, float]]] = {}
        newborn: dict[int, Block] = {}
        for series, value in writes:
            if not series.block.times:  # new: joins the others that begin now
                home = newborn.setdefault(series.block.keep, series.block)
                if home is not series.block:
                    series.block = home
                    home.members.append(series)
            groups.setdefault(id(series.block), []).append((series, value))
        for group in groups.values():
            block = group[0][0].block
            if len(group) < len(block.members):
                written = {series.number for series, _ in group}
                others = [each for each in block.members if each.number not in written]
                if len(others) < len(group):
                    self._split(block, others)
                else:
                    block = self._split(block, [series for series, _ in group])
            self._write_block(block, group, ms)
            ended = [series for series in block.members if series.ended]
            if 0 < len(ended) < len(block.members):
                self._split(block, ended)
            self._trim(block, ms)

    @staticmethod
    def _write_block(block: Block, group: Iterable[tuple[Series, float]], ms: int) -> None:
        block.times.append(ms)
        for series, value in group:
            series.values.append(value)
            if value != value and is_stale(value):
                series.mark()
                block.marked = True

    def _split(self, block: Block, leaving: list[Series], keep: int | None = None) -> Block:
        for series in leaving:
            self._plans.pop(series.owner, None)
        self._changed(leaving)
        return block.split(leaving, keep)

    def _changed(self, moved: Iterable[Series]) -> None:
        self._generation += 1
        for name in {series.name for series in moved}:
            self._generations[name] = self._generation

    def _trim(self, block: Block, ms: int) -> None:
        """Drop what is older than the block keeps, or more than a series may hold."""
        times = block.times
        if times[0] <= ms - block.keep - block.keep // _SLACK:
            horizon = ms - block.keep
            old = 0
            while old < len(times) and times[old] <= horizon:
                old += 1
            block.drop(old)
        if len(times) > self.max_points:
            self.counts.points_cut += len(block.members) * (len(times) - self.max_points)
            block.drop(len(times) - self.max_points)

    def _tick(self, ms: int) -> None:
        self.newest_ms = max(self.newest_ms, ms)
        if ms >= self._next_sweep:
            self._next_sweep = ms + self.retention_ms // _SWEEP
            self._sweep(ms)

    def _sweep(self, ms: int) -> None:
        """Drop the series whose every sample is too old."""
        blocks = {id(series.block): series.block for series in self._series.values()}
        for block in blocks.values():
            if block.times[-1] <= ms - block.keep:
                self._changed(block.members)
                for series in block.members:
                    self._remove(series)

    def _remove(self, series: Series) -> None:
        self._plans.pop(series.owner, None)
        del self._series[series.key]
        for index, at in ((self._names, series.name), (self._owned, series.owner)):
            del index[at][series.number]
            if not index[at]:
                del index[at]


def _after(block: Block, ms: int) -> bool:
    return not block.times or block.times[-1] < ms


def _accepts(key: Labels, tests: list[tuple[str, Any]]) -> bool:
    if not tests:
        return True
    labels = dict(key)
    return all(test(labels.get(name, "")) for name, test in tests)
