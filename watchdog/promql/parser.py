"""Reads an expression: operators by precedence, calls, aggregations, parentheses.

``parse`` is the one way in. Operators wait on an explicit stack, so a chain of thousands of terms
needs no recursion; what does recurse (brackets) is limited by the cursor. It must not evaluate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, cast

from . import literals, selectors, typecheck
from .cursor import Cursor
from .errors import ParseError, PromqlError
from .lexer import KEYWORDS
from .matchers import is_label_name
from .nodes import Aggregate, Call, Matching, Node, Number, Paren, String, Unary
from .signatures import (
    AGGREGATIONS,
    EXPERIMENTAL_AGGREGATIONS,
    EXPERIMENTAL_FUNCTIONS,
    FUNCTIONS,
)

_LEVELS = {
    "or": 1,
    "and": 2,
    "unless": 2,
    **dict.fromkeys(typecheck.COMPARISONS, 3),
    **dict.fromkeys("+-", 4),
    **dict.fromkeys(("*", "/", "%", "atan2"), 5),
    "^": 6,
}
_SIGN_LEVEL = 5
_NO_METRIC = frozenset({"atan2", "bool", "group_left", "group_right", "ignoring", "on"})
_NO_LABEL = frozenset({"without"})
_EXPERIMENTAL_WORDS = frozenset({"anchored", "smoothed", "fill", "fill_left", "fill_right"})
_AN_EXPRESSION = "an expression"


def parse(text: str) -> Node:
    """The tree of an expression, its types checked.

    Raises PromqlError with line, column and offset: what was expected and what was found.
    """
    try:
        return _Parser(Cursor(text)).whole()
    except PromqlError as error:
        raise error.within(text) from None


@dataclass(frozen=True, slots=True)
class _Pending:
    """An operator whose right side is still to come; ``left`` is None for a sign."""

    op: str
    at: int
    level: int
    left: Node | None = None
    return_bool: bool = False
    matching: Matching | None = None

    def with_right(self, right: Node) -> Node:
        if self.left is not None:
            return typecheck.binary(
                self.op,
                self.at,
                self.left,
                right,
                return_bool=self.return_bool,
                matching=self.matching,
            )
        pos = (self.at, right.pos[1])
        if isinstance(right, Number):
            value = -right.value if self.op == "-" else right.value
            # One NaN object only: equality of trees is by identity there.
            value = math.nan if math.isnan(value) else value
            return Number(value, right.duration, pos=pos)
        return typecheck.unary(Unary(cast(Literal["+", "-"], self.op), right, pos=pos))


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    def whole(self) -> Node:
        """The expression that is the whole text."""
        if self.cursor.at("end"):
            raise ParseError("there is no expression", self.cursor.token.start)
        node = self.expression()
        if not self.cursor.at("end"):
            self._refuse_experimental_words()
            raise self.cursor.unexpected("after an expression", "an operator or the end")
        return node

    def expression(self) -> Node:
        """The longest expression that begins at the cursor."""
        pending: list[_Pending] = []
        while True:
            self._signs(pending)
            node = selectors.suffixes(self.cursor, self._operand())
            op = self._operator()
            level = _LEVELS.get(op, 0)
            # ^ alone joins to the right; a sign binds as * does.
            while pending and (pending[-1].level > level or pending[-1].level == level != 6):
                node = pending.pop().with_right(node)
                self.cursor.leave()
            if not level:
                return node
            self._push(pending, self._binary(op, level, node))

    def _push(self, pending: list[_Pending], item: _Pending) -> None:
        self.cursor.enter()
        pending.append(item)

    def _signs(self, pending: list[_Pending]) -> None:
        while self.cursor.token.kind in ("+", "-"):
            token = self.cursor.take()
            self._push(pending, _Pending(token.kind, token.start, _SIGN_LEVEL))

    def _operator(self) -> str:
        token = self.cursor.token
        return token.text.lower() if token.kind == "name" else token.kind

    def _binary(self, op: str, level: int, left: Node) -> _Pending:
        at = self.cursor.take().start
        return_bool = self.cursor.at_word("bool")
        if return_bool:
            self.cursor.take()
        return _Pending(op, at, level, left, return_bool, self._matching())

    def _matching(self) -> Matching | None:
        cursor = self.cursor
        if cursor.at_word("group_left", "group_right"):
            raise cursor.unexpected("after an operator", "'on' or 'ignoring' before it")
        if not cursor.at_word("on", "ignoring"):
            return None
        on = cursor.take().text.lower() == "on"
        labels = self._labels()
        if not cursor.at_word("group_left", "group_right"):
            return Matching(on, labels)
        left = cursor.take().text.lower() == "group_left"
        include = self._labels() if cursor.at("(") else ()
        return Matching(on, labels, "many-to-one" if left else "one-to-many", include)

    def _labels(self) -> tuple[str, ...]:
        where = "in a list of labels"
        self.cursor.expect("(", where)
        names: list[str] = []
        while not self.cursor.accept(")"):
            names.append(self._label())
            if not self.cursor.at(")"):
                self.cursor.expect(",", where, "',' or ')'")
        return tuple(names)

    def _label(self) -> str:
        token = self.cursor.token
        word = token.text.lower() if token.kind == "name" else ""
        if token.kind not in ("name", "string") or word in _NO_LABEL:
            raise self.cursor.unexpected("in a list of labels", "a label name or ')'")
        self.cursor.take()
        if token.kind == "name":
            return token.text
        name = literals.unquote(token.text, token.start)
        if not is_label_name(name):
            raise ParseError(f"{name!r} is no label name", token.start)
        return name

    def _operand(self) -> Node:
        token = self.cursor.token
        if token.kind == "(":
            return self._parenthesised()
        if token.kind == "name":
            return self._named()
        if token.kind == "{":
            return selectors.selector(self.cursor)
        pos = (token.start, token.end)
        if token.kind == "number":
            value = literals.number(self.cursor.take().text, token.start)
            return Number(value, pos=pos)
        if token.kind == "duration":
            ms = literals.duration_ms(self.cursor.take().text, token.start)
            return Number(ms / 1000, duration=True, pos=pos)
        if token.kind == "string":
            return String(literals.unquote(self.cursor.take().text, token.start), pos=pos)
        raise self.cursor.unexpected("", _AN_EXPRESSION)

    def _parenthesised(self) -> Node:
        opening = self.cursor.take()
        self.cursor.enter()
        node = self.expression()
        self._close(opening.start)
        self.cursor.leave()
        return Paren(node, pos=(opening.start, self.cursor.last_end))

    def _close(self, opening: int) -> None:
        if self.cursor.at("end"):
            raise ParseError("this '(' is never closed", opening)
        self._refuse_experimental_words()
        self.cursor.expect(")", "in parentheses", "an operator or ')'")

    def _named(self) -> Node:
        token, word = self.cursor.token, self.cursor.token.text.lower()
        called = self.cursor.following.kind == "("
        if word in AGGREGATIONS or word in EXPERIMENTAL_AGGREGATIONS:
            following = self.cursor.following
            if called or (following.kind == "name" and following.text.lower() in ("by", "without")):
                return self._aggregate(word)
        elif called and word not in KEYWORDS and ":" not in word:
            return self._call()
        if word in _NO_METRIC:
            raise self.cursor.unexpected("", _AN_EXPRESSION)
        if called and word in EXPERIMENTAL_FUNCTIONS:
            raise _experimental("function", word, token.start)
        return selectors.selector(self.cursor)

    def _call(self) -> Node:
        token = self.cursor.take()
        if token.text in _EXPERIMENTAL_WORDS:
            raise _experimental("modifier", token.text, token.start)
        if token.text in EXPERIMENTAL_FUNCTIONS:
            raise _experimental("function", token.text, token.start)
        if token.text not in FUNCTIONS:
            raise ParseError(
                f"unknown function {token.text!r}{_suggestion(token.text)}", token.start
            )
        args = self._arguments()
        return typecheck.call(Call(token.text, args, pos=(token.start, self.cursor.last_end)))

    def _arguments(self) -> tuple[Node, ...]:
        where = "in the arguments"
        opening = self.cursor.expect("(", "after the grouping").start
        if self.cursor.accept(")"):
            return ()
        self.cursor.enter()
        found = [self.expression()]
        while self.cursor.accept(","):
            if self.cursor.at(")"):
                raise self.cursor.unexpected(where, "another argument behind the comma")
            found.append(self.expression())
        if self.cursor.at("end"):
            raise ParseError("this '(' is never closed", opening)
        self._refuse_experimental_words()
        self.cursor.expect(")", where, "an operator, ',' or ')'")
        self.cursor.leave()
        return tuple(found)

    def _aggregate(self, op: str) -> Node:
        token = self.cursor.take()
        if op in EXPERIMENTAL_AGGREGATIONS:
            raise _experimental("aggregation", op, token.start)
        written = self._grouping()
        args = self._arguments()
        written = written or self._grouping()
        without, grouping = written or (False, ())
        param, expr = self._parts(op, args, token.start)
        pos = (token.start, self.cursor.last_end)
        return typecheck.aggregate(Aggregate(op, expr, param, grouping, without, pos=pos))

    def _grouping(self) -> tuple[bool, tuple[str, ...]] | None:
        if not self.cursor.at_word("by", "without"):
            return None
        return self.cursor.take().text.lower() == "without", self._labels()

    def _parts(self, op: str, args: tuple[Node, ...], at: int) -> tuple[Node | None, Node]:
        wanted = 1 if AGGREGATIONS[op] is None else 2
        if len(args) != wanted:
            what = "one argument" if wanted == 1 else "a parameter and a vector"
            raise ParseError(f"the aggregation {op!r} takes {what}, found {len(args)}", at)
        return (None, args[0]) if wanted == 1 else (args[0], args[1])

    def _refuse_experimental_words(self) -> None:
        if self.cursor.at_word(*_EXPERIMENTAL_WORDS):
            token = self.cursor.token
            raise _experimental("modifier", token.text.lower(), token.start)


def _experimental(what: str, name: str, at: int) -> ParseError:
    return ParseError(f"the {what} {name!r} is experimental and not supported", at)


def _suggestion(name: str) -> str:
    near = get_close_matches(name[:100].lower(), [*FUNCTIONS, *AGGREGATIONS], n=1, cutoff=0.75)
    return f", did you mean {near[0]!r}?" if near else ""
