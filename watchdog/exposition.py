"""Prometheus' text formats (0.0.4 and OpenMetrics), read into columns.

A page that comes again with the same series in the same order costs one comparison and the numbers
only, and gives the same ``keys`` object. No requests and no meaning of names here.
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
    rb'(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]*'
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


@dataclass(slots=True)
class _Layout:
    """The last page's form: each sample line's text before the value, and which of them count.

    ``heads`` is None when a line also holds a time or an exemplar, or is broken: such a page is
    read line by line each time.
    """

    heads: list[bytes] | None
    wanted: list[bool]
    keys: tuple[Labels, ...]
    duplicates: int
    over_limit: int


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

    def read(self, data: bytes) -> Reading:
        """Return the page's samples. Raises SourceError when the body is no metrics page."""
        _refuse_foreign(data)
        lines = [line for line in data.split(b"\n") if line and line[0] != 35]  # 35: '#'
        parts = [line.rpartition(b" ") for line in lines]
        heads = [part[0] for part in parts]
        layout = self._layout
        if layout is not None and layout.heads == heads:
            values = _numbers([part[2] for part in parts], layout.wanted)
            if values is not None:
                page = Page(layout.keys, values)
                return Reading(page, 0, layout.duplicates, layout.over_limit)
        return self._read_all(lines, heads)

    def _read_all(self, lines: list[bytes], heads: list[bytes]) -> Reading:
        """Read a page line by line and remember its layout if each line is head, blank, value."""
        found: dict[Labels, tuple[float, int]] = {}
        broken = duplicates = over_limit = 0
        plain = True
        for index, line in enumerate(lines):
            sample = self._sample(line, heads[index])
            if sample is None:
                broken += bool(line.strip()) and line.strip()[:1] != b"#"
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
        return self._remember(heads, found, plain and not broken, (broken, duplicates, over_limit))

    def _remember(
        self,
        heads: list[bytes],
        found: dict[Labels, tuple[float, int]],
        plain: bool,
        counts: tuple[int, int, int],
    ) -> Reading:
        ordered = sorted(found.items(), key=lambda item: item[1][1])
        keys = tuple(key for key, _ in ordered)
        if self._layout is not None and self._layout.keys == keys:
            keys = self._layout.keys
        wanted = [False] * len(heads)
        for _, (_, index) in ordered:
            wanted[index] = True
        self._layout = _Layout(heads if plain else None, wanted, keys, counts[1], counts[2])
        return Reading(Page(keys, tuple(value for _, (value, _) in ordered)), *counts)

    def _sample(self, line: bytes, head: bytes) -> tuple[Labels, float, bool] | None:
        """Series, value, and whether the line is exactly head, blank, value; None if broken.

        An empty series is a sample that is left out on purpose.
        """
        if len(line) > MAX_LINE:
            return None
        match = _LINE.match(line)
        if match is None or not _NUMBER.match(match[3]):
            return None
        exact = match.end(3) == len(line.rstrip()) and match.start(3) == len(head) + 1
        if match[1].endswith(b"_created"):
            return (), 0.0, exact
        prefix = line[: match.start(3)]
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


def _numbers(texts: list[bytes], wanted: list[bool]) -> tuple[float, ...] | None:
    """The wanted numbers, or None when one of them is none (the line-by-line way says which)."""
    chosen = list(compress(texts, wanted))
    if b"_" in b"".join(chosen):  # float() would take 1_0 for 10
        return None
    try:
        return tuple(map(float, chosen))
    except ValueError:
        return None


def _refuse_foreign(data: bytes) -> None:
    start = data[:512].lstrip().lower()
    if b"\0" in data[:4096]:
        raise SourceError("not a metrics page: binary data")
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise SourceError("not a metrics page: HTML or XML")
    if start.startswith((b"{", b"[")):
        raise SourceError("not a metrics page: JSON")
