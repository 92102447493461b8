"""Who starts and stops a server: one shape for units, containers and plain commands.

A manager is told to begin and says how things stand; it never waits, retries or judges. What is
started next time may be given another environment (profile, cards), marked by the request that
asked for it, so that a daemon that was killed meanwhile knows its own work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ...watchdog.system import Process, System
from .instances import Instance

State = Literal["running", "starting", "stopped", "failed", "unknown"]


@dataclass(frozen=True, slots=True)
class Status:
    """How a server stands with its manager.

    ``pid``: its first process; ``since``: when that was started (Unix seconds). ``restarts``: how
    often the manager started it again by itself since it was last asked to start it;
    ``restarting``: it is about to, right now. ``result``: the manager's own word on the last end.
    ``always``: it starts the server again whatever its exit status, 0 included.
    """

    state: State
    pid: int | None = None
    since: float | None = None
    restarts: int = 0
    restarting: bool = False
    result: str = ""
    always: bool = False

    @property
    def ended(self) -> bool:
        """Whether nothing runs and nothing is about to."""
        return self.state in ("stopped", "failed")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an act gave a server beyond its own configuration: ``values`` of the environment, the
    request (``mark``) that asked for them, the name of the ``profile`` among them."""

    values: Mapping[str, str] = field(default_factory=dict)
    mark: str = ""
    profile: str = ""


class Manager(Protocol):
    """What runs one server. Errors of all methods: SourceError (it reports failure; one line),
    NotSupported, CommandTimeout, HttpError, OSError.
    """

    @property
    def name(self) -> str:
        """systemd, docker or command."""
        ...

    def status(self, system: System) -> Status:
        """How it stands."""
        ...

    def start(self, system: System) -> None:
        """Begin to start it."""
        ...

    def stop(self, system: System) -> None:
        """Begin to end it in order (SIGTERM); it is not started again by itself."""
        ...

    def kill(self, system: System) -> None:
        """End all that is left of it at once (SIGKILL)."""
        ...

    def processes(self, system: System) -> tuple[Process, ...]:
        """All its processes, orphans included: the whole cgroup, container or session."""
        ...

    def startable(self, system: System) -> str:
        """Why a start could not succeed, as far as that shows before; empty where nothing does."""
        ...

    def takes_profile(self, system: System) -> str:
        """Why it would not take over another environment; empty when it would."""
        ...

    def takes_cards(self, system: System) -> str:
        """Why it could not use other cards of the node; empty when it could."""
        ...

    def settings(self, system: System) -> Settings:
        """What the next start is given."""
        ...

    def configure(self, system: System, settings: Settings) -> None:
        """Give the next start these settings; what was there before is kept for ``restore``. Asked
        again for the same mark it completes what it began. Only while it is stopped."""
        ...

    def restore(self, system: System, mark: str) -> None:
        """Put back what was there before ``configure`` of this mark; else nothing."""
        ...

    def configured_at(self, system: System) -> float:
        """When ``configure`` was last done, in Unix seconds; 0 where it never was."""
        ...


def manager_of(instance: Instance, state: Path) -> Manager | None:
    """The manager of an instance; None where none is configured."""
    from .command import Command
    from .docker import Docker
    from .systemd import Systemd

    configured = instance.manager
    if configured is None:
        return None
    if configured.systemd is not None:
        return Systemd(configured.systemd, instance.unit_name, state)
    if configured.docker is not None:
        return Docker(configured.docker)
    return Command(instance.unit_name, tuple(configured.command or ()), state, instance.url)


def members(system: System, pids: Iterable[int]) -> tuple[Process, ...]:
    """The processes of these pids that live, with their starts."""
    wanted = set(pids)
    if not wanted:
        return ()
    return tuple(process for process in system.host.processes() if process.pid in wanted)
