"""Go's way of writing values as text: ``fmt.Sprintf``, ``Sprint``, ``Sprintln``.

Alert annotations are compared as text, so the numbers in them must be written as Go writes them.
Only formatting lives here; templates and PromQL are not known.

Go's kinds are Python's: int, float (float64), bool, str, None (nil), list, dict (maps with string
keys). Any other object counts as a Stringer: ``go_type`` names its type, ``str()`` is its text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .goliterals import format_float, quote

_BASIC = {bool: "bool", int: "int", float: "float64", str: "string"}
_HUGE = 1_000_000  # Go takes no width or precision beyond this


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


_PLAIN = Spec()


def sprint(*args: object) -> str:
    """``fmt.Sprint``: a space only between two operands neither of which is a string."""
    out: list[str] = []
    previous = True
    for arg in args:
        text = isinstance(arg, str)
        if out and not text and not previous:
            out.append(" ")
        out.append(format_value(arg, "v", _PLAIN))
        previous = text
    return "".join(out)


def sprintln(*args: object) -> str:
    """``fmt.Sprintln``: spaces between all operands, and a newline."""
    return " ".join(format_value(arg, "v", _PLAIN) for arg in args) + "\n"


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


def sprintf(template: str, *args: object) -> str:
    """``fmt.Sprintf``, with Go's texts for missing, extra and ill-fitting operands."""
    return _Printer(template, args).run()


class _Printer:
    """One walk over a format string."""

    def __init__(self, template: str, args: Sequence[object]) -> None:
        self._text = template
        self._args = args
        self._at = 0
        self._next = 0  # the operand that the next verb takes
        self._reordered = False
        self._good = True
        self._after_index = False
        self._out: list[str] = []

    def run(self) -> str:
        while self._at < len(self._text):
            percent = self._text.find("%", self._at)
            if percent < 0:
                self._out.append(self._text[self._at :])
                break
            self._out.append(self._text[self._at : percent])
            self._at = percent + 1
            self._verb()
        if not self._reordered and self._next < len(self._args):
            extra = (
                "<nil>" if arg is None else f"{type_name(arg)}={format_value(arg, 'v', _PLAIN)}"
                for arg in self._args[self._next :]
            )
            self._out.append(f"%!(EXTRA {', '.join(extra)})")
        return "".join(self._out)

    def _verb(self) -> None:
        self._good, self._after_index = True, False
        spec = self._precision(self._width(self._flags()))
        if not self._after_index:
            self._index()
        if self._at >= len(self._text):
            self._out.append("%!(NOVERB)")
            return
        verb = self._text[self._at]
        self._at += 1
        if verb == "%":
            self._out.append("%")
        elif not self._good:
            self._out.append(f"%!{verb}(BADINDEX)")
        elif self._next >= len(self._args):
            self._out.append(f"%!{verb}(MISSING)")
        else:
            arg = self._args[self._next]
            if verb == "v":  # +v and #v are about structs and strings; numbers stay as they are
                verb = "q" if spec.sharp and isinstance(arg, str) else verb
                spec = replace(spec, plus=False, sharp=False)
            self._out.append(format_value(arg, verb, spec))
            self._next += 1

    def _flags(self) -> Spec:
        seen = set()
        while self._at < len(self._text) and self._text[self._at] in "#0+- ":
            seen.add(self._text[self._at])
            self._at += 1
        return Spec("+" in seen, "-" in seen, "#" in seen, " " in seen, "0" in seen)

    def _width(self, spec: Spec) -> Spec:
        self._index()
        if self._text.startswith("*", self._at):
            self._at += 1
            width = self._star("%!(BADWIDTH)")
            self._after_index = False
            if width is not None and width < 0:
                return replace(spec, width=-width, minus=True, zero=False)
            return replace(spec, width=width)
        width = self._number()
        if self._after_index and width is not None:
            self._good = False
        return replace(spec, width=width)

    def _precision(self, spec: Spec) -> Spec:
        if self._at + 1 >= len(self._text) or self._text[self._at] != ".":
            return spec
        self._at += 1
        if self._after_index:
            self._good = False
        self._index()
        if self._text.startswith("*", self._at):
            self._at += 1
            precision = self._star("%!(BADPREC)", lowest=0)
            self._after_index = False
            return replace(spec, precision=precision)
        return replace(spec, precision=self._number() or 0)

    def _star(self, complaint: str, lowest: int = -_HUGE) -> int | None:
        value = self._args[self._next] if self._next < len(self._args) else None
        self._next += self._next < len(self._args)
        if isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= _HUGE:
            return value
        self._out.append(complaint)
        return None

    def _number(self) -> int | None:
        start = self._at
        while self._at < len(self._text) and self._text[self._at] in "0123456789":
            self._at += 1
        if self._at == start:
            return None
        number = int(self._text[start : self._at])
        if number > 10 * _HUGE:
            self._at = len(self._text)  # as Go: a crazy number swallows the rest
            return None
        return number

    def _index(self) -> None:
        """An explicit operand index such as ``[2]``."""
        self._after_index = False
        if not self._text.startswith("[", self._at):
            return
        self._reordered = True
        end = self._text.find("]", self._at)
        digits = self._text[self._at + 1 : end] if end > 0 else ""
        self._at = end + 1 if end > 0 else self._at + 1
        self._after_index = digits.isascii() and digits.isdigit()
        number = int(digits) - 1 if self._after_index and len(digits) < 8 else -1
        if 0 <= number < len(self._args):
            self._next = number
        else:
            self._good = False
