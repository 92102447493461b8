"""Decides, tick by tick: opens and closes cases, walks their ladders past the guard.

A person's word comes first, then what acts report, then what the sight shows. Nothing is carried
out here: requests go out, outcomes come back as inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..diagnosis import Facts, Noted, diagnose, rank
from ..guard import ACTS, Asked, Due, Guard, Judgement, Kind
from ..model import Alert, Command, Diagnosis, Event, Inputs, Outcome, Request, Verdict, labelset
from ..policies import PAGE, effective, first_match
from .case import Case, Running, case_of, case_state
from .commands import take
from .destination import Destination, destination
from .people import Operations
from .proving import unknown, unproved
from .settings import Healing
from .sight import Sight
from .telling import Notices, case_event, opened, where

GRACE = 60.0  # seconds that a case outlives its alert, so that a gap in the readings opens none
SETTLE = 120.0  # seconds after an act that helped in which the alerts may linger
OVERDUE = 60.0  # seconds past an act's deadline after which its result counts as unknown
EVENTS, EVENT_AGE = 1000, 1800.0
_NEVER = frozenset({"planned", "sensor"})
_CARD_CAUSES = ("card_lost", "card_uncorrectable", "card_reset_required", "driver_fault")
_SHARED = {"host_memory": "host", "network_outage": "network", "link_down": "link"}


@dataclass(slots=True)
class Word:
    """What one tick decides."""

    requests: list[Request] = field(default_factory=list)
    refusals: list[Verdict] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class Healer:
    """The open cases of one node and all that deciding remembers."""

    def __init__(self, healing: Healing, static: Mapping[str, str] | None = None) -> None:
        self.healing = healing
        self.guard = Guard(healing.guard)
        self.people = Operations()
        self.cases: dict[str, Case] = {}
        own = {key: value for key, value in (static or {}).items() if key == "instance"}
        self.notices = Notices(own)
        self.events: deque[Noted] = deque(maxlen=EVENTS)
        self._explained: dict[tuple[str, Any], float] = {}
        self._number = 0

    def configure(self, healing: Healing) -> None:
        """Take over other settings; open cases go on."""
        self.healing = healing
        self.guard.limits = healing.guard

    # One tick

    def hear(self, inputs: Inputs, now: float) -> Word:
        """Take in what acts report, people ask and sources tell; before anything is judged."""
        word = Word()
        for outcome in inputs.outcomes:
            self._outcome(outcome, now, word)
        for command in inputs.commands:
            self._command(command, now, word)
        for batch in inputs.batches:
            for event in batch.events:
                self._note(event, now)
        return word

    def step(self, sight: Sight, word: Word) -> Word:
        """Decide what follows from this tick; what was heard stands in ``word``."""
        for service in list(self.people.current):
            facts_ = sight.service(service, self.people)
            answers = _answers(facts_.probe, facts_.up, facts_.process)
            self.people.look(service, answers=answers, now=sight.now)
        if not sight.firing and not self.cases:
            return word
        facts = self.facts(sight)
        present = self._find(sight, facts, word)
        self._retire(sight, present, word)
        ordered = sorted(self.cases.values(), key=_urgency)
        self._watch_breaker(sight, facts, ordered, present, word)
        for case in ordered:
            self._advance(sight, facts, case, word, current=case.key in present)
        return word

    def facts(self, sight: Sight) -> Facts:
        """What a diagnosis rests on, as of this tick."""
        names = {*self.healing.services, *(case.service for case in self.cases.values())}
        paused = frozenset(name for name in names if self.guard.paused(name, sight.now))
        while self.events and sight.now - self.events[0].at > EVENT_AGE:
            self.events.popleft()
        return sight.facts(tuple(self.events), self.people, paused)

    def _note(self, event: Event, now: float) -> None:
        self.people.event(event, now)
        if event.severity == "info" and event.kind != "lifecycle":
            return
        if event.fields.get("state") == "recover" or event.fields.get("during_shutdown"):
            return
        self.events.append(
            Noted(now, event.kind, event.severity, event.message[:200], dict(event.labels),
                  event.fields)
        )  # fmt: skip

    def _command(self, command: Command, now: float, word: Word) -> None:
        service = self.people.command(command, now)
        word.events += take(self.guard, command, service, self.cases, now)
        if command.verb == "cancel":
            for case in self.cases.values():
                if service in ("", case.service) and case.running is None and not case.ended:
                    self._end(case, "cancelled", now)
                    word.events.append(case_event("case_cancelled", case, "a person cancelled"))

    def _outcome(self, outcome: Outcome, now: float, word: Word) -> None:
        """An act ended: the case is done, or its next rung is due."""
        case = next(
            (c for c in self.cases.values() if c.running and c.running.request.id
             == outcome.request.id), None,
        )  # fmt: skip
        self.guard.running.pop(outcome.request.id, None)
        for card in [
            c for c, holder in self.guard.reserved.items() if holder == outcome.request.id
        ]:
            if outcome.status != "done":
                del self.guard.reserved[card]
        if case is None or case.running is None:
            return
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
                       remediation=act, request=outcome.request.id)
        )  # fmt: skip
        if status in ("done", "cancelled"):
            self._end(case, status, now)
        elif status == "unknown":
            self._end(case, "unknown", now)
            self._page(case, act, "nobody knows how it ended", now, word)
        else:
            case.rung += 1
            case.refused = ""

    def _end(self, case: Case, how: str, now: float) -> None:
        case.ended, case.ended_at = how, now
        self.guard.ledger.end(case.counted_by, now)

    def examine(self, sight: Sight, facts: Facts, case: Case) -> Judgement:
        """What the guard would say to the case's next act just now; changes nothing."""
        asked, _ = self._asked(sight, facts, case)
        return self.guard.judge(asked, sight.now)

    # Cases

    def _find(self, sight: Sight, facts: Facts, word: Word) -> frozenset[str]:
        """Open or refresh the cases of what fires now; return their keys."""
        present: set[str] = set()
        busy: set[str] = set()
        explained: set[Any] = set()
        for diagnosis in diagnose(facts):
            key = diagnosis.service or f"card:{diagnosis.cards[0]}"
            self._refresh(sight, key, diagnosis, word)
            present.add(key)
            busy.add(diagnosis.service)
            explained.update(alert.labels for alert in diagnosis.explains)
            explained.update(a.labels for a in sight.firing if a.name == diagnosis.alert.name)
            self._tell_explained(sight, diagnosis, word)
        for key, diagnosis in self._uncaused(sight, facts, busy - {""}, explained):
            self._refresh(sight, key, diagnosis, word)
            present.add(key)
        return frozenset(present)

    def _uncaused(
        self, sight: Sight, facts: Facts, busy: set[str], explained: set[Any]
    ) -> Iterable[tuple[str, Diagnosis]]:
        """Alerts without a cause that a policy names: one case each service and alert name."""
        found: dict[str, list[tuple[str, Alert]]] = {}
        for alert in sight.firing:
            if alert.labels in explained:
                continue
            for service in _services_of(alert, facts):
                labels = {**dict(alert.labels), "cause": "none"}
                if service in busy or not first_match(self.healing.policies, labels, service):
                    continue
                found.setdefault(f"{service or 'node'}|{alert.name}", []).append((service, alert))
        for key, alerts in sorted(found.items()):
            service, first = min(alerts, key=lambda each: (each[1].fired_at or 0.0, each[1].labels))
            cards = sorted({dict(alert.labels).get("card", "") for _, alert in alerts} - {""})
            traits = labelset({"cause": "none"})
            yield (
                key,
                Diagnosis(
                    service, "none", first, (f"alert {first.name}",), (), tuple(cards), traits
                ),
            )

    def _refresh(self, sight: Sight, key: str, diagnosis: Diagnosis, word: Word) -> None:
        """Open the case of a diagnosis, or take over what is newer in it."""
        now = sight.now
        case = self.cases.get(key)
        if case is None:
            case = self.cases[key] = self._bound(Case(key, diagnosis, now, now))
            word.events.append(opened(case))
            self._quarantine(case, word)
            return
        case.seen = now
        old = case.diagnosis
        still = any(
            alert.name == old.alert.name and _same_place(alert, old) for alert in sight.firing
        )
        weaker = rank(diagnosis.cause) > rank(old.cause)
        if weaker and still and (diagnosis.cause != "sensor" or case.running is not None):
            return  # the evidence has aged; the cause stays named
        if (diagnosis.cause, diagnosis.alert.name) == (old.cause, old.alert.name):
            again = diagnosis.alert.fired_at != old.alert.fired_at
            case.diagnosis = diagnosis
            if again and case.ended == "done":
                self._restart_ladder(case)
            return
        case.diagnosis = diagnosis
        if case.running is None:
            self._bound(case)
            self._restart_ladder(case)
        word.events.append(opened(case, "case_changed"))
        self._quarantine(case, word)

    def _bound(self, case: Case) -> Case:
        """The case with the policy that answers it."""
        diagnosis = case.diagnosis
        policy = first_match(self.healing.policies, case.labels, case.service)
        usable = policy is not None and (case.service or diagnosis.cause == "none")
        if policy is None or not usable or diagnosis.cause in _NEVER:
            case.policy, case.ladder = "", ()
            return case
        service = self.healing.services.get(case.service)
        case.policy, case.ladder = policy.name, policy.ladder
        case.mode = effective(self.healing.mode, service.mode if service else None, policy.mode)
        case.within, case.at_most = policy.within, policy.at_most
        return case

    @staticmethod
    def _restart_ladder(case: Case) -> None:
        case.rung, case.ended, case.refused, case.refusal = 0, "", "", ""
        case.would = False
        case.attempt = 0

    def _quarantine(self, case: Case, word: Word) -> None:
        """A sick card that no service uses is a destination for nobody."""
        if case.service or case.diagnosis.cause not in _CARD_CAUSES:
            return
        for card in case.diagnosis.cards:
            if card not in self.guard.quarantined:
                self._lock_away(case, card, word)

    def _lock_away(self, case: Case, card: str, word: Word) -> None:
        self.guard.quarantined[card] = case.diagnosis.cause
        text = f"card {card} is quarantined: {case.diagnosis.cause}"
        word.events.append(case_event("card_quarantined", case, text, "warning"))

    def _retire(self, sight: Sight, present: frozenset[str], word: Word) -> None:
        """Close the cases whose alerts are gone."""
        for key, case in list(self.cases.items()):
            gone = key not in present and case.running is None
            if gone and (case.ended == "done" or sight.now - case.seen >= GRACE):
                del self.cases[key]
                if not case.ended and case.attempt:
                    self.guard.ledger.end(case.counted_by, sight.now)
                self.guard.approvals.pop(key, None)
                self.notices.closed(case, sight.now)
                word.events.append(case_event("case_closed", case, f"{where(case)}: over"))
        self._explained = {
            key: at for key, at in self._explained.items() if sight.now - at < EVENT_AGE
        }

    def _tell_explained(self, sight: Sight, diagnosis: Diagnosis, word: Word) -> None:
        """Once per firing alert: what would have answered it, and that it is explained away."""
        for alert in diagnosis.explains:
            mark = (repr(alert.labels), alert.fired_at)
            policy = first_match(self.healing.policies, dict(alert.labels), diagnosis.service)
            known = mark in self._explained
            self._explained[mark] = sight.now
            if policy is None or known:
                continue
            request = Request(policy.ladder[0], alert, 1, diagnosis.service)
            word.refusals.append(Verdict(request, False, "explained", (("explained", False),)))
            text = f"{alert.name} is explained by {diagnosis.cause} ({diagnosis.alert.name})"
            labels = labelset({"service": diagnosis.service, "alertname": alert.name})
            fields = {"reason": "explained", "remediation": policy.ladder[0]}
            word.events.append(Event("remediation_refused", text, labels, fields))

    # The guard

    def _watch_breaker(
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
        kind: Kind = "traffic" if leads.standby else ACTS[act].kind
        operation = self.people.current.get(case.service)
        asked = Asked(
            act,
            kind,
            case.service,
            case.counted_by,
            case.key,
            diagnosis.alert,
            case.mode,
            first=case.rung == 0,
            destination=leads.refusal,
            other=_other(operation.word, operation.who) if operation is not None else "",
            warming="" if self._warm(sight, diagnosis.alert) else "the rule is not warm yet",
            unknown=unknown(sight, diagnosis, own),
            precondition=unproved(sight, diagnosis, own, act, moves_traffic=kind == "traffic"),
        )
        return asked, leads

    def _warm(self, sight: Sight, alert: Alert) -> bool:
        return self.healing.warm or sight.warm(alert)

    def _advance(
        self, sight: Sight, facts: Facts, case: Case, word: Word, *, current: bool
    ) -> None:
        """Let the case's next act start, if it may."""
        now = sight.now
        if case.running is not None:
            self._watch_running(case, now, word)
            return
        if not current or not case.ladder:
            return
        if case.ended:
            if case.ended in ("done", "exhausted") and now - case.ended_at >= SETTLE:
                self._restart_ladder(case)
            return
        if case.would and case.mode == "observe":
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
            self._end(case, "exhausted", now)
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
            self._outcome(Outcome(running.request, "unknown", "no result came"), now, word)

    def _page_late(self, case: Case, judgement: Judgement, now: float, word: Word) -> None:
        """``within`` is over and the act still waits for its turn: a person is told at once."""
        if case.within is None or case.paged or case.running is not None or case.ended:
            return
        if now - case.fired >= case.within and judgement.only("busy"):
            self._page(case, case.act, f"not begun within {case.within:g} s", now, word)

    def _start(self, case: Case, asked: Asked, leads: Destination, now: float, word: Word) -> None:
        """The guard let it through: count it, then ask for it."""
        guard, act = self.guard, case.act
        if case.rung == 0 or case.attempt == 0:
            guard.ledger.begin(case.counted_by, now)
            case.attempt = guard.ledger.attempts(case.counted_by, now, guard.limits.per)
        guard.ledger.act(now, traffic=asked.kind == "traffic")
        self._number += 1
        name = f"{case.service or case.key.replace('|', '-')}-{round(now * 1000)}-{self._number}"
        request = Request(act, case.diagnosis.alert, case.attempt, case.service, name)
        deadline = now + (case.at_most or ACTS[act].deadline)
        case.running = Running(request, now, deadline)
        case.refused = case.refusal = ""
        guard.running[name] = (case.service, ACTS[act].exclusive)
        guard.reserved.update(dict.fromkeys(leads.spares, name))
        guard.approvals.pop(case.key, None)
        self.notices.running(case, act, now, deadline)
        word.requests.append(request)
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
                    self._lock_away(case, card, word)

    def _refuse(
        self, case: Case, asked: Asked, judgement: Judgement, now: float, word: Word
    ) -> None:
        """Tell a refusal once; page where it will not end by itself."""
        reason, text = judgement.reason, judgement.text
        if reason == "mode" and case.mode == "observe":
            self._shadow(case, asked, judgement.without("mode"), now, word)
        if reason != case.refused:
            case.refused = reason
            passed = tuple((name, not against) for name, against in judgement.checks)
            request = Request(case.act, case.diagnosis.alert, case.attempt + 1, case.service)
            word.refusals.append(Verdict(request, False, reason, passed))
            word.events.append(
                case_event("remediation_refused", case, f"no {case.act} for {where(case)}: {text}",
                           remediation=case.act, reason=reason, checks=dict(judgement.checks))
            )  # fmt: skip
        case.refusal = text
        final = judgement.final
        if final == "destination":
            case.rung += 1
            case.refused = ""
            if case.act == PAGE:
                self._page(case, asked.act, dict(judgement.checks)[final], now, word)
                self._end(case, "exhausted", now)
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

    # Paging

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
            self._end(case, "exhausted", now)
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
        self._number += 1
        name = f"page-{round(now * 1000)}-{self._number}"
        word.requests.append(
            Request(PAGE, case.diagnosis.alert, max(1, case.attempt), case.service, name)
        )
        self.notices.failed(case, act, why, now)
        text = f"a person is paged for {where(case)}: {case.diagnosis.cause}; {act}: {why}"
        word.events.append(case_event("page_sent", case, text, "critical", remediation=act))

    # Keeping

    def dump(self) -> dict[str, Any]:
        """All that must outlive a restart, as JSON."""
        return {
            "version": 1,
            "number": self._number,
            "guard": self.guard.dump(),
            "people": self.people.dump(),
            "cases": [case_state(case) for case in self.cases.values()],
            "notices": self.notices.dump(),
            "events": [
                [e.at, e.kind, e.severity, e.message, dict(e.labels), dict(e.fields)]
                for e in list(self.events)[-200:]
            ],
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        """Take up what ``dump`` gave. Raises KeyError, TypeError, ValueError."""
        if doc["version"] != 1:
            raise ValueError("saved cases of another version")
        self._number = int(doc["number"])
        self.guard.restore(doc["guard"])
        self.people.restore(doc["people"])
        self.cases = {case.key: case for case in map(case_of, doc["cases"])}
        self.notices.restore(doc["notices"])
        self.events = deque((Noted(*row) for row in doc["events"]), maxlen=EVENTS)


def _urgency(case: Case) -> tuple[int, float, str]:
    """Causes in their order, what fired first before what fired later."""
    return rank(case.diagnosis.cause), case.fired, case.key


def _target(case: Case) -> str:
    """What is sick: services of one cause have one target."""
    if case.diagnosis.cause in _CARD_CAUSES and case.diagnosis.cards:
        return "card:" + ",".join(case.diagnosis.cards)
    return _SHARED.get(case.diagnosis.cause, case.service)


def _services_of(alert: Alert, facts: Facts) -> list[str]:
    """The services that an alert is about; the node ("") where there is none."""
    labels = dict(alert.labels)
    if labels.get("service"):
        return [labels["service"]] if labels["service"] in facts.services else []
    users = [s.name for s in facts.services.values() if labels.get("card") in s.cards]
    return users or [""]


def _same_place(alert: Alert, diagnosis: Diagnosis) -> bool:
    labels, wanted = dict(alert.labels), dict(diagnosis.alert.labels)
    return all(labels.get(key) == wanted.get(key) for key in ("service", "card", "peer"))


def _other(word: str, who: str) -> str:
    return f"{who or 'somebody'}: {word} is under way"


def _answers(probe: str | None, up: bool | None, process: bool | None) -> bool | None:
    """Whether a server answers, by the best proof there is."""
    if process is False or up is False or probe == "failed":
        return False
    if probe == "ok":
        return True
    return up
