"""What a server that we start is marked with from its first moment: one word in its environment.

A pid file can only be written once there is a pid; a daemon that is killed in between would not
know its own server. The mark needs no second step and children inherit it. It finds processes and
judges nothing. Its name begins with no ``VLLM_``: vLLM warns of such names that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...watchdog.processes import Stat
from ...watchdog.system import Files

VARIABLE = "WATCHDOG_SERVER"
MAX_ENVIRON = 1 << 20  # bytes of an environment that are read


@dataclass(frozen=True, slots=True)
class Marked:
    """A process that bears the mark; ``at``: when its server was started (Unix seconds)."""

    process: Stat
    at: float


def mark(file: Path, at: float) -> Mapping[str, str]:
    """The mark of the server whose pid file this is, started at this moment."""
    return {VARIABLE: f"{at!r} {file}"}


def marked(files: Files, file: Path, known: Iterable[Stat]) -> list[Marked]:
    """Who of these processes bears the mark of this pid file, of whatever start; one whose
    environment may not be read (another user's) does not."""
    found = ((entry, _started_at(files, entry.pid, str(file))) for entry in known)
    return [Marked(entry, at) for entry, at in found if at is not None]


def _started_at(files: Files, pid: int, file: str) -> float | None:
    try:
        data = files.read(f"/proc/{pid}/environ", MAX_ENVIRON)
    except OSError:
        return None
    head = f"{VARIABLE}=".encode()
    for entry in data.split(b"\0"):
        if entry.startswith(head):
            at, _, path = entry[len(head) :].decode("utf-8", "replace").partition(" ")
            try:
                return float(at) if path == file else None
            except ValueError:
                return None
    return None
