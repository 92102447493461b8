"""What happened in one incident, told for a person: found in the journal, composed, written.

Reads journals, recordings and the window; decides nothing, changes nothing on the node. A report
is a value (``model``); ``html`` and ``markdown`` write it, ``sources`` say where it comes from,
``keeping`` puts one into the state folder after each incident.
"""

from __future__ import annotations

from .composing import compose
from .finding import chosen, incidents
from .html import html
from .keeping import Keeper, kept_reports, write_report
from .markdown import markdown
from .model import Incident, Report
from .sources import RecordingSource, Source, StateSource

__all__ = [
    "Incident",
    "Keeper",
    "RecordingSource",
    "Report",
    "Source",
    "StateSource",
    "chosen",
    "compose",
    "html",
    "incidents",
    "kept_reports",
    "markdown",
    "write_report",
]
