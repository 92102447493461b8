"""The shapes of the page: a headline, tiles and tables of cells. Shapes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from .words import Words, visible

Tone = Literal["", "good", "warn", "bad", "quiet"]
MOST_ROWS = 100  # of a table
MOST_ITEMS = 30  # of a list in a cell; the newest are shown


@dataclass(frozen=True, slots=True)
class Item:
    """One line of a list inside a cell."""

    text: str
    tone: Tone = ""

    def doc(self) -> list[str]:
        """As JSON."""
        return [visible(self.text), self.tone]


@dataclass(frozen=True, slots=True)
class Cell:
    """Text with a tone. ``bar``: a share from 0 to 1 drawn beside it; ``items``: a list below it;
    ``href``: where it leads, relative to the page; ``approve``: the id of an act that a button in
    it approves; ``told``: in the daemon's own words, which are English; ``wide``: may be long."""

    text: str
    tone: Tone = ""
    bar: float | None = None
    items: Sequence[Item] = ()
    href: str = ""
    approve: str = ""
    told: bool = False
    wide: bool = False

    def doc(self) -> dict[str, Any]:
        """As JSON, without what is not set."""
        doc: dict[str, Any] = {"text": visible(self.text)}
        wide = "wide" if self.wide or self.told or self.items else ""
        doc |= {"style": " ".join(filter(None, (self.tone, wide)))} if self.tone or wide else {}
        doc |= {name: getattr(self, name) for name in ("href", "approve") if getattr(self, name)}
        if self.bar is not None:
            doc["bar"] = round(100 * min(max(self.bar, 0.0), 1.0))
        if self.items:
            doc["items"] = [item.doc() for item in self.items[-MOST_ITEMS:]]
        if self.told:
            doc["told"] = True
        return doc


@dataclass(frozen=True, slots=True)
class Row:
    """``key`` tells rows of a table apart from one look to the next."""

    key: str
    cells: Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Table:
    """``none``: what is said where there are no rows; ``small``: two of them fit side by side."""

    name: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Row]
    none: str
    small: bool = False

    def cut(self, say: Words) -> Table:
        """It with no more rows than a person reads; the last one says how many are left out."""
        more = len(self.rows) - MOST_ROWS
        if more <= 0:
            return self
        rest = Cell(say("… and {n} more", n=more), "quiet")
        last = Row("", (rest, *(Cell("") for _ in self.heads[1:])))
        return replace(self, rows=[*self.rows[:MOST_ROWS], last])

    def doc(self) -> dict[str, Any]:
        """The rows as JSON; a key that comes twice is told apart."""
        seen: dict[str, int] = {}
        rows = []
        for row in self.rows:
            key = visible(row.key)
            number = seen[key] = seen.get(key, 0) + 1
            key = key if number == 1 else f"{key}#{number}"
            rows.append({"key": key, "cells": [cell.doc() for cell in row.cells]})
        return {"name": self.name, "rows": rows}


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure that is asked for first."""

    name: str
    label: str
    text: str
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that the page shows but the plots. ``at``: of what moment; ``services``: whom a
    command may name."""

    node: str
    at: str
    about: str
    headline: str
    tone: Tone
    notes: Sequence[Item]
    tiles: Sequence[Tile]
    tables: Sequence[Table]
    services: Sequence[str]

    def doc(self) -> dict[str, Any]:
        """What changes from one look to the next, as JSON."""
        return {
            "at": self.at,
            "about": self.about,
            "headline": self.headline,
            "tone": self.tone,
            "notes": [note.doc() for note in self.notes],
            "tiles": [[tile.name, tile.text, tile.tone] for tile in self.tiles],
            "tables": [table.doc() for table in self.tables],
        }
