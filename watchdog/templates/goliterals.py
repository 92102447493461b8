"""Go's texts for floats and quoted strings (``strconv.FormatFloat``, ``strconv.Quote``)."""

from __future__ import annotations

import math

_WIDEST = 6  # with the precision left open, %g writes larger exponents as such
_ESCAPES = {"\a": "a", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", "\v": "v"}


def format_float(value: float, verb: str = "g", precision: int = -1) -> str:
    """Write a float as ``strconv.FormatFloat(value, verb, precision, 64)`` does.

    ``verb`` is one of ``b e E f F g G x X``; precision -1 asks for the fewest digits that read back
    as the same number.
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if verb == "b":
        return _binary_float(value)
    if verb in "xX":
        text = _hex_float(value, precision)
    elif precision >= 0:
        text = f"{value:.{precision}{verb.lower()}}"
    else:
        text = _shortest(value, verb.lower())
    return text.upper() if verb in "EGX" else text


def _shortest(value: float, verb: str) -> str:
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    digits, exponent = _digits(abs(value))
    if verb == "e" or (verb == "g" and not -4 <= exponent < _WIDEST):
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{exponent:+03d}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    fraction = digits[exponent + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def _digits(value: float) -> tuple[str, int]:
    """The shortest decimal digits of a finite float >= 0, and the exponent of the first one."""
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0", 0
    shift = len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    return digits.rstrip("0"), shift + int(exponent or 0)


def _binary_float(value: float) -> str:
    mantissa, exponent = math.frexp(value)
    shift = min(53, exponent + 1074) if value else 1074  # below the normal range: the last digit
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    return f"{sign}{abs(int(math.ldexp(mantissa, shift)))}p{exponent - shift:+d}"


def _hex_float(value: float, precision: int) -> str:
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, exponent = math.frexp(abs(value))
    units = int(math.ldexp(mantissa, 53))  # one bit before the point, 52 after it
    drop = 52 - 4 * precision
    if 0 <= precision < 13:
        half, rest = 1 << (drop - 1), units & ((1 << drop) - 1)
        units >>= drop
        units += rest > half or (rest == half and units & 1)
        units <<= drop
    if units >> 53:
        exponent += 1
        units >>= 1
    fraction = f"{units & ((1 << 52) - 1):013x}"
    fraction = fraction.rstrip("0") if precision < 0 else fraction[:precision].ljust(precision, "0")
    point = f".{fraction}" if fraction else ""
    return f"{sign}0x{units >> 52:x}{point}p{exponent - 1 if value else 0:+03d}"


def quote(text: str, mark: str = '"', *, ascii_only: bool = False) -> str:
    """Quote ``text`` as Go's ``strconv.Quote`` (or, with ``mark`` ', ``QuoteRune``)."""
    return mark + "".join(_escape(char, mark, ascii_only) for char in text) + mark


def _escape(char: str, mark: str, ascii_only: bool) -> str:
    code = ord(char)
    if char in (mark, "\\"):
        return "\\" + char
    if char == " " or (char.isprintable() and not (ascii_only and code > 126)):
        return char
    if char in _ESCAPES:
        return "\\" + _ESCAPES[char]
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
