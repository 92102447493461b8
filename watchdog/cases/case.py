"""One case: what is wrong with a service, which ladder answers it, and how far that came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import Mode
from ..model import Diagnosis, Request, labelset
from ..wire import alert_of, alert_state, request_of, request_state

CARD_CAUSES = ("card_lost", "card_uncorrectable", "card_reset_required", "driver_fault")


@dataclass(slots=True)
class Running:
    """An act under way. ``deadline`` is Unix seconds; ``traffic``: of which budget it took."""

    request: Request
    since: float
    deadline: float
    traffic: bool = False


@dataclass(slots=True)
class Case:
    """``key``: the service, or the card or alert that makes a case of its own. ``ended``: how the
    ladder ended (done, cancelled, unknown, exhausted, or empty while it has not). ``seen`` is when
    the diagnosis was last made; ``refused`` the last refusal, told once. ``back``: nothing is sick,
    but what an act changed shall be taken back in time; ``due``: at once."""

    key: str
    diagnosis: Diagnosis
    opened: float
    seen: float
    policy: str = ""
    ladder: tuple[str, ...] = ()
    mode: Mode = "observe"
    within: float | None = None
    at_most: float | None = None
    rung: int = 0
    attempt: int = 0
    running: Running | None = None
    ended: str = ""
    ended_at: float = 0.0
    paged: bool = False
    refused: str = ""
    refusal: str = ""
    would: bool = False
    back: bool = False
    due: bool = False
    rests: float = 0.0
    postponed: bool = False
    checks: tuple[tuple[str, str], ...] = ()
    done: list[tuple[str, str]] = field(default_factory=list)

    def start_anew(self) -> None:
        """Its ladder begins again with the first rung."""
        self.rung, self.attempt = 0, 0
        self.ended = self.refused = self.refusal = ""
        self.would = self.postponed = False
        self.rests = 0.0

    @property
    def service(self) -> str:
        """The service, empty for a case of the node."""
        return self.diagnosis.service

    @property
    def counted_by(self) -> str:
        """What cooldown and attempts count: service and cause, or the alert where there is none."""
        cause = self.diagnosis.cause
        what = self.diagnosis.alert.name if cause == "none" else cause
        return f"{self.service or self.key}|{what}" + ("|back" if self.back else "")

    @property
    def act(self) -> str:
        """The rung that is due; empty where there is none."""
        return self.ladder[self.rung] if self.rung < len(self.ladder) else ""

    @property
    def fired(self) -> float:
        """When the naming alert fired, in Unix seconds."""
        alert = self.diagnosis.alert
        return alert.fired_at if alert.fired_at is not None else alert.active_at

    @property
    def labels(self) -> Mapping[str, str]:
        """What a policy's selectors see."""
        return {**dict(self.diagnosis.alert.labels), **dict(self.diagnosis.traits)}


def diagnosis_state(diagnosis: Diagnosis) -> dict[str, Any]:
    """A diagnosis as JSON."""
    return {
        "service": diagnosis.service,
        "cause": diagnosis.cause,
        "alert": alert_state(diagnosis.alert),
        "evidence": list(diagnosis.evidence),
        "explains": [alert_state(alert) for alert in diagnosis.explains],
        "cards": list(diagnosis.cards),
        "traits": dict(diagnosis.traits),
    }


def diagnosis_of(doc: Mapping[str, Any]) -> Diagnosis:
    """The diagnosis of a JSON object."""
    return Diagnosis(
        doc["service"],
        doc["cause"],
        alert_of(doc["alert"]),
        tuple(doc["evidence"]),
        tuple(alert_of(each) for each in doc["explains"]),
        tuple(doc["cards"]),
        labelset(doc["traits"]),
    )


_PLAIN = (
    "key", "opened", "seen", "policy", "mode", "within", "at_most", "rung", "attempt", "ended",
    "ended_at", "paged", "refused", "refusal", "would", "back", "due",
)  # fmt: skip
_LATER: Mapping[str, Any] = {"rests": 0.0, "postponed": False}  # absent in older states


def case_state(case: Case) -> dict[str, Any]:
    """A case as JSON."""
    running = case.running
    return {
        **{name: getattr(case, name) for name in (*_PLAIN, *_LATER)},
        "diagnosis": diagnosis_state(case.diagnosis),
        "ladder": list(case.ladder),
        "checks": [list(check) for check in case.checks],
        "done": [list(each) for each in case.done],
        "running": None
        if running is None
        else {
            "request": request_state(running.request),
            "since": running.since,
            "deadline": running.deadline,
            "traffic": running.traffic,
        },
    }


def case_of(doc: Mapping[str, Any]) -> Case:
    """The case of a JSON object. Raises KeyError, TypeError, ValueError."""
    diagnosis = diagnosis_of(doc["diagnosis"])
    kept = doc["running"]
    running = None
    if kept is not None:
        request = request_of(kept["request"])
        running = Running(
            request, float(kept["since"]), float(kept["deadline"]), bool(kept["traffic"])
        )
    return Case(
        **{name: doc[name] for name in _PLAIN},
        **{name: doc.get(name, default) for name, default in _LATER.items()},
        diagnosis=diagnosis,
        ladder=tuple(doc["ladder"]),
        checks=tuple((name, text) for name, text in doc["checks"]),
        done=[(act, how) for act, how in doc["done"]],
        running=running,
    )
