"""What an expression reads: which selectors, and how far back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..window import LOOKBACK
from .evaluator import Expr
from .nodes import At, Matcher, MatrixSelector, Node, Subquery, VectorSelector
from .tree import children

EVER = 1 << 62
"""The reach of a selector at a fixed time (``@ 1700000000``): it moves away without end."""


@dataclass(frozen=True, slots=True)
class Need:
    """A selector: the metric's name ("" where it names none), its matchers, and how many
    milliseconds before the evaluation its oldest needed sample may lie."""

    name: str
    matchers: tuple[Matcher, ...]
    reach_ms: int


def needs(expr: Expr, *, lookback_ms: int = LOOKBACK) -> tuple[Need, ...]:
    """The selectors of an expression, in the order of its text."""
    return tuple(_needs(expr.node, 0, lookback_ms))


def _needs(node: Node, outer: int, lookback: int) -> Iterator[Need]:
    if isinstance(node, VectorSelector):
        yield _need(node, outer + lookback)
    elif isinstance(node, MatrixSelector):
        yield _need(node.vector, outer + node.range)
    elif isinstance(node, Subquery):
        reach = _moved(node.at, outer + node.range, node.offset)
        yield from _needs(node.expr, reach, lookback)
    else:
        for part in children(node):
            yield from _needs(part, outer, lookback)


def _need(node: VectorSelector, reach: int) -> Need:
    return Need(node.name, node.matchers, max(0, _moved(node.at, reach, node.offset)))


def _moved(at: At | None, reach: int, offset: int) -> int:
    return EVER if at is not None and at.ms is not None else reach + offset
