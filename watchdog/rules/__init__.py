"""Alert states: rules evaluated over the window as Prometheus does it, unknown inputs held.

Pure: nothing here reads a clock, a file or a socket; the window is the only thing written. What
follows from an alert is decided elsewhere.
"""

from __future__ import annotations

from .engine import Counters, EvaluationResult, RuleEngine, Settings
from .failures import INPUTS_UNKNOWN
from .group import RECORDER, RuleError
from .series import OWNER as ALERTS
from .states import RESOLVED_RETENTION, RuleFailed

__all__ = [
    "ALERTS",
    "INPUTS_UNKNOWN",
    "RECORDER",
    "RESOLVED_RETENTION",
    "Counters",
    "EvaluationResult",
    "RuleEngine",
    "RuleError",
    "RuleFailed",
    "Settings",
]
