"""The daemon's parts joined: collectors in, engine, journal, outlets out. One tick is one call.

Signals, waiting and the process are service's work; what a tick means is the engine's.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .assembly import (
    check_names,
    discovered,
    node_collectors,
    observing,
    rule_files,
    service_collectors,
    service_facts,
)
from .cases import healing
from .config import Config, Service
from .contracts import Collector
from .documents import json_of
from .engine import Engine, EngineSettings
from .errors import ConfigError, Problem
from .inventory import Info, Pins, devices, infos
from .journal import Journal, JournalError
from .labeller import Labeller
from .model import Batch, Command, Decisions, Event, Inputs, Json, Tick
from .outlets import Outlet
from .policies import alert_names
from .policies import check as check_policies
from .recording import Manifest, Recorder
from .rulepack import Group
from .rulepack import load as load_rules
from .scheduler import Inbox, Scheduler
from .schedules import Schedules
from .system import System
from .version import version

STATE_FILE = "engine.json"
SAVE_EVERY = 60.0  # seconds between two saves of the engine's state
LOOK_EVERY = 30.0  # seconds between two looks for servers that came or went
PRUNE_EVERY = 600.0
JOURNAL_BYTES = 512 * 1024 * 1024
JOURNAL_AGE = 14 * 86400.0
MAX_UNWRITTEN = 10_000  # events kept in memory while the journal cannot be written

Log = Callable[..., object]
LEVELS = {"info": "info", "warning": "warning", "critical": "error"}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with all that is read along with it."""

    config: Config
    groups: tuple[Group, ...]
    files: tuple[Path, ...]
    text: str = ""
    warnings: tuple[Problem, ...] = ()


def prepare(config: Config, text: str = "") -> Loaded:
    """Read the rule files of a configuration. Raises ConfigError with every error."""
    problems = check_names(config)
    try:
        pack = load_rules(rule_files(config), config.rules.groups)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    problems += check_policies(config, alert_names(pack.groups))
    if problems:
        raise ConfigError(problems)
    files = tuple(dict.fromkeys(Path(group.file) for group in pack.groups))
    return Loaded(config, pack.groups, files, text, pack.warnings)


def static_labels(config: Config, host: str) -> dict[str, str]:
    """``job`` and ``instance`` as the central scrape gives them."""
    name, port = config.listen
    shown = host if name in ("0.0.0.0", "::", "127.0.0.1", "localhost", "::1") else name  # noqa: S104
    return {"job": "vllm-watchdog", "instance": f"{shown}:{port}", **config.labels}


@dataclass(slots=True)
class Seen:
    """What discovery and the card tools last showed."""

    services: dict[str, Service] = field(default_factory=dict)
    cards: tuple[Info, ...] = ()
    cards_generation: int = -1


class Daemon:
    """One node's loop, tick by tick. ``lock`` is held while state changes or is read."""

    def __init__(self, system: System, loaded: Loaded, labels: Mapping[str, str], log: Log) -> None:
        self.system, self.loaded, self.labels, self.log = system, loaded, dict(labels), log
        self.lock = threading.RLock()
        self.inbox = Inbox()
        self.journal: Journal | None = None
        self.recorder: Recorder | None = None
        self.outlets: list[Outlet] = []
        self.seen = Seen(dict(loaded.config.services))
        self.scheduler = Scheduler(system, self.inbox, self.labels, log)
        self.engine = self._new_engine()
        self.pins = Pins()
        self._devices: dict[str, str] = {}  # shared with the log collectors
        self._moved: dict[str, str] = {}
        self.journal_error: str | None = None
        self.journal_errors = 0
        self.last_tick: Tick | None = None
        self.last_duration = 0.0
        self.missed_ticks = 0
        self._schedules = Schedules(loaded.config.schedules)
        self._facts = Labeller(self.labels)
        self._mono0, self._wall0 = system.clock.mono(), system.clock.wall()
        self._number = 0
        self._due: dict[str, float] = {}
        self._recordings = 0
        self._first_recording: Path | None = None
        self._own_events: deque[Event] = deque()
        self._unwritten: deque[tuple[Tick, list[Event], dict[str, Json]]] = deque()
        self.events_lost = 0
        self._finding: threading.Thread | None = None

    def _new_engine(self) -> Engine:
        return Engine(
            _settings(self.loaded.config, self.labels),
            self.loaded.groups,
            healing=healing(observing(self.loaded.config)),
        )

    # Life

    def restore(self, folder: Path) -> None:
        """Take up the state of an earlier run, if it is young enough to be used."""
        path = folder / STATE_FILE
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
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            with self.lock:  # half of it may have been taken up: begin anew
                self.engine = self._new_engine()
            self._tell("state_unusable", f"{path} is not of this version: {error}", "warning")

    def open(self, journal: Journal) -> None:
        """Journal from now on, and let log collectors go on where they stood."""
        self.journal = journal
        for instance, doc in journal.checkpoints().items():
            self.system.checkpoints.put(instance, doc)
        self.pins = Pins(journal.load_state("pins"))

    def reload(self, loaded: Loaded) -> None:
        """Take over another configuration between two ticks; unchanged rules keep their alerts."""
        before = {c.instance: c for c in self._collectors(self.loaded.config, self.seen.services)}
        services = loaded.config.services or self.seen.services
        after = {c.instance: c for c in self._collectors(loaded.config, services)}
        self._exchange(before, after)
        with self.lock:
            self.engine.settings = _settings(loaded.config, self.labels)
            self.engine.replace_rules(loaded.groups)
            self.engine.replace_healing(healing(observing(loaded.config)))
        self.loaded = loaded
        self.seen.services = dict(services)
        self._schedules = Schedules(loaded.config.schedules)
        self._record_anew()
        self._tell("configuration_reloaded", "the configuration was reloaded")

    def _record_anew(self) -> None:
        """A recording holds one configuration: go on in a folder of its own beside the last."""
        if self.recorder is None:
            return
        self.recorder.close()
        first = self._first_recording = self._first_recording or self.recorder.folder
        folder = self.recorder.folder
        self.recorder = None
        while folder.exists():
            self._recordings += 1
            folder = first.with_name(f"{first.name}.{self._recordings}")
        try:
            self.record(folder)
        except OSError as error:
            self._recording_ended(folder, error)

    def _collectors(self, config: Config, services: Mapping[str, Service]) -> list[Collector]:
        return [
            *node_collectors(config, self.system.runner, self._devices),
            *service_collectors(config, services),
        ]

    def _exchange(self, before: Mapping[str, Collector], after: Mapping[str, Collector]) -> None:
        """Stop the collectors that are gone or changed, start what is new or changed."""
        for name, collector in before.items():
            if after.get(name) != collector:
                self.scheduler.remove(name)
                if name not in after:
                    self.inbox.put(Batch(name, absent=True, error="is no longer watched"))
        self.scheduler.add([c for name, c in after.items() if before.get(name) != c])

    def summary(self) -> str:
        """One line for the service manager."""
        firing = sum(1 for alert in self.engine.alerts() if alert.state == "firing")
        return f"tick {self.engine.ticks}, {firing} alerts firing"

    def record(self, folder: Path) -> None:
        """Record from now on. Raises ConfigError when the folder holds a recording, OSError."""
        names = [f"{n:02d}-{path.name}" for n, path in enumerate(self.loaded.files)]
        settings = self.engine.settings
        manifest = Manifest(
            version(),
            self.system.clock.wall(),
            settings.interval,
            settings.stale_after,
            self.loaded.config.rules.groups,
            settings.urgent,
            dict(settings.labels),
            tuple(names),
            dict(settings.external_labels),
        )
        files = [
            (name, path.read_bytes()) for name, path in zip(names, self.loaded.files, strict=True)
        ]
        state = self.engine.dump() if self.engine.warm else None
        self.recorder = Recorder(folder, manifest, self.loaded.text, files, state)

    def start(self) -> None:
        """Start the collectors and look for servers."""
        config = self.loaded.config
        self.scheduler.start()
        self.scheduler.add(node_collectors(config, self.system.runner, self._devices))
        self.scheduler.add(service_collectors(config, config.services))
        self._tell("daemon_started", f"vllm-watchdog {version()} watches this node")

    def stop(self, folder: Path | None) -> None:
        """End collectors and outlets, save the state."""
        self.scheduler.stop()
        for outlet in self.outlets:
            outlet.stop(3.0)
        if folder is not None:
            self.save(folder)
        if self.recorder is not None:
            self.recorder.close()
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
        """Take what came in, step the engine, journal, tell. Raises nothing that an input holds."""
        self.scheduler.overdue()
        tick = self.now(urgent=urgent)
        heard = self.inbox.gather()
        inputs = replace(heard, batches=(*heard.batches, *self._own_batches(tick)))
        with self.lock:
            decisions = self.engine.step(tick, inputs)
            self._look_at_cards()
        self._write(tick, inputs, decisions)
        self._offer()
        self._housekeeping(tick)
        self.last_tick = tick
        self.last_duration = self.system.clock.mono() - tick.mono
        return decisions

    def _own_batches(self, tick: Tick) -> list[Batch]:
        """What the daemon itself knows: services' facts and schedules, as inputs like any other."""
        facts = service_facts(self.seen.services, self.seen.cards, self.pins)
        batches = [Batch("services", (self._facts.page(facts, 0),))]
        if self.loaded.config.schedules:
            page = self._schedules.page(tick.wall)
            batches.append(Batch("schedules", (self._facts.page(page, 1),)))
        return batches

    def _write(self, tick: Tick, inputs: Inputs, decisions: Decisions) -> None:
        """Journal first: events with the checkpoints they came from; then the recording."""
        checkpoints = {
            batch.collector: batch.checkpoint.doc
            for batch in inputs.batches
            if batch.checkpoint is not None
        }
        events: list[Event] = []
        while self._own_events:
            events.append(self._own_events.popleft())
        events += decisions.events
        if self.journal is not None and (events or checkpoints):
            self._unwritten.append((tick, events, checkpoints))
            self._journal_all(self.journal)
        if self.recorder is not None:
            self._record_tick(self.recorder, tick, inputs, decisions)
        for event in decisions.events:
            if event.severity != "info":
                self.log(
                    event.message, level=LEVELS.get(event.severity, "warning"), kind=event.kind
                )

    def _journal_all(self, journal: Journal) -> None:
        """Write what waits, oldest first. While the disk is full it waits in memory, bounded."""
        try:
            while self._unwritten:
                journal.append(*self._unwritten[0])
                self._unwritten.popleft()
        except JournalError as error:
            self._journal_failed(str(error))
            while sum(len(events) for _, events, _ in self._unwritten) > MAX_UNWRITTEN:
                _, lost, _ = self._unwritten.popleft()
                self.events_lost += len(lost)
        else:
            self._journal_works()

    def _record_tick(
        self, recorder: Recorder, tick: Tick, inputs: Inputs, decisions: Decisions
    ) -> None:
        """Watching goes on without a recording, not the other way round."""
        try:
            recorder.write(tick, inputs, decisions)
        except (OSError, ValueError) as error:
            self.recorder = None
            with contextlib.suppress(OSError):
                recorder.close()
            self._recording_ended(recorder.folder, error)

    def _recording_ended(self, folder: Path, error: OSError | ValueError) -> None:
        reason = getattr(error, "strerror", None) or error
        self._tell("recording_ended", f"recording ended: {folder}: {reason}", "warning")

    def _journal_failed(self, error: str) -> None:
        if self.journal_error is None:
            self.log("the journal cannot be written; alerts go on from memory", reason=error)
        self.journal_error = error
        self.journal_errors += 1

    def _journal_works(self) -> None:
        if self.journal_error is not None:
            self.log("the journal is written again")
            if self.events_lost:
                text = f"{self.events_lost} events were lost while the journal could not be written"
                self._tell("events_lost", text, "warning")
                self.events_lost = 0
        self.journal_error = None
        if self.journal is not None and self.journal.notes:
            for note in self.journal.notes:
                self._tell("journal_note", note, severity="warning")
            self.journal.notes.clear()

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
            self._look_for_servers()
        if self.journal is not None and (self.pins.changed or self.pins.moved != self._moved):
            self._keep_pins(self.journal)
        if self.journal is not None and self._is_due("prune", PRUNE_EVERY, tick):
            self._prune(self.journal)

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

    def _keep_pins(self, journal: Journal) -> None:
        """Save names newly resolved; tell, once, of a name that came to mean another card."""
        if self.pins.changed:
            try:
                journal.save_state("pins", self.pins.kept)
                self.pins.changed = False
            except JournalError as error:
                self._journal_failed(str(error))
        for name, card in self.pins.moved.items():
            if self._moved.get(name) != card:
                text = f"{name} is pinned to {self.pins.kept[name]} but now means {card}"
                self._tell("card_moved", text, "warning")
        self._moved = dict(self.pins.moved)

    def _prune(self, journal: Journal) -> None:
        try:
            pruned = journal.prune(JOURNAL_BYTES, JOURNAL_AGE)
        except JournalError as error:
            self._journal_failed(str(error))
            return
        for outlet, count in pruned.lost.items():
            text = f"{outlet}: {count} events went by age or size before they were sent"
            self._tell("events_lost", text, "warning")

    def _look_at_cards(self) -> None:
        generation = self.engine.window.generation("accelerator_info")
        if generation == self.seen.cards_generation:
            return
        self.seen.cards_generation = generation
        last = self.engine.ms
        live = [key for key, _, _ in self.engine.window.latest(last) if _INFO in key]
        self.seen.cards = tuple(infos(live))
        self._devices.update(devices(self.seen.cards))

    def _look_for_servers(self) -> None:
        if self._finding is None or not self._finding.is_alive():
            self._finding = threading.Thread(target=self._find, name="discovery", daemon=True)
            self._finding.start()

    def _find(self) -> None:
        try:
            found = discovered(self.system, self.seen.cards)
        except OSError as error:
            self.log("the process table cannot be read", reason=str(error))
            return
        self.watch(found)

    def watch(self, services: Mapping[str, Service]) -> None:
        """Watch these services from now on: start what is new, drop what is gone."""
        config = self.loaded.config
        before = {c.instance: c for c in service_collectors(config, self.seen.services)}
        self._exchange(before, {c.instance: c for c in service_collectors(config, services)})
        for name in sorted(set(services) ^ set(self.seen.services)):
            word = "found" if name in services else "gone"
            self._tell(f"service_{word}", f"vLLM server {name} {word}")
            self.log(f"vLLM server {word}", service=name)
        self.seen.services = dict(services)


_INFO = ("__name__", "accelerator_info")


def _settings(config: Config, labels: Mapping[str, str]) -> EngineSettings:
    return EngineSettings(
        config.interval,
        config.rules.stale_after,
        config.rules.urgent,
        labels,
        config.external_labels,
    )
