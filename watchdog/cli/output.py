"""How answers reach a person or a program: tables on a terminal, JSON for everything else."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from ..wire import dumps

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def print_json(doc: Any, *, indent: int | None = 2) -> None:
    """One JSON document, indented, keys sorted. What a terminal would obey, or what would turn the
    text that follows, stands as an escape: to a program it is the same."""
    lines = dumps(doc, indent=indent).split("\n")
    print("\n".join(line if line.isprintable() else _escaped(line) for line in lines))


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    whole: Sequence[str] = (),
) -> None:
    """A table as wide as the terminal; elsewhere every row is one line, however long.

    The columns named in ``whole`` are broken only where nothing else gives way. Control characters
    in cells are shown, never sent to the terminal.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(highlight=False, width=None if terminal else _WIDE)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in whole)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    if terminal:
        console.print(table)
        return
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip() for line in text.get().splitlines()))


_WIDE = 100_000  # no table is wider; what is read by a program is not folded


def note(text: str) -> None:
    """A word for a person about an empty answer, on standard error: standard output stays empty."""
    print(f"vllm-watchdog: {visible(text)}", file=sys.stderr)


def counted(number: int, noun: str) -> str:
    """``1 alert``, ``2 alerts``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def visible(cell: object) -> str:
    """A text in one line, with control characters made harmless; None is a dash."""
    text = "-" if cell is None else str(cell)
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else "\\n" if c == "\n" else f"\\x{ord(c):02x}" for c in text
    )
