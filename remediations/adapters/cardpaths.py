"""How the cards of a node are joined, as their tools tell it now."""

from __future__ import annotations

from collections.abc import Iterable

from ...watchdog.cardways import Ways
from ...watchdog.errors import CommandTimeout, NotSupported, SourceError
from ...watchdog.system import System
from . import cards_nvidia
from .cardview import Seen


def joined(system: System, seen: Iterable[Seen], timeout: float) -> Ways | None:
    """The word for each pair of NVIDIA's cards; None where the tool does not tell."""
    numbers = {one.number: one.card for one in seen if one.number}
    try:
        told = cards_nvidia.paths(system, numbers, timeout)
    except (NotSupported, CommandTimeout, SourceError, OSError):
        return None
    rows = [dict(one.labels) for one in told if one.name == "accelerator_topology"]
    return {(row["card"], row["peer"]): row["path"] for row in rows if "path" in row}
