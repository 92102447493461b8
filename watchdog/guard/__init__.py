"""Whether an act may start: rules that never bend, each check evaluated, the first refusal told.

Pure state and counting; time comes in as an argument. What the checks rest on is found elsewhere.
"""

from __future__ import annotations

from .acts import ACTS, Act, Kind
from .breaker import Breaker, Due
from .keeper import QUIET, Asked, Guard, Judgement
from .ledger import Ledger

__all__ = [
    "ACTS",
    "QUIET",
    "Act",
    "Asked",
    "Breaker",
    "Due",
    "Guard",
    "Judgement",
    "Kind",
    "Ledger",
]
