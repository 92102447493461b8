"""Seeded damage to captured outputs: cut, doubled, swapped, other numbers, other widths, rubbish.

``mutated`` may do anything; ``DESTRUCTIVE`` are the ones after which a row cannot be trusted any
more. Everything follows from the given random source, so a failure is repeated by its seed.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable

Mutation = Callable[[random.Random, str], str]

RUBBISH = (
    "\x00",
    "\ufffd",
    "~",
    "?",
    "|",
    "+",
    "\t",
    "9" * 40,
    "-",
    "NA",
    "error",
    "é",
    "\r",
    "...",
)


def size(default: int) -> int:
    """How many cases to try: the environment's N, else ``default``."""
    return int(os.environ.get("N", str(default)))


def seed() -> int:
    """Where to begin: the environment's SEED, else 0."""
    return int(os.environ.get("SEED", "0"))


def mutated(rng: random.Random, text: str) -> str:
    """The text after one to three mutations."""
    for _ in range(rng.randint(1, 3)):
        text = rng.choice(ANY)(rng, text)
    return text


def cut_end(rng: random.Random, text: str) -> str:
    """As if the command had been killed."""
    return text[: rng.randrange(len(text) + 1)]


def cut_start(rng: random.Random, text: str) -> str:
    return text[rng.randrange(len(text) + 1) :]


def cut_span(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text) + 1)
    return text[:start] + text[start + rng.randrange(200) :]


def drop_line(rng: random.Random, text: str) -> str:
    return _on_lines(rng, text, lambda lines, at: lines[:at] + lines[at + 1 :])


def double_line(rng: random.Random, text: str) -> str:
    return _on_lines(rng, text, lambda lines, at: [*lines[: at + 1], *lines[at:]])


def swap_lines(rng: random.Random, text: str) -> str:
    def swapped(lines: list[str], at: int) -> list[str]:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
        return lines

    return _on_lines(rng, text, swapped)


def glue_lines(rng: random.Random, text: str) -> str:
    return _on_lines(
        rng, text, lambda lines, at: [*lines[:at], "".join(lines[at : at + 2]), *lines[at + 2 :]]
    )


def double_all(_rng: random.Random, text: str) -> str:
    return text + text


def swap_cells(rng: random.Random, text: str) -> str:
    """Two cells of one line change places: at ``|``, ``,`` or ``:``, else at blanks."""
    return _on_lines(
        rng, text, lambda lines, at: [*lines[:at], _swapped(rng, lines[at]), *lines[at + 1 :]]
    )


def other_number(rng: random.Random, text: str) -> str:
    return _on_match(
        rng, text, r"\d+", lambda word: str(rng.choice((0, 7, 101, 32765, 10 ** len(word))))
    )


def other_digit(rng: random.Random, text: str) -> str:
    return _on_match(rng, text, r"\d", lambda _: rng.choice("0123456789"))


def other_width(rng: random.Random, text: str) -> str:
    return _on_match(rng, text, r" +", lambda _: " " * rng.randint(0, 12))


def rubbish(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(RUBBISH) + text[at + rng.randrange(3) :]


def cut_line(rng: random.Random, text: str) -> str:
    """A line ends early; the rest of the text is whole."""
    return _on_lines(
        rng,
        text,
        lambda lines, at: [
            *lines[:at],
            lines[at][: rng.randrange(len(lines[at]) + 1)],
            *lines[at + 1 :],
        ],
    )


ANY: tuple[Mutation, ...] = (
    cut_end,
    cut_start,
    cut_span,
    cut_line,
    drop_line,
    double_line,
    double_all,
    swap_lines,
    glue_lines,
    swap_cells,
    other_number,
    other_digit,
    other_width,
    rubbish,
)


def _on_lines(rng: random.Random, text: str, change: Callable[[list[str], int], list[str]]) -> str:
    lines = text.split("\n")
    return "\n".join(change(lines, rng.randrange(len(lines))))


def _on_match(rng: random.Random, text: str, pattern: str, change: Callable[[str], str]) -> str:
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    match = rng.choice(found)
    return text[: match.start()] + change(match[0]) + text[match.end() :]


def _swapped(rng: random.Random, line: str) -> str:
    mark = next((mark for mark in "|,:" if line.count(mark) > 1), " ")
    cells = line.split(mark)
    one, other = rng.randrange(len(cells)), rng.randrange(len(cells))
    cells[one], cells[other] = cells[other], cells[one]
    return mark.join(cells)
