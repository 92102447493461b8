"""What people ask of healing itself: pause, resume, approve, silence, quarantine, release, close.

Changes what the guard keeps and tells it; carries out nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..guard import Guard
from ..guard.keeper import APPROVED_FOR
from ..guard.silences import MOST, Silence, read_silence, replaced
from ..model import Command, Event, labelset
from .case import Case
from .ways_back import DRAIN

Cases = Mapping[str, Case]
WEBHOOK = "webhook"  # holds that the centre asked for; a person ends them by resuming


def take(guard: Guard, command: Command, service: str, cases: Cases, now: float) -> list[Event]:
    """Take a command into account; return what is told of it. Unknown verbs are not ours."""
    handler = _HANDLERS.get(command.verb)
    if handler is None:
        return []
    service = service or str(command.args.get("service") or "")
    return list(handler(guard, command, service, cases, now))


def _event(command: Command, kind: str, message: str, **labels: str) -> Event:
    who = command.who or "a person"
    return Event(kind, f"{who}: {message}", labelset(labels), {"who": who, **command.args})


def _until(args: Mapping[str, Any], now: float) -> float | None:
    if args.get("until") is not None:
        return float(args["until"])
    return now + float(args["for"]) if args.get("for") is not None else None


def _pause(guard: Guard, command: Command, service: str, _: Cases, now: float) -> Iterable[Event]:
    guard.holds[service] = _until(command.args, now)
    whom = service or "all services"
    reason = command.args.get("reason") or "no reason given"
    yield _event(command, "healing_paused", f"healing of {whom} paused: {reason}", service=service)


def _resume(
    guard: Guard, command: Command, service: str, cases: Cases, now: float
) -> Iterable[Event]:
    if service:
        guard.holds.pop(service, None)
    else:
        guard.holds.clear()
    own = ("service", "=", service)
    guard.silences = [
        s for s in guard.silences if s.source != WEBHOOK or (service and s.matchers != (own,))
    ]
    for case in cases.values():
        if case.back and case.act == DRAIN and service in ("", case.service):
            guard.approvals[case.key] = now + APPROVED_FOR  # its front is opened again
    whom = service or "all services"
    yield _event(command, "healing_resumed", f"healing of {whom} goes on", service=service)


def _approve(
    guard: Guard, command: Command, service: str, cases: Cases, now: float
) -> Iterable[Event]:
    wanted = str(command.args.get("id") or service)
    waiting = [
        case for case in cases.values()
        if wanted in ("", case.key, case.service) and case.running is None and case.ladder
    ]  # fmt: skip
    keys = [case.key for case in waiting] or ([wanted] if wanted else [])
    for key in keys[:1]:
        guard.approvals[key] = now + APPROVED_FOR
        yield _event(command, "remediation_approved", f"{key} approved", service=service)


def _silence(guard: Guard, command: Command, service: str, _: Cases, now: float) -> Iterable[Event]:
    """Of alerts with given labels; with an ``id``, of what its matchers cover, to be taken back by
    that name."""
    args = command.args
    if args.get("id"):
        found = read_silence({**args, "until": _until(args, now)})
        if found is None:
            return
        silence = found
    else:
        given = args.get("matchers")
        labels = {str(k): str(v) for k, v in (given if isinstance(given, dict) else {}).items()}
        if args.get("alert"):
            labels["alertname"] = str(args["alert"])
        if service:
            labels["service"] = service
        if not labels:
            return
        silence = Silence.equal(labels, _until(args, now))
    same = [each for each in guard.silences if silence.id and _name(each) == _name(silence)]
    current = [s for s in guard.silences if s not in same and (s.until is None or now < s.until)]
    if sum(each.source == silence.source for each in current) >= MOST:
        text = f"{MOST} silences of one source are kept already; not taken: {silence.shown}"
        yield _event(command, "silence_refused", text, service=service)
        return
    guard.silences = [*current, silence]
    if not same:
        yield _event(command, "alert_silenced", f"silenced: {silence.shown}", service=service)


def _name(silence: Silence) -> tuple[str, str]:
    return silence.source, silence.id


def _unsilence(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    """The one named, or all that a person set here."""
    name = (str(command.args.get("source") or ""), str(command.args.get("id") or ""))
    ended = [s for s in guard.silences if (_name(s) == name if name[1] else not s.source)]
    guard.silences = [each for each in guard.silences if each not in ended]
    if ended:
        shown = "; ".join(each.shown for each in ended)[:300]
        yield _event(command, "silences_ended", f"silenced no longer: {shown}")


def _silences(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    """All that a source has now, in the place of what it had."""
    source = str(command.args.get("source") or "")
    told = command.args.get("silences")
    docs = [doc for doc in (told if isinstance(told, list) else ()) if isinstance(doc, dict)]
    found = (read_silence({**doc, "source": source}) for doc in docs)
    newest = [each for each in found if each is not None]
    guard.silences, began, ended = replaced(guard.silences, source, newest)
    who = {"who": command.who or source}
    for each in began:
        yield Event("alert_silenced", f"{who['who']}: silenced: {each.shown}"[:500], (), who)
    for each in ended:
        text = f"{who['who']}: silenced no longer: {each.shown}"[:500]
        yield Event("silences_ended", text, (), who)


def _hold(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    present = bool(command.args.get("present", True))
    if present != guard.held:
        guard.held = present
        word = "is there: nothing is done" if present else "is gone"
        yield Event("hold_file", f"the hold file {word}", (), {"who": command.who, **command.args})


def _quarantine(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    card = str(command.args.get("card") or "")
    if card:
        guard.quarantined[card] = str(command.args.get("reason") or "a person asked for it")
        yield _event(command, "card_quarantined", f"card {card} quarantined", card=card)


def _release(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    card = str(command.args.get("card") or "")
    if guard.quarantined.pop(card, None) is not None:
        yield _event(command, "card_released", f"card {card} released", card=card)


def _close(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    if guard.breaker.opened is not None:
        guard.breaker.close()
        yield _event(command, "breaker_closed", "the breaker is closed")


def _fleet(guard: Guard, command: Command, _: str, __: Cases, ___: float) -> Iterable[Event]:
    guard.fleet = bool(command.args.get("granted", False))
    return ()


_HANDLERS: Mapping[str, Callable[[Guard, Command, str, Cases, float], Iterable[Event]]] = {
    "pause": _pause,
    "resume": _resume,
    "approve": _approve,
    "silence": _silence,
    "unsilence": _unsilence,
    "silences": _silences,
    "hold": _hold,
    "quarantine": _quarantine,
    "release": _release,
    "close_breaker": _close,
    "fleet": _fleet,
}
