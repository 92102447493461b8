"""Counts and times of what was tried, as the daemon's own series. Since the start of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..model import Alert, Outcome, Request, Sample, Verdict, labelset

Key = tuple[str, str]


@dataclass(slots=True)
class Tally:
    """``attempts`` by (remediation, service), ``outcomes`` by (remediation, status), ``refusals``
    by reason; ``seconds`` of the last act by (metric, remediation, service)."""

    attempts: Counter[Key] = field(default_factory=Counter)
    outcomes: Counter[Key] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    seconds: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def asked(self, request: Request) -> None:
        """An act was let through."""
        self.attempts[request.remediation, request.service] += 1
        alert = request.alert
        if not request.back and alert.fired_at is not None:
            self._time("detection", request, alert, alert.fired_at)

    def refused(self, verdict: Verdict) -> None:
        """The guard refused one."""
        self.refusals[verdict.reason] += 1

    def moved(self, request: Request, at: float) -> float:
        """Users no longer reach the sick instance; seconds since the first bad sample."""
        return self._time("moved", request, request.alert, at)

    def ended(self, outcome: Outcome, at: float) -> float | None:
        """An act ended; seconds since the first bad sample where all is well again."""
        request = outcome.request
        self.outcomes[request.remediation, outcome.status] += 1
        if outcome.status != "done" or request.back:
            return None
        return self._time("healthy", request, request.alert, at)

    def _time(self, what: str, request: Request, alert: Alert, at: float) -> float:
        seconds = round(max(at - alert.active_at, 0.0), 3)
        self.seconds[what, request.remediation, request.service] = seconds
        return seconds

    def samples(self) -> Iterator[Sample]:
        """All as samples."""
        for (act, service), count in sorted(self.attempts.items()):
            labels = labelset({"remediation": act, "service": service})
            yield Sample("watchdog_remediation_attempts_total", float(count), labels)
        for (act, status), count in sorted(self.outcomes.items()):
            labels = labelset({"remediation": act, "status": status})
            yield Sample("watchdog_remediation_outcomes_total", float(count), labels)
        for reason, count in sorted(self.refusals.items()):
            labels = labelset({"reason": reason})
            yield Sample("watchdog_remediation_refusals_total", float(count), labels)
        for (what, act, service), seconds in sorted(self.seconds.items()):
            labels = labelset({"remediation": act, "service": service})
            yield Sample(f"watchdog_remediation_{what}_seconds", seconds, labels)
