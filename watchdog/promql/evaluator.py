"""Evaluates expressions over a window, once or again and again, as Prometheus 3.x does.

``load`` reads an expression, ``query`` and ``query_range`` answer it, an ``Evaluator`` keeps what
repeated evaluation of many expressions over one window can reuse. All times are milliseconds since
the epoch. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ..model import Labels
from ..window import LOOKBACK, MINUTE, Window
from . import sources
from .compiler import Compiler, bare, text
from .errors import EvaluationError, ParseError
from .nodes import Node, ValueType
from .nodes import String as StringNode
from .parser import parse
from .plan import Budget, Context, Op, ScalarOp, VectorOp
from .tree import depth, has_negative_zero
from .typecheck import value_type
from .values import Matrix, Scalar, String, Value, Vector

MAX_STEPS = 11_000
"""Points per series that a range query may give, as at Prometheus' HTTP door."""

MAX_DEPTH = 200
"""Operations that may build on each other: ``a + b + c`` are two."""

Watch = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Expr:
    """A loaded expression: its text, tree and type. Equal by the tree."""

    text: str
    node: Node
    type: ValueType


def load(source: str) -> Expr:
    """Read an expression. Raises ParseError with line and column."""
    node = parse(source)
    if depth(node) > MAX_DEPTH:
        problem = f"more than {MAX_DEPTH} operations in a row: use parentheses or several rules"
        raise ParseError(problem, 0).within(source)
    return Expr(source, node, value_type(node))


class Prepared:
    """An expression on one window, to be evaluated again and again."""

    def __init__(self, expr: Expr, op: Op | None, lookback_ms: int, step_ms: int) -> None:
        self.expr = expr
        self._op = op
        self._lookback = lookback_ms
        self._step = step_ms

    def query(self, ms: int, watch: Watch | None = None) -> Value:
        """The value as of ``ms``. Raises EvaluationError."""
        context = Context(ms, ms, 1, self._lookback, self._step, Budget(watch))
        op = self._op
        if op is None:
            return String(ms, text(self.expr.node))
        if isinstance(op, ScalarOp):
            return Scalar(ms, op.number(ms, context))
        if isinstance(op, VectorOp):
            return Vector(ms, list(zip(*op.vector(ms, context), strict=True)))
        series = cast(sources.Ranged, op).samples(ms, context)
        return Matrix(
            sorted(
                (labels, list(zip(times, values, strict=True))) for labels, times, values in series
            )
        )

    def query_range(
        self, start_ms: int, end_ms: int, step_ms: int, watch: Watch | None = None
    ) -> Matrix:
        """The values at ``start_ms``, ``start_ms + step_ms`` … ``end_ms``, sorted by label set."""
        op = self._op
        if not isinstance(op, ScalarOp | VectorOp):
            raise EvaluationError(
                f"a range query needs a scalar or an instant vector, not a {self.expr.type}"
            )
        if step_ms <= 0 or end_ms < start_ms:
            raise EvaluationError("a range query needs a positive step and an end after its start")
        if (end_ms - start_ms) // step_ms + 1 > MAX_STEPS:
            raise EvaluationError(f"more than {MAX_STEPS} points per series: use a larger step")
        context = Context(start_ms, end_ms, step_ms, self._lookback, self._step, Budget(watch))
        series: dict[Labels, list[tuple[int, float]]] = {}
        for now in range(start_ms, end_ms + 1, step_ms):
            context.budget.spend(1)
            if isinstance(op, ScalarOp):
                series.setdefault((), []).append((now, op.number(now, context)))
                continue
            columns = op.vector(now, context)
            context.budget.spend(len(columns[1]))
            for labels, value in zip(*columns, strict=True):
                series.setdefault(labels, []).append((now, value))
        return Matrix(sorted(series.items()))


class Evaluator:
    """Prepares expressions over one window; equal parts of them are evaluated once.

    ``step_ms`` is the step of a subquery that names none: the evaluation interval.
    """

    def __init__(
        self, window: Window, *, lookback_ms: int = LOOKBACK, step_ms: int = MINUTE
    ) -> None:
        self._window = window
        self._compiler = Compiler(window)
        self._lookback = lookback_ms
        self._step = step_ms

    def prepare(self, expr: Expr) -> Prepared:
        """Prepare an expression. Raises EvaluationError for what only Prometheus' evaluation
        refuses (the pattern or a label name of ``label_replace``)."""
        op = None
        if not isinstance(bare(expr.node), StringNode):
            alone = has_negative_zero(expr.node)
            compiler = Compiler(self._window, share=False) if alone else self._compiler
            op = compiler.root(expr.node)
        return Prepared(expr, op, self._lookback, self._step)


def query(
    expr: Expr,
    window: Window,
    ms: int,
    *,
    lookback_ms: int = LOOKBACK,
    step_ms: int = MINUTE,
    watch: Watch | None = None,
) -> Value:
    """The value of an expression as of ``ms``. Raises EvaluationError.

    ``watch`` is called while it is evaluated, and ends that by raising.
    """
    prepared = Evaluator(window, lookback_ms=lookback_ms, step_ms=step_ms).prepare(expr)
    return prepared.query(ms, watch)


def query_range(
    expr: Expr,
    window: Window,
    start_ms: int,
    end_ms: int,
    step_ms: int,
    *,
    lookback_ms: int = LOOKBACK,
    subquery_step_ms: int = MINUTE,
    watch: Watch | None = None,
) -> Matrix:
    """The values of an expression at each step from start to end. Raises EvaluationError."""
    evaluator = Evaluator(window, lookback_ms=lookback_ms, step_ms=subquery_step_ms)
    return evaluator.prepare(expr).query_range(start_ms, end_ms, step_ms, watch)
