"""The PromQL tree: what the parser makes and the evaluator reads. Frozen, equal by value, with
positions.

All durations and times are whole milliseconds. ``pos`` is the byte-independent character offset
(start, end) in the expression's text; it takes no part in equality.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

ValueType = Literal["scalar", "string", "vector", "matrix"]
MatchOp = Literal["=", "!=", "=~", "!~"]


@dataclass(frozen=True, slots=True)
class Node:
    """Base of all nodes."""

    pos: tuple[int, int] = field(default=(0, 0), compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A scalar literal (durations used as numbers too: seconds).

    ``duration`` says that it was written as one, and takes no part in equality.
    """

    value: float
    duration: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class String(Node):
    """A string literal, unquoted."""

    value: str


@dataclass(frozen=True, slots=True)
class Matcher:
    """A label matcher; regular expressions are RE2, anchored at both ends, dot matches newline."""

    name: str
    op: MatchOp
    value: str


@dataclass(frozen=True, slots=True)
class At:
    """The ``@`` modifier: a fixed time in milliseconds, or ``start``/``end`` of the query."""

    ms: int | None = None
    edge: Literal["start", "end"] | None = None


@dataclass(frozen=True, slots=True)
class VectorSelector(Node):
    """An instant vector selector; ``matchers`` includes the one on ``__name__``."""

    name: str
    matchers: tuple[Matcher, ...]
    offset: int = 0
    at: At | None = None


@dataclass(frozen=True, slots=True)
class MatrixSelector(Node):
    """A range vector selector; ``offset`` and ``at`` are those of ``vector``."""

    vector: VectorSelector
    range: int


@dataclass(frozen=True, slots=True)
class Subquery(Node):
    """``expr[range:step]``; ``step`` is None for the default step."""

    expr: Node
    range: int
    step: int | None = None
    offset: int = 0
    at: At | None = None


@dataclass(frozen=True, slots=True)
class Paren(Node):
    """A parenthesised expression."""

    expr: Node


@dataclass(frozen=True, slots=True)
class Unary(Node):
    """``+expr`` or ``-expr``."""

    op: Literal["+", "-"]
    expr: Node


@dataclass(frozen=True, slots=True)
class Matching:
    """How two vectors are matched. ``on``: true = on(labels), false = ignoring(labels)."""

    on: bool = False
    labels: tuple[str, ...] = ()
    card: Literal["one-to-one", "many-to-one", "one-to-many", "many-to-many"] = "one-to-one"
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary(Node):
    """A binary operation. ``matching`` is None when a side is a scalar.

    ``scalar`` is true when both sides are scalars, so that the result is one. It follows from the
    sides and takes no part in equality; the parser sets it.

    A long chain ``a + b + c + …`` is thousands of nodes deep on its left side: walk it with
    ``spine``, not by recursion.
    """

    op: str
    left: Node
    right: Node
    return_bool: bool = False
    matching: Matching | None = None
    scalar: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate(Node):
    """An aggregation. ``without``: true = without(grouping), false = by(grouping)."""

    op: str
    expr: Node
    param: Node | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function call; ``name`` is in the function table."""

    name: str
    args: tuple[Node, ...]


def spine(node: Node) -> tuple[Node, list[Binary]]:
    """The leftmost operand of a chain of binary operations, and its operations inner first.

    Only right sides, arguments and the like are left to recursion; the parser limits their depth.
    """
    chain: list[Binary] = []
    while isinstance(node, Binary):
        chain.append(node)
        node = node.left
    chain.reverse()
    return node, chain
