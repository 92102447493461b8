"""The saved form of series: a block as JSON, its columns one after the other in base64 of
little-endian words: one text a block costs a third of one a series."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from .model import Labels
from .series import Block

VERSION = 2  # of the saved form; another one is not read
Column = tuple[Labels, str, "array[float]"]
"""A saved series: its key, its owner, its values."""


def saved(block: Block) -> dict[str, Any]:
    """The document of one block."""
    columns = b"".join(_little_endian(each.values) for each in block.members)
    return {
        "times": _text(_little_endian(block.times)),
        "series": [[dict(each.key), each.owner] for each in block.members],
        "values": _text(columns),
    }


def read(doc: Mapping[str, Any]) -> tuple[array[int], list[Column]]:
    """The times and series of a document. Raises ValueError where it is not one of ours."""
    try:
        times = _words(doc["times"], "q")
        series = [
            (tuple(sorted((str(k), str(v)) for k, v in key.items())), str(owner))
            for key, owner in doc["series"]
        ]
        values = _words(doc["values"], "d")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a saved window: {error!r}") from error
    ascending = all(a < b for a, b in pairwise(times))
    if not times or not ascending or len(values) != len(times) * len(series):
        raise ValueError("not a saved window: columns that do not belong together")
    size = len(times)
    return times, [
        (key, owner, values[at * size : (at + 1) * size]) for at, (key, owner) in enumerate(series)
    ]


def _little_endian(column: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column


def _text(column: bytes | array[Any]) -> str:
    return base64.b64encode(column).decode("ascii")


def _words(text: str, kind: str) -> array[Any]:
    column = array(kind)
    column.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        column.byteswap()
    return column
