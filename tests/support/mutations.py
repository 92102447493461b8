"""Damage to captured text, from a seed: cut, doubled, swapped, other numbers, other widths."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?")


def size(default: int = 2000) -> int:
    """How many mutations a fuzz test tries in all: the environment's ``N``, else the default."""
    return int(os.environ.get("N", default))


@dataclass(frozen=True)
class Mutation:
    """``kind`` says what was done; ``data`` is the damaged text."""

    kind: str
    data: bytes


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True) or [b""]


def cut(data: bytes, rng: random.Random) -> bytes:
    """The text ends somewhere in the middle."""
    return data[: rng.randrange(len(data) + 1)]


def gap(data: bytes, rng: random.Random) -> bytes:
    """A stretch in the middle is gone."""
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randrange(1, 400) :]


def doubled(data: bytes, rng: random.Random) -> bytes:
    """A few lines stand there twice."""
    lines = _lines(data)
    start = rng.randrange(len(lines))
    count = rng.choice((1, 1, 1, 2, 3, 10))
    return b"".join(lines[: start + count] + lines[start:])


def dropped(data: bytes, rng: random.Random) -> bytes:
    """A line is missing."""
    lines = _lines(data)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def shuffled(data: bytes, rng: random.Random) -> bytes:
    """Two lines have changed places."""
    lines = _lines(data)
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def swapped(data: bytes, rng: random.Random) -> bytes:
    """Two cells of a line have changed places (cells are parted by ``,``, ``|``, ``:`` or blanks)."""
    lines = _lines(data)
    at = rng.randrange(len(lines))
    separator = rng.choice(
        [s for s in (b", ", b"|", b" : ", b"\t", b" ") if s in lines[at]] or [b" "]
    )
    cells = lines[at].rstrip(b"\r\n").split(separator)
    if len(cells) > 1:
        one, other = rng.sample(range(len(cells)), 2)
        cells[one], cells[other] = cells[other], cells[one]
    lines[at] = separator.join(cells) + b"\n"
    return b"".join(lines)


def renumbered(data: bytes, rng: random.Random) -> bytes:
    """Some numbers are others: huge, negative, zero, with a point, or words of failure."""
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    words = (
        b"0",
        b"-1",
        b"99999999",
        b"4294967295",
        b"32765",
        b"1e9",
        b"nan",
        b"N/A",
        b"ERR!",
        b"",
    )
    for match in sorted(
        rng.sample(found, min(len(found), rng.choice((1, 1, 2, 5)))), key=lambda m: -m.start()
    ):
        data = data[: match.start()] + rng.choice(words) + data[match.end() :]
    return data


def widened(data: bytes, rng: random.Random) -> bytes:
    """Blanks are more or fewer than before, in one line or in all."""
    lines = _lines(data)
    picked = range(len(lines)) if rng.random() < 0.3 else [rng.randrange(len(lines))]
    by = rng.choice((b"", b" ", b"     ", b"\t"))
    for at in picked:
        lines[at] = re.sub(rb" {2,}", lambda match: match[0][:-1] + by, lines[at])
    return b"".join(lines)


def spoiled(data: bytes, rng: random.Random) -> bytes:
    """Some bytes are others: control characters, broken UTF-8, markup."""
    spoilt = bytearray(data or b" ")
    for _ in range(rng.choice((1, 1, 3, 20))):
        spoilt[rng.randrange(len(spoilt))] = rng.choice(b"\x00\x07\x1b\x80\xff<>&|:,x0 \n")
    return bytes(spoilt)


KINDS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    cut,
    gap,
    doubled,
    dropped,
    shuffled,
    swapped,
    renumbered,
    widened,
    spoiled,
)


def mutate(data: bytes, rng: random.Random) -> Mutation:
    """One kind of damage, sometimes two at once."""
    kinds = [rng.choice(KINDS) for _ in range(rng.choice((1, 1, 1, 2)))]
    for kind in kinds:
        data = kind(data, rng)
    return Mutation("+".join(kind.__name__ for kind in kinds), data)
