"""When an act of ours had a server down: what it says and shows of that is no fault of its own.

Windows of time by service, told by the acts themselves. An event or a diagnosis is looked at
against them; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..model import Command, Diagnosis, Event

EARLY = 1.0  # seconds: lines of a log are stamped with whole ones
LATE = 15.0  # seconds from a line to the alert that it raises
ECHO = 90.0  # seconds for which lines of a minute keep an alert firing after the act
_OF_A_START = "engine_start_failed"


@dataclass(slots=True)
class Window:
    """From the begin of a stop to that of the start, and the end of the act (Unix seconds; 0: not
    yet). ``who``: the request."""

    who: str
    since: float
    until: float = 0.0
    over: float = 0.0

    def holds(self, at: float, late: float = 0.0) -> bool:
        """Whether a moment lies in it."""
        return self.since - EARLY <= at and (not self.until or at <= self.until + late)


@dataclass(slots=True)
class OwnStops:
    """The last window of each service."""

    windows: dict[str, Window] = field(default_factory=dict)

    def take(self, command: Command) -> None:
        """A step of an act began to stop the server, or to start it."""
        service = str(command.args.get("service") or "")
        stopping, starting = command.args.get("stopping"), command.args.get("starting")
        window = self.windows.get(service)
        own = window is not None and window.who == command.who
        if isinstance(stopping, float | int) and not own:
            self.windows[service] = Window(command.who, float(stopping))
        if isinstance(starting, float | int) and window is not None and own and not window.until:
            window.until = float(starting)

    def ended(self, service: str, who: str, now: float, *, done: bool) -> None:
        """The act is over; where it did not help, what shows is a fault again."""
        window = self.windows.get(service)
        if window is None or window.who != who:
            return
        if done:
            window.over = now
            window.until = window.until or now
        else:
            del self.windows[service]

    def caused(self, event: Event, now: float) -> bool:
        """Whether an event of a server is of our own stop."""
        window = self.windows.get(dict(event.labels).get("service", ""))
        if window is None:
            return False
        return window.holds(now if event.time is None else event.time)

    def echo(self, diagnosis: Diagnosis, now: float) -> bool:
        """Whether a service's cause rests on its own word from the time when we had it down."""
        window = self.windows.get(diagnosis.service)
        told = dict(diagnosis.alert.labels).get("service", "")
        if window is None or told != diagnosis.service or diagnosis.cause == _OF_A_START:
            return False
        fresh = not window.over or now - window.over <= ECHO
        return fresh and window.holds(diagnosis.alert.active_at, LATE)

    def dump(self) -> dict[str, Any]:
        """The windows as JSON."""
        return {service: asdict(window) for service, window in self.windows.items()}

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> OwnStops:
        """The windows of a JSON object. Raises TypeError, ValueError, AttributeError."""
        return cls(
            {
                str(service): Window(
                    str(kept["who"]),
                    float(kept["since"]),
                    float(kept["until"]),
                    float(kept["over"]),
                )
                for service, kept in doc.items()
            }
        )
