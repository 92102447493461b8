"""Where a report comes from: a daemon's journal and window, a state folder, or a recording.

Everything is only read: a journal without a daemon is opened read-only, by its file.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from .. import promql
from ..documents import json_of
from ..errors import ConfigError, Place, Problem
from ..journal import Journal
from ..model import Json, StoredEvent, Tick
from ..promql import PromqlError
from ..recording import Recording
from ..records import YEAR_9999, condition, stored
from ..window import LOOKBACK, RETENTION, Window
from ..wire import event_of
from .finding import CASE_KINDS, incidents
from .model import Incident, Points

MOST_CASES = 5000  # events about cases that are looked through
MOST_EVENTS = 5000  # events of one incident
RUN_UP = 300.0  # seconds of inputs before the begin that rates and lookback need

Curves = Sequence[tuple[Mapping[str, str], Points]]
Values = Callable[[str, float, float, float], Curves]
"""Expression, begin, end, step (seconds) to the lines of a figure; none where nothing is held."""


_GARBLED = (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)
"""What reading raises that somebody else has written, or that a disk has damaged."""


class Source(Protocol):
    """What can be reported on. ``label`` says what it is, ``node`` whose it is."""

    label: str
    node: str

    def now(self) -> float:
        """The moment up to which the source tells, in Unix seconds."""
        ...

    def incidents(self) -> list[Incident]:
        """All that it tells of, newest first."""
        ...

    def events(self, begin: float, end: float) -> list[StoredEvent]:
        """The events between two moments, in order; the newest MOST_EVENTS of them."""
        ...

    def values(self, begin: float, end: float) -> Values:
        """What was measured between two moments."""
        ...


class JournalSource:
    """A running daemon: its journal, and its window by ``ask`` (a range query in milliseconds)."""

    def __init__(
        self,
        journal: Journal | None,
        ask: Callable[[str, int, int, int], Json],
        node: str,
        now: Callable[[], float],
    ) -> None:
        self.label, self.node, self.now = "journal and window of the daemon", node, now
        self._journal, self._ask = journal, ask

    def incidents(self) -> list[Incident]:
        """See Source."""
        if self._journal is None:
            return []
        return incidents(self._journal.history(kinds=CASE_KINDS, limit=MOST_CASES))

    def events(self, begin: float, end: float) -> list[StoredEvent]:
        """See Source."""
        if self._journal is None:
            return []
        return self._journal.history(since=begin, until=end, limit=MOST_EVENTS)

    def values(self, begin: float, end: float) -> Values:  # noqa: ARG002 (the window is asked)
        """See Source."""

        def curves(text: str, start: float, stop: float, step: float) -> Curves:
            try:
                found = self._ask(text, round(start * 1000), round(stop * 1000), round(step * 1000))
            except Exception as error:  # what the daemon refuses to say is left out
                if isinstance(error, ConfigError | PromqlError):
                    return ()
                raise
            return [
                (each["metric"], tuple((at, float(value)) for at, value in each["values"]))
                for each in found["result"]
            ]

        return curves


class StateSource:
    """The state folder of a daemon that does not run. Raises ConfigError where it holds none."""

    def __init__(self, folder: Path, node: str) -> None:
        self.label, self.node = f"journal in {folder}", node
        self._path = folder / "journal.db"
        self._engine = folder / "engine.json"
        if not self._path.is_file():
            hint = (
                "name the state folder with --state, a recording with --from, or a daemon by --url"
            )
            raise ConfigError(Problem(Place(str(folder)), "holds no journal (journal.db)", hint))

    def now(self) -> float:
        """When the newest event was written."""
        rows = self._rows("SELECT MAX(recorded) FROM events", [])
        return float(rows[0][0] or 0.0)

    def incidents(self) -> list[Incident]:
        """See Source."""
        return incidents(self._events(MOST_CASES, CASE_KINDS))

    def events(self, begin: float, end: float) -> list[StoredEvent]:
        """See Source."""
        return self._events(MOST_EVENTS, (), begin, end)

    def values(self, begin: float, end: float) -> Values:  # noqa: ARG002 (there is one window)
        """The window as it was saved last."""
        window = Window()
        with contextlib.suppress(OSError, *_GARBLED):
            doc = json_of(self._engine.read_bytes())["window"]
            window.restore(doc, int(doc["saved_ms"]))
        return curves_of(window)

    def _events(
        self,
        limit: int,
        kinds: Sequence[str],
        since: float | None = None,
        until: float | None = None,
    ) -> list[StoredEvent]:
        where, values = condition(0, kinds, (), {}, since, until, "")
        sql = f"SELECT * FROM events WHERE {where} ORDER BY seq DESC LIMIT ?"  # noqa: S608 (our words)
        try:
            rows = reversed(self._rows(sql, [*values, limit]))
            return [_readable(StoredEvent(*row)) for row in rows]
        except _GARBLED as error:
            shown = str(error).partition("\n")[0][:100]
            problem = Problem(Place(str(self._path)), f"holds an event that is none ({shown})")
            raise ConfigError(problem) from error

    def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        try:
            with contextlib.closing(self._open()) as connection:
                return connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise ConfigError(
                Problem(Place(str(self._path)), f"cannot be read: {error}")
            ) from error

    def _open(self) -> sqlite3.Connection:
        """The journal, read-only; in a folder where nothing may be written, as it lies there."""
        uri = self._path.absolute().as_uri()
        connection = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=5.0)
        try:
            connection.execute("SELECT 1 FROM events LIMIT 1").fetchall()
        except sqlite3.OperationalError:
            connection.close()
            connection = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True)
        except BaseException:
            connection.close()
            raise
        return connection


def _readable(event: StoredEvent) -> StoredEvent:
    """The event. Raises ValueError or TypeError where a journal's row holds none."""
    if not isinstance(event.fields, dict) or not 0 <= event.time < YEAR_9999:
        raise ValueError(f"event {str(event.seq)[:20]}")
    dict(event.labels)
    for text in (event.kind, event.severity, event.message):
        text.encode()
    return event


class RecordingSource:
    """A folder that `record` or `run --record` wrote. Raises ConfigError for what is none."""

    def __init__(self, folder: Path) -> None:
        self._recording = Recording(folder)
        if self._recording.manifest.started < 0:
            place = Place(str(folder / "manifest.json"))
            raise ConfigError(Problem(place, "began at no moment that a calendar holds"))
        self.label = f"recording {folder}"
        self.node = str(self._recording.manifest.labels.get("instance") or "")
        self._all = list(self._read())

    @property
    def started(self) -> float:
        """When the recording began."""
        return self._recording.manifest.started

    def now(self) -> float:
        """The last tick that was decided."""
        return self._last

    def incidents(self) -> list[Incident]:
        """See Source."""
        return incidents(self._all)

    def events(self, begin: float, end: float) -> list[StoredEvent]:
        """See Source."""
        return [event for event in self._all if begin <= event.time < end][-MOST_EVENTS:]

    def values(self, begin: float, end: float) -> Values:
        """The inputs of that time, read again."""
        retention = max(RETENTION, round((end - begin + 2 * RUN_UP) * 1000))
        window = Window(retention)
        for tick, inputs, _ in self._recording.inputs():
            if tick.wall > end:
                break
            if tick.wall < begin - RUN_UP:
                continue
            for batch in inputs.batches:
                if batch.error is None:
                    window.append(batch, tick.ms)
                else:
                    window.mark_stale(batch.collector, tick.ms)
        return curves_of(window)

    def _read(self) -> Iterator[StoredEvent]:
        self._last = self._recording.manifest.started
        for line, text in enumerate(self._recording.decisions(), 1):
            place = Place(str(self._recording.folder / "decisions.jsonl"), line)
            try:
                doc = json.loads(text)
                self._last = max(self._last, _seconds(doc["time"]))
                for number, each in enumerate(doc["events"]):
                    yield _stored(each, doc, line, number)
            except _GARBLED as error:
                shown = str(error).partition("\n")[0][:100]
                problem = Problem(place, f"is no line of a recording ({shown})")
                raise ConfigError(problem) from error


def _stored(each: Mapping[str, Any], doc: Mapping[str, Any], line: int, number: int) -> StoredEvent:
    """An event of decisions.jsonl as a journal would keep it."""
    wall = _seconds(doc["time"])
    given = each.get("time")
    event = event_of({**each, "time": given if isinstance(given, int | float) else None})
    return stored(
        event, line * 10_000 + number, f"{line}-{number}", Tick(int(doc["tick"]), 0, wall)
    )


def _seconds(text: str) -> float:
    """Unix seconds of a tick's time. Raises ValueError for one that the journal would not keep."""
    seconds = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    if not 0 <= seconds < YEAR_9999:
        raise ValueError(f"no moment of a tick: {text}")
    return seconds


def curves_of(window: Window) -> Values:
    """What a window holds, as the lines of figures."""

    def curves(text: str, begin: float, end: float, step: float) -> Curves:
        try:
            found = promql.query_range(
                promql.load(text), window, round(begin * 1000), round(end * 1000),
                round(step * 1000), lookback_ms=min(LOOKBACK, 60_000),
            )  # fmt: skip
        except PromqlError:
            return ()
        return [
            (dict(labels), tuple((ms / 1000, value) for ms, value in points))
            for labels, points in found.series
        ]

    return curves
