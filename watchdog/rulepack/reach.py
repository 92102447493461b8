"""Which metrics an expression reads, and how far back: what the window must keep for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..promql import Expr, Need, needs


@dataclass(slots=True)
class Needs:
    """What a rule reads, per metric name ("" = any name), in milliseconds.

    ``reach`` is how far back samples may lie that count, the lookback included, by the expression
    or a query in a template; ``ranges`` how far back the expression's own ranges and offsets go (0
    for a plain selector).
    """

    reach: dict[str, int] = field(default_factory=dict)
    ranges: dict[str, int] = field(default_factory=dict)

    def also(self, expr: Expr) -> None:
        """Add the reach of a query in a template."""
        _longest(self.reach, needs(expr))


def needs_of(expr: Expr) -> Needs:
    """Return what an expression reads."""
    found = Needs()
    _longest(found.reach, needs(expr))
    _longest(found.ranges, needs(expr, lookback_ms=0))
    return found


def _longest(into: dict[str, int], found: Iterable[Need]) -> None:
    for need in found:
        into[need.name] = max(need.reach_ms, into.get(need.name, 0))
