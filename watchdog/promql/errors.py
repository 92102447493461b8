"""What goes wrong with an expression, and where in its text. It must not print or log."""

from __future__ import annotations

from ..errors import WatchdogError


class PromqlError(WatchdogError):
    """An expression that cannot be used.

    ``offset`` counts characters from 0; ``line`` and ``column`` count from 1. All three are 0
    until the error is placed in its text by ``within`` (and stay 0 where no place is known).
    """

    kind = "error"

    def __init__(self, message: str, offset: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset or 0
        self.placed = offset is not None
        self.line = 0
        self.column = 0

    def within(self, text: str) -> PromqlError:
        """The same error with line and column counted in ``text``."""
        if self.placed:
            before = text[: self.offset]
            self.line = before.count("\n") + 1
            self.column = len(before) - before.rfind("\n")
        return self

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line else ""
        return f"{place}{self.kind}: {self.message}"


def shown(text: str) -> str:
    """``text`` in quotes for a message, cut when it is long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


class ParseError(PromqlError):
    """The text is no expression, or one whose types do not fit."""

    kind = "parse error"


class EvaluationError(PromqlError):
    """The expression cannot be answered with the series that are there."""

    kind = "evaluation error"
