"""Prometheus' text formats (0.0.4 and OpenMetrics), read into columns.

A page that comes again with the same series in the same order costs one cut of each line and the
numbers only, and gives the same ``keys`` object. No requests and no meaning of names here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import compress

from .errors import SourceError
from .model import Labels, Page, labelset

MAX_LINE = 64 * 1024  # bytes; a longer line is counted as broken

# name, then an optional label set, then value, then an optional time and exemplar.
_LINE = re.compile(
    rb"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*"
    rb'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}[ \t]*|(?<=[ \t]))'
    rb"([-+0-9.a-zA-Z]+)(?:[ \t]+[-+0-9.eE]+)?[ \t]*(?:#[ \t].*)?\r?$",
    re.DOTALL,
)
_LABEL = re.compile(rb'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)', re.DOTALL)
_NUMBER = re.compile(
    rb"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|Inf|inf|NaN|nan)$"
)
_ESCAPE = re.compile(rb'\\([\\"n])')
_PLAIN = {b"\\": b"\\", b'"': b'"', b"n": b"\n"}
_FOREIGN_PREFIX = (b"ray_vllm:", b"kserve_vllm:")


@dataclass(frozen=True, slots=True)
class Reading:
    """A page and what was left out of it: lines that are no samples, samples told twice (the last
    one counts), series past the limit. ``created`` time stamps are left out and not counted."""

    page: Page
    broken: int = 0
    duplicates: int = 0
    over_limit: int = 0


class _Layout:
    """The last page's form: which lines hold samples, the text of each before its value, and which
    of them count. Of use for a page whose every sample is just series, blank, value."""

    __slots__ = ("_heads", "_others", "_samples", "_size", "_wanted")

    def __init__(self, heads: list[bytes | None], wanted: set[int]) -> None:
        """``heads``: per line the text before the value, blank included; None if no sample."""
        self._samples = [head is not None for head in heads]
        self._others = [head is None for head in heads]
        self._heads = [head for head in heads if head is not None]
        self._wanted = list(compress((at in wanted for at in range(len(heads))), self._samples))
        self._size = sum(map(len, self._heads))

    def numbers(self, lines: list[bytes], size: int) -> tuple[float, ...] | None:
        """The values of a page of so many bytes, or None where it has another form.

        ``removeprefix`` cuts a head off or nothing at all: all were there if the lengths agree.
        """
        if len(lines) != len(self._samples):
            return None
        others = list(compress(lines, self._others))
        if not all(map(_empty, others)):
            return None
        texts = list(map(bytes.removeprefix, compress(lines, self._samples), self._heads))
        told = b"".join(texts)
        rest = size - (len(lines) - 1) - sum(map(len, others)) - self._size
        if len(told) != rest or b"_" in told:  # float() would take 1_0 for 10
            return None
        try:
            return tuple(map(float, compress(texts, self._wanted)))
        except ValueError:
            return None


class Exposition:
    """Reads the pages of one source.

    ``labels`` are added to every series; a page's own label of such a name becomes
    ``exported_NAME``, as Prometheus does it. ``limit`` bounds the series of a page. The names that
    Ray Serve and KServe give vLLM's metrics (``ray_vllm:``, ``kserve_vllm:``) become vLLM's own.
    """

    def __init__(self, labels: Labels = (), limit: int = 10_000) -> None:
        self._labels = dict(labels)
        self._limit = limit
        self._known: dict[bytes, Labels] = {}
        self._layout: _Layout | None = None
        self._keys: tuple[Labels, ...] = ()
        self._left_out = (0, 0)

    def read(self, data: bytes) -> Reading:
        """Return the page's samples. Raises SourceError when the body is no metrics page."""
        _refuse_foreign(data)
        lines = data.split(b"\n")
        if self._layout is not None:
            values = self._layout.numbers(lines, len(data))
            if values is not None:
                return Reading(Page(self._keys, values), 0, *self._left_out)
        return self._read_all(lines)

    def _read_all(self, lines: list[bytes]) -> Reading:
        """Read a page line by line and remember its layout if each line is head, blank, value."""
        found: dict[Labels, tuple[float, int]] = {}
        heads: list[bytes | None] = []
        broken = duplicates = over_limit = 0
        plain = True
        for index, line in enumerate(lines):
            if _empty(line):
                heads.append(None)
                continue
            head = line[: line.rfind(b" ") + 1]
            heads.append(head)
            sample = self._sample(line, head)
            if sample is None:
                broken += 1
                continue
            key, value, exact = sample
            plain = plain and exact
            if not key:
                continue
            if key in found:
                duplicates += 1
            elif len(found) >= self._limit:
                over_limit += 1
                continue
            found[key] = (value, index)
        if broken and not found:
            raise SourceError("not a metrics page: no line of it is a sample")
        wanted = {index for _, index in found.values()}
        self._layout = _Layout(heads, wanted) if plain and not broken else None
        self._left_out = (duplicates, over_limit)
        return Reading(self._page(found), broken, duplicates, over_limit)

    def _page(self, found: dict[Labels, tuple[float, int]]) -> Page:
        """The page in the order of its lines; keys equal to the last page's are the same object."""
        ordered = sorted(found.items(), key=lambda item: item[1][1])
        keys = tuple(key for key, _ in ordered)
        if keys != self._keys:
            self._keys = keys
        return Page(self._keys, tuple(value for _, (value, _) in ordered))

    def _sample(self, line: bytes, head: bytes) -> tuple[Labels, float, bool] | None:
        """Series, value, and whether the line is exactly head, blank, value; None if broken.

        An empty series is a sample that is left out on purpose.
        """
        if len(line) > MAX_LINE:
            return None
        match = _LINE.match(line)
        if match is None or not _NUMBER.match(match[3]):
            return None
        exact = match.end(3) == len(line.rstrip()) and match.start(3) == len(head)
        if match[1].endswith(b"_created"):
            return (), 0.0, exact
        prefix = head if match.start(3) == len(head) else line[: match.start(3)]
        key = self._known.get(prefix)
        if key is None:
            key = self._series(match[1], match[2] or b"")
            if key is None:
                return None
            if len(self._known) > 4 * self._limit:
                self._known.clear()
            self._known[prefix] = key
        return key, float(match[3]), exact

    def _series(self, name: bytes, text: bytes) -> Labels | None:
        pairs: dict[str, str] = {}
        place = 0
        text = text.strip()
        while place < len(text):
            match = _LABEL.match(text, place)
            if match is None:
                return None
            label = match[1].decode()
            if label in pairs or label == "__name__":
                return None
            value = _ESCAPE.sub(lambda found: _PLAIN[found[1]], match[2])
            pairs[f"exported_{label}" if label in self._labels else label] = value.decode(
                "utf-8", "replace"
            )
            place = match.end()
        for prefix in _FOREIGN_PREFIX:
            if name.startswith(prefix):
                name = b"vllm:" + name[len(prefix) :]
        return labelset({**pairs, **self._labels}, name.decode())


def _empty(line: bytes) -> bool:
    """Does this line say nothing: blank or a comment?"""
    return not line or line[0] == 35 or line.lstrip()[:1] in (b"", b"#")  # 35: '#'


def _refuse_foreign(data: bytes) -> None:
    start = data[:512].lstrip().lower()
    if b"\0" in data[:4096]:
        raise SourceError("not a metrics page: binary data")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise SourceError("not a metrics page: HTML or XML")
    if start.startswith((b"{", b"[")):
        raise SourceError("not a metrics page: JSON")
