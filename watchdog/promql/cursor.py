"""A place in the tokens of an expression, and how far the reading is nested.

It must not know the grammar, only how to step, to demand, and to say what was found instead.
"""

from __future__ import annotations

from .errors import ParseError
from .lexer import KEYWORDS, Token, tokens

MAX_LENGTH = 131_072
"""The longest expression that is read, in characters."""

MAX_DEPTH = 100
"""How many brackets, calls, signs and pending operators may enclose a part of an expression."""

_KINDS = frozenset({"name", "number", "duration", "string"})


class Cursor:
    """Reads tokens one after the other. ``token`` is the next one, not yet taken."""

    def __init__(self, text: str) -> None:
        """Raises ParseError when the text is too long."""
        if len(text) > MAX_LENGTH:
            raise ParseError(
                f"the expression has {len(text)} characters, {MAX_LENGTH} are the most", MAX_LENGTH
            )
        self._tokens = tokens(text)
        self._index = 0
        self._depth = 0
        self.token = self._tokens[0]

    @property
    def following(self) -> Token:
        """The token after the next one."""
        return self._tokens[min(self._index + 1, len(self._tokens) - 1)]

    @property
    def last_end(self) -> int:
        """The offset behind the last token taken."""
        return self._tokens[self._index - 1].end if self._index else 0

    def take(self) -> Token:
        """The next token, and step over it."""
        token = self.token
        if token.kind != "end":
            self._index += 1
            self.token = self._tokens[self._index]
        return token

    def at(self, kind: str) -> bool:
        """Whether the next token is of this kind."""
        return self.token.kind == kind

    def at_word(self, *words: str) -> bool:
        """Whether the next token is one of these words, in any case of letters."""
        return self.token.kind == "name" and self.token.text.lower() in words

    def accept(self, kind: str) -> bool:
        """Step over the next token if it is of this kind."""
        if self.token.kind != kind:
            return False
        self.take()
        return True

    def expect(self, kind: str, where: str, wanted: str | None = None) -> Token:
        """The next token, which must be of this kind; ``where`` and ``wanted`` word the error."""
        if self.token.kind != kind:
            raise self.unexpected(where, wanted or repr(kind))
        return self.take()

    def unexpected(self, where: str, wanted: str) -> ParseError:
        """The error for a next token that does not belong here."""
        token = self.token
        if token.kind == "error":
            return ParseError(token.text, token.start)
        place = f" {where}" if where else ""
        return ParseError(f"unexpected {describe(token)}{place}, expected {wanted}", token.start)

    def enter(self) -> None:
        """One level deeper. Raises ParseError at the next token when that is too deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ParseError(
                f"the expression is nested too deeply, {MAX_DEPTH} levels are the most",
                self.token.start,
            )

    def leave(self) -> None:
        """One level back."""
        self._depth -= 1


def describe(token: Token) -> str:
    """The words for a token in an error message."""
    if token.kind == "end":
        return "end of the expression"
    text = token.text if len(token.text) <= 40 else token.text[:37] + "..."
    text = text.encode(errors="backslashreplace").decode()
    if token.kind == "string":
        return f"string {text}"
    if token.kind == "name" and text.lower() in KEYWORDS:
        return f"keyword {text!r}"
    return f"{token.kind} {text!r}" if token.kind in _KINDS else repr(text)
