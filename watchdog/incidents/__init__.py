"""Incidents as data: what a node saw, what people did, and what the right answer is.

Read strictly, played on virtual time through the real classifiers and the real engine, judged.
Nothing of this machine is looked at.
"""

from __future__ import annotations

from .form import Expected, Incident
from .judging import Finding, Table, judge
from .playing import Played, play
from .reading import found, read

__all__ = ["Expected", "Finding", "Incident", "Played", "Table", "found", "judge", "play", "read"]
