"""Go's ``fmt.Sprintf``: the walk over a format string, its flags, widths and operand numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .goformat import PLAIN, Spec, format_value, type_name

_HUGE = 1_000_000  # Go takes no width or precision beyond this


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
                "<nil>" if arg is None else f"{type_name(arg)}={format_value(arg, 'v', PLAIN)}"
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
