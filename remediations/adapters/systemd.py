"""Units of systemd: asked and told by ``systemctl``, their processes found by their cgroup.

No drop-in is written and nothing is reloaded: a profile and the cards go into the one file that the
unit names as its last ``EnvironmentFile=``. The unit name is the configuration's, checked again.
"""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...watchdog.errors import Permanent, SourceError
from ...watchdog.system import Process, System
from . import environment
from .managers import State, Status, members
from .privileged import Privileged

TIMEOUT = 10.0  # seconds for one call of systemctl
UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_:.@\\-]{0,250}")
CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
MAX_GROUPS = 256  # folders of one unit's cgroup that are looked through
_SHOWN = (
    "LoadState", "ActiveState", "SubState", "MainPID", "ExecMainStartTimestampMonotonic",
    "NRestarts", "Result", "ControlGroup", "EnvironmentFiles", "Restart",
)  # fmt: skip
_STATES: dict[str, State] = {
    "active": "running", "reloading": "running", "refreshing": "running",
    "deactivating": "running", "activating": "starting", "inactive": "stopped",
    "maintenance": "stopped", "failed": "failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Systemd(environment.ByFile):
    """One unit. ``service``: under which name its environment file lies in ``state``."""

    unit: str
    service: str
    state: Path
    name: str = "systemd"

    def status(self, system: System) -> Status:
        """See Manager.status."""
        shown = self._show(system)
        pid = int(shown.get("MainPID", "0") or 0)
        return Status(
            _STATES.get(shown.get("ActiveState", ""), "unknown"),
            pid or None,
            _moment(system, shown.get("ExecMainStartTimestampMonotonic", "")),
            int(shown.get("NRestarts", "0") or 0),
            shown.get("SubState", "").startswith("auto-restart"),
            shown.get("Result", ""),
            shown.get("Restart", "") in ("always", "on-success"),
        )

    def start(self, system: System) -> None:
        """See Manager.start. A unit that gave itself up is first freed of that."""
        if self.status(system).state == "failed":
            with contextlib.suppress(SourceError):  # not allowed: the start may go through anyway
                self._tell(system, "reset-failed")
        self._tell(system, "start", "--no-block")

    def stop(self, system: System) -> None:
        """See Manager.stop. systemd does nothing to what outlived a unit that ended by itself: that
        is asked to end by us."""
        left = self.processes(system) if self.status(system).ended else ()
        self._tell(system, "stop", "--no-block")
        for process in left:
            Privileged.kill(system, process, signal.SIGTERM)

    def kill(self, system: System) -> None:
        """See Manager.kill."""
        for process in self.processes(system):
            Privileged.kill(system, process, signal.SIGKILL)

    def processes(self, system: System) -> tuple[Process, ...]:
        """See Manager.processes: all that is in the unit's cgroup or below it."""
        group = self._show(system).get("ControlGroup", "")
        return members(system, _pids(system, group)) if group.strip("/") else ()

    def startable(self, system: System) -> str:
        """See Manager.startable: a unit that is gone or masked raises."""
        self.status(system)
        return ""

    def takes_profile(self, system: System) -> str:
        """See Manager.takes_profile: our file must be the last one that the unit reads."""
        files = self._show(system).get("EnvironmentFiles", "").split("\n")
        wanted = str(environment.path_of(self.state, self.service))
        if files[-1].partition(" (")[0] == wanted:
            return ""
        return f"{self._unit} lacks EnvironmentFile=-{wanted} as its last one"

    def takes_cards(self, system: System) -> str:
        """See Manager.takes_cards."""
        return self.takes_profile(system)

    @property
    def _unit(self) -> str:
        if not UNIT.fullmatch(self.unit):
            raise Permanent(f"{self.unit!r} is no name of a unit")
        return self.unit if self.unit.endswith(".service") else f"{self.unit}.service"

    def _show(self, system: System) -> dict[str, str]:
        """The unit's properties; lines of one that comes more than once are joined."""
        argv = ("systemctl", "show", "--property=" + ",".join(_SHOWN), "--", self._unit)
        ended = system.runner.run(argv, timeout=TIMEOUT)
        if ended.code != 0:
            raise SourceError(_said(ended.stderr, ended.code))
        shown: dict[str, str] = {}
        for line in ended.stdout.decode("utf-8", "replace").splitlines():
            key, _, value = line.partition("=")
            shown[key] = f"{shown[key]}\n{value}" if key in shown else value
        if shown.get("LoadState") in ("not-found", "bad-setting", "error", "masked"):
            raise SourceError(f"{self._unit}: {shown['LoadState']}")
        return shown

    def _tell(self, system: System, verb: str, *options: str) -> None:
        argv = ("systemctl", verb, "--no-ask-password", *options, "--", self._unit)
        ended = Privileged.run(system, argv, TIMEOUT)
        if ended.code != 0:
            raise SourceError(_said(ended.stderr, ended.code))


def _said(output: bytes, code: int) -> str:
    """systemctl's own first line, and what to do where rights are missing."""
    text = output.decode("utf-8", "replace").strip()
    line = "".join(c for c in text.partition("\n")[0] if c.isprintable())[:300]
    if "authentication required" in text or "Access denied" in text:
        line += " (allow it by deploy/systemd/vllm-watchdog.rules)"
    return line or f"systemctl ended with {code}"


def _moment(system: System, microseconds: str) -> float | None:
    """A point of the monotonic clock as Unix seconds."""
    if not microseconds.isdigit() or microseconds == "0":
        return None
    return system.clock.wall() - system.clock.mono() + int(microseconds) / 1e6


def _pids(system: System, group: str) -> Iterator[int]:
    """The processes of a cgroup and of those below it, in whichever hierarchy has it."""
    for root in CGROUPS:
        folder = f"{root}{group}"
        if system.files.exists(f"{folder}/cgroup.procs"):
            yield from _below(system, folder)
            return


def _below(system: System, top: str) -> Iterator[int]:
    waiting = [top]
    for _ in range(MAX_GROUPS):
        if not waiting:
            return
        folder = waiting.pop()
        with contextlib.suppress(OSError):  # gone meanwhile
            for line in system.files.text(f"{folder}/cgroup.procs").splitlines():
                if line.isdigit() and line != "0":
                    yield int(line)
        inside = (f"{folder}/{name}" for name in system.files.names(folder))
        waiting += [path for path in inside if system.files.exists(f"{path}/cgroup.procs")]
