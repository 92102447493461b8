"""Writes a tree as text again, on one line, in Prometheus' canonical form.

What ``parse`` made gives a text that parses to an equal tree. It must not change meaning for
looks. A tree of any depth is walked without recursion.
"""

from __future__ import annotations

import math
from decimal import Decimal

from ..model import NAME
from .literals import duration_text, quote
from .matchers import is_plain_name, matcher_text
from .nodes import (
    Aggregate,
    At,
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

_Piece = str | Node

_QUOTED_LABELS = frozenset({"inf", "nan", "without"})


def render(node: Node) -> str:
    """The expression as one line of text."""
    written: list[str] = []
    todo: list[_Piece] = [node]
    while todo:
        piece = todo.pop()
        if isinstance(piece, str):
            written.append(piece)
        else:
            todo.extend(reversed(_pieces(piece)))
    return "".join(written)


def _pieces(node: Node) -> list[_Piece]:
    if isinstance(node, Binary):
        return [_left(node), f" {node.op}{_modifiers(node)} ", node.right]
    if isinstance(node, Call):
        return [f"{node.name}(", *_listed(node.args), ")"]
    if isinstance(node, Aggregate):
        args = (node.expr,) if node.param is None else (node.param, node.expr)
        return [f"{node.op}{_grouping(node)}(", *_listed(args), ")"]
    if isinstance(node, Paren):
        return ["(", node.expr, ")"]
    if isinstance(node, Unary):
        return [node.op, node.expr]
    if isinstance(node, Subquery):
        step = "" if node.step is None else duration_text(node.step)
        suffix = f"[{duration_text(node.range)}:{step}]"
        return [node.expr, suffix + _moment(node.at, node.offset)]
    return [_leaf(node)]


def _left(node: Binary) -> _Piece:
    """The left side; a number before ``^`` has no sign, which would bind less tightly."""
    left = node.left
    if node.op != "^" or not isinstance(left, Number):
        return left
    text = _number(left)
    return f"({text})" if text.startswith("-") else text.removeprefix("+")


def _leaf(node: Node) -> str:
    if isinstance(node, Number):
        return _number(node)
    if isinstance(node, String):
        return quote(node.value)
    if isinstance(node, MatrixSelector):
        vector = node.vector
        length = f"[{duration_text(node.range)}]"
        return _selector(vector) + length + _moment(vector.at, vector.offset)
    if isinstance(node, VectorSelector):
        return _selector(node) + _moment(node.at, node.offset)
    raise TypeError(f"no node of an expression: {node!r}")


def _listed(nodes: tuple[Node, ...]) -> list[_Piece]:
    pieces: list[_Piece] = []
    for node in nodes:
        pieces += [", ", node]
    return pieces[1:]


def number_text(value: float) -> str:
    """A number without exponent, in the fewest digits that read as the same value."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = format(Decimal(repr(value)), "f")
    return text.removesuffix(".0")


def _number(node: Number) -> str:
    if not node.duration:
        return number_text(node.value)
    sign = "-" if node.value < 0 else ""
    return sign + duration_text(round(abs(node.value) * 1000))


def _selector(node: VectorSelector) -> str:
    texts = [
        matcher_text(item)
        for item in node.matchers
        if not (node.name and item.name == NAME and item.value == node.name)
    ]
    return node.name + ("{" + ",".join(texts) + "}" if texts else "")


def _moment(at: At | None, offset: int) -> str:
    text = ""
    if at is not None and at.edge is not None:
        text = f" @ {at.edge}()"
    elif at is not None and at.ms is not None:
        seconds, part = divmod(abs(at.ms), 1000)
        text = f" @ {'-' if at.ms < 0 else ''}{seconds}.{part:03d}"
    if offset:
        text += f" offset {'-' if offset < 0 else ''}{duration_text(abs(offset))}"
    return text


def _modifiers(node: Binary) -> str:
    text = " bool" if node.return_bool else ""
    return text + (_matching(node.matching) if node.matching else "")


def _matching(matching: Matching) -> str:
    grouped = {"many-to-one": "group_left", "one-to-many": "group_right"}.get(matching.card)
    text = ""
    if matching.labels or matching.on or grouped:
        text = f" {'on' if matching.on else 'ignoring'} ({_labels(matching.labels)})"
    if grouped:
        text += f" {grouped} ({_labels(matching.include)})"
    return text


def _grouping(node: Aggregate) -> str:
    if node.without:
        return f" without ({_labels(node.grouping)}) "
    return f" by ({_labels(node.grouping)}) " if node.grouping else ""


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(name if _stands_bare(name) else quote(name) for name in names)


def _stands_bare(name: str) -> bool:
    return is_plain_name(name) and name.lower() not in _QUOTED_LABELS
