"""Acts in the journal: what was meant before it was begun, each step before and after, the end.

Written before the world is touched, read after a crash. What a step does is for the remediations,
what follows from an end is for the engine.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .acting import ActCase
from .config import Service
from .documents import json_of
from .journal import Beside, Journal
from .model import Json, Outcome, OutcomeStatus, labelset
from .roles import mode_doc, mode_of
from .wire import request_of, request_state

KEPT_FOR = 90 * 86_400.0  # seconds for which an act that is over can be looked up
_END = "UPDATE acts SET ended = ?, status = ?, detail = ?, duration = ? WHERE id = ?"
STATUSES = ("done", "declined", "failed", "timed_out", "cancelled", "unknown")


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step as journaled. ``state``: started, done, failed, undone; ``sets`` as the step says,
    ``moved``: users no longer reach the sick instance since ``at`` (Unix seconds)."""

    name: str
    state: str
    at: float
    sets: Json
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Intent:
    """An act as journaled. ``outcome`` None: it is open."""

    case: ActCase
    steps: tuple[StepRow, ...] = ()
    outcome: Outcome | None = None


class Intents:
    """The acts of one journal. Any thread may use it; methods raise JournalError."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def beside(
        self, cases: Sequence[ActCase], heard: Iterable[str], ends: Iterable[Outcome] = (),
        at: float = 0.0,
    ) -> Beside:  # fmt: skip
        """What a tick writes: new intents, and which ends the engine has taken in (by id).

        ``ends`` that could not be noted when they came are noted now, as of ``at``.
        """
        rows = [(c.request.id, c.began, json.dumps(case_doc(c))) for c in cases]
        ids = [(name,) for name in heard]
        late = [(*_columns(end, at), "") for end in ends]
        now = max((c.began for c in cases), default=0.0)

        def write(connection: sqlite3.Connection) -> None:
            sql = "INSERT OR REPLACE INTO acts (id, began, doc) VALUES (?, ?, ?)"
            connection.executemany(sql, rows)
            connection.executemany(f"{_END} AND status = ?", late)
            connection.executemany("UPDATE acts SET heard = 1 WHERE id = ?", ids)
            if rows:
                connection.execute(
                    "DELETE FROM acts WHERE heard = 1 AND began < ?", (now - KEPT_FOR,)
                )
                connection.execute("DELETE FROM steps WHERE act NOT IN (SELECT id FROM acts)")

        return write

    def step(self, act: str, row: StepRow) -> None:
        """Note how a step stands; on the disk when this returns."""
        values = (act, row.name, row.state, row.at, json.dumps(dict(row.sets)), int(row.moved))
        sql = "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?)"
        self._journal.write(lambda connection: connection.execute(sql, values))

    def end(self, outcome: Outcome, at: float) -> None:
        """Note how an act ended, at a Unix time; on the disk when this returns."""
        self._journal.write(lambda connection: connection.execute(_END, _columns(outcome, at)))

    def unheard(self) -> tuple[list[Intent], list[str]]:
        """All acts whose end the engine has not taken in, oldest first; and the names of those that
        cannot be read."""
        sql = "SELECT id, doc, status, detail, duration FROM acts WHERE heard = 0 ORDER BY began"
        found: list[Intent] = []
        unreadable: list[str] = []
        for name, doc, status, detail, duration in self._journal.rows(sql):
            try:
                case, steps = case_of(json_of(doc)), tuple(self.steps(name))
            except (ValueError, KeyError, TypeError, AttributeError):
                unreadable.append(name)
                continue
            found.append(Intent(case, steps, _outcome(case, status, detail, duration)))
        return found, unreadable

    def steps(self, act: str) -> list[StepRow]:
        """The steps of an act in the order in which they were last touched. Raises ValueError for
        one that cannot be read."""
        sql = "SELECT name, state, at, sets, moved FROM steps WHERE act = ? ORDER BY at, rowid"
        return [
            StepRow(name, state, at, json_of(sets), bool(moved))
            for name, state, at, sets, moved in self._journal.rows(sql, (act,))
        ]


def _columns(outcome: Outcome, at: float) -> tuple[float, str, str, float, str]:
    return at, outcome.status, outcome.detail, outcome.duration, outcome.request.id


def _outcome(case: ActCase, status: str, detail: str, duration: float) -> Outcome | None:
    if not status:
        return None
    known: OutcomeStatus = status if status in STATUSES else "unknown"  # type: ignore[assignment]
    return Outcome(case.request, known, detail, duration)


def case_doc(case: ActCase) -> dict[str, Any]:
    """A case as JSON. It names files with secrets, and holds none."""
    settings = case.settings
    return {
        "request": request_state(case.request),
        "name": case.name,
        "settings": None if settings is None else settings.model_dump(mode="json"),
        "mode": mode_doc(case.mode),
        "cards": list(case.cards),
        "sick": list(case.sick),
        "spares": list(case.spares),
        "began": case.began,
        "state": str(case.state),
        "vendors": dict(case.vendors),
        "policy": dict(case.policy),
    }


def case_of(doc: Mapping[str, Any]) -> ActCase:
    """The case of a JSON object. Raises KeyError, TypeError, ValueError."""
    settings = doc["settings"]
    return ActCase(
        request_of(doc["request"]),
        str(doc["name"]),
        None if settings is None else Service.model_validate(settings),
        mode_of(doc["mode"]),
        tuple(map(str, doc["cards"])),
        tuple(map(str, doc["sick"])),
        tuple(map(str, doc["spares"])),
        float(doc["began"]),
        Path(doc["state"]),
        dict(labelset(doc["vendors"])),
        dict(doc["policy"]),
    )
