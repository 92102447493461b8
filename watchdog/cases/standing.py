"""How things stand apart from any case: what acts changed of each service, and why nothing may be
done though the configuration allows it. Takes what is told and keeps it; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Command, Event, ServiceMode, labelset
from ..roles import changed, mode_doc, mode_of

DAY = 86_400.0  # seconds between two reminders that nothing is healed


@dataclass(slots=True)
class Standing:
    """``modes`` of services that an act changed; ``forced``: why the node only observes until a
    person resumes it; ``reminded``: when it was last told that healing is held up, by scope."""

    modes: dict[str, ServiceMode] = field(default_factory=dict)
    forced: str = ""
    reminded: dict[str, float] = field(default_factory=dict)

    def mode(self, service: str) -> ServiceMode:
        """How a service stands."""
        return self.modes.get(service, ServiceMode())

    def take(self, command: Command, now: float) -> list[Event]:
        """Take a command into account; return what is told of it. Other verbs are not ours."""
        if command.verb == "mode":
            return list(self._mode(command, now))
        if command.verb == "observe":
            self.forced = str(command.args.get("reason") or "asked for")
            text = f"nothing is done until a person resumes healing: {self.forced}"
            return [Event("observing_only", text, severity="critical")]
        if command.verb == "resume" and not command.args.get("service"):
            self.forced = ""
        return []

    def _mode(self, command: Command, now: float) -> Iterable[Event]:
        """A step changed how a service stands; what is no such change is told and left out."""
        service, sets = str(command.args.get("service") or ""), command.args.get("sets") or {}
        labels = labelset({"service": service})
        before = self.mode(service)
        try:
            after = changed(before, sets, now, command.who)
        except (ValueError, AttributeError) as error:
            yield Event("service_mode_refused", str(error)[:300], labels, severity="warning")
            return
        self.modes[service] = after
        shown = ", ".join(f"{name} {_shown(value)}" for name, value in sorted(sets.items()))
        if sets and (before.since, before.by) != (after.since, after.by):
            yield Event("service_mode_changed", f"{service}: {shown}", labels, dict(sets))

    def remind(self, held: Mapping[str, str], now: float) -> list[Event]:
        """Once a day, what holds healing up: ``held`` gives the reason by scope."""
        self.reminded = {scope: at for scope, at in self.reminded.items() if scope in held}
        found = []
        for scope, why in sorted(held.items()):
            if now - self.reminded.setdefault(scope, now) >= DAY:
                self.reminded[scope] = now
                found.append(
                    Event("healing_held", f"{why}: nothing is healed", labelset({"service": scope}),
                          severity="warning")
                )  # fmt: skip
        return found

    def dump(self) -> dict[str, Any]:
        """All that must outlive a restart, as JSON."""
        return {
            "modes": {name: mode_doc(mode) for name, mode in self.modes.items()},
            "forced": self.forced,
            "reminded": dict(self.reminded),
        }

    @classmethod
    def of(cls, doc: Mapping[str, Any]) -> Standing:
        """The state of a JSON object. Raises KeyError, TypeError, ValueError."""
        return cls(
            {str(name): mode_of(mode) for name, mode in doc["modes"].items()},
            str(doc["forced"]),
            {str(scope): float(at) for scope, at in doc["reminded"].items()},
        )


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) or "as configured" if isinstance(value, list) else str(value)
