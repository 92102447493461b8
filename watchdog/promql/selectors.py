"""Reads selectors: a metric's name, matchers in braces, and what may follow in brackets or behind
``@`` and ``offset``. It must not read operators or calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from ..model import NAME
from . import literals, typecheck
from .cursor import Cursor
from .errors import ParseError, shown
from .matchers import is_label_name, matcher, matcher_text, passes_empty
from .nodes import At, Matcher, MatchOp, MatrixSelector, Node, Subquery, VectorSelector

_MATCH_OPS = frozenset({"=", "!=", "=~", "!~"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "^", "("})
_IN_BRACES = "inside braces"
_MAX_SECONDS = float(2**63) / 1000

_Selector = VectorSelector | MatrixSelector | Subquery


def selector(cursor: Cursor) -> VectorSelector:
    """The instant vector selector that begins at the cursor: a name, braces, or both."""
    start = cursor.token.start
    name = cursor.take().text if cursor.at("name") else ""
    found = _braces(cursor) if cursor.at("{") else []
    if name:
        twice = [item for item in found if item.name == NAME]
        if twice:
            raise ParseError(
                f"the metric name is set twice: {shown(name)} and {shown(twice[0].value)}", start
            )
    elif all(passes_empty(item) for item in found):
        raise ParseError(
            "a selector without a metric name needs a matcher that the empty value does not pass",
            start,
        )
    named = (Matcher(NAME, "=", name),) if name else ()
    return VectorSelector(name, (*named, *_ordered(found)), pos=(start, cursor.last_end))


def _ordered(found: list[Matcher]) -> list[Matcher]:
    """The matchers as the canonical form prints them, so that one meaning has one tree.

    Those of one label stay in the order of the text: ``absent`` tells its labels by it.
    """
    places: dict[str, str] = {}
    for item in found:
        places.setdefault(item.name, matcher_text(item))
    return sorted(found, key=lambda item: places[item.name])


def _braces(cursor: Cursor) -> list[Matcher]:
    cursor.take()
    found: list[Matcher] = []
    while not cursor.accept("}"):
        found.append(_matcher(cursor))
        if not cursor.at("}"):
            cursor.expect(",", _IN_BRACES, "',' or '}'")
    return found


def _matcher(cursor: Cursor) -> Matcher:
    label = cursor.token
    if label.kind not in ("name", "string"):
        raise cursor.unexpected(_IN_BRACES, "a label name or '}'")
    cursor.take()
    name = label.text
    if label.kind == "string":
        name = literals.unquote(label.text, label.start)
        if cursor.token.kind in (",", "}"):
            _refuse_bad_name(name, "metric", label.start)
            return Matcher(NAME, "=", name)
        _refuse_bad_name(name, "label", label.start)
    if cursor.token.kind not in _MATCH_OPS:
        raise cursor.unexpected(_IN_BRACES, "one of '=' '!=' '=~' '!~'")
    op = cast(MatchOp, cursor.take().kind)
    value = cursor.expect("string", _IN_BRACES, "a string in quotes")
    return matcher(name, op, literals.unquote(value.text, value.start), value.start)


def _refuse_bad_name(name: str, what: str, at: int) -> None:
    if not is_label_name(name):
        raise ParseError(f"{shown(name)} is no {what} name", at)


def suffixes(cursor: Cursor, node: Node) -> Node:
    """``node`` with all ranges, subqueries, ``@`` and ``offset`` that follow it."""
    while True:
        if cursor.at("["):
            node = _brackets(cursor, node)
        elif cursor.at("@"):
            node = _at(cursor, node)
        elif cursor.at_word("offset"):
            node = _offset(cursor, node)
        else:
            return node


def _brackets(cursor: Cursor, node: Node) -> Node:
    opening = cursor.take().start
    length = _positive(cursor)
    if cursor.accept(":"):
        step = None if cursor.at("]") else _positive(cursor)
        _refuse_arithmetic(cursor)
        cursor.expect("]", "in a subquery")
        pos = (node.pos[0], cursor.last_end)
        return typecheck.subquery(Subquery(node, length, step, pos=pos))
    _refuse_arithmetic(cursor)
    cursor.expect("]", "after a range", "']', or ':' for a subquery")
    if not isinstance(node, VectorSelector):
        raise ParseError("a range fits only a selector; a subquery has a colon: [5m:]", opening)
    if node.offset:
        raise ParseError("'offset' must stand behind the range, not before it", opening)
    if node.at is not None and node.at.ms is not None:
        raise ParseError("'@' must stand behind the range, not before it", opening)
    return MatrixSelector(node, length, pos=(node.pos[0], cursor.last_end))


def _positive(cursor: Cursor) -> int:
    start = cursor.token.start
    ms = _signed(cursor, "inside brackets")
    if ms <= 0:
        raise ParseError("a duration inside brackets must be longer than 0", start)
    return ms


def _refuse_arithmetic(cursor: Cursor) -> None:
    if cursor.token.kind in _ARITHMETIC:
        raise ParseError(
            f"unexpected {cursor.token.kind!r}: arithmetic on durations is experimental"
            " and not supported",
            cursor.token.start,
        )


def _signed(cursor: Cursor, where: str) -> int:
    sign = 1
    while cursor.token.kind in ("-", "+"):
        sign = -sign if cursor.take().kind == "-" else sign
    _refuse_arithmetic(cursor)
    return sign * _duration(cursor, where)


def _duration(cursor: Cursor, where: str) -> int:
    token = cursor.token
    if token.kind == "duration":
        cursor.take()
        return literals.duration_ms(token.text, token.start)
    if token.kind == "number":
        cursor.take()
        seconds = literals.number(token.text, token.start)
        return literals.seconds_to_ms(seconds, token.start)
    raise cursor.unexpected(where, "a duration or a number of seconds")


def _modified(node: Node, word: str) -> _Selector:
    if not isinstance(node, (VectorSelector, MatrixSelector, Subquery)):
        raise ParseError(f"{word!r} must follow a selector, a range or a subquery", node.pos[0])
    return node


def _carrier(node: _Selector) -> VectorSelector | Subquery:
    return node.vector if isinstance(node, MatrixSelector) else node


def _offset(cursor: Cursor, node: Node) -> Node:
    word = cursor.take()
    ms = _signed(cursor, "after 'offset'")
    target = _modified(node, "offset")
    if _carrier(target).offset:
        raise ParseError("'offset' may stand only once", word.start)
    return _with(target, cursor.last_end, offset=ms)


def _at(cursor: Cursor, node: Node) -> Node:
    sign = cursor.take()
    moment = _moment(cursor)
    target = _modified(node, "@")
    if _carrier(target).at is not None:
        raise ParseError("'@' may stand only once", sign.start)
    return _with(target, cursor.last_end, at=moment)


def _moment(cursor: Cursor) -> At:
    if cursor.at_word("start", "end"):
        edge = cursor.take().text.lower()
        cursor.expect("(", f"after '@ {edge}'")
        cursor.expect(")", f"after '@ {edge}('")
        return At(edge="start" if edge == "start" else "end")
    negative = cursor.at("-")
    if cursor.token.kind in ("-", "+"):
        cursor.take()
    token = cursor.token
    if token.kind == "duration":
        seconds = literals.duration_ms(cursor.take().text, token.start) / 1000
    elif token.kind == "number":
        seconds = literals.number(cursor.take().text, token.start)
    else:
        raise cursor.unexpected("after '@'", "a time in seconds, start() or end()")
    if not seconds < _MAX_SECONDS:
        raise ParseError("the time is out of range", token.start)
    ms = int(seconds * 1000 + 0.5)
    return At(ms=-ms if negative else ms)


def _with(node: _Selector, end: int, *, offset: int | None = None, at: At | None = None) -> Node:
    pos = (node.pos[0], end)
    if isinstance(node, MatrixSelector):
        vector = node.vector
        if offset is not None:
            vector = replace(vector, offset=offset)
        if at is not None:
            vector = replace(vector, at=at)
        return replace(node, vector=vector, pos=pos)
    if offset is not None:
        return replace(node, offset=offset, pos=pos)
    return replace(node, at=at, pos=pos)
