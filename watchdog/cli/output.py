"""How answers reach a person or a program: tables on a terminal, JSON for everything else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from ..wire import dumps

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def print_json(doc: Any) -> None:
    """One JSON document, indented, keys sorted."""
    print(dumps(doc, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table; on a terminal with lines and colours, else plain columns. Control characters in
    cells are shown, never sent to the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=not sys.stdout.isatty(), highlight=False)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if not sys.stdout.isatty():
        console.width = 200
    console.print(table)


def visible(cell: object) -> str:
    """A cell's text with control characters made harmless; None is a dash."""
    if cell is None:
        return "-"
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in str(cell))
