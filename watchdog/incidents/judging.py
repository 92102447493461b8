"""Right or wrong: what came of an incident against what was expected, and all of it as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model import Json
from .form import Expected, Incident
from .playing import Played


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation and what came of it. ``problems`` is empty when all is right."""

    file: str
    name: str
    service: str
    expected: Expected
    cause: str
    act: str
    at: float | None
    alerts: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def doc(self) -> Json:
        """The finding as JSON."""
        expected = self.expected
        return {
            "file": self.file,
            "name": self.name,
            "service": self.service or None,
            "right": not self.problems,
            "problems": list(self.problems),
            "expected": {
                "act": expected.act,
                "by": expected.by,
                "cause": None if expected.causes is None else list(expected.causes),
                "alerts": None if expected.alerts is None else list(expected.alerts),
            },
            "got": {
                "act": self.act,
                "at": self.at,
                "cause": self.cause,
                "alerts": list(self.alerts),
            },
        }


def judge(incident: Incident, played: Played) -> list[Finding]:
    """One finding for each expectation."""
    return [_finding(incident, played, expected) for expected in incident.expected]


def _finding(incident: Incident, played: Played, expected: Expected) -> Finding:
    service = expected.service
    act, at = played.act(service)
    cause = played.cause(service)
    fired = played.fired(service)
    problems: list[str] = []
    if expected.alerts is not None:
        everywhere = played.fired("")
        missing = [name for name in expected.alerts if name not in everywhere]
        if missing:
            problems.append(f"did not fire: {', '.join(missing)}")
        if not expected.alerts and fired:
            problems.append(f"fired, and none should: {', '.join(sorted(fired))}")
    if expected.causes is not None and cause not in expected.causes:
        problems.append(f"cause {cause}, expected {' or '.join(expected.causes)}")
    if expected.act not in (None, act):
        when = "" if at is None else f" at {at:g}s"
        problems.append(f"act {act}{when}, expected {expected.act}")
    elif expected.act and expected.by is not None and at is not None and at > expected.by:
        problems.append(f"act {act} at {at:g}s, expected by {expected.by:g}s")
    return Finding(
        incident.file, incident.name, service, expected, cause, act, at,
        tuple(sorted(fired)), tuple(problems),
    )  # fmt: skip


@dataclass(slots=True)
class Table:
    """All findings summed up: expected against got, for causes and for acts."""

    causes: dict[str, Counter[str]] = field(default_factory=dict)
    acts: dict[str, Counter[str]] = field(default_factory=dict)
    right: int = 0
    wrong: int = 0
    needless: int = 0

    def add(self, findings: Sequence[Finding]) -> None:
        """Count findings in."""
        for finding in findings:
            expected = finding.expected
            if expected.causes is not None:
                accepted = finding.cause in expected.causes
                wanted = finding.cause if accepted else expected.causes[0]
                self.causes.setdefault(wanted, Counter())[finding.cause] += 1
            if expected.act is not None:
                self.acts.setdefault(expected.act, Counter())[finding.act] += 1
            self.needless += expected.act == "nothing" and finding.act not in ("nothing", "page")
            self.right += not finding.problems
            self.wrong += bool(finding.problems)

    def doc(self) -> Json:
        """The tables as JSON: expected → got → how often."""
        return {
            "right": self.right,
            "wrong": self.wrong,
            "acts_where_none_was_due": self.needless,
            "causes": {wanted: dict(got) for wanted, got in sorted(self.causes.items())},
            "acts": {wanted: dict(got) for wanted, got in sorted(self.acts.items())},
        }
