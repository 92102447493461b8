"""What disturbs a real node's view: gaps, disorder, a stalled collector, lines written twice.

A seed decides, so that what fails can be seen again.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from .form import Stall

T = TypeVar("T")


@dataclass(slots=True)
class Noise:
    """``gaps`` is the share of samples that are missing, ``doubles`` that of lines that come
    twice; ``disorder`` lets batches arrive in any order; ``stalls`` are collectors that stall."""

    seed: int = 0
    gaps: float = 0.0
    doubles: float = 0.0
    disorder: bool = False
    stalls: tuple[Stall, ...] = ()
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 (no secret: a seed's sequence)

    def missing(self) -> bool:
        """Whether the next sample is missing."""
        return self.gaps > 0 and self._random.random() < self.gaps

    def doubled(self) -> bool:
        """Whether the next lines come twice."""
        return self.doubles > 0 and self._random.random() < self.doubles

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in the order in which they arrive."""
        found = list(items)
        if self.disorder:
            self._random.shuffle(found)
        return found
