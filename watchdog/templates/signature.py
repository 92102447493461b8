"""What a template function takes, so that a call can be refused in Go's words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..errors import WatchdogError


class CallError(WatchdogError):
    """A function could not do what it was asked; the text is Go's."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A function with Go's names of its parameters' types; ``any`` takes everything.

    ``rest`` is the type of further arguments, None if there may be none.
    """

    call: Callable[..., object]
    takes: tuple[str, ...] = ()
    rest: str | None = None

    def type_of(self, position: int) -> str:
        """The type that the argument at ``position`` must have."""
        return self.takes[position] if position < len(self.takes) else self.rest or "any"
