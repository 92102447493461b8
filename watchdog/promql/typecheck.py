"""The types of expressions, and the rules by which parts fit together.

Each function here gets parts that already fit, so none looks deeper than the part itself. It must
not read text.
"""

from __future__ import annotations

from .errors import ParseError, shown
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
    ValueType,
)
from .signatures import AGGREGATIONS, FUNCTIONS

SET_OPERATORS = frozenset({"and", "or", "unless"})
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})

_WORDS: dict[ValueType, str] = {
    "scalar": "a scalar",
    "string": "a string",
    "vector": "an instant vector",
    "matrix": "a range vector",
}


def value_type(node: Node) -> ValueType:
    """The type of the value that ``node`` has when evaluated."""
    while isinstance(node, (Paren, Unary)):
        node = node.expr
    if isinstance(node, Number):
        return "scalar"
    if isinstance(node, String):
        return "string"
    if isinstance(node, (MatrixSelector, Subquery)):
        return "matrix"
    if isinstance(node, Binary):
        return "scalar" if node.scalar else "vector"
    if isinstance(node, Call):
        return FUNCTIONS[node.name].result
    return "vector"


def unary(node: Unary) -> Unary:
    """``node`` itself; raises ParseError when its sign stands before a string or a range."""
    found = value_type(node.expr)
    if found not in ("scalar", "vector"):
        raise ParseError(
            f"{node.op!r} needs a scalar or an instant vector, found {_WORDS[found]}", node.pos[0]
        )
    return node


def subquery(node: Subquery) -> Subquery:
    """``node`` itself; raises ParseError when it is not over an instant vector."""
    found = value_type(node.expr)
    if found != "vector":
        raise ParseError(
            f"a subquery needs an instant vector before its bracket, found {_WORDS[found]}",
            node.pos[0],
        )
    return node


def aggregate(node: Aggregate) -> Aggregate:
    """``node`` itself; raises ParseError when its parameter or operand has the wrong type."""
    wanted = AGGREGATIONS[node.op]
    if node.param is not None and wanted is not None:
        _expect(node.param, wanted, f"the parameter of {node.op!r}")
    _expect(node.expr, "vector", f"the operand of {node.op!r}")
    return node


def call(node: Call) -> Call:
    """``node`` itself; raises ParseError when number or types of its arguments do not fit."""
    signature = FUNCTIONS[node.name]
    count, most = len(node.args), signature.most
    if count < signature.fewest or (most is not None and count > most):
        raise ParseError(
            f"the function {node.name!r} takes {_how_many(signature.fewest, most)}, found {count}",
            node.pos[0],
        )
    for index, argument in enumerate(node.args):
        _expect(argument, signature.argument(index), f"argument {index + 1} of {node.name!r}")
    return node


def _how_many(fewest: int, most: int | None) -> str:
    if most is None:
        return f"at least {fewest} arguments"
    if most == 0:
        return "no arguments"
    plural = "s" if most > 1 else ""
    if fewest == 0:
        return f"at most {most} argument{plural}"
    return f"{most} argument{plural}" if fewest == most else f"{fewest} to {most} arguments"


def _expect(node: Node, wanted: ValueType, where: str) -> None:
    found = value_type(node)
    if found != wanted:
        raise ParseError(
            f"{where} must be {_WORDS[wanted]}, found {_WORDS[found]}"
            + (_hint(node) if wanted == "matrix" else ""),
            node.pos[0],
        )


def _hint(node: Node) -> str:
    return " (write a range behind it, such as [5m])" if value_type(node) == "vector" else ""


def binary(
    op: str,
    at: int,
    left: Node,
    right: Node,
    *,
    return_bool: bool = False,
    matching: Matching | None = None,
) -> Binary:
    """The binary operation, checked; ``at`` is the offset of its operator.

    ``matching`` is as it was written, None where nothing was.
    Raises ParseError when the operator does not fit the types of its sides.
    """
    types = value_type(left), value_type(right)
    for side, found in zip((left, right), types, strict=True):
        if found not in ("scalar", "vector"):
            sides = "instant vectors" if op in SET_OPERATORS else "scalars and instant vectors"
            raise ParseError(f"{op!r} joins {sides}, found {_WORDS[found]}", side.pos[0])
    scalar = types == ("scalar", "scalar")
    if return_bool and op not in COMPARISONS:
        raise ParseError(f"'bool' fits comparisons only, not {op!r}", at)
    if scalar and op in COMPARISONS and not return_bool:
        raise ParseError(f"a comparison of two scalars must be written '{op} bool'", at)
    vectors = types == ("vector", "vector")
    if op in SET_OPERATORS and not vectors:
        raise ParseError(f"{op!r} joins instant vectors, found {_WORDS['scalar']}", at)
    return Binary(
        op=op,
        left=left,
        right=right,
        return_bool=return_bool,
        matching=_matching(op, at, matching, vectors=vectors),
        scalar=scalar,
        pos=(left.pos[0], right.pos[1]),
    )


def _matching(op: str, at: int, written: Matching | None, *, vectors: bool) -> Matching | None:
    if written is None:
        written = Matching()
    if not vectors:
        if written.labels:
            raise ParseError("labels can be matched only between two instant vectors", at)
        return None
    both = set(written.labels) & set(written.include) if written.on else set()
    if both:
        raise ParseError(
            f"the label {shown(min(both))} stands in both 'on' and the group modifier", at
        )
    if op not in SET_OPERATORS:
        return written
    if written.card != "one-to-one":
        raise ParseError(f"{op!r} takes no group modifier", at)
    return Matching(written.on, written.labels, "many-to-many")
