"""What is told of cases: journal events, and the two alerts about remediation itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..model import Alert, Event, labelset
from ..rules import RESOLVED_RETENTION
from ..wire import alert_of, alert_state, moment
from .case import Case

RUNNING, FAILED = "RemediationRunning", "RemediationFailed"


def case_event(kind: str, case: Case, message: str, severity: str = "info", **more: Any) -> Event:
    """An event about a case."""
    diagnosis = case.diagnosis
    card = diagnosis.cards[0] if diagnosis.cards and not case.service else ""
    labels = {"service": case.service, "card": card, "alertname": diagnosis.alert.name}
    fields = {"cause": diagnosis.cause, "case": case.key, "policy": case.policy or None, **more}
    return Event(kind, message, labelset(labels), fields, severity)


def opened(case: Case, kind: str = "case_opened") -> Event:
    """A case was opened, or its cause is now a graver one."""
    diagnosis = case.diagnosis
    what = "no cause found" if diagnosis.cause == "none" else diagnosis.cause
    ladder = " → ".join(case.ladder) if case.ladder else "no policy: told only"
    return case_event(
        kind,
        case,
        f"{where(case)}: {what}, named by {diagnosis.alert.name} ({ladder})",
        "warning",
        evidence=list(diagnosis.evidence),
        explains=sorted({alert.name for alert in diagnosis.explains}),
        mode=case.mode,
    )


def where(case: Case) -> str:
    """Whom a case is about, for messages."""
    return case.service or (f"card {case.diagnosis.cards[0]}" if case.diagnosis.cards else "node")


def concerned(case: Case) -> tuple[str, ...]:
    """The cards that an act on this case is about: the sick ones, and those whose alerts name the
    cause or are explained by it."""
    diagnosis = case.diagnosis
    alerts = (diagnosis.alert, *diagnosis.explains)
    labelled = {dict(alert.labels).get("card", "") for alert in alerts}
    return tuple(sorted({*diagnosis.cards, *labelled} - {""}))


@dataclass(slots=True)
class Notices:
    """RemediationRunning and RemediationFailed, as alerts among the others.

    ``static`` are the labels that the node's alerts carry. One RemediationRunning a card that the
    act is about: by its ``card`` Alertmanager holds back that card's alerts and no other's. Kept by
    name, case and card.
    """

    static: Mapping[str, str] = field(default_factory=dict)
    alerts: dict[tuple[str, str, str], Alert] = field(default_factory=dict)

    def running(self, case: Case, act: str, now: float, deadline: float) -> None:
        """An act began; its alert ends by itself at the act's deadline."""
        text = f"{act} is under way for {where(case)} ({case.diagnosis.cause})"
        told = {"summary": text, "ends_at": moment(deadline) or ""}
        for card in concerned(case) or ("",):
            self._fire(RUNNING, case, act, now, told, card, ends_at=deadline)

    def ended(self, case: Case, now: float) -> None:
        """No act of the case is under way any more."""
        self._resolve(RUNNING, case, now)

    def failed(self, case: Case, act: str, why: str, now: float) -> None:
        """What was tried did not help, or could not be tried: a person is needed."""
        text = f"{where(case)} needs a person: {case.diagnosis.cause}; {act}: {why}"
        self._resolve(RUNNING, case, now)
        cards = () if case.service else case.diagnosis.cards
        card = cards[0] if cards else ""
        self._fire(FAILED, case, act, now, {"summary": text}, card, severity="page")

    def closed(self, case: Case, now: float) -> None:
        """The case is over."""
        self._resolve(RUNNING, case, now)
        self._resolve(FAILED, case, now)

    def current(self, now: float) -> list[Alert]:
        """Firing ones, and resolved ones for as long as others are shown."""
        for key, alert in list(self.alerts.items()):
            if alert.resolved_at is not None and now - alert.resolved_at > RESOLVED_RETENTION:
                del self.alerts[key]
        return list(self.alerts.values())

    def _fire(
        self,
        name: str,
        case: Case,
        act: str,
        now: float,
        told: Mapping[str, str],
        card: str,
        ends_at: float | None = None,
        **more: str,
    ) -> None:
        labels = labelset(
            {
                **self.static,
                "alertname": name,
                "service": case.service,
                "card": card,
                "remediation": act,
                **more,
            }
        )
        key = (name, case.key, card)
        before = self.alerts.get(key)
        if before is not None and before.state == "firing" and before.labels == labels:
            return
        self.alerts[key] = Alert(
            f"watchdog/{name}", labels, "firing", now, 1.0, labelset(told), now, ends_at=ends_at
        )

    def _resolve(self, name: str, case: Case, now: float) -> None:
        for key, alert in self.alerts.items():
            if key[:2] == (name, case.key) and alert.state == "firing":
                self.alerts[key] = replace(alert, state="resolved", resolved_at=now)

    def dump(self) -> list[Any]:
        """The alerts as JSON."""
        return [[name, key, alert_state(alert)] for (name, key, _), alert in self.alerts.items()]

    def restore(self, rows: Any) -> None:
        """Take up what ``dump`` gave. Raises KeyError, TypeError, ValueError."""
        found = ((str(name), str(key), alert_of(doc)) for name, key, doc in rows)
        self.alerts = {
            (name, key, dict(alert.labels).get("card", "")): alert for name, key, alert in found
        }
