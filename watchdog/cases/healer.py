"""Decides, tick by tick: hears what came in, opens and closes cases, lets their ladders go on.

A person's word comes first, then what acts report, then what the sight shows. Nothing is carried
out here: requests go out, outcomes come back as inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..config import Mode
from ..diagnosis import Facts, Noted, diagnose, rank
from ..guard import Guard, Judgement
from ..model import Command, Diagnosis, Event, Inputs, Json, Request, Verdict, labelset
from ..policies import Bound, effective, first_match
from ..roles import effective as effective_service
from . import ways_back
from .case import CARD_CAUSES, Case, case_of, case_state
from .commands import take
from .finding import same_place, uncaused
from .ladders import SETTLE, Ladders, Word
from .ownstops import OwnStops
from .people import Operation, Operations
from .settings import Healing
from .sight import Sight
from .standing import Standing
from .tally import Tally
from .telling import Notices, case_event, opened, where

GRACE = 60.0  # seconds that a case outlives its alert, so that a gap in the readings opens none
CANCELLED = 15.0  # seconds that a cancelled one does: what breaks anew later is another fault
EVENTS, EVENT_AGE = 1000, 1800.0
_NEVER = frozenset({"planned", "sensor"})


class Healer:
    """The open cases of one node and all that deciding remembers.

    ``healing`` are the settings as acts and people changed them; ``changed`` says, until whoever
    saves it clears it, that something came to be that must outlive a crash; ``restored``, that it
    goes on from saved state.
    """

    def __init__(self, healing: Healing, static: Mapping[str, str] | None = None) -> None:
        self.configured = self.healing = healing
        self.standing = Standing()
        self.changed = self.restored = False
        self.guard = Guard(healing.guard)
        self.people = Operations()
        self.stops = OwnStops()
        self.cases: dict[str, Case] = {}
        own = {key: value for key, value in (static or {}).items() if key == "instance"}
        self.notices = Notices(own)
        self.events: deque[Noted] = deque(maxlen=EVENTS)
        self._explained: dict[tuple[str, Any], float] = {}
        self.tally = Tally()
        self.ladders = Ladders(
            healing, self.guard, self.people, self.notices, self.standing, self.tally
        )

    def configure(self, healing: Healing) -> None:
        """Take over other settings; open cases go on, under what now holds for them."""
        self.configured = healing
        self.guard.limits = healing.guard
        self._settle()
        for case in self.cases.values():
            if case.ladder and case.running is None and not case.back:
                self._bind_again(case)

    def _settle(self) -> None:
        """The settings with what acts changed and with what forbids all acts."""
        services = {
            name: effective_service(service, self.standing.mode(name))
            for name, service in self.configured.services.items()
        }
        mode = "observe" if self.standing.forced else self.configured.mode
        self.healing = replace(self.configured, services=services, mode=mode)
        self.ladders.healing = self.healing
        for case in self.cases.values():
            if not case.ladder:
                continue
            policy = self._policy(case.policy)
            case.mode = self._mode(case.service, policy.mode if policy else None)

    def _bind_again(self, case: Case) -> None:
        """The case under the policies of now; another ladder begins anew."""
        before = (case.policy, case.ladder)
        if (self._bound(case).policy, case.ladder) != before:
            case.start_anew()

    def _policy(self, name: str) -> Bound | None:
        return next((each for each in self.healing.policies if each.name == name), None)

    def _mode(self, service: str, policy: Mode | None) -> Mode:
        settings = self.healing.services.get(service)
        return effective(self.healing.mode, settings.mode if settings else None, policy)

    # One tick

    def hear(self, inputs: Inputs, now: float) -> Word:
        """Take in what acts report, people ask and sources tell; before anything is judged."""
        word = Word()
        for command in inputs.commands:
            if command.verb == "mode":  # what a step of an act changed comes before the act's end
                self._command(command, now, word)
        for outcome in inputs.outcomes:
            of = self._running(outcome.request.id)
            self.ladders.outcome(list(self.cases.values()), outcome, now, word)
            request, done = outcome.request, outcome.status == "done"
            self.stops.ended(request.service, request.id, now, done=done)
            if of is not None and outcome.status == "done":
                self._owe(of, outcome.request, now)
        for command in inputs.commands:
            if command.verb != "mode":
                self._command(command, now, word)
        for batch in inputs.batches:
            for event in batch.events:
                self._note(event, now)
        word.events += self.standing.remind(self._held_up(now), now)
        self.changed = self.changed or bool(inputs.outcomes or inputs.commands)
        return word

    def _running(self, request: str) -> Case | None:
        """The case whose act is under way by this name."""
        for case in self.cases.values():
            if case.running is not None and case.running.request.id == request:
                return case
        return None

    def _owe(self, case: Case, request: Request, now: float) -> None:
        """What an act changed for a time shall be taken back."""
        settings = self.configured.services.get(request.service)
        back = settings is not None and settings.start_profile is not None
        if request.back or request.remediation not in ways_back.ACTS:
            return
        if request.remediation == ways_back.PROFILE and not back:
            return
        case = ways_back.owed(case, request.remediation, now)
        self.cases[case.key] = case

    def _held_up(self, now: float) -> dict[str, str]:
        """What a person holds healing up with, by scope."""
        paused = [scope for scope in self.guard.holds if self.guard.paused(scope, now)]
        held = {scope: f"healing of {scope or 'all services'} is paused" for scope in paused}
        return {**held, **({"hold file": "the hold file is there"} if self.guard.held else {})}

    def step(self, sight: Sight, word: Word) -> Word:
        """Decide what follows from this tick; what was heard stands in ``word``."""
        self._decide(sight, word)
        self.changed = self.changed or bool(word.requests or word.refusals or word.events)
        return word

    def _decide(self, sight: Sight, word: Word) -> None:
        for service in list(self.people.current):
            facts_ = sight.service(service, self.people)
            answers = _answers(facts_.probe, facts_.up, facts_.process)
            self.people.look(service, answers=answers, now=sight.now)
        if not sight.firing and not self.cases:
            return
        facts = self.facts(sight)
        present = self._find(sight, facts, word)
        self._retire(sight, present, word)
        ordered = sorted(self.cases.values(), key=_urgency)
        self.ladders.watch_breaker(sight, facts, ordered, present, word)
        for case in ordered:
            current = case.back or case.key in present
            self.ladders.advance(sight, facts, case, word, current=current)

    def facts(self, sight: Sight) -> Facts:
        """What a diagnosis rests on, as of this tick."""
        names = {*self.healing.services, *(case.service for case in self.cases.values())}
        paused = frozenset(name for name in names if self.guard.paused(name, sight.now))
        while self.events and sight.now - self.events[0].at > EVENT_AGE:
            self.events.popleft()
        return sight.facts(tuple(self.events), self.people, paused)

    def examine(self, sight: Sight, facts: Facts, case: Case) -> Judgement:
        """What the guard would say to the case's next act just now; changes nothing."""
        return self.ladders.examine(sight, facts, case)

    def _note(self, event: Event, now: float) -> None:
        self.people.event(event, now)
        service, _, aside = dict(event.labels).get("service", "").partition("/")
        if event.kind == "process_exited" and aside:
            self._stopped_by_act(service, f"{service}/{aside}", now)
        if self.stops.caused(event, now):
            return
        if event.severity == "info" and event.kind != "lifecycle":
            return
        if event.fields.get("state") == "recover" or event.fields.get("during_shutdown"):
            return
        self.events.append(
            Noted(now, event.kind, event.severity, event.message[:200], dict(event.labels),
                  event.fields)
        )  # fmt: skip

    def _stopped_by_act(self, service: str, instance: str, now: float) -> None:
        """An instance that went away while an act was on its service was stopped by it."""
        name = next((name for name, (of, _) in self.guard.running.items() if of == service), "")
        if name and instance not in self.people.current:
            self.people.current[instance] = Operation("stop", now, name)

    def _command(self, command: Command, now: float, word: Word) -> None:
        service = self.people.command(command, now)
        word.events += take(self.guard, command, service, self.cases, now)
        word.events += self.standing.take(command, now)
        if command.verb in ("mode", "observe", "resume"):
            self._settle()
        of = self._running(command.who) if command.verb == "mode" else None
        if of is not None:
            self.stops.take(command)
        moved = command.args.get("moved")
        if of is not None and of.running is not None and isinstance(moved, float | int):
            self._moved(of, of.running.request, float(moved), word)
        if command.verb == "journal":
            self._journal(command.args, now, word)
        if command.verb == "cancel":
            wanted = str(command.args.get("id") or service)
            for case in self.cases.values():
                named = wanted in ("", case.key, case.service)
                if named and case.running is None and not case.ended:
                    self.ladders.end(case, "cancelled", now)
                    word.events.append(case_event("case_cancelled", case, "a person cancelled"))

    def _moved(self, case: Case, request: Request, at: float, word: Word) -> None:
        """Users no longer reach the sick instance."""
        seconds = self.tally.moved(request, at)
        text = f"traffic of {where(case)} moved {seconds:.1f} s after the first bad sample"
        word.events.append(
            case_event("traffic_moved", case, text, remediation=request.remediation,
                       request=request.id, seconds=seconds)
        )  # fmt: skip

    def _journal(self, args: Json, now: float, word: Word) -> None:
        """Whether intents can be written; those that could not be are withdrawn."""
        self.guard.unwritable = str(args.get("error") or "")
        unwritten = args.get("unwritten") or ()
        for case in self.cases.values():
            if case.running is not None and case.running.request.id in unwritten:
                self.ladders.withdraw(case, self.guard.unwritable, now, word)

    # Cases

    def _find(self, sight: Sight, facts: Facts, word: Word) -> frozenset[str]:
        """Open or refresh the cases of what fires now; return their keys."""
        present: set[str] = set()
        busy: set[str] = set()
        explained: set[Any] = set()
        for diagnosis in diagnose(facts):
            key = diagnosis.service or f"card:{diagnosis.cards[0]}"
            busy.add(diagnosis.service)
            explained.update(alert.labels for alert in diagnosis.explains)
            explained.update(a.labels for a in sight.firing if a.name == diagnosis.alert.name)
            if self.stops.echo(diagnosis, sight.now):
                if key in self.cases:
                    self.cases[key].seen = sight.now
                    present.add(key)
                continue
            self._refresh(sight, key, diagnosis, word)
            present.add(key)
            self._tell_explained(sight, diagnosis, word)
        policies = self.healing.policies
        for key, diagnosis in uncaused(sight.firing, policies, facts, busy - {""}, explained):
            self._refresh(sight, key, diagnosis, word)
            present.add(key)
        return frozenset(present)

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
            alert.name == old.alert.name and same_place(alert, old) for alert in sight.firing
        )
        weaker = rank(diagnosis.cause) > rank(old.cause)
        if weaker and still and (diagnosis.cause != "sensor" or case.running is not None):
            return  # the evidence has aged; the cause stays named
        if (diagnosis.cause, diagnosis.alert.name) == (old.cause, old.alert.name):
            again = diagnosis.alert.fired_at != old.alert.fired_at
            case.diagnosis = diagnosis
            settling = self.restored and now - case.ended_at < SETTLE  # it may have fired before
            if again and case.ended == "done" and not settling:
                case.start_anew()
            return
        case.diagnosis = diagnosis
        if case.running is None:
            self._bound(case)
            case.start_anew()
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
        case.policy, case.ladder = policy.name, policy.ladder
        case.mode = self._mode(case.service, policy.mode)
        case.within, case.at_most = policy.within, policy.at_most
        return case

    def _quarantine(self, case: Case, word: Word) -> None:
        """A sick card that no service uses is a destination for nobody."""
        if case.service or case.diagnosis.cause not in CARD_CAUSES:
            return
        for card in case.diagnosis.cards:
            if card not in self.guard.quarantined:
                self.ladders.lock_away(case, card, word)

    def _retire(self, sight: Sight, present: frozenset[str], word: Word) -> None:
        """Close the cases whose alerts are gone."""
        for key, case in list(self.cases.items()):
            gone = key not in present and case.running is None
            rests = CANCELLED if case.ended == "cancelled" else GRACE
            rests = ways_back.KEPT if case.back else rests
            if case.back and not case.ended:
                continue
            since = case.ended_at if case.back else case.seen
            helped = case.ended == "done" and (
                not self.restored or ways_back.read_since(sight, case, case.ended_at)
            )
            if gone and (helped or sight.now - since >= rests):
                del self.cases[key]
                if not case.ended and case.attempt:
                    self.guard.ledger.end(case.counted_by, sight.now)
                self.guard.approvals.pop(key, None)
                self.ladders.give_back(case)
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
            self.tally.refused(word.refusals[-1])
            text = f"{alert.name} is explained by {diagnosis.cause} ({diagnosis.alert.name})"
            labels = labelset({"service": diagnosis.service, "alertname": alert.name})
            fields = {"reason": "explained", "remediation": policy.ladder[0]}
            word.events.append(Event("remediation_refused", text, labels, fields))

    # Keeping

    def dump(self) -> dict[str, Any]:
        """All that must outlive a restart, as JSON."""
        return {
            "version": 2,
            "standing": self.standing.dump(),
            "number": self.ladders.number,
            "guard": self.guard.dump(),
            "people": self.people.dump(),
            "stops": self.stops.dump(),
            "cases": [case_state(case) for case in self.cases.values()],
            "notices": self.notices.dump(),
            "events": [
                [e.at, e.kind, e.severity, e.message, dict(e.labels), dict(e.fields)]
                for e in list(self.events)[-200:]
            ],
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        """Take up what ``dump`` gave. Raises KeyError, TypeError, ValueError."""
        if doc["version"] != 2:
            raise ValueError("saved cases of another version")
        self.standing = self.ladders.standing = Standing.of(doc["standing"])
        self.ladders.number = int(doc["number"])
        self.guard.restore(doc["guard"])
        self.people.restore(doc["people"])
        self.stops = OwnStops.of(doc.get("stops") or {})  # absent in older states
        self.cases = {case.key: case for case in map(case_of, doc["cases"])}
        self.notices.restore(doc["notices"])
        self.events = deque((Noted(*row) for row in doc["events"]), maxlen=EVENTS)
        self.restored = True
        self._settle()

    def awake(self, now: float) -> None:
        """Another run of the daemon begins: a restart ends what held for the last run only, and no
        case is over because nobody looked meanwhile."""
        self.standing.forced = self.guard.unwritable = ""
        for case in self.cases.values():
            case.seen = now
            case.due = case.back
        self._settle()


def _urgency(case: Case) -> tuple[int, float, str]:
    """Causes in their order, what fired first before what fired later."""
    return rank(case.diagnosis.cause), case.fired, case.key


def _answers(probe: str | None, up: bool | None, process: bool | None) -> bool | None:
    """Whether a server answers, by the best proof there is."""
    if process is False or up is False or probe == "failed":
        return False
    if probe == "ok":
        return True
    return up
