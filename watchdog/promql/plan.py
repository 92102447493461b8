"""What an expression becomes before it is evaluated: a tree of operations, and their caches.

An operation gives its result at a moment. It may keep its last result and what it derived from
label sets, as both are pure functions of the inputs: equal inputs are recognised by identity. Which
operations there are stands in the rooms beside this one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ..model import Labels
from .errors import EvaluationError
from .nodes import ValueType
from .values import Columns

METADATA = frozenset({"__name__", "__type__", "__unit__"})
"""The labels that name a metric: they go when a value no longer is that metric's."""

MAX_SAMPLES = 5_000_000
"""Samples that one evaluation may read or make: some seconds' work."""

_KEPT = 20_000  # label sets whose derivation is kept; beyond that the cache starts afresh

T = TypeVar("T")


class Budget:
    """What one evaluation may cost. ``watch`` is called again and again and may raise to end it."""

    __slots__ = ("left", "watch")

    def __init__(self, watch: Callable[[], None] | None = None) -> None:
        self.left = MAX_SAMPLES
        self.watch = watch

    def spend(self, samples: int) -> None:
        """Count samples about to be used. Raises EvaluationError when they are too many."""
        self.left -= samples
        if self.left < 0:
            raise EvaluationError(
                f"needs more than {MAX_SAMPLES} samples: name fewer series, a shorter range or a "
                "larger step"
            )
        if self.watch is not None:
            self.watch()


class Context:
    """One evaluation: the moments ``start``, ``start + step`` … ``end`` in milliseconds.

    ``first`` and ``last`` are the ends of the whole query (``@ start()``, ``@ end()``), also within
    a subquery. ``memo`` holds what operations keep for the length of this evaluation.
    """

    __slots__ = (
        "budget", "default_step", "end", "first", "last", "lookback", "memo", "start", "step",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        end: int,
        step: int,
        lookback: int,
        default_step: int,
        budget: Budget | None = None,
    ) -> None:
        self.start = self.first = start
        self.end = self.last = end
        self.step = step
        self.lookback = lookback
        self.default_step = default_step
        self.budget = budget or Budget()
        self.memo: dict[object, Any] = {}

    def within(self, start: int, end: int, step: int) -> Context:
        """The context of a part that is evaluated at other moments."""
        inner = Context(start, end, step, self.lookback, self.default_step, self.budget)
        inner.first, inner.last = self.first, self.last
        return inner

    @property
    def many(self) -> bool:
        """Is this about more than one moment?"""
        return self.start != self.end


class Op:
    """An operation; ``kind`` says what its result is."""

    kind: ValueType = "vector"


class ScalarOp(Op, ABC):
    """An operation that gives a number."""

    kind = "scalar"

    @abstractmethod
    def number(self, now: int, context: Context) -> float:
        """The number at ``now``."""


class VectorOp(Op, ABC):
    """An operation that gives an instant vector."""

    @abstractmethod
    def vector(self, now: int, context: Context) -> Columns:
        """The vector at ``now``; never to be changed by the caller."""


class Invariant(VectorOp):
    """A vector that is the same at all moments of a context: evaluated once, at its start."""

    def __init__(self, inner: VectorOp) -> None:
        self._inner = inner

    def vector(self, now: int, context: Context) -> Columns:
        """The vector at the context's start."""
        if not context.many:
            return self._inner.vector(now, context)
        if self not in context.memo:
            once = context.within(context.start, context.start, context.step)
            context.memo[self] = self._inner.vector(context.start, once)
        result: Columns = context.memo[self]
        return result


class InvariantNumber(ScalarOp):
    """A number that is the same at all moments of a context: evaluated once, at its start."""

    def __init__(self, inner: ScalarOp) -> None:
        self._inner = inner

    def number(self, now: int, context: Context) -> float:
        """The number at the context's start."""
        if not context.many:
            return self._inner.number(now, context)
        if self not in context.memo:
            once = context.within(context.start, context.start, context.step)
            context.memo[self] = self._inner.number(context.start, once)
        result: float = context.memo[self]
        return result


class LabelMap(Generic[T]):
    """Derives something from each label set of a column, once per label set and column."""

    def __init__(self, derive: Callable[[Labels], T]) -> None:
        self._derive = derive
        self._known: dict[Labels, T] = {}
        self._labels: tuple[Labels, ...] | None = None
        self._derived: tuple[T, ...] = ()

    def __call__(self, labels: tuple[Labels, ...]) -> tuple[T, ...]:
        """What was derived of each label set, in order."""
        if labels is not self._labels:
            known = self._known
            if len(known) > _KEPT:
                known.clear()
            for each in labels:
                if each not in known:
                    known[each] = self._derive(each)
            self._labels, self._derived = labels, tuple([known[each] for each in labels])
        return self._derived


class Renaming(LabelMap[Labels]):
    """Gives each element another label set, and refuses two elements with the same one."""

    def __init__(self, derive: Callable[[Labels], Labels]) -> None:
        super().__init__(derive)
        self._checked: tuple[Labels, ...] | None = None

    def __call__(self, labels: tuple[Labels, ...]) -> tuple[Labels, ...]:
        """The new label sets. Raises EvaluationError when two are the same."""
        names = super().__call__(labels)
        if names is not self._checked:
            unique(names)
            self._checked = names
        return names


def unique(labels: tuple[Labels, ...]) -> None:
    """Raise EvaluationError when a label set stands twice in the column."""
    if len(set(labels)) != len(labels):
        raise same_labels()


def same_labels() -> EvaluationError:
    """The error of two elements with one label set."""
    return EvaluationError("vector cannot contain metrics with the same labelset")


def nameless(labels: Labels) -> Labels:
    """The label set without the metric's name (and its type and unit)."""
    return tuple(pair for pair in labels if pair[0] not in METADATA)
