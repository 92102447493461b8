"""What the command line asks of the process that runs the loop."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """``duration`` in seconds; None = until told to stop. ``only_record``: no listener, acts or
    outlets, and the state folder is left alone."""

    config: Path | None = None
    listen: str | None = None
    state: Path | None = None
    record: Path | None = None
    duration: float | None = None
    only_record: bool = False
