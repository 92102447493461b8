"""Numbers, durations and strings: from their spelling to their value, by Go's rules.

It must not know where in an expression they stand.
"""

from __future__ import annotations

import math
import re

from .errors import ParseError

MAX_MS = (2**63 - 1) // 10**6
"""The longest duration, about 292 years: Prometheus counts nanoseconds in 64 bits."""

_DURATION = re.compile(
    r"(?:([0-9]+)y)?(?:([0-9]+)w)?(?:([0-9]+)d)?(?:([0-9]+)h)?"
    r"(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?"
)
_UNITS_MS = (365 * 86_400_000, 7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1000, 1)
UNITS = ("y", "w", "d", "h", "m", "s", "ms")

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
}


def number(text: str) -> float:
    """The value of a number's spelling; a leading 0 means octal, as in Go."""
    plain = text.replace("_", "").lower()
    if plain == "nan":
        return math.nan
    if plain.startswith("0x"):
        return _as_float(int(plain, 16))
    if len(plain) > 1 and plain[0] == "0" and set(plain) <= set("01234567"):
        return _as_float(int(plain, 8))
    return float(plain)


def _as_float(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def duration_ms(text: str, at: int) -> int:
    """Milliseconds of a duration such as ``1h30m``.

    Raises ParseError (at offset ``at``) when units repeat, stand in the wrong order, or the sum
    is too long.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ParseError(
            f"{text!r} is no duration: each unit may stand once, in the order y w d h m s ms", at
        )
    total = 0
    for digits, unit in zip(match.groups(), _UNITS_MS, strict=True):
        # Twenty digits are out of range in every unit; Python need not read longer ones.
        total += int((digits or "0").lstrip("0")[:20] or "0") * unit
    return _in_range(total, at)


def seconds_to_ms(seconds: float, at: int) -> int:
    """Milliseconds of a duration given as plain seconds; parts of a millisecond are cut off."""
    if not math.isfinite(seconds):
        raise ParseError("a duration must be a finite number of seconds", at)
    return _in_range(int(seconds * 1000), at)


def _in_range(ms: int, at: int) -> int:
    if ms > MAX_MS:
        raise ParseError("the duration is out of range (292 years at most)", at)
    return ms


def duration_text(ms: int) -> str:
    """The canonical spelling of a duration; the inverse of ``duration_ms`` for ``ms`` >= 0."""
    if ms == 0:
        return "0s"
    parts = []
    for unit, size in zip(UNITS, _UNITS_MS, strict=True):
        # Years and weeks only where nothing is left over: 366d, not 1y1d.
        if unit in ("y", "w") and ms % size:
            continue
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


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
        return _SIMPLE.get(simple, b"\\")
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
