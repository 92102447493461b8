"""The daemon's parts joined: collectors in, engine, journal, acts, outlets. One tick is one call.

Signals, waiting and the process are service's work; what a tick means is the engine's.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .acting import ActCase, Remediation
from .cases import healing
from .cases.ways_back import FREQUENCY
from .daybook import MAX_UNWRITTEN, Daybook
from .documents import json_of
from .engine import Engine
from .foreman import HALTING, Foreman
from .inventory import Pins
from .journal import Journal, JournalError
from .labeller import Labeller
from .loading import Loaded, engine_settings, prepare, static_labels
from .model import Batch, Command, Decisions, Event, Inputs, Tick
from .outlets import Outlet
from .recording import Recorder
from .scheduler import Inbox, Scheduler
from .schedules import Schedules
from .system import System
from .tape import Tape
from .upkeep import Adapters, Upkeep
from .version import version
from .watching import Seen, Watching
from .workers import Tools
from .workers.crew import Spawn, thread

__all__ = ["MAX_UNWRITTEN", "Daemon", "Loaded", "prepare", "static_labels"]

STATE_FILE = "engine.json"
SAVE_EVERY = 60.0  # seconds between two saves of the engine's state
LOOK_EVERY = 30.0  # seconds between two looks for servers that came or went
SECOND_READING = 1.05  # seconds after the first one: two readings a second apart prove a fault
PRUNE_EVERY = 600.0
STOPPING = 5.0  # seconds at the daemon's end for acts and for what they had lowered

Log = Callable[..., object]
LEVELS = {"info": "info", "warning": "warning", "critical": "error"}
_UNUSABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


class Daemon:
    """One node's loop, tick by tick. ``lock`` is held while state changes or is read."""

    def __init__(self, system: System, loaded: Loaded, labels: Mapping[str, str], log: Log) -> None:
        self.system, self.loaded, self.labels, self.log = system, loaded, dict(labels), log
        self.lock = threading.RLock()
        self.inbox = Inbox()
        self.outlets: list[Outlet] = []
        self.watching = Watching(
            system, self.inbox, self.labels, log, self._tell, loaded.config.services
        )
        self.daybook = Daybook(log, self._tell)
        self.tape = Tape(self._tell)
        self.foreman: Foreman | None = None
        self.upkeep: Upkeep | None = None
        self.hearers: list[Callable[[Sequence[Event]], None]] = []  # of events, once written
        self.engine = self._new_engine()
        self.last_tick: Tick | None = None
        self.last_duration = 0.0
        self.missed_ticks = 0
        self._schedules = Schedules(loaded.config.schedules)
        self._facts = Labeller(self.labels)
        self._mono0, self._wall0 = system.clock.mono(), system.clock.wall()
        self._number = 0
        self._due: dict[str, float] = {}
        self._own_events: deque[Event] = deque()

    def _new_engine(self) -> Engine:
        config = self.loaded.config
        return Engine(
            engine_settings(config, self.labels), self.loaded.groups, healing=healing(config)
        )

    # Parts that others ask for

    @property
    def journal(self) -> Journal | None:
        """The journal, if there is one."""
        return self.daybook.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self.daybook.journal = journal

    @property
    def journal_error(self) -> str | None:
        """Why the journal cannot be written just now."""
        return self.daybook.error

    @property
    def journal_errors(self) -> int:
        """How many writes of the journal failed."""
        return self.daybook.errors

    @property
    def recorder(self) -> Recorder | None:
        """What records the run, if anything does."""
        return self.tape.recorder

    @recorder.setter
    def recorder(self, recorder: Recorder | None) -> None:
        self.tape.recorder = recorder

    @property
    def scheduler(self) -> Scheduler:
        """The host of the collectors."""
        return self.watching.scheduler

    @property
    def pins(self) -> Pins:
        """The names of cards that were resolved once and hold."""
        return self.watching.pins

    @property
    def seen(self) -> Seen:
        """The services and cards as last seen."""
        return self.watching.seen

    # Life

    def restore(self, folder: Path) -> None:
        """Take up the state of an earlier run: the window and alerts if they are young enough, what
        was decided and done from the journal, which had it first."""
        self._restore_engine(folder / STATE_FILE)
        with self.lock:
            why = self._restore_healing()
            if why:
                self._tell("state_unusable", why, "warning")
            self.engine.healer.awake(self.system.clock.wall())
        if why and self.loaded.config.mode != "observe":
            reason = f"what was decided and done before cannot be read: {why}"
            self.inbox.command(Command("observe", {"reason": reason}))

    def _restore_healing(self) -> str:
        """Take up what was decided and done; why that cannot be, or nothing."""
        if self.journal is None:
            return ""
        try:
            kept = self.journal.load_state("healing")
            if kept is not None:
                self.engine.healer.restore(kept)
        except JournalError as error:
            return str(error)
        except _UNUSABLE as error:
            self.engine.replace_healer(healing(self.loaded.config))  # half of it was taken up
            return f"the journal's cases are not of this version: {error}"
        return self.journal.unread

    def _restore_engine(self, path: Path) -> None:
        try:
            doc = json_of(path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            self._tell(
                "state_unusable", f"{path} cannot be used: {error}; starting without it", "warning"
            )
            return
        try:
            with self.lock:
                self.engine.restore(doc, self.system.clock.wall())
        except _UNUSABLE as error:
            with self.lock:  # half of it may have been taken up: begin anew
                self.engine = self._new_engine()
            self._tell("state_unusable", f"{path} is not of this version: {error}", "warning")

    def open(self, journal: Journal) -> None:
        """Journal from now on, and let log collectors go on where they stood."""
        self.journal = journal
        with contextlib.suppress(JournalError):
            for instance, doc in journal.checkpoints().items():
                self.system.checkpoints.put(instance, doc)
            self.watching.pins = Pins(journal.load_state("pins"))

    def employ(
        self, state: Path, remediations: Mapping[str, Remediation],
        adapters: Adapters | None = None, spawn: Spawn = thread,
    ) -> None:  # fmt: skip
        """Carry acts out from now on, and settle what an earlier run left open; ``adapters`` see
        to the files that acts leave. Needs a journal."""
        assert self.journal is not None
        tools = Tools(self.system, self.inbox, lambda: self._steady(self.system.clock.mono()),
                      state=state)  # fmt: skip
        self.foreman = Foreman(
            tools, self.journal, remediations, self.watching.pins,
            lambda: self.seen.cards, spawn,
        )  # fmt: skip
        with self.lock:
            self._own_events.extend(self.foreman.recover(self.engine))
        if adapters is not None:
            self.upkeep = Upkeep(self.system, state, adapters, self._tell, spawn)
            self.scheduler.resting = self.upkeep.resting
            self._give_back(STOPPING)

    def _give_back(self, patience: float) -> None:
        """What acts of another run, or of this one at its end, had lowered and nobody will."""
        if self.upkeep is None or self.foreman is None or self.foreman.at_work(FREQUENCY):
            return
        self.upkeep.restore(patience)

    def reload(self, loaded: Loaded) -> None:
        """Take over another configuration between two ticks; unchanged rules keep their alerts."""
        self.watching.reload(self.loaded.config, loaded.config)
        with self.lock:
            self.engine.settings = engine_settings(loaded.config, self.labels)
            self.engine.replace_rules(loaded.groups)
            self.engine.replace_healing(healing(loaded.config))
            if self.foreman is not None:
                self.foreman.reloaded(self.engine)
        self.loaded = loaded
        self._schedules = Schedules(loaded.config.schedules)
        self.tape.begin_anew(loaded, self.engine, self.system.clock.wall())
        self._tell("configuration_reloaded", "the configuration was reloaded")

    def summary(self) -> str:
        """One line for the service manager."""
        firing = sum(1 for alert in self.engine.alerts() if alert.state == "firing")
        return f"tick {self.engine.ticks}, {firing} alerts firing"

    def record(self, folder: Path) -> None:
        """Record from now on. Raises ConfigError when the folder holds a recording, OSError."""
        self.tape.begin(folder, self.loaded, self.engine, self.system.clock.wall())

    def start(self) -> None:
        """Start the collectors; what cannot be carried out is not decided either."""
        config = self.loaded.config
        self.watching.start(config, self.engine.healer.standing.modes)
        if self.foreman is None and config.mode != "observe":
            reason = "this run carries nothing out"
            self.inbox.command(Command("observe", {"reason": reason}))
        self._tell("daemon_started", f"vllm-watchdog {version()} watches this node")

    def stop(self, folder: Path | None) -> None:
        """Let acts go, end collectors and outlets, save the state."""
        end = self.system.clock.mono() + STOPPING
        if self.foreman is not None:
            self.foreman.leave(self.engine, self.loaded.config.services)
        self._give_back(end - self.system.clock.mono())
        self.scheduler.stop()
        if folder is not None:
            self.save(folder)
        for outlet in self.outlets:
            outlet.stop(3.0)
        self.tape.close()
        if self.journal is not None:
            self.journal.close()

    def uptime(self) -> float:
        """Seconds since this run began."""
        return self.system.clock.mono() - self._mono0

    # Ticks

    def command(self, command: Command) -> None:
        """Pass on what a person asked; heard at once, by a tick of its own. Any thread may call.

        Raises WatchdogError when too many commands wait.
        """
        if self.foreman is not None and command.verb in HALTING:
            self.foreman.halt([command])
        self.inbox.command(command)

    def now(self, *, urgent: bool = False) -> Tick:
        """The present moment as the next tick: steady wall time from the start of this run."""
        mono = self.system.clock.mono()
        self._number += 1
        return Tick(self._number, round(mono, 6), round(self._steady(mono), 3), urgent)

    def _steady(self, mono: float) -> float:
        """Unix time by this run's own count, which no setting of the clock moves."""
        return self._wall0 + mono - self._mono0

    def tick(self, *, urgent: bool = False) -> Decisions:
        """Take what came in, step the engine, journal, act, tell. Raises nothing that an input
        holds."""
        self.scheduler.overdue()
        if self.foreman is not None:
            self.foreman.look(self.engine, self.daybook.error)
        tick = self.now(urgent=urgent)
        heard = self.inbox.gather()
        inputs = replace(heard, batches=(*heard.batches, *self._own_batches(tick)))
        with self.lock:
            decisions = self.engine.step(tick, inputs)
            self.watching.look_at_cards(self.engine)
            wanted = self.engine.to_prove(decisions.transitions)
        self._carry_out(tick, inputs, decisions)
        self.scheduler.soon(wanted, SECOND_READING)
        for hear in self.hearers:
            hear(decisions.events)
        self._offer()
        self._housekeeping(tick)
        self.last_tick = tick
        self.last_duration = self.system.clock.mono() - tick.mono
        return decisions

    def _own_batches(self, tick: Tick) -> list[Batch]:
        """What the daemon itself knows: services' facts and schedules, as inputs like any other."""
        batches = [Batch("services", (self._facts.page(self.watching.facts(), 0),))]
        if self.loaded.config.schedules:
            page = self._schedules.page(tick.wall)
            batches.append(Batch("schedules", (self._facts.page(page, 1),)))
        return batches

    def _carry_out(self, tick: Tick, inputs: Inputs, decisions: Decisions) -> None:
        """Journal first; only then may acts begin. Collectors follow the services."""
        foreman, healer = self.foreman, self.engine.healer
        services = self.loaded.config.services
        cases: Sequence[ActCase] = ()
        if foreman is not None:
            cases = foreman.cases(decisions.requests, self.engine, services)
        written = self._write(tick, inputs, decisions, cases)
        if foreman is not None and written:
            foreman.begin(cases)
        elif foreman is not None and cases:
            foreman.unwritten(cases, self.daybook.error or "the journal cannot be written")
        if foreman is not None:
            foreman.halt(inputs.commands)
        if self.upkeep is not None:
            self.upkeep.heed(inputs.commands)
        self.watching.follow(self.loaded.config, healer.standing.modes)

    def _write(
        self, tick: Tick, inputs: Inputs, decisions: Decisions, cases: Sequence[ActCase]
    ) -> bool:
        """Events with the checkpoints they came from, and beside them all that must outlive a
        crash; then the recording. Whether the journal has it."""
        checkpoints = {
            batch.collector: batch.checkpoint.doc
            for batch in inputs.batches
            if batch.checkpoint is not None
        }
        events: list[Event] = []
        while self._own_events:
            events.append(self._own_events.popleft())
        events += decisions.events
        beside = None
        healer = self.engine.healer
        if self.foreman is not None and healer.changed:
            beside = self.foreman.beside(cases, inputs, self.engine)
        written = self.daybook.write(tick, events, checkpoints, beside)
        if written and beside is not None:
            healer.changed = False
        self.tape.write(tick, inputs, decisions)
        for event in decisions.events:
            if event.severity != "info":
                self.log(
                    event.message, level=LEVELS.get(event.severity, "warning"), kind=event.kind
                )
        return written

    def _offer(self) -> None:
        """Alerts to the outlets, with what leads from this run's steady time to the present one
        (the machine's clock may have been set since the start)."""
        if self.outlets:
            alerts = self.engine.alerts()
            now = self.system.clock.wall()
            drift = now - self._steady(self.system.clock.mono())
            for outlet in self.outlets:
                outlet.offer(alerts, now, drift if abs(drift) > 1.0 else 0.0)

    def _tell(self, kind: str, message: str, severity: str = "info") -> None:
        self._own_events.append(Event(kind, message, severity=severity))
        if severity != "info":
            self.log(message, level=LEVELS.get(severity, "warning"), kind=kind)

    # Housekeeping

    def _housekeeping(self, tick: Tick) -> None:
        if not self.loaded.config.services and self._is_due("look", LOOK_EVERY, tick):
            self.watching.look_for_servers(self.loaded.config)
        self.daybook.keep_pins(self.watching.pins)
        if self.journal is not None:
            self.watching.tell_moved()
        if self._is_due("prune", PRUNE_EVERY, tick):
            self.daybook.prune()
            if self.upkeep is not None:
                self.upkeep.tidy()

    def due_for_saving(self, tick: Tick) -> bool:
        """Whether the state was last saved a minute ago or longer."""
        return self._is_due("save", SAVE_EVERY, tick)

    def _is_due(self, what: str, every: float, tick: Tick) -> bool:
        if tick.mono < self._due.get(what, -1.0):
            return False
        self._due[what] = tick.mono + every
        return True

    def save(self, folder: Path) -> None:
        """Save the engine's state. A failure is told, never raised: the next save tries again."""
        with self.lock:
            doc = self.engine.dump()
        try:
            self.system.files.write(folder / STATE_FILE, json.dumps(doc).encode())
        except OSError as error:
            self._tell("state_unsaved", f"{folder / STATE_FILE}: {error.strerror}", "warning")
