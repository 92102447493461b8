"""Acts whose steps change a small world in memory, and a daemon on virtual time that carries them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.watchdog import config
from vllm_watchdog.watchdog.acting import ActCase, Done, Step
from vllm_watchdog.watchdog.daemon import Daemon, prepare
from vllm_watchdog.watchdog.errors import Temporary
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import Batch, Decisions, Page, labelset
from vllm_watchdog.watchdog.system import Files, System
from vllm_watchdog.watchdog.upkeep import Adapters

RULES = """\
groups:
  - name: g
    rules:
      - alert: Busy
        expr: load > 0.85
        labels: {service: chat}
"""
ACTING = """\
mode: act
services: {chat: {url: "http://chat"}}
policies: [{when: [Busy], do: [restart, drain, page]}]
"""


class Killed(BaseException):
    """The daemon's process ends here, at once."""


@dataclass
class World:
    """``true``: what is so now; ``did``: every do and undo in order; the rest is what goes wrong."""

    clock: VirtualClock
    true: set[str] = field(default_factory=set)
    did: list[str] = field(default_factory=list)
    fails: dict[str, BaseException] = field(default_factory=dict)
    untold: set[str] = field(default_factory=set)
    never: set[str] = field(default_factory=set)
    takes: dict[str, float] = field(default_factory=dict)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)
    declines: str = ""
    later: str = ""
    journals: list[Journal] = field(default_factory=list)
    _begun: dict[str, float] = field(default_factory=dict)

    def close(self) -> None:
        """Close what the daemons opened."""
        for journal in self.journals:
            journal.close()

    def done(self, name: str) -> Done:
        if name in self.untold:
            return "unknown"
        at = self._begun.get(name)
        comes = at is not None and name not in self.never
        if comes and self.clock.mono() - (at or 0.0) >= self.takes.get(name, 0.0):
            self.true.add(name)
        return "yes" if name in self.true else "no"

    def do(self, name: str) -> None:
        self.did.append(name)
        if name in self.meanwhile:
            self.meanwhile[name]()
        if name in self.fails:
            raise self.fails[name]
        self._begun[name] = self.clock.mono()

    def undo(self, name: str) -> None:
        self.did.append(f"undo {name}")
        self.true.discard(name)
        self._begun.pop(name, None)

    def step(self, name: str, **more: Any) -> Step:
        step = Step(
            name,
            10.0,
            lambda _: self.done(name),
            lambda _: self.do(name),
            lambda _: self.undo(name),
        )
        return replace(step, **more)


@dataclass
class Scripted:
    """A remediation of these steps."""

    world: World
    steps: Sequence[Step] = ()
    name: str = "restart"
    effect: str = "changes the little world"
    disruptive: bool = True
    verified: bool = False
    cases: list[ActCase] = field(default_factory=list)

    def precheck(self, system: System, case: ActCase) -> str:
        if self.world.later:
            raise Temporary(self.world.later)
        return self.world.declines

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        self.cases.append(case)
        return self.steps


def at_once(_: str, run: Callable[[], None]) -> None:
    """In place of a thread: carried out to the end before anything else."""
    run()


def daemon_with(
    folder: Path,
    world: World,
    *acts: Scripted,
    text: str = ACTING,
    rules: str = RULES,
    spawn: Any = at_once,
    pages: dict[str, Any] | None = None,
    journal: Journal | None = None,
    adapters: Adapters | None = None,
) -> Daemon:
    """A daemon that acts, its journal and state in ``folder``; called again, it is the next run."""
    folder.mkdir(exist_ok=True)
    (folder / "r.yaml").write_text(rules)
    whole = f"rules: {{files: [{folder}/r.yaml]}}\nstate: {folder}\n{text}"
    loaded = prepare(config.parse(whole, str(folder / "w.yaml")), whole)
    system = replace(fake_system(clock=world.clock, pages=pages), files=Files())
    made = Daemon(system, loaded, {"job": "j", "instance": "i"}, lambda *_, **__: None)
    world.journals.append(journal or Journal.open(folder / "journal.db", world.clock))
    made.open(world.journals[-1])
    made.restore(folder)
    made.employ(folder, {act.name: act for act in acts}, adapters, spawn)
    return made


def load(value: float) -> Batch:
    return Batch("tool", (Page((labelset({}, "load"),), (value,)),))


def run(daemon: Daemon, *values: float | None) -> list[Decisions]:
    """A tick each 5 s with these loads (None: no reading)."""
    decided = []
    clock = daemon.system.clock
    assert isinstance(clock, VirtualClock)
    for value in values:
        clock.advance(5.0)
        if value is not None:
            daemon.inbox.put(load(value))
        decided.append(daemon.tick())
    return decided


def kinds(daemon: Daemon, prefix: str = "") -> list[str]:
    """The journal's events of these kinds, in order."""
    assert daemon.journal is not None
    return [e.kind for e in daemon.journal.read(0, 10_000) if e.kind.startswith(prefix)]


def ends(daemon: Daemon) -> list[tuple[str, str]]:
    """How acts ended, as journaled: remediation and status."""
    assert daemon.journal is not None
    return [
        (str(e.fields["remediation"]), str(e.fields["status"]))
        for e in daemon.journal.read(0, 10_000)
        if e.kind == "remediation_ended"
    ]
