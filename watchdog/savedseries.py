"""The saved form of series: a block as JSON, its columns in base64 of little-endian words."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from .model import Labels
from .series import Block

Column = tuple[Labels, str, "array[float]"]
"""A saved series: its key, its owner, its values."""


def saved(block: Block) -> dict[str, Any]:
    """The document of one block."""
    return {
        "times": _text(block.times),
        "series": [
            {"key": dict(each.key), "owner": each.owner, "values": _text(each.values)}
            for each in block.members
        ],
    }


def read(doc: Mapping[str, Any]) -> tuple[array[int], list[Column]]:
    """The times and series of a document. Raises ValueError where it is not one of ours."""
    try:
        times = _words(doc["times"], "q")
        series = [
            (
                tuple(sorted((str(k), str(v)) for k, v in entry["key"].items())),
                str(entry["owner"]),
                _words(entry["values"], "d"),
            )
            for entry in doc["series"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a saved window: {error!r}") from error
    ascending = all(a < b for a, b in pairwise(times))
    if not times or not ascending or any(len(values) != len(times) for _, _, values in series):
        raise ValueError("not a saved window: columns that do not belong together")
    return times, series


def _text(column: array[Any]) -> str:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return base64.b64encode(column).decode("ascii")


def _words(text: str, kind: str) -> array[Any]:
    column = array(kind)
    column.frombytes(base64.b64decode(text, validate=True))
    if sys.byteorder == "big":
        column.byteswap()
    return column
