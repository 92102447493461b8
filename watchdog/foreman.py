"""Between the engine and the workers: makes the case of each request, lets acts begin once their
intents are on the disk, settles what an earlier run left, and passes people's words on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from .acting import ActCase, Remediation
from .cases.case import Case
from .cases.ways_back import FREQUENCY
from .config import Service
from .engine import Engine
from .intents import Intents
from .inventory import Info, Pins
from .journal import Beside, Journal, JournalError
from .model import Alert, Command, Event, Inputs, Outcome, Request
from .policies import PAGE
from .roles import effective
from .workers import Tools, Workers
from .workers.crew import Spawn, thread

KNOWN_AFTER = 60.0  # seconds after which an alert that does not fire again is gone
HALTING = ("pause", "cancel")
GIVING_BACK = 4.0  # seconds at the daemon's end for what was lowered only while it looks
LETTING_GO = 2.0  # seconds at the daemon's end for acts to come to their next step


class Foreman:
    """The acts of one daemon. ``cards`` gives what the tools last showed."""

    def __init__(
        self,
        tools: Tools,
        journal: Journal,
        remediations: Mapping[str, Remediation],
        pins: Pins,
        cards: Callable[[], Sequence[Info]],
        spawn: Spawn = thread,
    ) -> None:
        self.tools, self._journal, self._pins, self._cards = tools, journal, pins, cards
        self._intents = tools.intents = Intents(journal)
        self.workers = Workers(tools, remediations, spawn)
        self._begun = tools.system.clock.mono()
        self._anew = 0
        self._refused: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._heard: dict[str, Outcome] = {}  # ends taken in by the engine, not yet on the disk

    # Before a tick

    def look(self, engine: Engine, error: str | None) -> None:
        """What the engine must hear of before it decides: the hold file, a journal that cannot be
        written or was begun anew."""
        guard = engine.healer.guard
        held = self.tools.held
        if held != guard.held:
            self.tools.inbox.command(Command("hold", {"present": held}, "the hold file"))
        if (error or "") != guard.unwritable:
            self.tools.inbox.command(Command("journal", {"error": error or ""}))
        if self._journal.begun_anew > self._anew:
            self._anew = self._journal.begun_anew
            reason = "the journal was damaged or gone, and with it what was done before"
            if engine.healer.configured.mode != "observe":
                self.tools.inbox.command(Command("observe", {"reason": reason}))
        self.workers.settle(lambda case: self._wanted(engine, case))

    def _wanted(self, engine: Engine, case: ActCase) -> str | None:
        """Whether an act of which nothing was begun is still wanted: see Workers.settle."""
        why = self._forbidden(engine, case)
        if why:
            return why
        if engine.ticks and any(
            _same(alert, case.request.alert) for alert in engine.rules.alerts()
        ):
            return ""
        if self.tools.system.clock.mono() - self._begun < KNOWN_AFTER:
            return None
        return "its alert is gone, and nothing was begun"

    # After a tick

    def cases(self, requests: Iterable[Request], engine: Engine,
              services: Mapping[str, Service]) -> list[ActCase]:  # fmt: skip
        """The cases of what the engine asks for; to page a person is no act on the node."""
        self._remember_keys(engine)
        return [
            self._case(request, engine, services.get(request.service))
            for request in requests
            if request.remediation != PAGE
        ]

    def _case(self, request: Request, engine: Engine, service: Service | None) -> ActCase:
        cards = self._cards()
        mode = engine.healer.standing.mode(request.service)
        settings = None if service is None else self._resolved(service, cards)
        own = request.cards if settings is None else effective(settings, mode).cards
        moved = [name for name in _names(service) if name in self._pins.moved]
        if moved:
            now = self._pins.moved[moved[0]]
            pinned = self._pins.kept[moved[0]]
            self._refused[request.id] = f"{moved[0]} is pinned to {pinned} but now means {now}"
        assert self.tools.state is not None
        return ActCase(
            request,
            request.service,
            settings,
            mode,
            own,
            request.cards,
            request.spares,
            self.tools.system.clock.wall(),
            self.tools.state,
            {info.get("card", ""): info.get("vendor", "") for info in cards},
        )

    def _resolved(self, service: Service, cards: Sequence[Info]) -> Service:
        """The service with every card under its own name."""

        def named(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(self._pins.card(name, cards) or name for name in names)

        standby = service.standby
        if standby is not None:
            standby = standby.model_copy(update={"cards": named(standby.cards)})
        own = {"cards": named(service.cards), "spares": named(service.spares), "standby": standby}
        return service.model_copy(update=own)

    def beside(self, cases: Sequence[ActCase], inputs: Inputs, engine: Engine) -> Beside:
        """What must be on the disk before any act begins: intents, heard ends, what was decided."""
        self._heard.update((each.request.id, each) for each in inputs.outcomes)
        now = self.tools.system.clock.wall()
        acts = self._intents.beside(cases, sorted(self._heard), self._heard.values(), now)
        healing = self._journal.state_beside("healing", engine.healer.dump())
        return lambda connection: (acts(connection), healing(connection))

    def begin(self, cases: Sequence[ActCase]) -> None:
        """What stood beside a tick is on the disk, the intents with it: let the acts begin."""
        self._heard.clear()
        for case in cases:
            why = self._refused.pop(case.request.id, "")
            if why:
                self.tools.end(Outcome(case.request, "declined", why))
            else:
                self.workers.begin(case)

    def unwritten(self, cases: Sequence[ActCase], error: str) -> None:
        """The intents are not on the disk: nothing begins."""
        ids = [case.request.id for case in cases]
        self.tools.inbox.command(Command("journal", {"error": error, "unwritten": ids}))

    def halt(self, commands: Iterable[Command]) -> None:
        """A person's word wins at once, also against an act under way."""
        for command in commands:
            if command.verb in HALTING:
                why = f"{command.who or 'a person'}: {command.verb}"
                self.workers.halt(partial(self._meant, command), why)

    def _meant(self, command: Command, case: ActCase) -> bool:
        """Whether a person's word is about an act: the one named, else all of a service, or all."""
        service, named = (str(command.args.get(key) or "") for key in ("service", "id"))
        if named:
            key = self._keys.get(case.request.id, "")
            return named in (key, case.request.id, case.name)
        return service in ("", case.name)

    def _remember_keys(self, engine: Engine) -> None:
        """Which case each act under way answers: people name acts by their cases."""
        self._keys = {
            case.running.request.id: case.key
            for case in engine.healer.cases.values()
            if case.running is not None
        }

    def at_work(self, act: str) -> bool:
        """Whether such an act is under way or may begin yet, or a person holds all acts up: what
        it changed is then left as it is."""
        cases = (*self.workers.running, *self.workers.waiting)
        return self.tools.held or any(case.request.remediation == act for case in cases)

    # The beginning and the end of a run

    def recover(self, engine: Engine) -> list[Event]:
        """Settle what an earlier run left open; what is told of it. A journal that cannot be read
        leaves nothing to settle: the engine gives the acts up by itself."""
        try:
            intents, unreadable = self._intents.unheard()
        except JournalError:
            return []
        self._remember_keys(engine)
        known = {intent.case.request.id for intent in intents}
        for case in engine.healer.cases.values():
            if case.running is not None and case.running.request.id not in known:
                request = case.running.request
                self.tools.inbox.outcome(Outcome(request, "unknown", "its record is lost"))
        self.workers.recover(intents, lambda case: self._forbidden(engine, case))
        open_ = [i for i in intents if i.outcome is None]
        return [
            *(_told(intent.case, len(intent.steps)) for intent in open_),
            *(Event("act_unreadable", f"what the journal holds of {name} cannot be read",
                    severity="warning") for name in unreadable),
        ]  # fmt: skip

    def _forbidden(self, engine: Engine, case: ActCase) -> str:
        """Why an act of an earlier run must not go on; empty where it may."""
        healer, name = engine.healer, case.request.id
        if self.tools.held:
            return "the hold file is there"
        if healer.guard.paused(case.name, engine.ms / 1000 or self.tools.now()):
            return "a person paused healing"
        of = next((c for c in healer.cases.values() if c.running and c.running.request.id == name),
                  None)  # fmt: skip
        return "nobody waits for it any more" if of is None else _out_of_bounds(engine, case, of)

    def reloaded(self, engine: Engine) -> None:
        """Another configuration is a person's word as well: acts that it does not allow end."""
        cases = {c.running.request.id: c for c in engine.healer.cases.values() if c.running}
        for act in self.workers.running:
            of = cases.get(act.request.id)
            why = "" if of is None else _out_of_bounds(engine, act, of)
            if why and not engine.healer.standing.forced:
                self.workers.halt(partial(_is, act), why)

    def leave(self, engine: Engine, services: Mapping[str, Service]) -> None:
        """The daemon ends: what was lowered only while it looks is given back, acts let go."""
        owed = [case for case in engine.healer.cases.values()
                if case.back and not case.ended and case.act == FREQUENCY]  # fmt: skip
        for case in owed:
            alert, cards = case.diagnosis.alert, case.diagnosis.cards
            request = Request(FREQUENCY, alert, 1, case.service, f"{case.key}-stop", cards=cards,
                              limit=GIVING_BACK, back=True)  # fmt: skip
            of = self._case(request, engine, services.get(case.service))
            self.workers.take_back(of, GIVING_BACK)
        self.workers.leave(LETTING_GO)


def _is(act: ActCase, other: ActCase) -> bool:
    return act.request.id == other.request.id


def _out_of_bounds(engine: Engine, act: ActCase, of: Case) -> str:
    """Why the configuration does not allow an act any more."""
    if of.mode == "observe":
        return "the mode is observe by now"
    if act.name and act.name not in engine.healer.configured.services:
        return "the service is not configured any more"
    return ""


def _same(alert: Alert, wanted: Alert) -> bool:
    named = (alert.rule, alert.labels) == (wanted.rule, wanted.labels)
    return named and alert.state == "firing"


def _names(service: Service | None) -> tuple[str, ...]:
    if service is None:
        return ()
    return (*service.cards, *service.spares, *(service.standby.cards if service.standby else ()))


def _told(case: ActCase, steps: int) -> Event:
    how = f"{steps} of its steps were begun" if steps else "nothing of it was begun"
    text = f"{case.request.remediation} for {case.name or 'the node'} was open: {how}"
    labels = (
        ("alertname", case.request.alert.name),
        *((("service", case.name),) if case.name else ()),
    )
    return Event("remediation_found_open", text, tuple(sorted(labels)),
                 {"request": case.request.id}, "warning")  # fmt: skip
