"""How long bundles of evidence and recordings are kept, and how much of them. Nothing else is
touched: only what lies in the two folders of ours, and of a link only the link itself.
"""

from __future__ import annotations

import contextlib
import stat
from dataclasses import dataclass
from pathlib import Path

from ...watchdog.system import System

MAX_BYTES = 200 * 1000 * 1000  # of all bundles and recordings together
MAX_AGE = 14 * 86400.0  # seconds
BUSY = 600.0  # seconds: a recording that was written to so lately is still being made
FOLDERS = ("evidence", "recordings")


@dataclass(frozen=True, slots=True)
class _Entry:
    path: Path
    size: int
    written: float  # Unix seconds


def prune(system: System, state: Path, now: float) -> int:
    """Take away what is older than 14 days, then the oldest until the rest is at most 200 MB.

    Returns how many bundles and recordings went. ``now``: Unix seconds. One that cannot be taken
    away stays for the next time. Raises nothing.
    """
    entries: list[_Entry] = []
    for folder in FOLDERS:
        base = system.files.path(state / folder)
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(base.lstat().st_mode):
                entries += [_entry(path) for path in base.iterdir()]
    entries.sort(key=lambda entry: entry.written)
    total, gone = sum(entry.size for entry in entries), 0
    for entry in entries:
        busy = entry.path.parent.name == "recordings" and now - entry.written < BUSY
        if busy or (now - entry.written <= MAX_AGE and total <= MAX_BYTES):
            continue
        if _take_away(entry.path):
            total, gone = total - entry.size, gone + 1
    return gone


def _entry(path: Path) -> _Entry:
    """What lies there, without following links; as old as the youngest thing in it."""
    size, written = 0, 0.0
    waiting = [path]
    while waiting:
        one = waiting.pop()
        try:
            status = one.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += one.iterdir()
        except OSError:  # gone meanwhile
            continue
        size += status.st_size if stat.S_ISREG(status.st_mode) else 0
        if not stat.S_ISDIR(status.st_mode) or one == path:
            written = max(written, status.st_mtime)
    return _Entry(path, size, written)


def _take_away(path: Path) -> bool:
    """Remove a folder and what is in it, never what a link points to."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            for inner in path.iterdir():
                _take_away(inner)
            path.rmdir()
        else:
            path.unlink()
    except OSError:
        return False
    return True
