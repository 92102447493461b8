"""Cases from first sign to last rung: diagnosis, policy and guard joined to what shall be done.

Pure: a sight of the node comes in with the inputs, requests, refusals and events go out. Nothing
here touches the node.
"""

from __future__ import annotations

from .case import Case, Running
from .healer import Healer
from .ladders import Word
from .people import Operation, Operations
from .settings import Healing, healing
from .sight import Collected, Sight
from .ways_back import against, approvable, awaited

__all__ = [
    "Case",
    "Collected",
    "Healer",
    "Healing",
    "Operation",
    "Operations",
    "Running",
    "Sight",
    "Word",
    "against",
    "approvable",
    "awaited",
    "healing",
]
