"""Go's way of writing values as text: verbs and operands, ``Sprint``, ``Sprintln``.

Alert annotations are compared as text, so the numbers in them must be written as Go writes them.
Only formatting lives here; templates and PromQL are not known.

Go's kinds are Python's: int, float (float64), bool, str, None (nil), list, dict (maps with string
keys). Any other object counts as a Stringer: ``go_type`` names its type, ``str()`` is its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .goliterals import format_float, quote

_BASIC = {bool: "bool", int: "int", float: "float64", str: "string"}


def type_name(value: object) -> str:
    """Return Go's name for the type of ``value`` (``float64``, ``map[string]string`` …)."""
    basic = _BASIC.get(type(value))
    if basic:
        return basic
    return str(getattr(value, "go_type", "<nil>" if value is None else "interface {}"))


@dataclass(frozen=True, slots=True)
class Spec:
    """The flags, width and precision of one verb."""

    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None

    def pad(self, text: str, *, zero: bool = False) -> str:
        """Fill ``text`` to the width: spaces, or zeros on the left where that is allowed."""
        if self.width is None or len(text) >= self.width:
            return text
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if zero and self.zero else " ")


PLAIN = Spec()


def sprint(*args: object) -> str:
    """``fmt.Sprint``: a space only between two operands neither of which is a string."""
    out: list[str] = []
    previous = True
    for arg in args:
        text = isinstance(arg, str)
        if out and not text and not previous:
            out.append(" ")
        out.append(format_value(arg, "v", PLAIN))
        previous = text
    return "".join(out)


def sprintln(*args: object) -> str:
    """``fmt.Sprintln``: spaces between all operands, and a newline."""
    return " ".join(format_value(arg, "v", PLAIN) for arg in args) + "\n"


def format_value(value: object, verb: str, spec: Spec) -> str:
    """Write one operand under one verb, with Go's text for a verb that does not fit."""
    if verb == "T" and value is not None:
        return _string(type_name(value), "s", spec)
    if verb in "vT" and value is None:
        return spec.pad("<nil>", zero=True)
    writer = _WRITERS.get(type(value))
    return writer(value, verb, spec) if writer else _object(value, verb, spec)


def _object(value: object, verb: str, spec: Spec) -> str:
    if value is None:
        return _bad(value, verb, spec)
    if isinstance(value, dict):
        pairs = (
            f"{format_value(key, verb, spec)}:{format_value(item, verb, spec)}"
            for key, item in sorted(value.items())
        )
        return f"map[{' '.join(pairs)}]"
    if isinstance(value, list):
        return f"[{' '.join(format_value(item, verb, spec) for item in value)}]"
    number = getattr(value, "go_int", None)
    if number is not None and verb not in "vsqxX":
        return _integer(int(number), verb, spec)
    return _string(str(value), "s" if verb == "v" else verb, spec)


def _bool(value: bool, verb: str, spec: Spec) -> str:
    return spec.pad(str(value).lower(), zero=True) if verb in "tv" else _bad(value, verb, spec)


def _bad(value: object, verb: str, spec: Spec) -> str:
    if value is None:
        return f"%!{verb}(<nil>)"
    return f"%!{verb}({type_name(value)}={format_value(value, 'v', spec)})"


_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}
_PREFIXES = {"b": "0b", "o": "0", "O": "0", "x": "0x", "X": "0X"}


def _integer(value: int, verb: str, spec: Spec) -> str:
    if verb in "cqU":
        return _rune(value, verb, spec)
    base = _BASES.get(verb)
    if base is None:
        return _bad(value, verb, spec)
    if spec.precision == 0 and value == 0:
        return " " * (spec.width or 0)
    sign = "-" if value < 0 else "+" if spec.plus else " " if spec.space else ""
    least = spec.precision
    if least is None:
        fill = spec.zero and not spec.minus and spec.width is not None
        least = (spec.width or 0) - len(sign) if fill else 0
    digits = f"{abs(value):{base}}".rjust(least, "0")
    if spec.sharp and verb in _PREFIXES and not (verb in "oO" and digits.startswith("0")):
        digits = _PREFIXES[verb] + digits
    if verb == "O":
        digits = "0o" + digits
    return spec.pad(sign + digits)


def _rune(value: int, verb: str, spec: Spec) -> str:
    if verb == "U":
        value &= 2**64 - 1
        text = f"U+{value:0{max(4, spec.precision or 0)}X}"
        named = spec.sharp and 0 <= value <= 0x10FFFF and chr(value).isprintable()
        return spec.pad(f"{text} '{chr(value)}'" if named else text)
    valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF
    char = chr(value) if valid else "�"
    return spec.pad(char if verb == "c" else quote(char, "'", ascii_only=spec.plus), zero=True)


def _float(value: float, verb: str, spec: Spec) -> str:
    if verb not in "vbgGxXfFeE":
        return _bad(value, verb, spec)
    precision = -1 if verb in "vbgGxX" else 6
    if spec.precision is not None:
        precision = spec.precision
    style = {"v": "g", "F": "f"}.get(verb, verb)
    number = format_float(value, style, precision)
    sign = number[0] if number[0] in "+-" else "+"
    number = number.lstrip("+-")
    if sign == "+" and spec.space and not spec.plus:
        sign = " "
    if number in ("Inf", "NaN"):
        bare = number == "NaN" and not spec.space and not spec.plus
        return spec.pad(number if bare else sign + number)
    if spec.sharp and verb != "b":
        number = _keep_point(number, verb, precision)
    if not spec.plus and sign == "+":
        return spec.pad(number, zero=True)
    if spec.zero and not spec.minus and spec.width is not None:
        return sign + number.rjust(spec.width - 1, "0")
    return spec.pad(sign + number)


def _keep_point(number: str, verb: str, precision: int) -> str:
    """The sharp flag: always a decimal point, and %g keeps its trailing zeros."""
    mark = next(
        (mark for mark in "pPeE" if mark in number and (mark in "pP" or verb not in "xX")), ""
    )
    body, _, tail = number.partition(mark) if mark else (number, "", "")
    wanted = (6 if precision < 0 else precision) if verb in "vgGx" else 0
    significant = len(body.replace(".", "").lstrip("0"))
    if "." not in body:
        wanted -= body == "0"
        body += "."
    return body + "0" * max(0, wanted - significant) + mark + tail


def _string(value: str, verb: str, spec: Spec) -> str:
    if verb not in "vsqxX":
        return _bad(value, verb, spec)
    if verb in "xX":
        return _hex_string(value, verb, spec)
    if spec.precision is not None:
        value = value[: spec.precision]
    if verb != "q":
        return spec.pad(value, zero=True)
    if spec.sharp and not any(c in "`\x7f\ufeff" or (c < " " and c != "\t") for c in value):
        return spec.pad(f"`{value}`", zero=True)
    return spec.pad(quote(value, ascii_only=spec.plus), zero=True)


def _hex_string(value: str, verb: str, spec: Spec) -> str:
    data = value.encode("utf-8", "surrogatepass")[: spec.precision]
    prefix = f"0{verb}" if spec.sharp and data else ""
    spaced = " ".join(f"{prefix}{byte:02x}" for byte in data)
    text = spaced if spec.space else prefix + data.hex()
    return spec.pad(text.upper() if verb == "X" else text, zero=True)


_WRITERS: dict[type, Callable[[Any, str, Spec], str]] = {
    bool: _bool,
    int: _integer,
    float: _float,
    str: _string,
}
