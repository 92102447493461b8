"""What acts are given to work with: the node, the journal, ways to tell. Values and calls only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..acting import ActCase
from ..intents import Intents, StepRow
from ..journal import JournalError
from ..model import Batch, Command, Event, Json, Outcome, labelset
from ..scheduler import Inbox
from ..system import System

COLLECTOR = "workers"
HOLD_FILE = "hold"


@dataclass(slots=True)
class Tools:
    """``now`` is the run's steady Unix time, ``leaving`` is set when the daemon ends; ``state`` is
    the state folder, None where there is none."""

    system: System
    inbox: Inbox
    now: Callable[[], float]
    intents: Intents | None = None
    state: Path | None = None
    leaving: threading.Event = field(default_factory=threading.Event)

    @property
    def held(self) -> bool:
        """Whether a person's hold file is there, looked at just now."""
        return self.state is not None and self.system.files.exists(self.state / HOLD_FILE)

    def note(self, case: ActCase, row: StepRow) -> None:
        """Journal a step. An act that was begun is finished though the disk be full by now: a
        service left half-way is worse than a step without a record."""
        if self.intents is None:
            return
        try:
            self.intents.step(case.request.id, row)
        except JournalError as error:
            self.tell(case, "remediation_unrecorded", f"step {row.name}: {error}", {})

    def end(self, outcome: Outcome) -> None:
        """Journal how an act ended, and report it."""
        if self.intents is not None:
            try:
                self.intents.end(outcome, self.system.clock.wall())
            except JournalError as error:
                text = f"the end of {outcome.request.id}: {error}"
                self._put(Event("remediation_unrecorded", text, severity="warning"))
        self.inbox.outcome(outcome)

    def stands(self, case: ActCase, sets: Json, *, moved: bool = False, step: str = "") -> None:
        """Tell the engine how a service stands now, and that users left the sick instance."""
        if not case.name or not (sets or moved):
            return
        args = {
            "service": case.name,
            "sets": {k: list(v) if isinstance(v, tuple) else v for k, v in sets.items()},
            "step": step,
            **({"moved": round(self.now(), 3)} if moved else {}),
        }
        self.inbox.command(Command("mode", args, case.request.id))

    def turned(self, case: ActCase, how: str, step: str) -> None:
        """Tell the engine that the act ends the server now, or starts it."""
        word = "stopping" if how == "off" else "starting"
        args = {"service": case.name, "sets": {}, "step": step, word: round(self.now(), 3)}
        if case.name:
            self.inbox.command(Command("mode", args, case.request.id))

    def tell(self, case: ActCase, kind: str, message: str, fields: Json) -> None:
        """An event about an act, by the way that collectors' events take."""
        request = case.request
        labels = labelset({"service": case.name, "alertname": request.alert.name})
        common = {"remediation": request.remediation, "request": request.id}
        severity = "warning" if kind == "remediation_unrecorded" else "info"
        self._put(
            Event(
                kind,
                f"{request.remediation} for {case.name or 'the node'}: {message}"[:1000],
                labels,
                {**common, **fields},
                severity,
                time=round(self.now(), 3),
            )
        )

    def _put(self, event: Event) -> None:
        self.inbox.put(Batch(COLLECTOR, events=(event,)))
