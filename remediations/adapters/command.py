"""A server that is started by a plain command: a session of its own, known by a pid file.

For nodes without systemd and containers without an engine. The pid file names the process and its
start, so that a pid that came again is nobody's. Where it names nobody who lives (the daemon was
killed before it was written, it is damaged) the server is found by its birthmark, and one that a
person started on its port. Under the daemon's own unit nothing is started: it would end with the
daemon.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ...watchdog import processes
from ...watchdog.errors import Permanent, SourceError
from ...watchdog.processes import Stat
from ...watchdog.serversearch import find_server
from ...watchdog.system import Process, System
from . import environment
from .birthmark import Marked, mark, marked
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
        kept, damage = self._read(system)
        if kept is not None:
            alive = processes.same(system.files, kept.pid, kept.started)
            if alive is not None:
                return Status("running", kept.pid, kept.at)
        own = self._newer(system, kept)
        if own is not None:
            return Status("running", own.process.pid, own.at)
        found = self._on_port(system)
        if found is not None:
            since = processes.start_time(system.files, found.started)
            return Status("running", found.pid, since)
        if damage:
            raise SourceError(damage)
        return Status("stopped" if kept is None else "failed", None, kept.at if kept else None)

    def start(self, system: System) -> None:
        """See Manager.start."""
        why = _inside(system)
        if why:
            raise Permanent(why)
        folder = self._file.parent
        system.files.make_folder(folder)
        began = system.clock.wall()
        env = {**environment.read(system, self.state, self.service), **mark(self._file, began)}
        log = system.files.path(folder / f"{self.service}.log")
        pid = system.runner.start(self.argv, log=log, env=env)
        stat = processes.stat(system.files, pid)
        self._keep(system, pid, stat.started if stat else 0, began)

    def stop(self, system: System) -> None:
        """See Manager.stop: the first process is asked; where it is gone, the rest."""
        self._adopt(system)
        everybody = self.processes(system)
        pid = self.status(system).pid
        first = [process for process in everybody if process.pid == pid]
        for process in first or everybody:
            Privileged.kill(system, process, signal.SIGTERM)

    def kill(self, system: System) -> None:
        """See Manager.kill."""
        self._adopt(system)
        for process in self.processes(system):
            Privileged.kill(system, process, signal.SIGKILL)

    def processes(self, system: System) -> tuple[Process, ...]:
        """See Manager.processes: the whole session, its leader gone or not, and all who bear the
        mark, of an earlier start too."""
        known = processes.table(system.files)
        kept, damage = self._read(system)
        leader = known.get(kept.pid) if kept is not None else None
        found = self._bearers(system, known)
        if kept is not None and (leader is None or leader.started == kept.started):
            found |= {entry.pid for entry in known.values() if entry.session == kept.pid}
        server = None if found else self._on_port(system)
        if server is not None:
            found = {entry.pid for entry in processes.family(known, server.pid)}
        if damage and not found:
            raise SourceError(damage)
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

    def _read(self, system: System) -> tuple[_Kept | None, str]:
        """The pid file of this boot, or why there is none that can be read."""
        try:
            kept = _Kept(**json.loads(system.files.text(self._file, 4096)))
        except FileNotFoundError:
            return None, ""
        except (ValueError, TypeError):
            hint = f"remove it if no server of {self.service} runs"
            return None, f"{self._file} cannot be read: {hint}"
        return (kept if kept.boot == processes.boot(system.files) else None), ""

    def _keep(self, system: System, pid: int, started: int, at: float) -> None:
        kept = _Kept(pid, started, processes.boot(system.files), at)
        Privileged.write(system, self._file, json.dumps(asdict(kept)).encode())

    def _adopt(self, system: System) -> None:
        """Write the pid file of a server that is known by its mark only: once it is ended nothing
        else tells that there was one, and a damaged file would hide that there is none left."""
        kept, _ = self._read(system)
        if kept is None or processes.same(system.files, kept.pid, kept.started) is None:
            own = self._newer(system, kept)
            if own is not None:
                self._keep(system, own.process.pid, own.process.started, own.at)

    def _newer(self, system: System, kept: _Kept | None) -> Marked | None:
        """The server that was started and whose pid file was not written any more: the first
        leader of a session in the last start, other than the one that the pid file tells of."""
        known = processes.table(system.files).values()
        leaders = [entry for entry in known if entry.pid == entry.session]
        found = marked(system.files, self._file, leaders)
        fresh = [each for each in found if kept is None or each.at != kept.at]
        return max(fresh, key=lambda each: (each.at, -each.process.started), default=None)

    def _bearers(self, system: System, known: Mapping[int, Stat]) -> set[int]:
        """All who bear the mark, and the whole session of a leader that does or is gone."""
        found = marked(system.files, self._file, known.values())
        pids = {each.process.pid for each in found}
        led = {each.process.session for each in found if each.process.session not in known} | pids
        return pids | {entry.pid for entry in known.values() if entry.session in led}

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
