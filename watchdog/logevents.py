"""Log records as the node's events and counters: bounded, labelled, without what users wrote.

One LogBook a source. It opens nothing; blocks are handed in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import lru_cache

from .errors import SourceError
from .logpatterns import shipped
from .logrecords import LogRecord
from .logs import Classifier
from .logscan import Scanner, scanner
from .model import Event, Sample, labelset

MAX_MESSAGE = 300  # characters
MAX_EVENTS = 500  # events of one run; further records are counted only
MAX_KIND = 50  # events of one kind and run
DETAIL = 32  # lines of one pattern, log and run that are read in full
MAX_STREAMS = 200  # logs read at once
LARGE = 512 * 1024  # bytes of a block that is hardly the last one of a run
FOLDED = frozenset(("request_error_server", "request_error_client"))
FOLD = 30.0  # seconds in which one event tells of all requests that fail alike after the first
FRESH = 86_400.0  # seconds until a classifier learns the date anew

_CONTROL = bytes(set(range(32)) - {9, 10, 13, 27}) + b"\x7f"
_REQUEST = re.compile(rb'POST /v1/[^ "]* HTTP/[\d.]+(?:\x1b\[0m)?" (?:\x1b\[\d+m)?([1-5])\d\d')


@lru_cache(maxsize=4)
def kinds(source: str) -> tuple[str, ...]:
    """The kinds that a source's patterns can tell, and those that rules know beside them."""
    told = {p.kind for p in shipped() if source in p.sources and p.kind}
    if source != "kernel":
        told |= {
            "hccl_link",
            "hccl_timeout",
            "device_lost",
            "device_memory",
            "oom_foreign_process",
        }
    return tuple(sorted(told))


def readable(data: bytes) -> None:
    """Raises SourceError unless the bytes can be a log: text of any encoding, not empty."""
    start = data[:65_536].replace(b"\0", b"")
    if not start.strip():
        raise SourceError("the log is empty")
    if len(start.translate(None, _CONTROL)) < 0.9 * len(start):
        raise SourceError("not a log: binary data")


def message(record: LogRecord) -> str:
    """What an event says of a record: its first line, cut; of an access line the route only."""
    fields = record.fields
    if "path" in fields and "status" in fields:
        return f"{fields.get('method', '')} {fields['path']} {fields['status']}".strip()
    return record.text[:MAX_MESSAGE]


def counted(record: LogRecord) -> list[str]:
    """The kinds under which a record counts; none for what is no new fault."""
    fields = record.fields
    if fields.get("during_shutdown") or fields.get("role") == "secondary":
        return []
    if fields.get("state") == "recover":
        return []
    if record.kind == "oom_device" and fields.get("cause") == "foreign_process":
        return ["oom_device", "oom_foreign_process"]
    if record.kind == "npu_error" and fields.get("class") == "device_memory":
        return ["npu_error", "device_memory"]
    return [record.kind]


@dataclass(slots=True)
class _Fold:
    """Requests that failed as the one of ``record``, which was told at ``since``."""

    record: LogRecord
    since: float
    more: int = 0


@dataclass
class LogBook:
    """Reads the logs of one source (vllm, kernel, ascend).

    ``labels`` go on each event and counter. ``zone`` is the writers' time zone (None: this
    machine's). Counters begin at 0 with each start of the daemon: a counter that is born with an
    old value would look like that many new events.
    """

    source: str
    labels: Mapping[str, str] = field(default_factory=dict)
    zone: tzinfo | None = None
    counts: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    flooded: int = 0

    _readers: dict[str, tuple[Classifier, float]] = field(default_factory=dict)
    _held: dict[str, Classifier] = field(default_factory=dict)
    _scanner: Scanner | None = None
    _left: int = MAX_EVENTS
    _kinds: Counter[str] = field(default_factory=Counter)
    _folds: dict[tuple[str, str], _Fold] = field(default_factory=dict)

    def open(self) -> None:
        """Begin a run: the bounds of a run count anew."""
        self._left, self.flooded = MAX_EVENTS, 0
        self._kinds.clear()
        for reader, _ in self._readers.values():
            reader.renew()

    def take(self, stream: str, data: bytes, wall: float) -> Iterator[tuple[LogRecord, Event]]:
        """Yield the events in a block of whole lines of one log, with the records behind them; of a
        large one, which more follows, without its last lines.

        ``wall`` is now in Unix seconds: the year of lines that name none.
        """
        self.count_requests(data)
        reader = self._reader(stream, wall)
        more = len(data) >= LARGE
        if more:
            self._held[stream] = reader
        else:
            self._held.pop(stream, None)
        yield from self._told(reader, reader.feed(data, more=more), wall)

    def read(
        self, blocks: Iterable[tuple[str, bytes]], wall: float
    ) -> Iterator[tuple[LogRecord, Event]]:
        """Take all blocks (log, whole lines) of a run."""
        for stream, data in blocks:
            yield from self.take(stream, data, wall)
        yield from self._settle(wall)

    def _settle(self, wall: float) -> Iterator[tuple[LogRecord, Event]]:
        """Nothing more comes in this run: yield what was kept back for more to come."""
        held, self._held = self._held, {}
        for reader in held.values():
            yield from self._told(reader, reader.feed(b""), wall)

    def _told(
        self, reader: Classifier, records: Iterable[LogRecord], wall: float
    ) -> Iterator[tuple[LogRecord, Event]]:
        self.counts.update(reader.passed)
        self.flooded += reader.passed.total()
        reader.passed.clear()
        for record in records:
            self.counts.update(counted(record))
            if record.kind in FOLDED and self._fold(record, wall):
                continue
            self._kinds[record.kind] += 1
            if self._left <= 0 or self._kinds[record.kind] > MAX_KIND:
                self.flooded += 1
                continue
            self._left -= 1
            yield record, self.event(record)

    def _fold(self, record: LogRecord, wall: float) -> bool:
        """Whether a failed request is one more of those that one event will tell of."""
        key = (record.kind, record.severity)
        under_way = self._folds.get(key)
        if under_way is None:
            self._folds[key] = _Fold(record, wall)
            return False
        under_way.more += 1
        return True

    def _folded(self, wall: float) -> Iterator[Event]:
        over = [key for key, fold in self._folds.items() if not 0 <= wall - fold.since < FOLD]
        for key in over:
            fold = self._folds.pop(key)
            if fold.more:
                told = self.event(fold.record)
                text = f"{fold.more} more: {told.message}"
                yield replace(told, message=text, fields={"requests": fold.more})

    def count_requests(self, data: bytes) -> None:
        """Count the answers that access lines tell of, by class of status."""
        if self.source == "vllm":
            self.requests.update(f"{digit.decode()}xx" for digit in _REQUEST.findall(data))

    def event(self, record: LogRecord, labels: Mapping[str, str] | None = None) -> Event:
        """The event that tells of a record."""
        return Event(
            record.kind,
            message(record),
            labelset({**self.labels, **(labels or {})}),
            dict(record.fields),
            record.severity,
            urgent=record.severity == "critical" and record.kind != "context",
            time=record.time,
        )

    def close(self, wall: float) -> Iterator[Event | Sample]:
        """End a run at ``wall`` (Unix seconds): what was only counted is told, and all counters are
        given."""
        yield from self._folded(wall)
        if self.flooded:
            text = f"{self.flooded} further log records were counted only"
            yield Event(
                "log_flood", text, labelset(self.labels), {"records": self.flooded}, "warning"
            )
        for kind in sorted({*kinds(self.source), *self.counts}):
            labels = labelset({**self.labels, "kind": kind})
            yield Sample("log_events_total", float(self.counts[kind]), labels)
        yield from self.request_counts()
        if self._scanner is None:  # made now, so that the first line need not wait for it
            Classifier(self.source, scan=self._scan)

    def request_counts(self) -> Iterator[Sample]:
        """``log_requests_total{status}`` (2xx, 4xx, 5xx) of the answers counted so far."""
        for status, count in sorted(self.requests.items()):
            labels = labelset({**self.labels, "status": status})
            yield Sample("log_requests_total", float(count), labels)

    def _reader(self, stream: str, wall: float) -> Classifier:
        known = self._readers.get(stream)
        if known is not None and 0 <= wall - known[1] < FRESH:
            return known[0]
        if known is None and len(self._readers) >= MAX_STREAMS:
            self._readers.clear()
        zone = self.zone or datetime.fromtimestamp(wall).astimezone().tzinfo
        assert zone is not None
        reader = Classifier(self.source, zone, wall, DETAIL, self._scan)
        self._readers[stream] = (reader, wall)
        return reader

    def _scan(self, literals: tuple[str, ...]) -> Scanner:
        """All logs of a book share one scanner: they are read one after the other."""
        if self._scanner is None:
            self._scanner = scanner(literals)
        return self._scanner
