"""Plays an incident: tick by tick through an engine that starts warm, on virtual time.

Acts are asked for and never carried out; what is seen of the node stays what the file says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from ..assembly import shipped_rules
from ..cases import healing
from ..diagnosis import observe, rank
from ..engine import Engine, EngineSettings
from ..model import Command, Event, Inputs, Outcome, OutcomeStatus, Request, Tick, Verdict
from ..rulepack import Group
from ..rulepack import load as load_rules
from .collecting import Collecting
from .form import Deed, Incident, LogText, ProcessEvent
from .noise import Noise

START = 1_767_225_600.0  # the first moment of 2026, UTC
_OFTEN = 3  # ticks that something must be observed to count

Answer = Callable[[Request], tuple[float, OutcomeStatus] | None]
"""How an act ends: after how many seconds, and with which status; None if it does not end."""


@dataclass(slots=True)
class Played:
    """What came of it; times in seconds after the beginning.

    ``acts``: per service ("" the node) what the guard let through, or only lets wait for another
    act; ``causes``: per service every cause that was named, gravest first; ``alerts``: per name the
    services it fired for and when first; ``engine`` as it stood at the end.
    """

    engine: Engine
    acts: list[tuple[float, str, str]] = field(default_factory=list)
    causes: dict[str, list[str]] = field(default_factory=dict)
    alerts: dict[str, dict[str, float]] = field(default_factory=dict)
    requests: list[tuple[float, Request]] = field(default_factory=list)
    refusals: list[tuple[float, Verdict]] = field(default_factory=list)
    events: list[tuple[float, Event]] = field(default_factory=list)
    observed: dict[str, Counter[str]] = field(default_factory=dict)

    def act(self, service: str) -> tuple[str, float | None]:
        """The first act for a service (empty: for any), and when."""
        for at, whom, act in self.acts:
            if service in ("", whom):
                return act, at
        return "nothing", None

    def cause(self, service: str) -> str:
        """The gravest cause that was named for a service (empty: for any)."""
        named = [
            cause
            for whom, causes in self.causes.items()
            if service in ("", whom)
            for cause in causes
            if cause != "none"
        ]
        if named:
            return min(named, key=rank)
        seen: Counter[str] = Counter()
        for whom, counts in self.observed.items():
            if service in ("", whom):
                seen.update(counts)
        often = [word for word, count in seen.items() if count >= _OFTEN and word != "none"]
        return min(often, key=rank, default="none")

    def fired(self, service: str) -> dict[str, float]:
        """The alerts that fired for a service (empty: at all), and when first."""
        found: dict[str, float] = {}
        for name, times in self.alerts.items():
            own = [at for whom, at in times.items() if service in ("", whom)]
            if own:
                found[name] = min(own)
        return found


@lru_cache(maxsize=1)
def _shipped() -> tuple[Group, ...]:
    return load_rules(shipped_rules(), ("*",)).groups


def play(incident: Incident, noise: Noise | None = None, answer: Answer | None = None) -> Played:
    """Play an incident to its end. Raises ConfigError for bad policies.

    Without ``answer`` an act that was asked for never ends; with it, it ends as that says.
    """
    config = incident.config
    settings = EngineSettings(config.interval, config.rules.stale_after, config.rules.urgent)
    engine = Engine(settings, _shipped(), healing=healing(config, warm=True))
    return _Play(incident, engine, noise or Noise(), answer).run()


@dataclass(slots=True)
class _Moment:
    at: float
    regular: bool
    logs: list[LogText] = field(default_factory=list)
    processes: list[ProcessEvent] = field(default_factory=list)
    deeds: list[Deed] = field(default_factory=list)


class _Play:
    """One incident being played."""

    def __init__(
        self, incident: Incident, engine: Engine, noise: Noise, answer: Answer | None
    ) -> None:
        self._incident = incident
        self._answer = answer
        self._ending: list[tuple[float, Outcome]] = []
        self._collecting = Collecting(incident, START, noise)
        self._played = Played(engine)
        self._away: set[str] = set()  # servers that a person stopped or restarts

    def run(self) -> Played:
        """Every tick to the end."""
        for number, moment in enumerate(self._moments(), start=1):
            self._tick(number, moment)
        return self._played

    def _moments(self) -> Iterator[_Moment]:
        """All ticks in order: the regular ones, and one for each thing that is urgent between."""
        incident = self._incident
        step = incident.config.interval
        count = int(incident.until / step + 1e-9)
        moments = {round(i * step * 1000): _Moment(i * step, True) for i in range(count + 1)}

        def at(seconds: float) -> _Moment:
            return moments.setdefault(round(seconds * 1000), _Moment(seconds, False))

        for log in incident.logs:
            at(log.at).logs.append(log)
        for event in incident.processes:
            at(event.at).processes.append(event)
        for deed in incident.deeds:
            at(deed.at).deeds.append(deed)
        for ms in sorted(moments):
            if moments[ms].at <= incident.until:
                yield moments[ms]

    def _tick(self, number: int, moment: _Moment) -> None:
        commands = tuple(self._command(deed) for deed in moment.deeds)
        for log in moment.logs:
            self._collecting.line(log)
        for event in moment.processes:
            if event.event == "start":
                self._away.discard(event.service)
            self._collecting.process(event, wanted=event.service in self._away)
        step = round(moment.at / self._incident.config.interval)
        batches = (
            self._collecting.regular(moment.at, step)
            if moment.regular
            else self._collecting.urgent(moment.at)
        )
        tick = Tick(number, moment.at, START + moment.at, urgent=not moment.regular)
        ended = tuple(outcome for at, outcome in self._ending if at <= moment.at)
        self._ending = [each for each in self._ending if each[0] > moment.at]
        decisions = self._played.engine.step(tick, Inputs(tuple(batches), ended, commands))
        for request in decisions.requests:
            self._end(request, moment.at)
            self._played.requests.append((moment.at, request))
            self._let_through(moment.at, request.service, request.remediation)
        self._played.refusals += [(moment.at, verdict) for verdict in decisions.refusals]
        self._played.events += [(moment.at, event) for event in decisions.events]
        self._look(tick, moment.at)

    def _end(self, request: Request, at: float) -> None:
        """Let an act end as the answer says."""
        how = self._answer(request) if self._answer is not None else None
        if how is not None and request.remediation != "page":
            self._ending.append((at + how[0], Outcome(request, how[1], "", how[0])))

    def _command(self, deed: Deed) -> Command:
        if deed.do in ("restart", "stop"):
            self._away.add(deed.service)
        args = {"service": deed.service} if deed.service else {}
        if deed.alert:
            args["alert"] = deed.alert
        return Command(deed.do, args, "a person")

    def _let_through(self, at: float, service: str, act: str) -> None:
        if (service, act) not in {(whom, what) for _, whom, what in self._played.acts}:
            self._played.acts.append((at, service, act))

    def _look(self, tick: Tick, at: float) -> None:
        """What stands after a tick: alerts, causes, acts that only wait for their turn."""
        engine, played = self._played.engine, self._played
        sight = engine.sight(tick)
        facts = engine.healer.facts(sight)
        users: dict[str, list[str]] = {}
        for service in facts.services.values():
            for card in service.cards:
                users.setdefault(card, []).append(service.name)
        for alert in engine.alerts():
            if alert.state != "firing":
                continue
            labels = dict(alert.labels)
            whom = labels.get("service") or ""
            for name in [whom] if whom else users.get(labels.get("card", ""), [""]):
                played.alerts.setdefault(alert.name, {}).setdefault(name, at)
        for case in engine.healer.cases.values():
            causes = played.causes.setdefault(case.service, [])
            if case.diagnosis.cause not in causes:
                causes.append(case.diagnosis.cause)
            refusing = [name for name, text in case.checks if text]
            if refusing == ["busy"] and case.running is None and not case.ended:
                self._let_through(at, case.service, case.act)
        for service in facts.services.values():
            word = observe(service, sight.now)
            played.observed.setdefault(service.name, Counter())[word] += 1
