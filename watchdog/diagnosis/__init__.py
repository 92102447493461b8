"""From alerts to causes: at most one a service, with evidence and what it explains away.

Pure: alerts, readings and recent events come in, diagnoses go out. What is done about a cause is
decided elsewhere.
"""

from __future__ import annotations

from .causes import CAUSES, layer_of, rank
from .facts import Facts, Noted, ServiceFacts
from .naming import diagnose
from .observing import observe
from .readings import Readings

__all__ = [
    "CAUSES",
    "Facts",
    "Noted",
    "Readings",
    "ServiceFacts",
    "diagnose",
    "layer_of",
    "observe",
    "rank",
]
