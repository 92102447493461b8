"""How the parts of a daemon stand, in plain numbers for the exporter, the page and status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CollectorFigures:
    """How one collector instance did in its last run; ``duration`` in seconds.

    ``succeeded`` is when it last gave its samples (Unix seconds; 0: not since the start).
    """

    name: str
    success: bool
    duration: float = 0.0
    stalled: bool = False
    absent: bool = False
    error: str | None = None
    succeeded: float = 0.0


@dataclass(frozen=True, slots=True)
class OutletFigures:
    """How one outlet stands: events (or alerts) waiting, and counts since the start.

    ``refused``: the other side does not want them, ever; ``lost``: dropped unsent.
    """

    name: str
    up: bool = True
    lag: int = 0
    sent: int = 0
    errors: int = 0
    refused: int = 0
    lost: int = 0
    last_error: str = ""
