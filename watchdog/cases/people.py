"""What is under way on purpose: a person's restart, stop or drain, a server that starts or sleeps.

While it lasts, a service that does not answer is no fault. Words come from commands and from what
servers write of themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Command, Event

LIMITS: Mapping[str, float] = {"restart": 900.0, "start": 900.0}
"""Seconds after which an operation excuses nothing any more; others last until undone."""

_PHASES = {
    "restart": "starting", "start": "starting", "stop": "stopped", "drain": "draining",
    "pause": "paused", "sleep": "sleeping",
}  # fmt: skip
VERBS = frozenset({"restart", "stop", "start", "drain"})
_UNNOTICED = 60.0  # seconds after which a restart that nobody saw is over


@dataclass(slots=True)
class Operation:
    """``word``: restart, start, stop, drain, pause or sleep; ``down``: when the server was seen
    away (Unix seconds)."""

    word: str
    since: float
    who: str = ""
    down: float | None = None


@dataclass(slots=True)
class Operations:
    """Operations by service, and when each server was last seen to start or to be ready."""

    current: dict[str, Operation] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)

    def word(self, service: str) -> str:
        """What is under way with a service; empty for nothing."""
        operation = self.current.get(service)
        return operation.word if operation else ""

    def command(self, command: Command, now: float) -> str:
        """Take a person's command into account; return the service it is about."""
        service = str(command.args.get("service") or "")
        if command.verb in VERBS and service:
            self.current[service] = Operation(command.verb, now, command.who or "a person")
        elif command.verb == "resume":
            for name in [service] if service else list(self.current):
                if self.word(name) in ("drain", "pause"):
                    del self.current[name]
        return service

    def event(self, event: Event, now: float) -> None:
        """Take a server's own word into account."""
        service = dict(event.labels).get("service", "")
        if not service:
            return
        phase = str(event.fields.get("phase", "")) if event.kind == "lifecycle" else ""
        operation = self.current.get(service)
        if event.kind == "process_started" or phase == "ready":
            self.started[service] = now
        if event.kind == "process_started" and self.word(service) != "restart":
            self.current[service] = Operation("start", now, "the server", now)
        elif event.kind == "process_exited" and operation is not None:
            operation.down = now
            if operation.word == "start":
                del self.current[service]  # the start failed
        elif phase == "startup" and operation is None:
            self.current[service] = Operation("start", now, "the server", now)
        elif phase == "ready" and operation is not None and operation.word in LIMITS:
            del self.current[service]
        elif phase in ("sleep", "pause") and operation is None:
            self.current[service] = Operation(phase, now, "the server")
        elif phase in ("wake", "resume") and self.word(service) in ("sleep", "pause"):
            del self.current[service]

    def look(self, service: str, *, answers: bool | None, now: float) -> None:
        """Take into account whether the server answers; ends what is over."""
        operation = self.current.get(service)
        if operation is None or operation.word not in LIMITS:
            return
        if answers is False:
            operation.down = now
        age = now - operation.since
        unnoticed = operation.down is None and age >= _UNNOTICED
        back = answers is True and operation.down is not None and now > operation.down
        if back or unnoticed or age >= LIMITS[operation.word]:
            del self.current[service]

    def phases(self) -> Iterator[tuple[str, str]]:
        """Service and phase (as ``service_phase`` names it) of what makes a standstill normal."""
        for service, operation in sorted(self.current.items()):
            yield service, _PHASES[operation.word]

    def dump(self) -> dict[str, Any]:
        """The operations as JSON."""
        return {
            "current": {
                name: [each.word, each.since, each.who, each.down]
                for name, each in self.current.items()
            },
            "started": dict(self.started),
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        """Take up what ``dump`` gave. Raises TypeError, ValueError."""
        self.current = {
            str(name): Operation(str(word), float(since), str(who), down)
            for name, (word, since, who, down) in doc["current"].items()
        }
        self.started = {str(name): float(at) for name, at in doc["started"].items()}
