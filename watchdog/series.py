"""The columns that the window is made of: staleness markers, label matchers, series and blocks.

Memory layout. A *block* is a set of series that are always written together (the series of one
page that began at the same reading). They share one ``array('q')`` of times in milliseconds; each
series has its own ``array('d')`` of values, exactly as long. A series that ends, or that is written
alone, is moved to a block of its own, with a copy of the times. At 181 samples a series costs about
1.5 KB of values, its share of the times, and its label set.

Positions count from the first sample ever written to the block: ``base`` samples were dropped at
the left, so position p lies at index ``p - base``. Positions survive eviction; indices do not.

This room stores; it neither selects nor evaluates.
"""

# ruff: noqa: PLR0124 - a value that differs from itself is NaN, tested without a call
from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import re2

from .model import Labels

_BITS = struct.Struct("<d")
_STALE_BITS = struct.pack("<Q", 0x7FF0000000000002)
STALE: float = _BITS.unpack(_STALE_BITS)[0]
"""The value that ends a series: one NaN with Prometheus' own bits, unlike every other NaN."""


def is_stale(value: float) -> bool:
    """Is this value a staleness marker? Other NaNs are values."""
    return value != value and _BITS.pack(value) == _STALE_BITS


class LabelMatcher(Protocol):
    """What the window needs of a matcher: ``op`` is one of ``=``, ``!=``, ``=~``, ``!~``."""

    @property
    def name(self) -> str: ...
    @property
    def op(self) -> str: ...
    @property
    def value(self) -> str: ...


def regex(pattern: str) -> Any:
    """Compile a matcher's pattern: RE2, dot matches newline; use its ``fullmatch``.

    Raises ValueError when RE2 refuses it.
    """
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(f"no RE2 regular expression: {pattern!r}") from error


@lru_cache(maxsize=2048)
def predicate(op: str, value: str) -> Callable[[str], bool]:
    """Return the test of a label's value ("" where a series lacks the label)."""
    if op == "=":
        return lambda text: text == value
    if op == "!=":
        return lambda text: text != value
    match = regex(value).fullmatch
    if op == "=~":
        return lambda text: match(text) is not None
    return lambda text: match(text) is None


class Series:
    """One label set's values, and its place in a block.

    ``number`` grows with each new series and orders results as Prometheus' head does. ``marks``
    are the positions of staleness markers among the values, ascending.
    """

    __slots__ = ("block", "key", "marks", "name", "number", "owner", "values")

    def __init__(self, key: Labels, name: str, number: int, owner: str, block: Block) -> None:
        self.key = key
        self.name = name
        self.number = number
        self.owner = owner
        self.block = block
        self.values = array("d")
        self.marks: Sequence[int] = ()

    @property
    def ended(self) -> bool:
        """Is the last value a staleness marker?"""
        marks = self.marks
        return bool(marks) and marks[-1] == self.block.end - 1

    def mark(self) -> None:
        """Note that the value just written is a staleness marker."""
        self.marks = (*self.marks, self.block.base + len(self.values) - 1)


class Block:
    """Series that share their times. ``keep`` is how long samples stay, in milliseconds;
    ``marked``: some member holds a staleness marker."""

    __slots__ = ("base", "keep", "marked", "members", "times")

    def __init__(self, keep: int, times: array[int], base: int = 0) -> None:
        self.keep = keep
        self.times = times
        self.base = base
        self.members: list[Series] = []
        self.marked = False

    @property
    def end(self) -> int:
        """The position after the last sample."""
        return self.base + len(self.times)

    def split(self, leaving: Iterable[Series], keep: int | None = None) -> Block:
        """Move members to a new block with a copy of the times; return it."""
        new = Block(self.keep if keep is None else keep, self.times[:], self.base)
        new.members = list(leaving)
        gone = {series.number for series in new.members}
        self.members = [series for series in self.members if series.number not in gone]
        for series in new.members:
            series.block = new
        self.marked = any(series.marks for series in self.members)
        new.marked = any(series.marks for series in new.members)
        return new

    def drop(self, count: int) -> None:
        """Forget the oldest ``count`` samples of every member."""
        del self.times[:count]
        self.base += count
        for series in self.members:
            del series.values[:count]
        if self.marked:
            for series in self.members:
                if series.marks:
                    series.marks = tuple(at for at in series.marks if at >= self.base)
            self.marked = any(series.marks for series in self.members)
