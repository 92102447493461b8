"""Operations for binary operators: arithmetic, comparisons, sets, and which elements of two vectors
belong together."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import compress

from ..model import NAME, Labels
from . import gomath, trigonometry
from .errors import EvaluationError
from .nodes import Matching
from .plan import Context, LabelMap, Renaming, ScalarOp, VectorOp, nameless, same_labels, unique
from .relabel import with_label
from .values import EMPTY, Columns

ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": gomath.div,
    "%": gomath.mod,
    "^": gomath.power,
    "atan2": trigonometry.atan2,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
_MIRRORED = {"==": "==", "!=": "!=", ">": "<", "<": ">", ">=": "<=", "<=": ">="}


class Numbers(ScalarOp):
    """A binary operator of two numbers; a comparison gives 1 or 0."""

    def __init__(self, op: str, left: ScalarOp, right: ScalarOp) -> None:
        self._function = ARITHMETIC.get(op) or COMPARISONS[op]
        self._left = left
        self._right = right

    def number(self, now: int, context: Context) -> float:
        """The result."""
        return float(
            self._function(self._left.number(now, context), self._right.number(now, context))
        )


class WithNumber(VectorOp):
    """Arithmetic of a vector and a number; ``swapped``: the number stands on the left."""

    def __init__(self, op: str, inner: VectorOp, scalar: ScalarOp, *, swapped: bool) -> None:
        self._function = ARITHMETIC[op]
        self._inner = inner
        self._scalar = scalar
        self._swapped = swapped
        self._names = Renaming(nameless)
        self._input: tuple[Columns, float] = (EMPTY, 0.0)
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """The results, without the metrics' names."""
        columns = self._inner.vector(now, context)
        number = self._scalar.number(now, context)
        if columns is not self._input[0] or number is not self._input[1]:
            names = self._names(columns[0])
            function = self._function
            if self._swapped:
                values = [function(number, value) for value in columns[1]]
            else:
                values = [function(value, number) for value in columns[1]]
            self._input, self._result = (columns, number), (names, values)
        return self._result


class ComparedWithNumber(VectorOp):
    """A comparison of a vector and a number: filters, or with ``as_bool`` gives 1 and 0."""

    def __init__(
        self, op: str, inner: VectorOp, scalar: ScalarOp, *, swapped: bool, as_bool: bool
    ) -> None:
        self._test = COMPARISONS[_MIRRORED[op] if swapped else op]
        self._inner = inner
        self._scalar = scalar
        self._as_bool = as_bool
        self._names = Renaming(nameless)
        self._input: tuple[Columns, float] = (EMPTY, 0.0)
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """The elements for which the comparison holds, or the verdicts."""
        columns = self._inner.vector(now, context)
        number = self._scalar.number(now, context)
        if columns is not self._input[0] or number is not self._input[1]:
            labels, values = columns
            test = self._test
            mask = [test(value, number) for value in values]
            if self._as_bool:
                result = self._names(labels), [float(kept) for kept in mask]
            elif True in mask:
                result = tuple(compress(labels, mask)), list(compress(values, mask))
            else:
                result = EMPTY
            self._input, self._result = (columns, number), result
        return self._result


def signature(matching: Matching) -> Callable[[Labels], Labels]:
    """The part of a label set by which elements of two vectors match."""
    names = frozenset(matching.labels)
    if matching.on:
        return lambda labels: tuple(pair for pair in labels if pair[0] in names)
    names |= {NAME}
    return lambda labels: tuple(pair for pair in labels if pair[0] not in names)


class Combined(VectorOp):
    """Arithmetic or comparison of two vectors, one to one or many to one."""

    def __init__(
        self, op: str, left: VectorOp, right: VectorOp, matching: Matching, *, as_bool: bool
    ) -> None:
        self._arithmetic = ARITHMETIC.get(op)
        self._test = COMPARISONS.get(op)
        self._left = left
        self._right = right
        self._as_bool = as_bool
        self._swapped = matching.card == "one-to-many"
        filters = self._test is not None and not as_bool
        self._pairs = Pairs(matching, filters=filters, drops_name=not filters)
        self._input: tuple[Columns, Columns] = (EMPTY, EMPTY)
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """The results of the elements that match. Raises EvaluationError where more than one
        element of the 'one' side matches, or results fall together."""
        left = self._left.vector(now, context)
        right = self._right.vector(now, context)
        if left is not self._input[0] or right is not self._input[1]:
            self._result = self._combine(left, right)
            self._input = (left, right)
        return self._result

    def _combine(self, left: Columns, right: Columns) -> Columns:
        if not left[0] or not right[0]:
            return EMPTY
        pairs = self._pairs
        if self._swapped:
            pairs.learn(right[0], left[0])
            lefts, rights = pairs.ones, pairs.manys
        else:
            pairs.learn(left[0], right[0])
            lefts, rights = pairs.manys, pairs.ones
        a, b = left[1], right[1]
        if self._arithmetic is not None:
            function = self._arithmetic
            return pairs.names, [function(a[i], b[j]) for i, j in zip(lefts, rights, strict=True)]
        assert self._test is not None
        test = self._test
        mask = [test(a[i], b[j]) for i, j in zip(lefts, rights, strict=True)]
        if self._as_bool:
            return pairs.names, [float(kept) for kept in mask]
        if True not in mask:
            return EMPTY
        names = tuple(compress(pairs.names, mask))
        if not pairs.distinct:
            unique(names)
        return names, [a[i] for i in compress(lefts, mask)]


class Pairs:
    """Which elements of the 'many' and the 'one' side match, worked out once per pair of columns.

    One to one, the left side stands for 'many'. ``distinct``: no two results have one label set;
    only a filter may still let pass what is not.
    """

    def __init__(self, matching: Matching, *, filters: bool, drops_name: bool) -> None:
        self._signature = (LabelMap(signature(matching)), LabelMap(signature(matching)))
        self._matching = matching
        self._filters = filters
        self._drops_name = drops_name
        self._labels: tuple[tuple[Labels, ...], tuple[Labels, ...]] = ((), ())
        self.manys: list[int] = []
        self.ones: list[int] = []
        self.names: tuple[Labels, ...] = ()
        self.distinct = True

    def learn(self, many: tuple[Labels, ...], one: tuple[Labels, ...]) -> None:
        """Match these columns. Raises EvaluationError when the 'one' side is not unique, when
        several match one to one, or when results fall together."""
        if many is self._labels[0] and one is self._labels[1]:
            return
        ones: dict[Labels, int] = {}
        for at, sign in enumerate(self._signature[1](one)):
            if ones.setdefault(sign, at) != at:
                raise self._duplicate(sign, one[at], one[ones[sign]])
        found = [
            (sign, at, ones[sign])
            for at, sign in enumerate(self._signature[0](many))
            if sign in ones
        ]
        self.manys = [at for _, at, _ in found]
        self.ones = [at for _, _, at in found]
        self.names = tuple([self._name(many[i], one[j]) for _, i, j in found])
        self._refuse([sign for sign, _, _ in found])
        self._labels = (many, one)

    def _refuse(self, signatures: list[Labels]) -> None:
        """Raise for several matches of one signature, and for equal results."""
        one_to_one = self._matching.card == "one-to-one"
        if one_to_one and len(set(signatures)) != len(signatures):
            raise EvaluationError(
                "multiple matches for labels: many-to-one matching must be explicit "
                "(group_left/group_right)"
            )
        self.distinct = len(set(self.names)) == len(self.names)
        if self.distinct:
            return
        if len(set(zip(signatures, self.names, strict=True))) != len(self.names):
            raise EvaluationError(
                "multiple matches for labels: grouping labels must ensure unique matches"
            )
        if not self._filters:
            raise same_labels()

    def _name(self, many: Labels, one: Labels) -> Labels:
        matching = self._matching
        labels = nameless(many) if self._drops_name else many
        if matching.card == "one-to-one":
            if matching.on:
                labels = tuple(pair for pair in labels if pair[0] in matching.labels)
            else:
                labels = tuple(pair for pair in labels if pair[0] not in matching.labels)
        if matching.include:
            values = dict(one)
            for name in matching.include:
                labels = with_label(labels, name, values.get(name, ""))
        return labels

    def _duplicate(self, sign: Labels, new: Labels, old: Labels) -> EvaluationError:
        side = "left" if self._matching.card == "one-to-many" else "right"
        return EvaluationError(
            f"found duplicate series for the match group {text(sign)} on the {side} hand-side of "
            f"the operation: [{text(new)}, {text(old)}];many-to-many matching not allowed: "
            "matching labels must be unique on one side"
        )


def text(labels: Labels) -> str:
    """A label set as Prometheus writes it."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"


class SetOperation(VectorOp):
    """``and``, ``or``, ``unless``."""

    def __init__(self, op: str, left: VectorOp, right: VectorOp, matching: Matching) -> None:
        self._op = op
        self._left = left
        self._right = right
        self._signature = (LabelMap(signature(matching)), LabelMap(signature(matching)))
        self._input: tuple[Columns, Columns] = (EMPTY, EMPTY)
        self._result: Columns = EMPTY

    def vector(self, now: int, context: Context) -> Columns:
        """The elements of the left side that (do not) match, or of both."""
        left = self._left.vector(now, context)
        right = self._right.vector(now, context)
        if left is not self._input[0] or right is not self._input[1]:
            self._result = self._combine(left, right)
            self._input = (left, right)
        return self._result

    def _combine(self, left: Columns, right: Columns) -> Columns:
        if not left[0]:
            return right if self._op == "or" else EMPTY
        if not right[0]:
            return EMPTY if self._op == "and" else left
        lefts = self._signature[0](left[0])
        rights = self._signature[1](right[0])
        if self._op == "or":
            known = set(lefts)
            mask = [sign not in known for sign in rights]
            return (
                left[0] + tuple(compress(right[0], mask)),
                left[1] + list(compress(right[1], mask)),
            )
        known = set(rights)
        wanted = self._op == "and"
        mask = [(sign in known) == wanted for sign in lefts]
        if all(mask):
            return left
        return tuple(compress(left[0], mask)), list(compress(left[1], mask))
