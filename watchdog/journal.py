"""The journal: every event once, in order, with the daemon's state beside it, in one SQLite file.

It comes first, always: events and the log positions they came from are one transaction. It judges
nothing and sends nothing; an outlet is a cursor over it.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .database import Database, StorageAway, StorageBroken, StorageError, StorageFull
from .documents import json_of
from .model import Event, Json, StoredEvent, Tick
from .records import condition, row, stored
from .system import Clock

JournalError = StorageError
JournalFull = StorageFull
JournalBroken = StorageBroken

CHUNK = 5000  # rows deleted in one transaction, so that no append waits long
REASON = 1000  # characters kept of why an event was refused
REFUSED = 1000  # events kept that an outlet's other side refused

SCHEMA = (
    """
    CREATE TABLE runs (id TEXT PRIMARY KEY, started REAL NOT NULL);
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, time REAL NOT NULL,
        recorded REAL NOT NULL, kind TEXT NOT NULL, severity TEXT NOT NULL, message TEXT NOT NULL,
        labels TEXT NOT NULL, fields TEXT NOT NULL);
    CREATE TABLE checkpoints (name TEXT PRIMARY KEY, doc TEXT NOT NULL);
    CREATE TABLE state (name TEXT PRIMARY KEY, doc TEXT NOT NULL, saved REAL NOT NULL);
    CREATE TABLE cursors (
        outlet TEXT PRIMARY KEY, seq INTEGER NOT NULL, lost INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE refused (
        number INTEGER PRIMARY KEY AUTOINCREMENT, outlet TEXT NOT NULL, id TEXT NOT NULL,
        reason TEXT NOT NULL)
    """,
    """
    CREATE TABLE acts (
        id TEXT PRIMARY KEY, began REAL NOT NULL, doc TEXT NOT NULL, ended REAL,
        status TEXT NOT NULL DEFAULT '', detail TEXT NOT NULL DEFAULT '',
        duration REAL NOT NULL DEFAULT 0, heard INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE steps (
        act TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, at REAL NOT NULL,
        sets TEXT NOT NULL DEFAULT '{}', moved INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (act, name))
    """,
)

Beside = Callable[[sqlite3.Connection], object]
"""Further writing of a transaction: it is on the disk together with the rest, or not at all."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What retention took: events deleted, and of those, per outlet, the ones it had not sent."""

    deleted: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where an outlet stands: everything up to ``seq`` is done; ``lost`` events were pruned."""

    seq: int
    lost: int = 0


class Journal:
    """One journal file; ``run`` is this start's own id. Any thread may use it.

    ``notes`` holds what befell the file (set aside, removed), to be told and cleared by the owner;
    ``written`` counts the events of this run; ``unread`` says why what an earlier run wrote could
    not be read at the start.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self.run = f"{int(clock.wall()):010x}{secrets.token_hex(4)}"
        self.written = 0
        self.unread = ""
        self._tick, self._in_tick = -1, 0

    @classmethod
    def open(cls, path: Path, clock: Clock, *, known: bool = False) -> Journal:
        """Open the journal at ``path`` (made where absent, set aside and made anew where broken).

        ``known``: an earlier run had one. A full disk is no obstacle, nor another process that has
        the file: the journal then reads as empty, and each append tries again. Raises ConfigError
        where the folder cannot be used.
        """
        database = Database(path, SCHEMA, clock, known=known)
        journal = cls(database, clock)
        try:
            database.open()
        except (StorageFull, StorageAway) as error:
            database.notes.append(f"{error}; nothing is recorded until that is over")
            journal.unread = str(error) if known or path.exists() else ""
        return journal

    @property
    def notes(self) -> list[str]:
        """What befell the file, one sentence each; the reader clears it."""
        return self._database.notes

    def patient(self, seconds: float) -> AbstractContextManager[None]:
        """What this thread does meanwhile waits no longer than this for whoever has the file."""
        return self._database.patient(seconds)

    @property
    def begun_anew(self) -> int:
        """How often the file was damaged or gone and a new one was begun: what it held is lost."""
        return self._database.begun_anew

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def append(
        self,
        tick: Tick,
        events: Sequence[Event],
        checkpoints: Mapping[str, Json] | None = None,
        *,
        durable: bool = False,
        beside: Beside | None = None,
    ) -> list[StoredEvent]:
        """Write a tick's events and its collectors' checkpoints, and what stands ``beside`` them,
        all or nothing, and return the events.

        ``durable``: they are on the disk when this returns. Raises JournalFull or another
        JournalError; then nothing of it was written, and the caller may bring it again.
        """
        if not events and not checkpoints and beside is None:
            return []
        first = self._in_tick if tick.number == self._tick else 0
        docs = [(name, json.dumps(doc, default=str)) for name, doc in (checkpoints or {}).items()]
        with self._database.write(durable=durable) as connection:
            connection.execute("INSERT OR IGNORE INTO runs VALUES (?, ?)", (self.run, tick.wall))
            sql = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
            newest = connection.execute(sql).fetchone()
            start = newest[0] + 1 if newest else 1
            kept = [
                stored(event, start + n, f"{self.run}-{tick.number:08d}-{first + n:04d}", tick)
                for n, event in enumerate(events)
            ]
            connection.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [row(event) for event in kept],
            )
            connection.executemany("INSERT OR REPLACE INTO checkpoints VALUES (?, ?)", docs)
            if beside is not None:
                beside(connection)
        self._tick, self._in_tick = tick.number, first + len(kept)
        self.written += len(kept)
        return kept

    def read(self, after: int, limit: int, max_bytes: int | None = None) -> list[StoredEvent]:
        """Up to ``limit`` events behind ``after`` in order; stops past ``max_bytes`` of text."""
        found: list[StoredEvent] = []
        size = 0
        with self._database.read() as connection:
            sql = "SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
            for row in connection.execute(sql, (after, limit)):
                found.append(StoredEvent(*row))
                size += len(row[6]) + len(row[7]) + len(row[8]) + 100
                if max_bytes is not None and size >= max_bytes:
                    break
        return found

    def history(
        self,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Iterable[str] = (),
        severities: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        since: float | None = None,
        until: float | None = None,
        text: str = "",
    ) -> list[StoredEvent]:
        """The newest ``limit`` events that pass all filters, oldest first.

        ``since`` and ``until`` are Unix seconds of the event (until excluded); ``text`` is looked
        for in the message.
        """
        where, values = condition(after, kinds, severities, labels or {}, since, until, text)
        sql = f"SELECT * FROM events WHERE {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608 (our words)
        return [StoredEvent(*row) for row in reversed(self._rows(sql, [*values, limit]))]

    def last(self) -> int:
        """The newest event's seq, 0 without one."""
        rows = self._rows("SELECT MAX(seq) FROM events", [])
        return int(rows[0][0] or 0) if rows else 0

    def size(self) -> int:
        """Bytes in use; 0 where the journal cannot be read now."""
        try:
            return self._database.used()
        except StorageError:
            return 0

    def cursor(self, outlet: str) -> Cursor:
        """Where an outlet stands; one that is new begins at the start. Raises JournalError."""
        sql = "SELECT seq, lost FROM cursors WHERE outlet = ?"
        with self._database.read() as connection:
            row = connection.execute(sql, (outlet,)).fetchone()
        if row is None:
            self.advance(outlet, 0)
            return Cursor(0)
        return Cursor(*row)

    def advance(
        self, outlet: str, seq: int, refused: Iterable[tuple[StoredEvent, str]] = ()
    ) -> None:
        """Note that an outlet is done up to ``seq``, and which events its other side refused and
        why. Raises JournalError.
        """
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO cursors (outlet, seq) VALUES (?, ?)"
                " ON CONFLICT (outlet) DO UPDATE SET seq = MAX(seq, excluded.seq)",
                (outlet, seq),
            )
            rows = [(outlet, event.id, reason[:REASON]) for event, reason in refused]
            if rows:
                connection.executemany(
                    "INSERT INTO refused (outlet, id, reason) VALUES (?, ?, ?)", rows
                )
                connection.execute(
                    "DELETE FROM refused WHERE number <= (SELECT MAX(number) FROM refused) - ?",
                    (REFUSED,),
                )

    def refused(self, outlet: str) -> list[tuple[str, str]]:
        """The events (id, reason) that an outlet's other side refused, oldest first."""
        sql = "SELECT id, reason FROM refused WHERE outlet = ? ORDER BY number"
        return [(row[0], row[1]) for row in self._rows(sql, [outlet])]

    def prune(self, max_bytes: int, max_age: float) -> Pruned:
        """Delete the oldest events past ``max_age`` seconds or ``max_bytes`` in all.

        What an outlet had not sent is counted as its loss, and its cursor moves on. Raises
        JournalError.
        """
        lost: Counter[str] = Counter()
        sql = "SELECT seq FROM events WHERE recorded >= ? ORDER BY seq LIMIT 1"
        young = self._rows(sql, [self._clock.wall() - max_age])
        deleted = self._delete(young[0][0] if young else self.last() + 1, lost)
        while (used := self._database.used()) > max_bytes:
            count, first = self._rows("SELECT COUNT(*), MIN(seq) FROM events", [])[0]
            if not count:
                break
            deleted += self._delete(first + math.ceil(count * (1 - max_bytes / used)), lost)
        if deleted:
            self._database.shrink()
        return Pruned(deleted, dict(lost))

    def _delete(self, before: int, lost: Counter[str]) -> int:
        """Delete the events below ``before`` in chunks; adds to ``lost``, returns how many."""
        deleted = 0
        while True:
            with self._database.write() as connection:
                sql = "SELECT seq FROM events WHERE seq < ? ORDER BY seq LIMIT 1 OFFSET ?"
                row = connection.execute(sql, (before, CHUNK)).fetchone()
                end = row[0] if row else before
                lost.update(_move_cursors(connection, end))
                deleted += connection.execute("DELETE FROM events WHERE seq < ?", (end,)).rowcount
            if end == before:
                return deleted

    def checkpoints(self) -> dict[str, Json]:
        """Where each collector stood in its source, by collector; without what cannot be read."""
        rows = self._rows("SELECT * FROM checkpoints", [])
        read = {name: _document(doc) for name, doc in rows}
        return {name: doc for name, doc in read.items() if doc is not None}

    def save_state(self, name: str, doc: Json) -> None:
        """Keep a document of the daemon under a name, replacing the last. Raises JournalError."""
        with self._database.write() as connection:
            self.state_beside(name, doc)(connection)

    def state_beside(self, name: str, doc: Json) -> Beside:
        """The same, to be written beside other things."""
        values = (name, json.dumps(doc), self._clock.wall())
        sql = "INSERT OR REPLACE INTO state VALUES (?, ?, ?)"
        return lambda connection: connection.execute(sql, values)

    def write(self, beside: Beside) -> None:
        """A durable transaction of its own. Raises JournalError."""
        with self._database.write(durable=True) as connection:
            beside(connection)

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a question; none while a full disk keeps the file from being made. Raises
        JournalError."""
        return self._rows(sql, values)

    def load_state(self, name: str) -> Json | None:
        """The document kept under a name, or None. Raises JournalError, also for one that cannot
        be read."""
        rows = self._rows("SELECT doc FROM state WHERE name = ?", [name])
        found = _document(rows[0][0]) if rows else None
        if rows and found is None:
            raise JournalError(f"{self._database.path}: what it holds of {name} is no document")
        return found

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """All rows of a question; none while a full disk keeps the file from being made."""
        try:
            with self._database.read() as connection:
                return connection.execute(sql, values).fetchall()
        except StorageFull:
            return []


def _document(text: str) -> Json | None:
    """The JSON object of a text, or None for anything else."""
    try:
        found = json_of(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _move_cursors(connection: sqlite3.Connection, end: int) -> dict[str, int]:
    """Move the cursors that stand below what is about to go; how many unsent events each loses."""
    lost: dict[str, int] = {}
    cursors = connection.execute("SELECT outlet, seq FROM cursors").fetchall()
    for outlet, seq in cursors:
        sql = "SELECT COUNT(*) FROM events WHERE seq > ? AND seq < ?"
        count = connection.execute(sql, (seq, end)).fetchone()[0]
        if count:
            lost[outlet] = count
            sql = "UPDATE cursors SET seq = ?, lost = lost + ? WHERE outlet = ?"
            connection.execute(sql, (end - 1, count, outlet))
    return lost
