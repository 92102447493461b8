"""Operators: how tightly each binds, and the modifiers that may stand behind one.

An operator waits as a ``Pending`` until its right side is read. It must not read operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from . import literals, typecheck
from .cursor import Cursor
from .errors import ParseError, shown
from .matchers import is_label_name
from .nodes import Matching, Node, Number, Unary

LEVELS = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(typecheck.COMPARISONS, 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
_SIGN_LEVEL = 5
_TO_THE_RIGHT = 6
_IN_LABELS = "in a list of labels"


@dataclass(frozen=True, slots=True)
class Pending:
    """An operator whose right side is still to come; ``left`` is None for a sign."""

    op: str
    at: int
    level: int
    left: Node | None = None
    return_bool: bool = False
    matching: Matching | None = None

    def goes_before(self, level: int) -> bool:
        """Whether it takes the operand read last, rather than an operator of this level."""
        return self.level > level or self.level == level != _TO_THE_RIGHT

    def with_right(self, right: Node) -> Node:
        """The finished operation. Raises ParseError when the types do not fit."""
        if self.left is None:
            return self._signed(right)
        return typecheck.binary(
            self.op,
            self.at,
            self.left,
            right,
            return_bool=self.return_bool,
            matching=self.matching,
        )

    def _signed(self, right: Node) -> Node:
        pos = (self.at, right.pos[1])
        if not isinstance(right, Number):
            return typecheck.unary(Unary(cast(Literal["+", "-"], self.op), right, pos=pos))
        value = -right.value if self.op == "-" else right.value
        return Number(value, right.duration, pos=pos)


def sign(cursor: Cursor) -> Pending:
    """The sign at the cursor."""
    token = cursor.take()
    return Pending(token.kind, token.start, _SIGN_LEVEL)


def level_at(cursor: Cursor) -> int:
    """The level of the operator at the cursor; 0 where none is."""
    token = cursor.token
    return LEVELS.get(token.text.lower() if token.kind == "name" else token.kind, 0)


def binary(cursor: Cursor, left: Node) -> Pending:
    """The binary operator at the cursor, with its modifiers."""
    level = level_at(cursor)
    token = cursor.take()
    return_bool = cursor.at_word("bool")
    if return_bool:
        cursor.take()
    op = token.text.lower()
    return Pending(op, token.start, level, left, return_bool, _matching(cursor))


def _matching(cursor: Cursor) -> Matching | None:
    if cursor.at_word("group_left", "group_right"):
        raise cursor.unexpected("after an operator", "'on' or 'ignoring' before it")
    if not cursor.at_word("on", "ignoring"):
        return None
    on = cursor.take().text.lower() == "on"
    matched = labels(cursor)
    if not cursor.at_word("group_left", "group_right"):
        return Matching(on, matched)
    left = cursor.take().text.lower() == "group_left"
    include = labels(cursor) if cursor.at("(") else ()
    return Matching(on, matched, "many-to-one" if left else "one-to-many", include)


def labels(cursor: Cursor) -> tuple[str, ...]:
    """The label names in parentheses at the cursor; a comma may stand behind the last."""
    cursor.expect("(", _IN_LABELS)
    names: list[str] = []
    while not cursor.accept(")"):
        names.append(_label(cursor))
        if not cursor.at(")"):
            cursor.expect(",", _IN_LABELS, "',' or ')'")
    return tuple(names)


def _label(cursor: Cursor) -> str:
    token = cursor.token
    # Prometheus takes every other word of the grammar for a label name here.
    if token.kind not in ("name", "string") or cursor.at_word("without"):
        raise cursor.unexpected(_IN_LABELS, "a label name or ')'")
    cursor.take()
    if token.kind == "name":
        return token.text
    name = literals.unquote(token.text, token.start)
    if not is_label_name(name):
        raise ParseError(f"{shown(name)} is no label name", token.start)
    return name
