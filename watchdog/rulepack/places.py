"""Where a character of a YAML scalar stands in its file, whatever style it is written in."""

from __future__ import annotations

from ..documents import Document, Path
from ..errors import Place


def place_in(document: Document, lines: list[str], path: Path, value: str, offset: int) -> Place:
    """Return the place in the file of character ``offset`` of the scalar ``value`` at ``path``.

    Value and file are walked side by side: all that is not space stands in both in the same order,
    whatever folding, quoting or indenting came between.
    """
    start = document.place(path)
    line, column = start.line - 1, start.column - 1
    if path in document.blocks:
        line, column = line + 1, 0
    wanted = len(value[:offset].split())  # words begun before the character
    at = _walk(lines, line, column, "".join(value[:offset].split()))
    if at is None:
        return start
    line, column = at
    after_space = offset > 0 and value[offset - 1].isspace()
    if (after_space or wanted == 0) and offset < len(value) and not value[offset].isspace():
        found = _next(lines, line, column, value[offset])
        line, column = found or (line, column)
    return Place(document.file, line + 1, column + 1)


def _walk(lines: list[str], line: int, column: int, chars: str) -> tuple[int, int] | None:
    """The position behind the last of ``chars``, taken in order."""
    for char in chars:
        found = _next(lines, line, column, char)
        if found is None:
            return None
        line, column = found[0], found[1] + 1
    return line, column


def _next(lines: list[str], line: int, column: int, char: str) -> tuple[int, int] | None:
    while line < len(lines):
        at = lines[line].find(char, column)
        if at >= 0:
            return line, at
        line, column = line + 1, 0
    return None
