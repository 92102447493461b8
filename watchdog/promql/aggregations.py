"""Operations for aggregations: grouping by labels, and what is computed of each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from ..model import NAME, Labels
from . import gomath, sums
from .errors import EvaluationError
from .matchers import is_label_name
from .plan import Context, LabelMap, ScalarOp, VectorOp
from .relabel import with_label
from .values import EMPTY, Columns

Floats = Sequence[float]
_SORTED_SIMPLY = 12  # Go sorts up to so many elements by insertion: stable, NaN turned around
_LARGEST_INT = 9223372036854774784.0  # the largest float that is an int64

SIMPLE: dict[str, Callable[[Floats], float]] = {
    "avg": sums.mean_over,
    "count": lambda values: float(len(values)),
    "group": lambda _values: 1.0,
    "max": sums.largest,
    "min": sums.smallest,
    "stddev": sums.deviation,
    "stdvar": sums.variance,
    "sum": sums.sum_of,
}
"""The aggregations without a parameter."""

_OF_ONE: dict[str, Callable[[float], float]] = {
    "avg": (0.0).__add__,
    "max": float,
    "min": float,
    "sum": (0.0).__add__,
}
"""What they give for a single value, where that is simple: adding a zero makes -0 to +0."""


def grouping(names: Sequence[str], *, without: bool) -> Callable[[Labels], Labels]:
    """How a label set becomes its group's: ``by (names)`` or ``without (names)``."""
    if without:
        gone = {*names, NAME}
        return lambda labels: tuple(pair for pair in labels if pair[0] not in gone)
    if not names:
        return lambda _labels: ()
    kept = frozenset(names)
    return lambda labels: tuple(pair for pair in labels if pair[0] in kept)


class Groups:
    """Which elements of a vector belong together, worked out once per column of label sets."""

    def __init__(self, group: Callable[[Labels], Labels]) -> None:
        self._group = LabelMap(group)
        self._labels: tuple[Labels, ...] | None = None
        self.names: tuple[Labels, ...] = ()
        self.members: list[list[int]] = []
        self._pick: list[Callable[[list[float]], Floats]] = []

    def learn(self, labels: tuple[Labels, ...]) -> None:
        """Group these label sets; groups are in the order of their first members."""
        if labels is not self._labels:
            groups: dict[Labels, list[int]] = {}
            for at, name in enumerate(self._group(labels)):
                groups.setdefault(name, []).append(at)
            self.names = tuple(groups)
            self.members = list(groups.values())
            self._pick = [_picker(members) for members in self.members]
            self._labels = labels

    @property
    def single(self) -> bool:
        """Is each element a group of its own?"""
        return len(self.names) == len(self._labels or ())

    def values(self, values: list[float]) -> list[Floats]:
        """Each group's values."""
        if len(self._pick) == 1:
            return [values]
        return [pick(values) for pick in self._pick]


def _picker(members: list[int]) -> Callable[[list[float]], Floats]:
    if len(members) == 1:
        only = members[0]
        return lambda values: (values[only],)
    pick: Any = itemgetter(*members)
    return pick  # type: ignore[no-any-return]


class Aggregated(VectorOp):
    """An aggregation without a parameter."""

    def __init__(self, inner: VectorOp, groups: Groups, name: str) -> None:
        self._inner = inner
        self._groups = groups
        self._function = SIMPLE[name]
        self._of_one = _OF_ONE.get(name)
        self._input: Columns = EMPTY
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """One element per group."""
        columns = self._inner.vector(now, context)
        if columns is not self._input:
            groups = self._groups
            groups.learn(columns[0])
            if self._of_one is not None and groups.single:
                values = list(map(self._of_one, columns[1]))
            else:
                values = list(map(self._function, groups.values(columns[1])))
            self._result = groups.names, values
            self._input = columns
        return self._result


class Quantile(VectorOp):
    """``quantile(q, v)``."""

    def __init__(self, inner: VectorOp, groups: Groups, param: ScalarOp) -> None:
        self._inner = inner
        self._groups = groups
        self._param = param

    def vector(self, now: int, context: Context) -> Columns:
        """The quantile of each group."""
        q = self._param.number(now, context)
        labels, values = self._inner.vector(now, context)
        if not labels:
            return EMPTY
        self._groups.learn(labels)
        return self._groups.names, [sums.quantile(q, g) for g in self._groups.values(values)]


class TopK(VectorOp):
    """``topk`` and ``bottomk``: k elements of each group, sorted; NaN only where there is nothing
    else. Which of equal elements is taken follows Go's heap, step by step."""

    def __init__(self, inner: VectorOp, groups: Groups, param: ScalarOp, *, largest: bool) -> None:
        self._inner = inner
        self._groups = groups
        self._param = param
        self._sign = 1.0 if largest else -1.0

    def vector(self, now: int, context: Context) -> Columns:
        """The elements taken. Raises EvaluationError when k is NaN or does not fit an integer."""
        wanted = self._param.number(now, context)
        labels, values = self._inner.vector(now, context)
        if wanted < 1:
            return EMPTY
        if not wanted < _LARGEST_INT:
            problem = "overflows int64" if wanted >= _LARGEST_INT else "is no number of elements"
            raise EvaluationError(f"the first argument of topk and bottomk {problem}: {wanted}")
        if not labels:
            return EMPTY
        count = min(int(wanted), len(labels))
        self._groups.learn(labels)
        ranks = [self._sign * value for value in values]
        taken = [at for group in self._groups.members for at in best(group, ranks, count)]
        return tuple(labels[at] for at in taken), [values[at] for at in taken]


def best(members: list[int], ranks: list[float], count: int) -> list[int]:
    """The ``count`` members of highest rank, highest first."""

    def less(a: int, b: int) -> bool:
        return ranks[a] != ranks[a] or ranks[a] < ranks[b]

    heap: list[int] = []
    for at in members:
        if len(heap) < count:
            heap.append(at)
            _rise(heap, less)
        elif ranks[heap[0]] < ranks[at] or (
            ranks[heap[0]] != ranks[heap[0]] and ranks[at] == ranks[at]
        ):
            heap[0] = at
            _sink(heap, less)
    if len(heap) > _SORTED_SIMPLY:
        return sorted(heap, key=lambda at: (ranks[at] != ranks[at], -ranks[at]))
    _insertion_sort(heap, lambda a, b: less(b, a))
    return heap


def _rise(heap: list[int], less: Callable[[int, int], bool]) -> None:
    at = len(heap) - 1
    while at > 0:
        parent = (at - 1) // 2
        if not less(heap[at], heap[parent]):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def _sink(heap: list[int], less: Callable[[int, int], bool]) -> None:
    at = 0
    while True:
        child = 2 * at + 1
        if child >= len(heap):
            return
        if child + 1 < len(heap) and less(heap[child + 1], heap[child]):
            child += 1
        if not less(heap[child], heap[at]):
            return
        heap[at], heap[child] = heap[child], heap[at]
        at = child


def _insertion_sort(items: list[int], less: Callable[[int, int], bool]) -> None:
    for end in range(1, len(items)):
        at = end
        while at > 0 and less(items[at], items[at - 1]):
            items[at], items[at - 1] = items[at - 1], items[at]
            at -= 1


class CountValues(VectorOp):
    """``count_values``: how many elements of each group have each value, as a label."""

    def __init__(self, inner: VectorOp, label: str, names: Sequence[str], *, without: bool) -> None:
        if not is_label_name(label):
            raise EvaluationError(f'invalid label name "{label}"')
        self._inner = inner
        self._label = label
        self._group = grouping(names if without else (*names, label), without=without)

    def vector(self, now: int, context: Context) -> Columns:
        """One element per group and value."""
        counts: dict[Labels, int] = {}
        for labels, value in zip(*self._inner.vector(now, context), strict=True):
            group = self._group(with_label(labels, self._label, gomath.decimal(value)))
            counts[group] = counts.get(group, 0) + 1
        return tuple(counts), [float(count) for count in counts.values()]
