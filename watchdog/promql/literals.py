"""Numbers, durations and strings: from their spelling to their value, by Go's rules.

It must not know where in an expression they stand.
"""

from __future__ import annotations

import math
import re

from .errors import ParseError, shown

MAX_MS = (2**63 - 1) // 10**6
"""The longest duration, about 292 years: Prometheus counts nanoseconds in 64 bits."""

_DURATION = re.compile(
    r"(?:([0-9]+)y)?(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?"
    r"(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?"
)
_UNITS_MS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
_UNITS = ("y", "w", "d", "h", "m", "s", "ms")

_OCTAL = re.compile(r"[0-7]+", re.ASCII)

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|)"
)
_SIMPLE = {
    "a": b"\a",
    "b": b"\b",
    "f": b"\f",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
    "\\": b"\\",
}
_TO_ESCAPE = re.compile(r'["\\]')
_ESCAPES = {'"': '\\"', **{value.decode(): "\\" + char for char, value in _SIMPLE.items()}}


def number(text: str, at: int) -> float:
    """The value of a number's spelling; a whole number with a leading 0 is octal, as in Go.

    Raises ParseError at offset ``at`` where it is too large.
    """
    plain = text.replace("_", "").lower()
    if plain == "nan":
        return math.nan
    if plain == "inf":
        return math.inf
    whole = _whole(plain)
    if whole is not None and whole < 2**63:
        return float(whole)
    value = math.inf if plain.startswith("0x") else float(plain)
    if math.isinf(value):
        raise ParseError(f"the number {shown(text)} is out of range", at)
    return value


def _whole(plain: str) -> int | None:
    if plain.startswith("0x"):
        return int(plain, 16)
    if plain[0] == "0" and _OCTAL.fullmatch(plain):
        return int(plain, 8)
    return None


def duration_ms(text: str, at: int) -> int:
    """Milliseconds of a duration such as ``1h30m``.

    Raises ParseError (at offset ``at``) when units repeat, stand in the wrong order, or the sum
    is too long.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ParseError(
            f"{shown(text)} is no duration: units stand once each, in the order y w d h m s ms",
            at,
        )
    total = 0
    for digits, unit in zip(match.groups(), _UNITS_MS, strict=True):
        # Twenty digits are out of range in every unit; Python need not read longer ones.
        total += int((digits or "0").lstrip("0")[:20] or "0") * unit
    return _in_range(total, at)


def seconds_to_ms(seconds: float, at: int) -> int:
    """Milliseconds of a duration given as plain seconds; parts of a millisecond are cut off."""
    if math.isnan(seconds):
        raise ParseError("NaN is no duration", at)
    return _in_range(int(min(seconds * 1000, MAX_MS + 1)), at)


def _in_range(ms: int, at: int) -> int:
    if ms > MAX_MS:
        raise ParseError("the duration is out of range (292 years at most)", at)
    return ms


def duration_text(ms: int) -> str:
    """The canonical spelling of a duration; the inverse of ``duration_ms`` for ``ms`` >= 0."""
    if ms == 0:
        return "0s"
    parts = []
    for unit, size in zip(_UNITS, _UNITS_MS, strict=True):
        # Years and weeks only where nothing is left over: 366d, not 1y1d.
        if unit in ("y", "w") and ms % size:
            continue
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def quote(value: str) -> str:
    r"""The double-quoted spelling of a string, as Go's strconv.Quote gives it.

    Lone surrogates stand for bytes that are no UTF-8 (see ``unquote``), and give ``\xff`` again.
    """
    if value.isascii() and value.isprintable() and not _TO_ESCAPE.search(value):
        return f'"{value}"'
    return '"' + "".join(map(_escape, value)) + '"'


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    point = ord(char)
    if 0xDC80 <= point <= 0xDCFF:
        return f"\\x{point - 0xDC00:02x}"
    if point < 0x80:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def unquote(text: str, at: int) -> str:
    r"""The value of a quoted string.

    Bytes that are no UTF-8 (written ``\xff``) come back as lone surrogates, as ``surrogateescape``
    makes them. Raises ParseError at the place of a bad escape.
    """
    quote, body = text[0], text[1:-1]
    _refuse_surrogates(body, at + 1)
    if quote == "`" or "\\" not in body:
        return body
    parts: list[bytes] = []
    done = 0
    for match in _ESCAPE.finditer(body):
        parts.append(body[done : match.start()].encode())
        parts.append(_escaped(match, quote, at + 1))
        done = match.end()
    parts.append(body[done:].encode())
    return b"".join(parts).decode(errors="surrogateescape")


def _refuse_surrogates(body: str, at: int) -> None:
    for index, char in enumerate(body) if not body.isascii() else ():
        if "\ud800" <= char <= "\udfff":
            raise ParseError("the string is not valid Unicode", at + index)


def _escaped(match: re.Match[str], quote: str, at: int) -> bytes:
    simple, byte, octal, *_ = match.groups()
    at += match.start()
    if simple is not None and simple not in "\"'":
        return _SIMPLE[simple]
    if simple == quote:
        return quote.encode()
    if byte is not None:
        return bytes([int(byte, 16)])
    if octal is not None and int(octal, 8) < 256:
        return bytes([int(octal, 8)])
    point = match[4] or match[5]
    if point is not None:
        return _code_point(int(point, 16), at)
    raise ParseError("unknown escape sequence in the string", at)


def _code_point(point: int, at: int) -> bytes:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise ParseError("the escape sequence names no Unicode character", at)
    return chr(point).encode()
