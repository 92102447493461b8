"""Walking a tree: the parts of a node, and how deep a tree is. Nothing is evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .nodes import (
    Aggregate,
    Binary,
    Call,
    MatrixSelector,
    Node,
    Number,
    Paren,
    Subquery,
    Unary,
)


def levels(node: Node) -> Iterator[list[Node]]:
    """The node, its parts, their parts …, without recursion."""
    level = [node]
    while level:
        yield level
        level = [part for each in level for part in children(each)]


def depth(node: Node) -> int:
    """The number of nodes on the longest way down."""
    return sum(1 for _ in levels(node))


def has_negative_zero(node: Node) -> bool:
    """Is -0 among the literals? It is equal to 0, and so are trees that differ in it alone."""
    return any(
        isinstance(each, Number) and each.value == 0 and math.copysign(1.0, each.value) < 0
        for level in levels(node)
        for each in level
    )


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node, as they stand in the text."""
    if isinstance(node, Binary):
        return node.left, node.right
    if isinstance(node, Call):
        return node.args
    if isinstance(node, Aggregate):
        return (node.expr,) if node.param is None else (node.param, node.expr)
    if isinstance(node, Paren | Unary | Subquery):
        return (node.expr,)
    if isinstance(node, MatrixSelector):
        return (node.vector,)
    return ()
