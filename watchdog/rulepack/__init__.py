"""Rules: what a rule file says, checked at load so that evaluation meets no surprise.

Ordinary Prometheus rule files are read here, with the place of every error. Nothing is evaluated,
and which alerts are active is not known.
"""

from __future__ import annotations

from .loading import MAX_REACH_MS, Pack, load, read_text
from .values import Group, Rule

__all__ = ["MAX_REACH_MS", "Group", "Pack", "Rule", "load", "read_text"]
