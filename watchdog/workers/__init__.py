"""Acts carried out: a thread each, at most one a service, every step journaled before and after.

Nothing is decided here and no success is believed: steps are asked, and the users' path is tried.
How acts end goes back to the engine as an input.
"""

from __future__ import annotations

from .crew import Workers
from .tools import Tools

__all__ = ["Tools", "Workers"]
