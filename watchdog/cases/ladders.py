"""Walks a case's ladder: what is due, what the guard says to it, what starts, who is paged.

One rung at a time. Nothing is carried out here: requests go out, outcomes come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..diagnosis import Facts
from ..guard import ACTS, Asked, Due, Guard, Judgement, Kind
from ..model import Alert, Event, Outcome, Request, Verdict, labelset
from ..policies import PAGE
from .case import CARD_CAUSES, Case, Running
from .destination import Destination, destination, ready
from .people import Operations
from .proving import unknown, unproved
from .settings import Healing
from .sight import Sight
from .standing import Standing
from .tally import Tally
from .telling import Notices, case_event, where
from .ways_back import DRAIN, FREQUENCY, PROFILE, waits

SETTLE = 120.0  # seconds after an act that helped in which the alerts may linger
OVERDUE = 60.0  # seconds past an act's deadline after which its result counts as unknown
RESET = "reset_card"
_SHARED = {"host_memory": "host", "network_outage": "network", "link_down": "link"}


@dataclass(slots=True)
class Word:
    """What one tick decides."""

    requests: list[Request] = field(default_factory=list)
    refusals: list[Verdict] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


@dataclass(slots=True)
class Ladders:
    """All ladders of a node past one guard. ``number`` makes the names of requests unique."""

    healing: Healing
    guard: Guard
    people: Operations
    notices: Notices
    standing: Standing = field(default_factory=Standing)
    tally: Tally = field(default_factory=Tally)
    number: int = 0

    def examine(self, sight: Sight, facts: Facts, case: Case) -> Judgement:
        """What the guard would say to the case's next act just now; changes nothing."""
        asked, _ = self._asked(sight, facts, case)
        return self.guard.judge(asked, sight.now)

    def watch_breaker(
        self, sight: Sight, facts: Facts, cases: Sequence[Case], present: frozenset[str], word: Word
    ) -> None:
        due = []
        for case in cases:
            act = case.act
            if case.key not in present or case.ended or act not in ACTS or not case.service:
                continue
            if ACTS[act].kind not in ("device", "restart") or act == "lower_frequency":
                continue
            asked = self._asked(sight, facts, case)[0]
            if not (asked.unknown or asked.other or asked.precondition or asked.warming):
                target, cards = _target(case), frozenset(case.diagnosis.cards)
                due.append(Due(target, case.service, cards))
        services, cards_ = len(facts.services), len(sight.cards())
        if due and self.guard.breaker.note(due, services, cards_, sight.now):
            text = f"the breaker opens: {self.guard.breaker.why}"
            word.events.append(Event("breaker_opened", text, severity="critical"))

    def _asked(self, sight: Sight, facts: Facts, case: Case) -> tuple[Asked, Destination]:
        """The act that is due, with all that the guard asks about it."""
        act, diagnosis = case.act, case.diagnosis
        own = facts.services.get(case.service)
        cards = own.cards if own is not None else ()
        taken = {c for c, holder in self.guard.reserved.items() if holder != case.key}
        leads = destination(sight, act, case.service, cards, self.guard.quarantined, taken)
        kind: Kind = "traffic" if leads.standby and ACTS[act].moves else ACTS[act].kind
        operation = self.people.current.get(case.service)
        other = _other(operation.word, operation.who) if operation is not None else ""
        if not other and kind == "restart" and own is not None and own.operation == "start":
            other = "the server is starting"
        if case.back:
            aside = act == PROFILE and ready(sight, case.service, self.guard.quarantined)
            leads = Destination(standby=aside)
            return self._asked_back(sight, facts, case, kind, other, leads), leads
        asked = Asked(
            act,
            kind,
            case.service,
            case.counted_by,
            case.key,
            diagnosis.alert,
            case.mode,
            first=case.rung == 0 and not case.postponed,
            destination=leads.refusal,
            other=other,
            warming="" if self._warm(sight, diagnosis.alert) else "the rule is not warm yet",
            unknown=unknown(sight, diagnosis, own),
            precondition=unproved(sight, diagnosis, own, act, moves_traffic=kind == "traffic"),
        )
        return asked, leads

    def _asked_back(self, sight: Sight, facts: Facts, case: Case, kind: Kind, other: str,
                    leads: Destination) -> Asked:  # fmt: skip
        """The way back of an act: nothing is sick, so no fault is proved again."""
        approved = self.guard.approvals.get(case.key, 0.0) > sight.now
        mode = self.standing.mode(case.service)
        return Asked(
            case.act,
            kind,
            case.service,
            case.counted_by,
            case.key,
            case.diagnosis.alert,
            case.mode,
            undoing=case.act in (FREQUENCY, DRAIN),
            other=other,
            precondition=waits(sight, facts, case, mode, approved=approved, aside=leads.standby),
        )

    def _warm(self, sight: Sight, alert: Alert) -> bool:
        return self.healing.warm or sight.warm(alert)

    def advance(self, sight: Sight, facts: Facts, case: Case, word: Word, *, current: bool) -> None:
        """Let the case's next act start, if it may."""
        now = sight.now
        if case.running is not None:
            self._watch_running(case, now, word)
            return
        if not current or not case.ladder:
            return
        if case.ended:
            if case.ended in ("done", "exhausted") and now - case.ended_at >= SETTLE:
                case.start_anew()
            return
        if (case.would and case.mode == "observe") or now < case.rests:
            return
        if case.act in ("", PAGE):
            self._last_rung(case, now, word)
            return
        asked, leads = self._asked(sight, facts, case)
        judgement = self.guard.judge(asked, now)
        case.checks = judgement.checks
        late = case.within is not None and now - case.fired >= case.within
        if judgement.allowed and late and asked.kind == "device" and case.rung > 0:
            self._page(case, case.act, f"not healed within {case.within:g} s", now, word)
            self.end(case, "exhausted", now)
        elif judgement.allowed:
            self._start(case, asked, leads, now, word)
        else:
            self._refuse(case, asked, judgement, now, word)
        self._page_late(case, judgement, now, word)

    def _watch_running(self, case: Case, now: float, word: Word) -> None:
        running = case.running
        assert running is not None
        if case.within is not None and now - case.fired >= case.within and not case.paged:
            why = f"not finished within {case.within:g} s"
            self._page(case, running.request.remediation, why, now, word)
        if now >= running.deadline + OVERDUE:
            self.outcome([case], Outcome(running.request, "unknown", "no result came"), now, word)

    def _page_late(self, case: Case, judgement: Judgement, now: float, word: Word) -> None:
        """``within`` is over and the act still waits for its turn: a person is told at once."""
        if case.within is None or case.paged or case.running is not None or case.ended:
            return
        if now - case.fired >= case.within and judgement.only("busy"):
            self._page(case, case.act, f"not begun within {case.within:g} s", now, word)

    def _start(self, case: Case, asked: Asked, leads: Destination, now: float, word: Word) -> None:
        """The guard let it through: count it, then ask for it."""
        guard, act = self.guard, case.act
        if asked.undoing:
            case.attempt = 1
        elif (case.rung == 0 and not case.postponed) or case.attempt == 0:
            guard.ledger.begin(case.counted_by, now)
            case.attempt = guard.ledger.attempts(case.counted_by, now, guard.limits.per)
        if not asked.undoing:
            guard.ledger.act(now, traffic=asked.kind == "traffic")
        self.number += 1
        name = f"{case.service or case.key.replace('|', '-')}-{round(now * 1000)}-{self.number}"
        limit = case.at_most or ACTS[act].deadline
        deadline = now + limit
        request = Request(
            act,
            case.diagnosis.alert,
            case.attempt,
            case.service,
            name,
            case.diagnosis.cause,
            case.diagnosis.cards,
            leads.spares,
            leads.standby,
            limit,
            case.back,
        )
        case.running = Running(request, now, deadline, asked.kind == "traffic")
        case.refused = case.refusal = ""
        guard.running[name] = (case.service, ACTS[act].exclusive)
        guard.reserved.update(dict.fromkeys(leads.spares, case.key))
        guard.approvals.pop(case.key, None)
        self.notices.running(case, act, now, deadline)
        word.requests.append(request)
        self.tally.asked(request)
        word.events.append(
            case_event(
                "remediation_requested",
                case,
                f"{act} for {where(case)}: {case.diagnosis.cause} (attempt {case.attempt})",
                "warning",
                remediation=act,
                request=name,
                attempt=case.attempt,
                spares=list(leads.spares),
                standby=leads.standby,
                checks=dict(case.checks),
            )
        )
        if act == "card_failover":
            for card in case.diagnosis.cards:
                if card not in guard.quarantined:
                    self.lock_away(case, card, word)

    def _refuse(
        self, case: Case, asked: Asked, judgement: Judgement, now: float, word: Word
    ) -> None:
        """Tell a refusal once; page where it will not end by itself."""
        reason, text = judgement.reason, judgement.text
        if case.back:
            case.refusal = text  # it waits; nobody is told of each thing that it waits for
            return
        if reason == "mode" and case.mode == "observe":
            self._shadow(case, asked, judgement.without("mode"), now, word)
        if reason != case.refused:
            case.refused = reason
            passed = tuple((name, not against) for name, against in judgement.checks)
            request = Request(case.act, case.diagnosis.alert, case.attempt + 1, case.service)
            word.refusals.append(Verdict(request, False, reason, passed))
            self.tally.refused(word.refusals[-1])
            word.events.append(
                case_event("remediation_refused", case, f"no {case.act} for {where(case)}: {text}",
                           remediation=case.act, reason=reason, checks=dict(judgement.checks))
            )  # fmt: skip
        case.refusal = text
        final = judgement.final
        if final == "destination":
            case.rung += 1
            case.refused, case.postponed = "", False
            if case.act == PAGE:
                self._page(case, asked.act, dict(judgement.checks)[final], now, word)
                self.end(case, "exhausted", now)
        elif final and not case.paged:
            self._page(case, asked.act, dict(judgement.checks)[final], now, word)

    def _shadow(
        self, case: Case, asked: Asked, judgement: Judgement, now: float, word: Word
    ) -> None:
        """In observe: once per firing alert, what would have been done, counted apart."""
        if case.would or not (judgement.allowed or judgement.final):
            return
        case.would = True
        if judgement.allowed:
            if case.rung == 0:
                self.guard.shadow.begin(case.counted_by, now)
            self.guard.shadow.act(now, traffic=asked.kind == "traffic")
            text = f"would {case.act} for {where(case)} because of {case.diagnosis.cause}"
        else:
            against = dict(judgement.checks)[judgement.final]
            text = f"would page for {where(case)}: no {case.act}, {against}"
        word.events.append(
            case_event("remediation_would", case, text, remediation=case.act,
                       allowed=judgement.allowed, reason=judgement.reason or None,
                       checks=dict(judgement.checks))
        )  # fmt: skip

    def _last_rung(self, case: Case, now: float, word: Word) -> None:
        """Nothing smaller is left: a person is paged, if people may be."""
        asked = Asked(
            PAGE, "page", case.service, case.counted_by, case.key, case.diagnosis.alert, case.mode
        )
        judgement = self.guard.judge(asked, now)
        case.checks = judgement.checks
        if judgement.allowed:
            tried = ", ".join(f"{act} {how}" for act, how in case.done) or "no act fits"
            self._page(case, case.done[-1][0] if case.done else PAGE, tried, now, word)
            self.end(case, "exhausted", now)
        elif judgement.reason != case.refused:
            self._refuse(case, asked, judgement, now, word)

    def _page(self, case: Case, act: str, why: str, now: float, word: Word) -> None:
        """Page a person, once a case."""
        if case.paged:
            return
        asked = Asked(
            PAGE, "page", case.service, case.counted_by, case.key, case.diagnosis.alert, case.mode
        )
        if not self.guard.judge(asked, now).allowed:
            return
        case.paged = True
        self.number += 1
        name = f"page-{round(now * 1000)}-{self.number}"
        word.requests.append(
            Request(PAGE, case.diagnosis.alert, max(1, case.attempt), case.service, name)
        )
        self.notices.failed(case, act, why, now)
        text = f"a person is paged for {where(case)}: {case.diagnosis.cause}; {act}: {why}"
        word.events.append(case_event("page_sent", case, text, "critical", remediation=act))

    def outcome(self, cases: Iterable[Case], outcome: Outcome, now: float, word: Word) -> None:
        """An act ended: the case is done, or its next rung is due."""
        name = outcome.request.id
        case = next((c for c in cases if c.running and c.running.request.id == name), None)
        self.guard.running.pop(name, None)
        healthy = self.tally.ended(outcome, now)
        if case is None or case.running is None:
            word.events.append(_late(outcome))
            return
        if outcome.status != "done":
            self.give_back(case)
        act, status = case.running.request.remediation, outcome.status
        case.running = None
        case.done.append((act, status))
        self.notices.ended(case, now)
        text = f"{act} for {where(case)}: {status}" + (
            f", {outcome.detail}" if outcome.detail else ""
        )
        severity = "info" if status in ("done", "cancelled") else "warning"
        word.events.append(
            case_event("remediation_ended", case, text, severity, status=status,
                       remediation=act, request=outcome.request.id, seconds=outcome.duration,
                       seconds_to_healthy=healthy)
        )  # fmt: skip
        if act == RESET and status == "done":
            self._released(case, outcome.request, word)
        if status in ("done", "cancelled"):
            self.end(case, status, now)
        elif status == "unknown":
            self.end(case, "unknown", now)
            self._page(case, act, "nobody knows how it ended", now, word)
        elif case.back and status == "declined":
            case.refusal = outcome.detail
        elif status == "declined" and outcome.again:
            case.refusal, case.postponed = outcome.detail, True
            case.rests = now + outcome.again
        else:
            case.rung += 1
            case.refused, case.postponed = "", False

    def withdraw(self, case: Case, why: str, now: float, word: Word) -> None:
        """The intent of an act could not be written, so it does not start; its rung stays due."""
        running = case.running
        assert running is not None
        case.running = None
        self.guard.running.pop(running.request.id, None)
        self.guard.ledger.withdraw(case.counted_by, ladder=case.rung == 0, traffic=running.traffic)
        if case.rung == 0:
            case.attempt = 0
        self.give_back(case)
        self.notices.ended(case, now)
        act = running.request.remediation
        text = f"{act} for {where(case)} does not start: {why}"
        word.events.append(case_event("remediation_withdrawn", case, text, "critical",
                                      remediation=act, request=running.request.id))  # fmt: skip

    def give_back(self, case: Case) -> None:
        """The cards that were reserved for a case are free again."""
        reserved = self.guard.reserved
        for card in [card for card, holder in reserved.items() if holder == case.key]:
            del reserved[card]

    def end(self, case: Case, how: str, now: float) -> None:
        case.ended, case.ended_at = how, now
        self.guard.ledger.end(case.counted_by, now)

    def _released(self, case: Case, request: Request, word: Word) -> None:
        """A reset with a passed check ends a card's quarantine."""
        for card in request.cards:
            if self.guard.quarantined.pop(card, None) is not None:
                text = f"card {card} is released: it was reset and passed its check"
                word.events.append(case_event("card_released", case, text))

    def lock_away(self, case: Case, card: str, word: Word) -> None:
        self.guard.quarantined[card] = case.diagnosis.cause
        text = f"card {card} is quarantined: {case.diagnosis.cause}"
        word.events.append(case_event("card_quarantined", case, text, "warning"))


def _target(case: Case) -> str:
    """What is sick: services of one cause have one target."""
    if case.diagnosis.cause in CARD_CAUSES and case.diagnosis.cards:
        return "card:" + ",".join(case.diagnosis.cards)
    return _SHARED.get(case.diagnosis.cause, case.service)


def _late(outcome: Outcome) -> Event:
    """An act ended that nobody waits for any more: its time was over."""
    request = outcome.request
    text = f"{request.remediation} for {request.service or 'the node'} ended late: {outcome.status}"
    labels = labelset({"service": request.service, "alertname": request.alert.name})
    fields = {"status": outcome.status, "remediation": request.remediation, "request": request.id}
    return Event("remediation_ended", f"{text}, {outcome.detail}", labels, fields, "warning")


def _other(word: str, who: str) -> str:
    return f"{who or 'somebody'}: {word} is under way"
