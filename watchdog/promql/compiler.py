"""Turns a tree into operations on one window.

Equal parts of all expressions become the same operation, so that they are evaluated once at each
moment. What does not depend on the moment (``@``) is evaluated once per query, exactly where
Prometheus does so. Nothing is evaluated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from ..window import Window
from . import dates, functions, gomath, histograms, matching, ranges, relabel, sources
from .aggregations import SIMPLE, Aggregated, CountValues, Groups, Quantile, TopK, grouping
from .nodes import (
    Aggregate,
    Binary,
    Call,
    Matching,
    MatrixSelector,
    Node,
    Number,
    Paren,
    String,
    Subquery,
    Unary,
    VectorSelector,
)
from .plan import Invariant, InvariantNumber, Op, ScalarOp, VectorOp
from .selection import Selection
from .sliding import Sliding

_OF_NOW = frozenset({*dates.FUNCTIONS, "predict_linear", "time", "timestamp"})
"""Functions whose result depends on the moment even if their arguments do not."""

_NATIVE = frozenset(f"histogram_{what}" for what in ("avg", "count", "stddev", "stdvar", "sum"))


def bare(node: Node) -> Node:
    """The node without parentheses around it."""
    while isinstance(node, Paren):
        node = node.expr
    return node


def invariant(node: Node) -> bool:
    """Is the result the same at all moments of a query?"""
    if isinstance(node, VectorSelector):
        return node.at is not None
    if isinstance(node, MatrixSelector):
        return node.vector.at is not None
    if isinstance(node, Subquery):
        return node.at is not None
    if isinstance(node, Binary):
        return invariant(node.left) and invariant(node.right)
    if isinstance(node, Call):
        return node.name not in _OF_NOW and all(invariant(each) for each in node.args)
    if isinstance(node, Aggregate | Paren | Unary):
        return invariant(node.expr)
    return True


class Compiler:
    """Makes the operations of one window; with ``share`` equal parts get the same one."""

    def __init__(self, window: Window, *, share: bool = True) -> None:
        self._window = window
        self._share = share
        self._ops: dict[Node, Op] = {}
        self._selections: dict[VectorSelector, Selection] = {}

    def root(self, node: Node) -> Op:
        """The operation of a whole expression; a string has none."""
        return self._once(node) if invariant(node) else self.op(node)

    def op(self, node: Node) -> Op:
        """The operation of a part."""
        node = bare(node)
        found = self._ops.get(node) if self._share else None
        if found is None:
            self._ops[node] = found = _MAKERS[type(node)](self, node)
        return found

    def scalar(self, node: Node) -> ScalarOp:
        """The operation of a scalar expression."""
        return cast(ScalarOp, self.op(node))

    def vector(self, node: Node) -> VectorOp:
        """The operation of an instant vector expression."""
        return cast(VectorOp, self.op(node))

    def ranged(self, node: Node) -> sources.Ranged:
        """The operation of a range vector expression."""
        return cast(sources.Ranged, self.op(node))

    def selection(self, node: VectorSelector) -> Selection:
        """The series of a selector, whatever its offset."""
        key = VectorSelector(node.name, node.matchers)
        if key not in self._selections:
            self._selections[key] = Selection(self._window, node.matchers)
        return self._selections[key]

    def _once(self, node: Node) -> Op:
        op = self.op(node)
        if isinstance(op, VectorOp):
            return Invariant(op)
        if isinstance(op, ScalarOp) and not isinstance(op, functions.Number):
            return InvariantNumber(op)
        return op

    def part(self, node: Node, whole: Node) -> Op:
        """The operation of a direct part of ``whole``."""
        return self._once(node) if invariant(node) and not invariant(whole) else self.op(node)

    # One maker per node

    def _number(self, node: Number) -> Op:
        return functions.Number(node.value)

    def _select(self, node: VectorSelector) -> Op:
        return sources.Select(self.selection(node), sources.Moment(node.at, node.offset))

    def _range(self, node: MatrixSelector) -> Op:
        moment = sources.Moment(node.vector.at, node.vector.offset)
        return sources.SelectRange(self.selection(node.vector), node.range, moment)

    def _subquery(self, node: Subquery) -> Op:
        inner = self._once(node.expr) if invariant(node.expr) else self.op(node.expr)
        moment = sources.Moment(node.at, node.offset)
        return sources.Subquery(cast(VectorOp, inner), node.range, node.step, moment)

    def _unary(self, node: Unary) -> Op:
        op = self.op(node.expr)
        if node.op == "+":
            return op
        if isinstance(op, ScalarOp):
            return functions.NegatedNumber(op)
        return functions.Negated(cast(VectorOp, op))

    def _binary(self, node: Binary) -> Op:
        left, right = self.part(node.left, node), self.part(node.right, node)
        if isinstance(left, ScalarOp) and isinstance(right, ScalarOp):
            return matching.Numbers(node.op, left, right)
        if isinstance(left, ScalarOp) or isinstance(right, ScalarOp):
            swapped = isinstance(left, ScalarOp)
            inner = cast(VectorOp, right if swapped else left)
            number = cast(ScalarOp, left if swapped else right)
            if node.op in matching.ARITHMETIC:
                return matching.WithNumber(node.op, inner, number, swapped=swapped)
            return matching.ComparedWithNumber(
                node.op, inner, number, swapped=swapped, as_bool=node.return_bool
            )
        how = node.matching or Matching()
        a, b = cast(VectorOp, left), cast(VectorOp, right)
        if node.op in ("and", "or", "unless"):
            return matching.SetOperation(node.op, a, b, how)
        return matching.Combined(node.op, a, b, how, as_bool=node.return_bool)

    def _aggregate(self, node: Aggregate) -> Op:
        inner = self.vector(node.expr)
        group = grouping(node.grouping, without=node.without)
        if node.op in SIMPLE:
            return Aggregated(inner, Groups(group), node.op)
        assert node.param is not None
        if node.op == "count_values":
            return CountValues(inner, text(node.param), node.grouping, without=node.without)
        param = self.scalar(node.param)
        if node.op == "quantile":
            return Quantile(inner, Groups(group), param)
        return TopK(inner, Groups(group), param, largest=node.op == "topk")

    def _call(self, node: Call) -> Op:
        if node.name in ranges.FUNCTIONS:
            return self._range_call(node)
        if node.name in gomath.FUNCTIONS:
            return functions.Each(self._vector_of(node, 0), gomath.FUNCTIONS[node.name])
        if node.name in dates.FUNCTIONS:
            inner = self._vector_of(node, 0) if node.args else None
            return functions.Calendar(inner, dates.FUNCTIONS[node.name])
        if node.name in _NATIVE:
            return functions.OfNativeHistograms(self._vector_of(node, 0))
        return _CALLS[node.name](self, node)

    def _vector_of(self, node: Call, index: int) -> VectorOp:
        return cast(VectorOp, self.part(node.args[index], node))

    def _scalar_of(self, node: Call, index: int) -> ScalarOp:
        return cast(ScalarOp, self.part(node.args[index], node))

    def _range_call(self, node: Call) -> Op:
        at = 1 if node.name == "quantile_over_time" else 0
        source = self.ranged(node.args[at])
        if node.name == "absent_over_time":
            return sources.AbsentOverTime(source, relabel.absent_labels(node.args[0]))
        slider = (
            Sliding(source.selection, node.name)
            if isinstance(source, sources.SelectRange)
            else None
        )
        return sources.RangeCall(
            ranges.FUNCTIONS[node.name],
            source,
            self._scalar_of(node, 1 - at) if len(node.args) > 1 else None,
            keeps_name=node.name == "last_over_time",
            slider=slider,
        )

    def _timestamp(self, node: Call) -> Op:
        inner = bare(node.args[0])
        if isinstance(inner, VectorSelector):
            moment = sources.Moment(inner.at, inner.offset)
            return sources.Timestamp(self.selection(inner), moment)
        return functions.EvaluationTime(self._vector_of(node, 0))

    def _clamp(self, node: Call) -> Op:
        low, high = {
            "clamp": (1, 2),
            "clamp_min": (1, None),
            "clamp_max": (None, 1),
        }[node.name]
        limits = [
            functions.Number(-math.inf) if low is None else self._scalar_of(node, low),
            functions.Number(math.inf) if high is None else self._scalar_of(node, high),
        ]
        return functions.Mapped(self._vector_of(node, 0), limits, functions.clamp)

    def _round(self, node: Call) -> Op:
        to = [self._scalar_of(node, 1)] if len(node.args) > 1 else []
        return functions.Mapped(self._vector_of(node, 0), to, functions.rounding)

    def _buckets(self, node: Call) -> Op:
        function = histograms.quantile if node.name == "histogram_quantile" else histograms.fraction
        last = len(node.args) - 1
        scalars = [self._scalar_of(node, index) for index in range(last)]
        return functions.OfBuckets(self._vector_of(node, last), scalars, function)

    def _label_replace(self, node: Call) -> Op:
        target, template, source, pattern = (text(each) for each in node.args[1:])
        return relabel.replace(self._vector_of(node, 0), target, template, source, pattern)

    def _label_join(self, node: Call) -> Op:
        target, separator, *labels = (text(each) for each in node.args[1:])
        return relabel.join(self._vector_of(node, 0), target, separator, labels)

    def _absent(self, node: Call) -> Op:
        return functions.Absent(self._vector_of(node, 0), relabel.absent_labels(node.args[0]))

    def _sort(self, node: Call) -> Op:
        return functions.Sorted(self._vector_of(node, 0), descending=node.name == "sort_desc")

    def _scalar_call(self, node: Call) -> Op:
        return functions.ScalarOf(self._vector_of(node, 0))

    def _vector_call(self, node: Call) -> Op:
        return functions.VectorOf(self._scalar_of(node, 0))


def text(node: Node) -> str:
    """The value of a string literal."""
    return cast(String, bare(node)).value


_MAKERS: dict[type[Node], Callable[[Compiler, Any], Op]] = {
    Number: Compiler._number,
    VectorSelector: Compiler._select,
    MatrixSelector: Compiler._range,
    Subquery: Compiler._subquery,
    Unary: Compiler._unary,
    Binary: Compiler._binary,
    Aggregate: Compiler._aggregate,
    Call: Compiler._call,
}

_CALLS: dict[str, Callable[[Compiler, Call], Op]] = {
    "absent": Compiler._absent,
    "clamp": Compiler._clamp,
    "clamp_max": Compiler._clamp,
    "clamp_min": Compiler._clamp,
    "histogram_fraction": Compiler._buckets,
    "histogram_quantile": Compiler._buckets,
    "label_join": Compiler._label_join,
    "label_replace": Compiler._label_replace,
    "pi": lambda _compiler, _node: functions.Number(math.pi),
    "round": Compiler._round,
    "scalar": Compiler._scalar_call,
    "sort": Compiler._sort,
    "sort_desc": Compiler._sort,
    "time": lambda _compiler, _node: functions.Time(),
    "timestamp": Compiler._timestamp,
    "vector": Compiler._vector_call,
}
