"""The process: options, signals, the wait between ticks, and a clean end.

What a tick does is the daemon's; here is only when.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

from ..remediations import REMEDIATIONS
from ..remediations.adapters.upkeep import StateFolder
from .config import Config, parse
from .config.durations import address
from .daemon import STATE_FILE, Daemon, Loaded, prepare, static_labels
from .documents import read
from .errors import ConfigError, Place, Problem
from .greeting import greeting
from .journal import Journal
from .listeners import Listeners
from .log import make_log
from .options import Options
from .outlets import make_outlets
from .recording import beside
from .report import Keeper
from .system import Lock, Notifier, System, hostname
from .version import version
from .views import DaemonViews

LOCK_FILE = "lock"
GRACE = 8.0  # seconds from SIGTERM to the end of the process, whatever hangs
REPORTING = 1.0  # seconds at the end for a report that is being written
FIRST_TICK = 2.5  # seconds: the collectors' first runs are over by then
LOCK_PATIENCE = 3.0  # seconds: one that was just told to stop may still be on its way out


def configuration(options: Options) -> Loaded:
    """The configuration with the command line's changes, its rules read. Raises ConfigError."""
    config, text = Config(), "{}\n"
    if options.config is not None:
        text = read(options.config, "configuration")
        config = parse(text, str(options.config))
    changes: dict[str, object] = {}
    if options.listen is not None:
        try:
            changes["listen"] = address(options.listen)
        except ValueError as error:
            raise ConfigError(Problem(Place("--listen"), str(error))) from error
    if options.state is not None:
        changes["state"] = options.state
    return prepare(config.model_copy(update=changes), text)


class Service:
    """The daemon as a process: one main thread that ticks, and signals that end or reload it."""

    def __init__(self, options: Options, loaded: Loaded) -> None:
        self.options = options
        self.system = System()
        self.log = make_log()
        labels = static_labels(loaded.config, hostname())
        self.daemon = Daemon(self.system, loaded, labels, self.log)
        self._stop = threading.Event()
        self._reload = threading.Event()
        self._notifier = Notifier.from_environment()
        self._listeners: Listeners | None = None
        self._keeper: Keeper | None = None
        self._lock: Lock | None = None
        self._begun = False

    def run(self) -> int:
        """Run until told to stop; returns the exit status."""
        self._signals()
        folder = None if self.options.only_record else self.daemon.loaded.config.state
        if folder is not None:
            self._open(folder)
        if self.options.record is not None:
            self._record(self.options.record)
        self.daemon.start()
        try:
            self._loop(folder)
        finally:
            self._end(folder)
        return 0

    def _signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ask_to_stop())
        signal.signal(signal.SIGHUP, lambda *_: self._ask_to_reload())

    def _ask_to_stop(self) -> None:
        self._stop.set()
        self.daemon.inbox.wake.set()

    def _ask_to_reload(self) -> None:
        self._reload.set()
        self.daemon.inbox.wake.set()

    def _open(self, folder: Path) -> None:
        """The listener first (a port in use ends the start), then lock, journal, state, outlets."""
        config = self.daemon.loaded.config
        self._listeners = Listeners(self.daemon, self.log)
        self._lock = self._locked(folder)
        known = self.system.files.exists(folder / STATE_FILE)
        journal = Journal.open(folder / "journal.db", self.system.clock, known=known)
        self.daemon.open(journal)
        self.daemon.restore(folder)
        self.daemon.employ(folder, REMEDIATIONS, StateFolder())
        self._keeper = keep_reports(self.daemon, folder)
        self.daemon.outlets += make_outlets(self.daemon, config)
        self._listeners.start(folder)

    def _locked(self, folder: Path) -> Lock | None:
        """The state folder for this process alone. Raises ConfigError when another one has it.

        A disk that cannot hold even the lock's file ends nothing.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = Lock(folder / LOCK_FILE)
            end = self.system.clock.mono() + LOCK_PATIENCE
            while not lock.take():
                if self.system.clock.mono() >= end or self._stop.wait(0.1):
                    hint = "stop it, or give this one a folder of its own by state: or --state"
                    place = Place(str(folder))
                    raise ConfigError(Problem(place, "another daemon uses this state", hint))
        except (OSError, ValueError):
            return None  # what is wrong with the folder, the journal tells
        return lock

    def _record(self, folder: Path) -> None:
        try:
            self.daemon.record(folder if self.options.only_record else beside(folder))
        except OSError as error:
            place = Place(str(error.filename or folder))
            raise ConfigError(Problem(place, f"cannot record: {error.strerror}")) from error

    def _loop(self, folder: Path | None) -> None:
        clock, daemon = self.system.clock, self.daemon
        interval = daemon.loaded.config.interval
        end = None if self.options.duration is None else clock.mono() + self.options.duration
        due = clock.mono() + min(interval, FIRST_TICK)
        while not self._stop.is_set():
            urgent = daemon.inbox.wake.wait(max(min(due, end or due) - clock.mono(), 0.0))
            if self._reload.is_set():
                self._reload.clear()
                self._load_again()
                interval = daemon.loaded.config.interval
            now = clock.mono()
            if self._stop.is_set() or (end is not None and now >= end):
                break
            if urgent and now < due:
                daemon.inbox.wake.clear()
                daemon.tick(urgent=True)
                continue
            daemon.tick()
            self._finished(folder)
            late = int(max(clock.mono() - due, 0.0) // interval)
            daemon.missed_ticks += late
            due += (late + 1) * interval

    def _finished(self, folder: Path | None) -> None:
        """After a regular tick: the service manager may know, and state may be due for saving."""
        tick = self.daemon.last_tick
        assert tick is not None
        if not self._begun:  # urgent ticks may have gone before
            self._begun = True
            self._notifier.ready()
            if not self.options.only_record:
                self._greet()
        self._notifier.alive(self.daemon.summary())
        if folder is not None and self.daemon.due_for_saving(tick):
            self.daemon.save(folder)

    def _load_again(self) -> None:
        """Reload between ticks; what cannot be loaded changes nothing."""
        self._notifier.reloading()
        try:
            loaded = configuration(self.options)
        except ConfigError as error:
            for problem in error.problems:
                self.log(f"not reloaded: {problem}", level="error")
        else:
            self.daemon.reload(loaded)
            self.log("configuration reloaded")
        self._notifier.ready()

    def _greet(self) -> None:
        """Say to a person at the terminal what was found, what is watched and where to look."""
        for line in greeting(self.daemon):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def _end(self, folder: Path | None) -> None:
        self._notifier.stopping()
        threading.Timer(GRACE, _leave, (1,)).start()  # a hung disk must not hold the end up
        if self._listeners is not None:
            self._listeners.stop()
        if self._keeper is not None:
            self._keeper.stop(REPORTING)
        self.daemon.stop(folder)


def keep_reports(daemon: Daemon, state: Path) -> Keeper:
    """Have a report written into the state folder after each incident from now on."""

    def log(text: str) -> None:
        daemon.log(text, level="warning")

    source = DaemonViews(daemon).source()
    keeper = Keeper(state, source, version(), daemon.system.clock.wall, log)
    daemon.hearers.append(keeper.offer)
    return keeper


def serve(options: Options) -> int:
    """Run the daemon in this process until it is told to stop, and end the process.

    Raises ConfigError before anything was started. Threads that hang in a tool are not waited for.
    """
    service = Service(options, configuration(options))
    code = service.run()
    _leave(code)
    return code


def _leave(code: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
