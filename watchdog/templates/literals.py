"""Numbers, strings and other constants of a Go template, read as Go reads them."""

from __future__ import annotations

import re

from .lexer import Token
from .tree import Literal, TemplateError


def literal(token: Token) -> Literal:
    """Read a token of kind nil, bool, raw, string, char or number; TemplateError if malformed."""
    if token.kind == "nil":
        return Literal(token.at, "nil", None)
    if token.kind == "bool":
        return Literal(token.at, token.text, token.text == "true")
    if token.kind == "raw":
        return Literal(token.at, token.text, token.text[1:-1].replace("\r", ""))
    if token.kind == "string":
        return Literal(token.at, token.text, _unquote(token, '"'))
    if token.kind == "char":
        char = _unquote(token, "'")
        if len(char) != 1:
            raise TemplateError(f"malformed character constant: {token.text}", token.at)
        return Literal(token.at, token.text, ord(char), float(ord(char)), ord(char))
    return _number(token)


def _number(token: Token) -> Literal:
    text = token.text
    whole: int | None = None
    digits = text.lstrip("+-")
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"  # Go's old spelling
    try:
        whole = int(text, 8 if octal else 0)
        real = float(whole)
        value: object = whole
    except ValueError:
        if not set(text) & set(".eEpP"):
            raise TemplateError(f'integer overflow: "{text}"', token.at) from None
        real = _real(token)
        value = real
        whole = int(real) if real.is_integer() and abs(real) < 2**63 else None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise TemplateError(f'integer overflow: "{text}"', token.at)
    return Literal(token.at, text, value, real, whole)


def _real(token: Token) -> float:
    text = token.text
    try:
        if text.lstrip("+-")[:2].lower() == "0x" and "p" in text.lower():
            return float.fromhex(text.replace("_", ""))
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            return float(text)
    except (ValueError, OverflowError):
        pass
    raise TemplateError(f'illegal number syntax: "{text}"', token.at)


_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\",
}  # fmt: skip
_CODED = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.S
)


def _unquote(token: Token, mark: str) -> str:
    def decode(match: re.Match[str]) -> str:
        two, four, eight, octal, plain = match.groups()
        if plain is not None:
            char = _SIMPLE.get(plain, plain if plain == mark else "")
            if not char:
                raise TemplateError("invalid syntax", token.at)
            return char
        code = int(octal, 8) if octal else int(two or four or eight, 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF or (octal and code > 255):
            raise TemplateError("invalid syntax", token.at)
        if (octal or two) and code > 0x7F:
            raise TemplateError("bytes that are no text are not supported", token.at)
        return chr(code)

    return _CODED.sub(decode, token.text[1:-1])
