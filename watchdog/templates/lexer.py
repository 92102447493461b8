"""From the text of a Go template to tokens: text, delimiters with trim markers, words, literals.

Where a token ends is Go's rule, and so are the complaints. No grammar here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .tree import TemplateError

_SPACES = " \t\r\n"
KEYWORDS = {
    "block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int


# Longest first; a word ends where Go's lexer lets it end, which is checked apart.
_TOKENS = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<string>"(?:\\[^\n]|[^"\\\n])*")
      | (?P<raw>`[^`]*`)
      | (?P<char>'(?:\\[^\n]|[^'\\\n])*')
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?
                         |(?:[0-9][0-9_]*|(?=\.[0-9]))(?:[oObB][0-9_]*)?
                          (?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?))
      | (?P<variable>\$\w*)
      | (?P<field>\.\w+)
      | (?P<dot>\.)
      | (?P<word>\w+)
      | (?P<declare>:=)
      | (?P<assign>=)
      | (?P<pipe>\|)
      | (?P<open>\()
      | (?P<close>\))
      | (?P<other>[!-~])
    """,
    re.VERBOSE,
)
_UNFINISHED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
    ":": "expected :=",
}


def lex(text: str) -> list[Token]:
    """Cut the text: pieces of ``text``, and between ``left`` and ``right`` an action's tokens."""
    tokens: list[Token] = []
    at = 0
    while True:
        left = text.find("{{", at)
        end = len(text) if left < 0 else left
        trim = left >= 0 and _trims(text, left + 2)
        piece = text[at:end].rstrip(_SPACES) if trim else text[at:end]
        if piece:
            tokens.append(Token("text", piece, at))
        if left < 0:
            tokens.append(Token("eof", "EOF", len(text)))
            return tokens
        inside = left + (4 if trim else 2)
        if text.startswith("/*", inside):
            at = _comment(text, inside)
            continue
        tokens.append(Token("left", "{{", left))
        at = _action(text, inside, tokens)


def _trims(text: str, at: int) -> bool:
    return text[at : at + 1] == "-" and text[at + 1 : at + 2] in tuple(_SPACES)


def _comment(text: str, at: int) -> int:
    close = text.find("*/", at + 2)
    if close < 0:
        raise TemplateError("unclosed comment", at)
    after = _right(text, close + 2)
    if after is None:
        raise TemplateError("comment ends before closing delimiter", at)
    return after


def _right(text: str, at: int) -> int | None:
    """Where the text goes on if an action ends at ``at``, else None."""
    if text.startswith("}}", at):
        return at + 2
    if text[at : at + 1] in tuple(_SPACES) and text.startswith("-}}", at + 1):
        at += 4
        while text[at : at + 1] in tuple(_SPACES):
            at += 1
        return at
    return None


def _action(text: str, at: int, tokens: list[Token]) -> int:
    depth = 0
    while True:
        after = _right(text, at)
        if after is not None:
            if depth:
                raise TemplateError("unclosed left paren", at)
            tokens.append(Token("right", "}}", at))
            return after
        token = _token(text, at)
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if depth < 0:
            raise TemplateError("unexpected right paren", at)
        tokens.append(token)
        at += len(token.text)


def _token(text: str, at: int) -> Token:
    if at >= len(text):
        raise TemplateError("unclosed action", at)
    match = _TOKENS.match(text, at)
    if match is None or (match.lastgroup == "other" and match.group() in _UNFINISHED):
        reason = _UNFINISHED.get(text[at], f"unrecognized character in action: {_shown(text[at])}")
        raise TemplateError(reason, at)
    kind, word, end = str(match.lastgroup), match.group(), match.end()
    if kind == "space" and text.startswith("-}}", end):
        word = word[:-1]  # the last space belongs to the trim marker
    if kind == "number" and re.match(r"\w", text[end:]):
        raise TemplateError(f'bad number syntax: "{word}{text[end]}"', at)
    if kind in ("variable", "field", "word") and not _ends_word(text, end):
        raise TemplateError(f"bad character {_shown(text[end])}", end)
    if kind == "word" and word in KEYWORDS:
        kind = word
    elif kind == "word" and word in ("true", "false"):
        kind = "bool"
    return Token(kind, word, at)


def _ends_word(text: str, at: int) -> bool:
    return at >= len(text) or text[at] in " \t\r\n.,|:)(" or text.startswith("}}", at)


def _shown(char: str) -> str:
    return f"U+{ord(char):04X}" + (f" '{char}'" if char.isprintable() else "")
