"""What can be said of a service that has no case: busy, clients in error, a person at work.

Only for people who ask; nothing is done about it.
"""

from __future__ import annotations

from .facts import ServiceFacts

_MOVING = 30.0  # seconds since the last token within which an engine counts as moving
_MANY = 0.3  # share of client errors above which they are worth a word
_ENOUGH = 20.0  # requests


def moves(facts: ServiceFacts, now: float) -> bool:
    """Whether the engine made a token or a step a short while ago."""
    return facts.moved is not None and now - facts.moved[1] <= _MOVING


def saturated(facts: ServiceFacts, now: float) -> bool:
    """Whether the engine works and cannot keep up."""
    if not moves(facts, now):
        return False
    return facts.probe == "slow" or bool(facts.waiting)


def client_errors(facts: ServiceFacts) -> bool:
    """Whether a large part of what comes in is wrong by itself (answers of the 4xx class)."""
    if facts.client_errors is None or not facts.requests or facts.requests < _ENOUGH:
        return False
    return facts.client_errors / facts.requests > _MANY


def observe(facts: ServiceFacts, now: float) -> str:
    """A cause's word for how a service without a case stands; ``none`` if there is nothing."""
    if facts.operation:
        return "planned"
    if client_errors(facts):
        return "client_errors"
    if saturated(facts, now):
        return "saturated"
    return "none"
