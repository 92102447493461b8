"""What a query gives: a scalar, a string, an instant vector or a matrix. Frozen; no behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Labels

Columns = tuple[tuple[Labels, ...], list[float]]
"""An instant vector inside the evaluator: label sets and as many values. Both are shared and kept
as caches, so they are never changed once made; equal label sets are often the same object."""

EMPTY: Columns = ((), [])


@dataclass(frozen=True, slots=True)
class Scalar:
    """One number as of ``ms``."""

    ms: int
    value: float


@dataclass(frozen=True, slots=True)
class String:
    """One text as of ``ms``."""

    ms: int
    value: str


@dataclass(frozen=True, slots=True)
class Vector:
    """Elements (label set, value) as of ``ms``, in the order in which they were found or sorted."""

    ms: int
    elements: list[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Series (label set, [(ms, value), …]), sorted by label set."""

    series: list[tuple[Labels, list[tuple[int, float]]]]


Value = Scalar | String | Vector | Matrix
