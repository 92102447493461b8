"""What a bundle of evidence is about: the instance, its processes, its cards. Values, and who the
processes are; what is told of them is for the parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ...watchdog import processes
from ...watchdog.acting import ActCase
from ...watchdog.errors import WatchdogError
from ...watchdog.system import System
from .instances import Instance
from .managers import manager_of

MAX_PROCESSES = 64


class Family:
    """The pids of an instance's processes, looked for once by whichever part asks first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: tuple[int, ...] | None = None

    def pids(self, system: System, scene: Scene) -> tuple[int, ...]:
        """The manager's processes and those of whoever listens; at most MAX_PROCESSES."""
        with self._lock:
            if self._pids is None:
                found = {*_listeners(system, scene.instance.url), *_managed(system, scene)}
                self._pids = tuple(sorted(found))[:MAX_PROCESSES]
            return self._pids


@dataclass(frozen=True, slots=True)
class Scene:
    """``logs``: patterns of the service's log files. ``vendors`` by card; ``cards``: those of the
    instance and the sick ones. ``began``: of the act, in Unix seconds."""

    request: str
    act: str
    service: str
    instance: Instance
    state: Path
    logs: tuple[str, ...] = ()
    cards: tuple[str, ...] = ()
    vendors: Mapping[str, str] = field(default_factory=dict)
    family: Family = field(default_factory=Family)


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a bundle. ``limit`` seconds, ``size`` bytes; ``tail``: of more, the end is
    kept. ``take`` may raise anything, and may hang."""

    name: str
    take: Callable[[System, Scene], str | bytes]
    limit: float = 5.0
    size: int = 1024 * 1024
    tail: bool = False


def scene_of(case: ActCase, instance: Instance) -> Scene:
    """The scene of an act's evidence."""
    return Scene(
        case.request.id,
        case.request.remediation,
        case.name,
        instance,
        case.state,
        case.settings.logs if case.settings is not None else (),
        tuple(dict.fromkeys((*instance.cards, *case.sick))),
        case.vendors,
    )


def _listeners(system: System, url: str) -> set[int]:
    """Who listens at the instance's address, and all that descend from it."""
    try:
        port = urlsplit(url).port or 0
    except ValueError:
        return set()
    files = system.files
    sockets = processes.listening(files, [port])[port] if port else set()
    first = processes.holder(files, sockets) if sockets else None
    if first is None:
        return set()
    return {member.pid for member in processes.family(processes.table(files), first)}


def _managed(system: System, scene: Scene) -> set[int]:
    try:
        manager = manager_of(scene.instance, scene.state)
        return {one.pid for one in manager.processes(system)} if manager is not None else set()
    except (WatchdogError, OSError):
        return set()
