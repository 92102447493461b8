"""Follows growing files over renames, truncation and restarts; gives whole lines, in blocks.

Where it stands is a JSON value that its owner keeps. What the lines mean is not asked here.
"""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from .system import FilePart, Files, FolderWatch

BLOCK = 1024 * 1024  # bytes read at once
BUDGET = 64 * 1024 * 1024  # bytes of one run; the rest of a backlog waits for the next ones
HEAD = 256  # bytes at a file's beginning by which a rewritten file is recognised
MAX_FILES = 200  # files followed at once


@dataclass(slots=True)
class _Place:
    """Where a file has been read to. ``skip``: the rest of the line at ``offset`` is not wanted.
    ``head`` is the checksum of the first ``head_size`` bytes.
    """

    device: int
    inode: int
    offset: int
    skip: bool = False
    head: int = 0
    head_size: int = 0

    def is_file(self, part: FilePart) -> bool:
        return (self.device, self.inode) == (part.device, part.inode)


@dataclass
class LogWatch:
    """Waits until files that some patterns can match change, without reading them."""

    _watch: FolderWatch | None = None
    _folders: tuple[str, ...] = ()

    def wait(self, files: Files, patterns: Sequence[str], seconds: float) -> None:
        """Return when something changed since the last call, and after ``seconds`` at the latest.

        Raises OSError where changes cannot be watched.
        """
        folders = tuple(sorted(_folders(files, patterns)))
        if self._watch is None or folders != self._folders:
            if self._watch is not None:
                self._watch.close()
            self._watch, self._folders = files.watch(folders), folders
            return  # what was written before the watch began is read now
        self._watch.wait(seconds)


def _folders(files: Files, patterns: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for pattern in patterns:
        folder = str(PurePosixPath(pattern).parent)
        found.update(files.glob(folder) if any(mark in folder for mark in "*?[") else (folder,))
    return found


@dataclass
class LogTail:
    """The files that some patterns match, read on from where ``state`` says.

    ``state`` None means never read before: files that are there then are read from their end
    (``from_start``: from their beginning); a file that appears later is read from its beginning.
    After ``blocks`` was run through, ``problems`` says what could not be read (path to reason),
    ``behind`` whether the budget ended before the files did.
    """

    files: Files
    patterns: Sequence[str]
    state: Mapping[str, Any] | None = None
    from_start: bool = False
    budget: int = BUDGET
    problems: dict[str, str] = field(default_factory=dict)
    behind: bool = False

    def __post_init__(self) -> None:
        known = (self.state or {}).get("places") or {}
        self._places = {path: _Place(*row) for path, row in known.items()}
        self._first = self.state is None
        self._left = self.budget

    def blocks(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path, whole lines) of all files, each block at most BLOCK bytes and one line.

        What was yielded counts as read. A first line that goes on with the cut last line of the
        file that had the name before is joined to it.
        """
        found = {path for pattern in self.patterns for path in self.files.glob(pattern)}
        paths = sorted(found)[:MAX_FILES]
        self._rename(paths)
        # Known names first: a rotated file is read to its end before its new name is looked at.
        for path in sorted(
            set(paths) | set(self._places), key=lambda p: (p not in self._places, p)
        ):
            try:
                yield from self._follow(path)
            except FileNotFoundError:  # noqa: PERF203 one bad file must not hide the others
                yield from self._nameless(path)
            except OSError as error:
                self.problems[path] = error.strerror or str(error)

    def position(self) -> dict[str, Any]:
        """Where all files have been read to: JSON, to be handed in as ``state`` again."""
        rows = {
            path: [p.device, p.inode, p.offset, p.skip, p.head, p.head_size]
            for path, p in self._places.items()
        }
        return {"places": rows}

    def _rename(self, paths: Sequence[str]) -> None:
        """A file that only changed its name is read on under the new one."""
        lost = {
            (place.device, place.inode): path
            for path, place in self._places.items()
            if self._part(path, 0, 0) is None
        }
        for path in paths:
            if path in self._places or not lost:
                continue
            part = self._part(path, 0, 0)
            old = lost.pop((part.device, part.inode), None) if part is not None else None
            if old is not None:
                self._places[path] = self._places.pop(old)

    def _follow(self, path: str) -> Iterator[tuple[str, bytes]]:
        place = self._places.get(path) or self._begin(path)
        part = self.files.part(path, place.offset, self._size())
        carried = b""
        if not place.is_file(part):
            carried = yield from self._drain(path, place)
            part = self.files.part(path, 0, self._size())
            if self._left <= 0 or (carried and b"\n" not in part.data):
                return  # the new file's turn comes when the old one is done
            place.offset += len(carried)
            place.skip = place.skip or bool(carried)
            place = self._places[path] = _Place(part.device, part.inode, 0)
        elif part.size < place.offset or (part.data and self._rewritten(path, place)):
            place = self._places[path] = _Place(part.device, part.inode, 0)
            part = self.files.part(path, 0, self._size())
        self._fingerprint(path, place)
        yield from self._lines(path, path, place, part, carried)

    def _nameless(self, path: str) -> Iterator[tuple[str, bytes]]:
        """The name is gone: read what the file still gets, as long as it can be found."""
        place = self._places.get(path)
        if place is None:
            return
        name = self._find(path, place)
        if name is None:
            del self._places[path]
            return
        part = self.files.part(name, place.offset, self._size())
        yield from self._lines(path, name, place, part, b"")

    def _size(self) -> int:
        """What to read at once; the last block of a run may go past its budget."""
        return BLOCK if self._left > 0 else 0

    def _begin(self, path: str) -> _Place:
        """First sight of a file."""
        part = self.files.part(path, 0, 0)
        place = _Place(part.device, part.inode, 0)
        if self._first and not self.from_start and part.size:
            place.offset = part.size
            last = self.files.part(path, part.size - 1, 1).data
            place.skip = last != b"\n"
        self._places[path] = place
        return place

    def _lines(
        self, path: str, name: str, place: _Place, part: FilePart, carried: bytes
    ) -> Iterator[tuple[str, bytes]]:
        """Whole lines of ``name`` from the place on, until the file's end or the budget's."""
        while part.data:
            cut = part.data.rfind(b"\n") + 1
            if not cut and len(part.data) < BLOCK:
                break  # a line that is still being written
            whole = part.data[:cut]
            place.offset += cut or len(part.data)
            self._left -= cut or len(part.data)
            if place.skip:
                whole = whole[whole.find(b"\n") + 1 :] if cut else b""
            place.skip = not cut  # a line without end: its rest is passed over
            if carried or whole:
                yield path, carried + whole
                carried = b""
            part = self.files.part(name, place.offset, self._size())
            if not place.is_file(part):
                break
        self.behind = self.behind or (self._left <= 0 and place.offset < part.size)

    def _drain(self, path: str, place: _Place) -> Generator[tuple[str, bytes], None, bytes]:
        """Read a file that lost its name to its end; return its cut last line, if it has one."""
        name = self._find(path, place)
        if name is None:
            return b""
        part = self.files.part(name, place.offset, self._size())
        yield from self._lines(path, name, place, part, b"")
        if name in self._places or any(self._matches(name)):
            self._places[name] = place
        rest = self.files.part(name, place.offset, BLOCK).data
        return b"" if place.skip or b"\n" in rest else rest

    def _matches(self, name: str) -> Iterator[bool]:
        return (fnmatch.fnmatch(name, pattern) for pattern in self.patterns)

    def _find(self, path: str, place: _Place) -> str | None:
        """The present name of a file that was ``path``: rotated names begin with its stem."""
        pure = PurePosixPath(path)
        stem = pure.name.split(".")[0]
        folder = str(pure.parent)
        for name in self.files.names(folder):
            if not name.startswith(stem) or name.endswith((".gz", ".xz", ".zst", ".bz2")):
                continue
            candidate = f"{folder.rstrip('/')}/{name}"
            part = self._part(candidate, 0, 0)
            if part is not None and place.is_file(part) and part.size >= place.offset:
                return candidate
        return None

    def _part(self, path: str, offset: int, limit: int) -> FilePart | None:
        try:
            return self.files.part(path, offset, limit)
        except OSError:
            return None

    def _rewritten(self, path: str, place: _Place) -> bool:
        """Whether the file was truncated and has grown past the old position since."""
        if not place.head_size:
            return False
        head = self.files.part(path, 0, place.head_size).data
        return zlib.crc32(head) != place.head

    def _fingerprint(self, path: str, place: _Place) -> None:
        if place.head_size >= HEAD:
            return
        head = self.files.part(path, 0, HEAD).data
        if len(head) > place.head_size:
            place.head, place.head_size = zlib.crc32(head), len(head)
