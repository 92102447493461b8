"""An incident and its report as plain values. Times are Unix seconds throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..wire import moment


@dataclass(frozen=True, slots=True)
class Incident:
    """One case from its opening to its end.

    ``name`` identifies it (moment and subject, usable as a file's name); ``key`` is the case's own.
    ``closed`` is None while it is open. ``cause`` and ``alert`` as named last. ``result`` says in a
    few words what came of it.
    """

    name: str
    key: str
    service: str
    cards: tuple[str, ...]
    cause: str
    alert: str
    policy: str
    mode: str
    opened: float
    closed: float | None
    result: str = ""
    ladder: str = ""
    evidence: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """Whom it is about: the service, a card, or the node."""
        if self.service:
            return self.service
        return f"card {self.cards[0]}" if self.cards else "node"

    def document(self) -> dict[str, Any]:
        """The incident as lists of incidents show it."""
        return {
            "incident": self.name,
            "service": self.service or None,
            "cards": list(self.cards),
            "cause": self.cause,
            "alert": self.alert,
            "opened": moment(self.opened),
            "closed": moment(self.closed),
            "result": self.result,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the timeline. ``sort``: alert, case, act, person, log, node."""

    time: float
    sort: str
    kind: str
    severity: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class AlertSpan:
    """An alert from its first sign to its end; ``resolved`` None while it goes on."""

    name: str
    labels: Mapping[str, str]
    severity: str
    active: float | None
    fired: float | None
    resolved: float | None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class StepTaken:
    """A step of an act; ``status`` as journaled: done, found, undone, failed …"""

    time: float
    name: str
    status: str
    seconds: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """An act that was let through; ``ended`` None while it is under way."""

    remediation: str
    request: str
    attempt: int
    began: float
    ended: float | None
    status: str
    detail: str = ""
    steps: tuple[StepTaken, ...] = ()
    healthy: float | None = None
    """Seconds from the first bad sample until all was well again, where that is known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An act that was not done, or in observe would have been; ``against`` what stood against it by
    check."""

    time: float
    remediation: str
    reason: str
    text: str
    against: Mapping[str, str] = field(default_factory=dict)
    would: bool = False


@dataclass(frozen=True, slots=True)
class LogLine:
    """A record of a log that was recognised."""

    time: float
    kind: str
    severity: str
    text: str
    where: str = ""


Points = tuple[tuple[float, float], ...]
"""Pairs of Unix seconds and value, in order."""


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure over time: a line a card, service or peer. ``step``: seconds between points."""

    name: str
    title: str
    unit: str
    scope: str
    step: float
    lines: tuple[tuple[str, Points], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients saw of one service, a figure a row: before, worst during, at the end."""

    service: str
    rows: tuple[tuple[str, str, str, str], ...]
    failed_for: float | None = None
    """Seconds during which a real request failed; None where there was no probe."""


@dataclass(frozen=True, slots=True)
class Report:
    """All that is told of one incident. ``begin`` and ``end`` bound what is shown; ``notes`` say
    what is missing or was cut."""

    incident: Incident
    node: str
    version: str
    made: float
    source: str
    begin: float
    end: float
    timeline: tuple[Entry, ...] = ()
    alerts: tuple[AlertSpan, ...] = ()
    acts: tuple[Act, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    log: tuple[LogLine, ...] = ()
    plots: tuple[Plot, ...] = ()
    clients: tuple[Seen, ...] = ()
    notes: tuple[str, ...] = ()
