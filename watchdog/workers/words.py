"""The words that end an act: a person's, a deadline's, a failure's, the daemon's own end."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import OutcomeStatus


@dataclass(slots=True)
class StopWord:
    """A person's word to one act; ``why`` is empty while nothing was said."""

    why: str = ""

    def say(self, why: str) -> None:
        """Stop the act before its next step; the first word counts."""
        self.why = self.why or why


class End(Exception):
    """The act ends so."""

    def __init__(self, status: OutcomeStatus, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Leave(Exception):
    """The daemon ends: the act is left to the next one."""


def first_line(error: BaseException) -> str:
    """One line of what an error says."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
