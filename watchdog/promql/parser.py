"""Reads an expression: operands, calls, aggregations and parentheses.

``parse`` is the one way in. Open brackets and waiting operators stand on explicit stacks, so no
text is too deep for the parser itself; the cursor limits the depth for those who walk the tree.
It must not evaluate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches

from . import literals, operators, selectors, typecheck
from .cursor import Cursor
from .errors import ParseError, PromqlError, shown
from .lexer import KEYWORDS
from .nodes import Aggregate, Call, Node, Number, Paren, String
from .operators import Pending
from .signatures import (
    AGGREGATIONS,
    EXPERIMENTAL_AGGREGATIONS,
    EXPERIMENTAL_FUNCTIONS,
    FUNCTIONS,
)

_NO_METRIC = frozenset({"atan2", "bool", "group_left", "group_right", "ignoring", "on"})
_NO_FUNCTION = KEYWORDS - EXPERIMENTAL_FUNCTIONS
_EXPERIMENTAL_WORDS = frozenset({"anchored", "smoothed", "fill", "fill_left", "fill_right"})


def parse(text: str) -> Node:
    """The tree of an expression, its types checked.

    Raises PromqlError with line, column and offset: what was expected and what was found.
    """
    try:
        return _Parser(Cursor(text)).whole()
    except PromqlError as error:
        raise error.within(text) from None


_Grouping = tuple[bool, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Bracket:
    """An open ``(`` at ``opening``, or the whole text.

    ``name`` is the function's or aggregation's and "" for mere parentheses. ``pending`` and
    ``args`` fill up while its inside is read.
    """

    start: int
    opening: int
    name: str = ""
    is_call: bool = False
    grouping: _Grouping | None = None
    pending: list[Pending] = field(default_factory=list)
    args: list[Node] = field(default_factory=list)


class _Parser:
    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.brackets = [_Bracket(0, 0)]

    def whole(self) -> Node:
        """The expression that is the whole text."""
        if self.cursor.at("end"):
            raise ParseError("there is no expression", self.cursor.token.start)
        while True:
            operand = self._operand()
            node = None if operand is None else self._after(operand)
            if node is not None:
                return node

    def _after(self, node: Node) -> Node | None:
        """Joins ``node`` to what surrounds it.

        Gives the whole tree at the end of the text, and None where another operand must follow.
        """
        while True:
            node = selectors.suffixes(self.cursor, node)
            level = operators.level_at(self.cursor)
            pending = self.brackets[-1].pending
            while pending and pending[-1].goes_before(level):
                node = pending.pop().with_right(node)
                self.cursor.leave()
            if level:
                self._wait(operators.binary(self.cursor, node))
                return None
            if len(self.brackets) == 1:
                return self._ended(node)
            if self._comma(node):
                return None
            node = self._closed(node)

    def _wait(self, item: Pending) -> None:
        self.cursor.enter()
        self.brackets[-1].pending.append(item)

    def _ended(self, node: Node) -> Node:
        if not self.cursor.at("end"):
            self._refuse_experimental_words()
            raise self.cursor.unexpected("after an expression", "an operator or the end")
        return node

    def _operand(self) -> Node | None:
        """The next operand as far as no expression stands in it; None when a bracket opened."""
        while self.cursor.token.kind in ("+", "-"):
            self._wait(operators.sign(self.cursor))
        token = self.cursor.token
        if token.kind == "(":
            return self._open(_Bracket(token.start, token.start))
        if token.kind == "name":
            return self._named()
        if token.kind == "{":
            return selectors.selector(self.cursor)
        return self._literal()

    def _literal(self) -> Node:
        token = self.cursor.token
        if token.kind not in ("number", "duration", "string"):
            raise self.cursor.unexpected("", "an expression")
        self.cursor.take()
        pos = (token.start, token.end)
        if token.kind == "number":
            return Number(literals.number(token.text, token.start), pos=pos)
        if token.kind == "duration":
            ms = literals.duration_ms(token.text, token.start)
            return Number(ms / 1000, duration=True, pos=pos)
        return String(literals.unquote(token.text, token.start), pos=pos)

    def _named(self) -> Node | None:
        word = self.cursor.token.text.lower()
        called = self.cursor.following.kind == "("
        if word in AGGREGATIONS or word in EXPERIMENTAL_AGGREGATIONS:
            if called or self._grouping_follows():
                return self._aggregation(word)
        elif called and word not in _NO_FUNCTION and ":" not in word:
            return self._call()
        if word in _NO_METRIC:
            raise self.cursor.unexpected("", "an expression")
        return selectors.selector(self.cursor)

    def _grouping_follows(self) -> bool:
        following = self.cursor.following
        return following.kind == "name" and following.text.lower() in ("by", "without")

    def _call(self) -> Node | None:
        token = self.cursor.take()
        name, start = token.text, token.start
        if name in _EXPERIMENTAL_WORDS:
            raise _experimental("modifier", name, start)
        if name in EXPERIMENTAL_FUNCTIONS:
            raise _experimental("function", name, start)
        if name not in FUNCTIONS:
            raise ParseError(f"unknown function {shown(name)}{_suggestion(name)}", start)
        return self._open(_Bracket(start, self.cursor.token.start, name, is_call=True))

    def _aggregation(self, op: str) -> Node | None:
        start = self.cursor.take().start
        if op in EXPERIMENTAL_AGGREGATIONS:
            raise _experimental("aggregation", op, start)
        grouping = self._grouping()
        if not self.cursor.at("("):
            raise self.cursor.unexpected("after the grouping", "'('")
        return self._open(_Bracket(start, self.cursor.token.start, op, grouping=grouping))

    def _grouping(self) -> _Grouping | None:
        if not self.cursor.at_word("by", "without"):
            return None
        return self.cursor.take().text.lower() == "without", operators.labels(self.cursor)

    def _open(self, bracket: _Bracket) -> Node | None:
        self.cursor.take()
        if bracket.name and self.cursor.accept(")"):
            return self._finished(bracket)
        self.cursor.enter()
        self.brackets.append(bracket)
        return None

    def _comma(self, node: Node) -> bool:
        """Whether ``node`` is an argument with another one behind it."""
        bracket = self.brackets[-1]
        if not bracket.name or not self.cursor.accept(","):
            return False
        bracket.args.append(node)
        if self.cursor.at(")"):
            raise self.cursor.unexpected("in the arguments", "another argument behind the comma")
        return True

    def _closed(self, node: Node) -> Node:
        """What the innermost bracket makes of its last expression."""
        bracket = self.brackets.pop()
        if self.cursor.at("end"):
            raise ParseError("this '(' is never closed", bracket.opening)
        self._refuse_experimental_words()
        if bracket.name:
            self.cursor.expect(")", "in the arguments", "an operator, ',' or ')'")
        else:
            self.cursor.expect(")", "in parentheses", "an operator or ')'")
        self.cursor.leave()
        bracket.args.append(node)
        return self._finished(bracket)

    def _finished(self, bracket: _Bracket) -> Node:
        args = tuple(bracket.args)
        if bracket.is_call:
            return typecheck.call(Call(bracket.name, args, pos=self._since(bracket)))
        if not bracket.name:
            return Paren(args[0], pos=self._since(bracket))
        without, grouping = bracket.grouping or self._grouping() or (False, ())
        param, expr = _parts(bracket.name, args, bracket.start)
        pos = self._since(bracket)
        return typecheck.aggregate(Aggregate(bracket.name, expr, param, grouping, without, pos=pos))

    def _since(self, bracket: _Bracket) -> tuple[int, int]:
        return bracket.start, self.cursor.last_end

    def _refuse_experimental_words(self) -> None:
        if self.cursor.at_word(*_EXPERIMENTAL_WORDS):
            token = self.cursor.token
            raise _experimental("modifier", token.text.lower(), token.start)


def _parts(op: str, args: tuple[Node, ...], at: int) -> tuple[Node | None, Node]:
    wanted = 1 if AGGREGATIONS[op] is None else 2
    if len(args) != wanted:
        what = "one argument" if wanted == 1 else "a parameter and a vector"
        raise ParseError(f"the aggregation {op!r} takes {what}, found {len(args)}", at)
    return (None, args[0]) if wanted == 1 else (args[0], args[1])


def _experimental(what: str, name: str, at: int) -> ParseError:
    return ParseError(f"the {what} {name!r} is experimental and not supported", at)


def _suggestion(name: str) -> str:
    known = [*FUNCTIONS, *AGGREGATIONS]
    near = get_close_matches(name[:100].lower(), known, n=1, cutoff=0.75)
    return f", did you mean {near[0]!r}?" if near else ""
