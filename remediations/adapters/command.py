"""A server that is started by a plain command: a session of its own, known by a pid file.

For nodes without systemd and containers without an engine. The pid file names the process and its
start, so that a pid that came again is nobody's; where there is none yet (a person started the
server) it is looked for on its port. Under the daemon's own unit nothing is started: it would end
with the daemon.
"""

from __future__ import annotations

import contextlib
import json
import signal
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ...watchdog import processes
from ...watchdog.errors import Permanent, SourceError
from ...watchdog.processes import Stat
from ...watchdog.serversearch import find_server
from ...watchdog.system import Process, System
from . import environment
from .managers import Status, members
from .privileged import Privileged

OWN_UNIT = "vllm-watchdog.service"


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the pid file says: the leader of the session and its start (ticks since that boot)."""

    pid: int
    started: int
    boot: str
    at: float


@dataclass(frozen=True, slots=True)
class Command(environment.ByFile):
    """One server. ``argv`` starts it; ``url`` tells the port on which one is found that we did not
    start."""

    service: str
    argv: tuple[str, ...]
    state: Path
    url: str = ""
    name: str = "command"

    def status(self, system: System) -> Status:
        """See Manager.status."""
        kept = self._kept(system)
        if kept is not None:
            alive = processes.same(system.files, kept.pid, kept.started)
            if alive is not None:
                return Status("running", kept.pid, kept.at)
        found = self._on_port(system)
        if found is not None:
            since = processes.start_time(system.files, found.started)
            return Status("running", found.pid, since)
        return Status("stopped" if kept is None else "failed", None, kept.at if kept else None)

    def start(self, system: System) -> None:
        """See Manager.start."""
        why = _inside(system)
        if why:
            raise Permanent(why)
        folder = self._file.parent
        system.files.make_folder(folder)
        env = environment.read(system, self.state, self.service)
        began = system.clock.wall()
        log = system.files.path(folder / f"{self.service}.log")
        pid = system.runner.start(self.argv, log=log, env=env)
        stat = processes.stat(system.files, pid)
        doc = {
            "pid": pid,
            "started": stat.started if stat else 0,
            "boot": processes.boot(system.files),
            "at": began,
        }
        Privileged.write(system, self._file, json.dumps(doc).encode())

    def stop(self, system: System) -> None:
        """See Manager.stop: the first process is asked; where it is gone, the rest."""
        everybody = self.processes(system)
        pid = self.status(system).pid
        first = [process for process in everybody if process.pid == pid]
        for process in first or everybody:
            Privileged.kill(system, process, signal.SIGTERM)

    def kill(self, system: System) -> None:
        """See Manager.kill."""
        for process in self.processes(system):
            Privileged.kill(system, process, signal.SIGKILL)

    def processes(self, system: System) -> tuple[Process, ...]:
        """See Manager.processes: the whole session, its leader gone or not."""
        known = processes.table(system.files)
        kept = self._kept(system)
        found: set[int] = set()
        if kept is not None:
            leader = known.get(kept.pid)
            if leader is None or leader.started == kept.started:
                found = {entry.pid for entry in known.values() if entry.session == kept.pid}
        server = None if found else self._on_port(system)
        if server is not None:
            found = {entry.pid for entry in processes.family(known, server.pid)}
        return members(system, found)

    def startable(self, system: System) -> str:
        """See Manager.startable: not inside our own unit, and not without its program."""
        why = _inside(system)
        if not why and system.runner.which(self.argv[0]) is None:
            why = f"{self.argv[0]} is no program that can be started"
        environment.read(system, self.state, self.service)
        return why

    def takes_profile(self, system: System) -> str:  # noqa: ARG002 (one shape for all managers)
        """See Manager.takes_profile: it is started with whatever environment we give it."""
        return ""

    def takes_cards(self, system: System) -> str:
        """See Manager.takes_cards."""
        return self.takes_profile(system)

    @property
    def _file(self) -> Path:
        return self.state / "services" / f"{self.service}.pid"

    def _kept(self, system: System) -> _Kept | None:
        """The pid file of this boot. Raises SourceError for one that is none."""
        try:
            kept = _Kept(**json.loads(system.files.text(self._file, 4096)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise SourceError(f"{self._file} cannot be read") from error
        return kept if kept.boot == processes.boot(system.files) else None

    def _on_port(self, system: System) -> Stat | None:
        port = urlsplit(self.url).port
        if port is None:
            return None
        return find_server(system.files, port, processes.table(system.files)).server


def _inside(system: System) -> str:
    """Why nothing can be started from here: what our own unit holds ends with the daemon."""
    with contextlib.suppress(OSError):
        if f"/{OWN_UNIT}" in system.files.text("/proc/self/cgroup"):
            return f"a server started by {OWN_UNIT} would end with it: give it a unit of its own"
    return ""
