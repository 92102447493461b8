"""The PromQL tree: what the parser makes and the evaluator reads. Frozen, equal by value, with
positions.

All durations and times are whole milliseconds. ``pos`` is the byte-independent character offset
(start, end) in the expression's text; it takes no part in equality.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, Literal

ValueType = Literal["scalar", "string", "vector", "matrix"]
MatchOp = Literal["=", "!=", "=~", "!~"]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """Base of all nodes.

    A node keeps its hash, and comparing walks without recursion: so a tree of any depth is a key
    of a dictionary at the cost of one look. (The hash is good in one process: do not pickle.)
    """

    pos: tuple[int, int] = field(default=(0, 0), compare=False, kw_only=True)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((type(self), self._value())))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        todo: list[tuple[object, object]] = [(self, other)]
        while todo:
            left, right = todo.pop()
            if left is right:
                continue
            if isinstance(left, Node) and isinstance(right, Node):
                if left._hash != right._hash or type(left) is not type(right):
                    return False
                todo.append((left._value(), right._value()))
            elif isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
                todo.extend(zip(left, right, strict=True))
            elif left != right:
                return False
        return True

    def _value(self) -> object:
        """What two equal nodes of one class have in common."""
        # mypy takes the hash of Node's instances for that of the class.
        return _getter(type(self))(self)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Number(Node):
    """A scalar literal (durations used as numbers too: seconds).

    ``duration`` says that it was written as one, and takes no part in equality.
    """

    value: float
    duration: bool = field(default=False, compare=False)

    def _value(self) -> object:
        # All NaN are one number here, and 0 and -0 are two: 1 / 0 is not 1 / -0.
        if math.isnan(self.value):
            return None
        return self.value, math.copysign(1.0, self.value)


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class VectorSelector(Node):
    """An instant vector selector; ``matchers`` includes the one on ``__name__``."""

    name: str
    matchers: tuple[Matcher, ...]
    offset: int = 0
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MatrixSelector(Node):
    """A range vector selector; ``offset`` and ``at`` are those of ``vector``."""

    vector: VectorSelector
    range: int


@dataclass(frozen=True, slots=True, eq=False)
class Subquery(Node):
    """``expr[range:step]``; ``step`` is None for the default step."""

    expr: Node
    range: int
    step: int | None = None
    offset: int = 0
    at: At | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Paren(Node):
    """A parenthesised expression."""

    expr: Node


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
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


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate(Node):
    """An aggregation. ``without``: true = without(grouping), false = by(grouping)."""

    op: str
    expr: Node
    param: Node | None = None
    grouping: tuple[str, ...] = ()
    without: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    """A function call; ``name`` is in the function table."""

    name: str
    args: tuple[Node, ...]


@cache
def _getter(node_type: type[Node]) -> Callable[[Node], Any]:
    return attrgetter(*(each.name for each in fields(node_type) if each.compare))


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
