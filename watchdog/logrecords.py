"""Recognised log records, and a matched line while it is being read.

Values and the reading of one place in a block; what lines mean is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .logheads import Head, head, plain
from .logpatterns import Pattern

MAX_TEXT = 4096  # characters of a record's text
MAX_LINE = 8 * 1024  # bytes of a line that are read; the rest of a longer one is passed over
BEGUN = 8  # lines within which a traceback begins after the message that announces it


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One event as a log tells it. ``line`` counts from 1 and is the record's first one, ``text``
    that line without colour, ``time`` Unix seconds. ``fields`` are described by the patterns.
    """

    kind: str
    severity: str
    line: int
    text: str
    time: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The record as JSON, its time in RFC 3339."""
        moment = None
        if self.time is not None:
            moment = datetime.fromtimestamp(self.time, timezone.utc).isoformat()
            moment = moment.replace("+00:00", "Z")
        return {
            "kind": self.kind,
            "severity": self.severity,
            "line": self.line,
            "text": self.text,
            "time": moment,
            "fields": dict(self.fields),
        }


@dataclass(frozen=True, slots=True)
class Around:
    """The lines around the one from ``start`` to ``stop`` of a block, without colour."""

    block: bytes
    start: int
    stop: int

    def after(self, count: int) -> Iterator[str]:
        """At most ``count`` lines after it."""
        place = self.stop + 1
        while count > 0 and 0 <= place < len(self.block):
            end = self.block.find(b"\n", place)
            end = len(self.block) if end < 0 else end
            yield self._text(place, min(end, place + MAX_LINE))
            place, count = end + 1, count - 1

    def traceback(self) -> bool:
        """Whether a traceback begins in the lines just below."""
        return b"Traceback (most recent" in self.block[self.stop : self.stop + 4096]

    def before(self) -> str:
        """The line before it."""
        begin = self.block.rfind(b"\n", 0, max(self.start - 1, 0)) + 1
        return self._text(begin, self.start)

    def _text(self, begin: int, end: int) -> str:
        return plain(self.block[begin:end].decode("utf-8", "replace"))


@dataclass(slots=True)
class Found:
    """A line that matched, while it is being read. ``marks`` tell events apart without becoming
    fields; ``around`` are its neighbours.
    """

    pattern: Pattern
    match: re.Match[str]
    text: str
    head: Head
    kind: str
    severity: str
    fields: dict[str, Any]
    around: Around
    marks: dict[str, Any] = field(default_factory=dict)

    def key(self, name: str) -> Any:
        """A field or mark that tells one event from another, or None."""
        return self.fields.get(name, self.marks.get(name))


_WORDS = frozenset(("code", "name", "comm", "detail", "unit", "error", "exit_word"))
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?$")


def number(text: str) -> int | float | str:
    """The number that the text spells, else the text."""
    found = _NUMBER.match(text)
    if found is None:
        return text
    return float(text) if found[1] else int(text)


def groups(match: re.Match[str]) -> dict[str, Any]:
    """The named groups that took part, numbers as numbers."""
    return {
        name: value if name in _WORDS else number(value)
        for name, value in match.groupdict().items()
        if value not in (None, "None")
    }


_EXCEPTION = re.compile(
    r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Fault|Failure|Expired)\w*)(?::|$)"
)


def exception(lines: Iterable[str], pid: int | None, *, begun: bool = True) -> str | None:
    """The exception that ends the traceback in these lines, or None where it is not there yet.

    ``begun``: the lines before these were already of the traceback. Lines of other processes in
    between are passed over.
    """
    for count, line in enumerate(lines):
        begun = begun or "Traceback (most recent call last)" in line
        if not begun:
            if count >= BEGUN:
                return None
            continue
        begin = head(line)
        if pid is not None and begin.pid is not None and begin.pid != pid:
            continue
        body = line[begin.body :]
        if not body.strip() or body[0] in " \t~^|" or body.startswith("Traceback (most"):
            continue
        if _EXCEPTION.match(body):
            return body.strip()
        if begin.where or begin.level:
            continue
        return None
    return None
