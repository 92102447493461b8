"""Finds the lines of a block that hold one of many literals: one pass, no loop over lines.

hyperscan does it where it can be imported, google-re2 elsewhere, with equal results. What a line
means is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

Hit = tuple[int, int, list[int]]
"""A line's first byte, the byte after its last one (its newline), the literals that it holds."""


class Scanner(Protocol):
    """Finds literals, given by their place in the list that it was made from."""

    def hits(self, block: bytes) -> list[Hit]:
        """The lines of the block with at least one literal, in order."""
        ...


class HyperscanScanner:
    """One pass of a hyperscan database. Raises ImportError where there is no hyperscan."""

    def __init__(self, literals: Sequence[str]) -> None:
        import hyperscan

        self._database: Any = hyperscan.Database()
        self._database.compile(
            expressions=[_hex(literal) for literal in literals],
            ids=list(range(len(literals))),
            elements=len(literals),
        )
        self._scratch: Any = hyperscan.Scratch(self._database)

    def hits(self, block: bytes) -> list[Hit]:
        """See Scanner.hits."""
        found: list[tuple[int, int]] = []
        add = found.append

        def note(ident: int, _start: int, end: int, _flags: int, _context: Any) -> None:
            add((end, ident))

        self._database.scan(block, match_event_handler=note, scratch=self._scratch)
        found.sort()
        lines: list[Hit] = []
        stop = -1
        for end, ident in found:
            if end > stop:
                start = block.rfind(b"\n", 0, end) + 1
                stop = block.find(b"\n", end)
                if stop < 0:
                    stop = len(block)
                lines.append((start, stop, [ident]))
            elif ident not in lines[-1][2]:
                lines[-1][2].append(ident)
        return lines


class Re2Scanner:
    """One alternation of all literals over the block, then a look at each line that it hit."""

    def __init__(self, literals: Sequence[str]) -> None:
        import re2

        self._literals = [literal.encode() for literal in literals]
        self._any = re2.compile(b"|".join(map(re.escape, self._literals)))

    def hits(self, block: bytes) -> list[Hit]:
        """See Scanner.hits."""
        lines: list[Hit] = []
        place = 0
        while (match := self._any.search(block, place)) is not None:
            start = block.rfind(b"\n", 0, match.start()) + 1
            stop = block.find(b"\n", match.end())
            if stop < 0:
                stop = len(block)
            line = block[start:stop]
            held = [ident for ident, literal in enumerate(self._literals) if literal in line]
            lines.append((start, stop, held))
            place = stop
        return lines


def scanner(literals: Sequence[str]) -> Scanner:
    """The quickest scanner that this machine has."""
    try:
        return HyperscanScanner(literals)
    except ImportError:
        return Re2Scanner(literals)


def _hex(literal: str) -> bytes:
    return b"".join(b"\\x%02x" % byte for byte in literal.encode())
