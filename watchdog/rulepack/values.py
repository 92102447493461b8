"""What a loaded rule file holds: groups of rules, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ..errors import Place
from ..promql import Expr
from ..templates import Template


@dataclass(frozen=True, slots=True)
class Rule:
    """One alerting or recording rule.

    Per metric name ("" = any name) and in milliseconds, ``reach`` is how far back the expression
    and the queries in the templates look, lookback included, and ``ranges`` how far back the
    expression's own ranges and offsets go (0 for a plain selector). ``for_`` and
    ``keep_firing_for`` are seconds. ``labels`` of a recording rule are never expanded.
    """

    kind: Literal["alert", "record"]
    name: str
    group: str
    number: int  # place in the group, from 1
    text: str
    expr: Expr = field(compare=False)
    reach: Mapping[str, int] = field(default_factory=dict)
    ranges: Mapping[str, int] = field(default_factory=dict)
    for_: float = 0.0
    keep_firing_for: float = 0.0
    labels: tuple[tuple[str, Template], ...] = ()
    annotations: tuple[tuple[str, Template], ...] = ()
    place: Place = field(default=Place(), compare=False)

    @property
    def id(self) -> str:
        """``group/name``, as alerts name their rule."""
        return f"{self.group}/{self.name}"

    @property
    def key(self) -> str:
        """Unique among loaded rules, and the same after a reload that left the rule alone."""
        return f"{self.place.file}|{self.group}|{self.number}|{self.fingerprint}"

    @property
    def inputs(self) -> frozenset[str]:
        """The metric names that the expression reads ("" = any name)."""
        return frozenset(self.ranges)

    @property
    def reach_ms(self) -> int:
        """How far back the rule looks at the most."""
        return max(self.reach.values(), default=0)

    @property
    def fingerprint(self) -> str:
        """What must stay the same for an alert's state to outlive a reload: name, expr, labels."""
        labels = ",".join(f"{name}={value.text!r}" for name, value in self.labels)
        return f"{self.name}|{self.text}|{labels}"


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that run one after the other at one timestamp.

    ``interval`` (seconds) is None where the file leaves it to the engine, ``limit`` is 0 for none,
    ``query_offset`` seconds by which the rules look at the past.
    """

    name: str
    file: str
    rules: tuple[Rule, ...]
    interval: float | None = None
    limit: int = 0
    query_offset: float = 0.0
    place: Place = field(default=Place(), compare=False)

    @property
    def id(self) -> str:
        """Unique among loaded groups: two files may use one name."""
        return f"{self.file};{self.name}"
