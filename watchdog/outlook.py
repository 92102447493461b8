"""How healing stands, for the page, `status` and whoever asks: cases, acts, budgets, quarantine.

Reads an engine as it stands, under its owner's lock; decides nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .cases import Case, against, awaited
from .diagnosis import CAUSES, ServiceFacts
from .engine import Engine
from .guard import Guard
from .model import ServiceMode, Tick
from .wire import moment

Doc = dict[str, Any]


def outlook(engine: Engine) -> Doc:
    """The document of ``/api/v1/healing`` without what the journal tells."""
    now = engine.ms / 1000
    healer = engine.healer
    guard = healer.guard
    sight = engine.sight(Tick(engine.ticks, now, now))
    facts = healer.facts(sight)
    cases = sorted(healer.cases.values(), key=lambda case: (case.opened, case.key))
    return {
        "time": moment(now) if engine.ms else None,
        "mode": healer.healing.mode,
        "hold_file": guard.held,
        "paused": [
            {"service": service or None, "until": moment(until)}
            for service, until in sorted(guard.holds.items())
            if until is None or now < until
        ],
        "held_back": list(held_back(guard, now)),
        "breaker": guard.breaker.why if guard.breaker.opened is not None else None,
        "budgets": _budgets(engine, now),
        "cases": [_case(case) for case in cases],
        "acts": [_act(case) for case in cases if case.running is not None],
        "waiting": [_waiting(case) for case in cases if _confirm(case) or awaited(case)],
        "quarantined": [
            {"card": card, "why": why, "by": "the daemon" if why in CAUSES else "a person"}
            for card, why in sorted(guard.quarantined.items())
        ],
        "reserved": dict(guard.reserved),
        "services": [
            _service(service, healer.standing.mode(name), now)
            for name, service in sorted(facts.services.items())
        ],
    }


def held_back(guard: Guard, now: float) -> Iterator[str]:
    """What alerts of the centre and silences hold back, for people."""
    for silence in guard.silences:
        if silence.until is None or now < silence.until:
            end = f" until {moment(silence.until)}" if silence.until is not None else ""
            yield f"{silence.source or 'a person'}: {silence.shown}{end}"


def _budgets(engine: Engine, now: float) -> list[Doc]:
    """What is left of the node's budgets; in observe, of what would have been spent."""
    guard = engine.healer.guard
    most, per = guard.limits.node
    book = guard.book(engine.healer.healing.mode)
    return [
        {
            "budget": name,
            "most": most,
            "per": per,
            "left": max(0, most - book.spent(now, per, traffic=name == "traffic")),
        }
        for name in ("device", "traffic")
    ]


def _confirm(case: Case) -> bool:
    """Whether the case's next act waits for a person's yes."""
    asked = case.mode == "confirm" and case.refused == "mode"
    return asked and case.running is None and not case.ended


def _case(case: Case) -> Doc:
    diagnosis = case.diagnosis
    return {
        "case": case.key,
        "service": case.service or None,
        "cards": list(diagnosis.cards),
        "cause": diagnosis.cause,
        "alert": diagnosis.alert.name,
        "opened": moment(case.opened),
        "policy": case.policy or None,
        "mode": case.mode if case.ladder else None,
        "ladder": list(case.ladder),
        "next": case.act or None,
        "refused": case.refused or None,
        "refusal": case.refusal or None,
        "tried": [{"act": act, "status": status} for act, status in case.done],
        "ended": case.ended or None,
        "paged": case.paged,
    }


def _act(case: Case) -> Doc:
    running = case.running
    assert running is not None
    return {
        "act": running.request.remediation,
        "case": case.key,
        "service": case.service or None,
        "cause": case.diagnosis.cause,
        "attempt": running.request.attempt,
        "request": running.request.id,
        "since": moment(running.since),
        "deadline": moment(running.deadline),
    }


def _waiting(case: Case) -> Doc:
    return {
        "id": case.key,
        "act": case.act,
        "service": case.service or None,
        "cause": case.diagnosis.cause,
        "since": moment(case.fired),
        "also": against(case),
        "back": case.back,
    }


def _service(service: ServiceFacts, mode: ServiceMode, now: float) -> Doc:
    """How a service stands; ``idle``: seconds since its last token or step."""
    return {
        "service": service.name,
        "serving": mode.serving,
        "front": mode.front,
        "profile": mode.profile or None,
        "cards": list(service.cards),
        "operation": service.operation or None,
        "probe": service.probe,
        "process": service.process,
        "pending": service.pending,
        "idle": None if service.moved is None else round(max(0.0, now - service.moved[1]), 1),
    }
