"""Cuts the text of an expression into tokens. It knows no grammar beyond which brackets are open.

Words, numbers and strings mean different things inside ``{}`` and ``[]``, so the lexer has three
modes. It never raises: what cannot be cut becomes one last token of kind ``error`` whose text is
the message, and the parser raises it when it gets there, so the first fault in the text is the
one reported.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import shown

KEYWORDS = frozenset(
    """
    and atan2 bool by end group_left group_right ignoring offset on or start unless without
    """.split()  # noqa: SIM905 - reads better in a line
)
"""Words of the grammar, in any case of letters. Names of aggregations are not among them."""


class Token(NamedTuple):
    """A piece of the text.

    ``kind`` is ``name``, ``number``, ``duration``, ``string``, ``end`` or ``error``; for operators
    and punctuation it is the text itself. ``start`` and ``end`` are character offsets.
    """

    kind: str
    text: str
    start: int
    end: int


_STRING = r"""
    (?P<string> "[^"\\\n]*(?:\\.[^"\\\n]*)*" | '[^'\\\n]*(?:\\.[^'\\\n]*)*' | `[^`]*` )
"""
_SKIP = r"(?P<skip> [ \t\r\n]+ | \#[^\r\n]* )"
# A number with everything that clings to it: what it is, is decided afterwards.
_NUMBER = r"(?P<digits> 0[xX][\w.]* | \.?[0-9](?:[eE][+-]|[\w.])* )"

_FLAGS = re.VERBOSE | re.ASCII
_PLAIN = re.compile(
    rf"""{_SKIP} | (?P<name> [A-Za-z_:][A-Za-z0-9_:]* ) | {_NUMBER} | {_STRING}
    | (?P<mark> == | != | <= | >= | [-+*/%^<>@(),{{\[\])] )""",
    _FLAGS,
)
_BRACES = re.compile(
    rf"""{_SKIP} | (?P<name> [A-Za-z_][A-Za-z0-9_]* ) | {_STRING}
    | (?P<mark> =~ | !~ | != | [=,}}] )""",
    _FLAGS,
)
_BRACKETS = re.compile(rf"{_SKIP} | {_NUMBER} | (?P<mark> [:\]()+*/%^-] )", _FLAGS)

_MODE_AFTER = {"{": _BRACES, "}": _PLAIN, "[": _BRACKETS, "]": _PLAIN}
_DECIMAL = r"[0-9]+(?:_[0-9]+)*"
_IS_NUMBER = re.compile(
    rf"0[xX]_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)* | (?:{_DECIMAL}(?:\.(?:{_DECIMAL})?)? | \.{_DECIMAL})"
    rf"(?:[eE][+-]?{_DECIMAL})?",
    _FLAGS,
)
_IS_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdwy]))+", re.ASCII)
_ONLY_IN_BRACES = {
    "=": "'=' and '=~' stand only inside braces (a comparison is written '==')",
    "!": "'!' stands only in '!=' and, inside braces, in '!~'",
}
_NUMBER_WORDS = frozenset({"inf", "nan"})


def tokens(text: str) -> list[Token]:
    """The tokens of ``text``; the last one is of kind ``end`` or ``error``."""
    found: list[Token] = []
    mode, at = _PLAIN, 0
    while at < len(text):
        match = mode.match(text, at)
        if match is None:
            found.append(Token("error", _complaint(text, at, mode), at, at + 1))
            return found
        at = match.end()
        if match.lastgroup == "skip":
            continue
        token = _token(match, mode)
        found.append(token)
        if token.kind == "error":
            return found
        mode = _MODE_AFTER.get(token.kind, mode)
    found.append(Token("end", "", at, at))
    return found


def _token(match: re.Match[str], mode: re.Pattern[str]) -> Token:
    kind, text = match.lastgroup or "", match.group()
    if kind == "mark":
        kind = text
    elif kind == "digits":
        kind = _kind_of_digits(text)
        if kind == "error":
            text = f"{shown(text)} is neither a number nor a duration"
    elif kind == "name" and mode is _PLAIN and text.lower() in _NUMBER_WORDS:
        kind = "number"
    return Token(kind, text, match.start(), match.end())


def _kind_of_digits(text: str) -> str:
    if _IS_NUMBER.fullmatch(text):
        return "number"
    return "duration" if _IS_DURATION.fullmatch(text) else "error"


def _complaint(text: str, at: int, mode: re.Pattern[str]) -> str:
    found = text[at]
    if found in "\"'`" and mode is not _BRACKETS:
        return f"the string that begins here is not closed with {found}"
    if found in _ONLY_IN_BRACES and mode is _PLAIN:
        return _ONLY_IN_BRACES[found]
    if mode is _BRACES:
        return f"unexpected character {found!r} inside braces"
    if mode is _BRACKETS:
        return f"unexpected character {found!r} inside brackets, expected a duration"
    return f"unexpected character {found!r}"
