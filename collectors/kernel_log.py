"""The kernel's log: what drivers say of cards and links, and whom the host's memory killed.

Read from /dev/kmsg, else from the journal, else from the files of a syslog daemon. It follows and
sorts; it never asks a device.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, ClassVar

from ..watchdog.cardfaults import HOLD, CardFaults
from ..watchdog.contracts import Yield
from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.logevents import LogBook, readable
from ..watchdog.logs import classify
from ..watchdog.logtail import LogTail
from ..watchdog.model import Checkpoint, Event, Page, Sample
from ..watchdog.system import RecordStream, System

KMSG = "/dev/kmsg"
SYSLOGS = ("/var/log/kern.log", "/var/log/messages", "/var/log/syslog")
MAX_RECORDS = 20_000  # of one run; the rest waits for the next
MAX_JOURNAL = 8 * 1024 * 1024  # bytes of one run
_OF_KERNEL = re.compile(
    rb"^(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8}|\d{4}-\d\d-\d\dT\S+) \S+ kernel: [^\n]*\n", re.MULTILINE
)
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")


@dataclass
class _State:
    """What lives as long as the daemon: the open device, the book, the held faults."""

    book: LogBook = field(default_factory=lambda: LogBook("kernel", zone=timezone.utc))
    faults: CardFaults = field(default_factory=CardFaults)
    stream: RecordStream | None = None
    restored: bool = False
    lost: int = 0  # records of this run that the ring had overwritten before they were read
    waited: float = 0.0


@dataclass(frozen=True)
class KernelLog:
    """Follows the kernel's log of this node.

    ``files`` reads these files instead. ``hold`` is how long a card's fault stays in
    ``accelerator_fault`` after its last line; lines older than that are passed over at first sight.
    ``cards`` maps an Ascend device number of the driver to a card. ``wait`` lets a run wait so many
    seconds for a record where the device itself is read (0: never wait).
    """

    name: ClassVar[str] = "kernel_log"

    files: tuple[str, ...] = ()
    cards: Mapping[str, str] = field(default_factory=dict)
    hold: float = HOLD
    interval: float = 5.0
    timeout: float = 30.0
    wait: float = 0.0
    state: _State = field(default_factory=_State, compare=False, repr=False)

    @property
    def instance(self) -> str:
        """``kernel_log``."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """None: a node has one kernel."""
        return {}

    @property
    def waited(self) -> float:
        """Seconds that the last run waited for something to be written: no work of its own."""
        return self.state.waited

    def collect(self, system: System) -> Iterable[Yield]:
        """Yield the events of new records, ``accelerator_fault`` and ``log_events_total``.

        Raises NotSupported where no form of the log can be read.
        """
        kept = dict(system.checkpoints.get(self.instance) or {})
        state, start = self.state, system.clock.mono()
        if self.wait and state.stream is not None:
            state.stream.wait(self.wait)
        state.waited = system.clock.mono() - start
        wall = system.clock.wall()
        if not state.restored:
            state.restored = True
            state.faults.cards, state.faults.hold = self.cards, self.hold
            if kept.get("boot") == _boot(system):
                state.faults.restore(kept.get("faults"))
        document: dict[str, Any] = {"boot": _boot(system)}
        state.book.open()
        state.lost = 0
        blocks = ((self.name, data) for data in self._blocks(system, kept, document))
        for record, event in state.book.read(blocks, wall):
            labels = state.faults.note(record, wall)
            yield state.book.event(record, labels) if labels else event
        if state.lost:
            text = f"the kernel's ring overwrote {state.lost} records before they were read"
            yield Event("log_lost", text, fields={"records": state.lost}, severity="warning")
        yield from state.faults.samples(wall)
        yield from state.book.close(wall)
        document["faults"] = state.faults.document()
        if document != kept:
            yield Checkpoint(document)

    def _blocks(
        self, system: System, kept: dict[str, Any], document: dict[str, Any]
    ) -> Iterator[bytes]:
        """New lines, from the best source there is; the new position goes into ``document``."""
        if self.files:
            yield from self._syslog(system, self.files, kept, document, kernel_only=False)
            return
        try:
            stream = self.state.stream or system.files.records(KMSG)
        except OSError:
            pass
        else:
            yield from self._kmsg(system, stream, kept, document)
            return
        if system.runner.which("journalctl"):
            yield from self._journal(system, kept, document)
            return
        present = [path for path in SYSLOGS if system.files.exists(path)]
        if not present:
            raise NotSupported("no /dev/kmsg, journal or kernel log file can be read")
        yield from self._syslog(system, present[:1], kept, document, kernel_only=True)

    def _kmsg(
        self, system: System, stream: RecordStream, kept: dict[str, Any], document: dict[str, Any]
    ) -> Iterator[bytes]:
        self.state.stream = stream
        try:
            records, _ = stream.read(MAX_RECORDS)
        except OSError:
            stream.close()
            self.state.stream = None
            raise
        same = kept.get("boot") == document["boot"]
        last = int(kept.get("sequence", -1)) if same else -1
        offset = system.clock.wall() - _uptime(system)
        oldest = None if last >= 0 else system.clock.wall() - self.hold
        lines: list[bytes] = []
        for record in records:
            head, _, text = record.partition(b";")
            parts = head.split(b",")
            if len(parts) < 4 or not (parts[0] + parts[1] + parts[2]).isdigit():
                continue
            sequence, moment = int(parts[1]), offset + int(parts[2]) / 1e6
            if sequence <= last:
                continue
            self.state.lost += sequence - last - 1 if last >= 0 else 0
            last = sequence
            if int(parts[0]) > 7 or (oldest is not None and moment < oldest):
                continue  # not of the kernel itself, or of before our time
            text = text.split(b"\n ")[0]  # the device's own labels follow
            text = _ESCAPED.sub(lambda code: bytes([int(code[1], 16)]), text)
            lines.append(_line(moment, text))
        document["sequence"] = last
        if lines:
            yield b"".join(lines)

    def _journal(
        self, system: System, kept: dict[str, Any], document: dict[str, Any]
    ) -> Iterator[bytes]:
        cursor = kept.get("cursor")
        since = f"--after-cursor={cursor}" if cursor else f"--since=-{int(self.hold)}s"
        argv = ["journalctl", "--dmesg", "--output=json", "--no-pager", "--quiet", since]
        done = system.runner.run(argv, timeout=self.timeout / 2, limit=MAX_JOURNAL)
        if done.code not in (0, 1) and not done.truncated:
            raise SourceError(f"journalctl ended with {done.code}")
        lines: list[bytes] = []
        for row in done.stdout.split(b"\n"):
            try:
                entry = json.loads(row)
            except ValueError:
                continue  # the cut last line of a long answer
            cursor = entry.get("__CURSOR", cursor)
            text = entry.get("MESSAGE")
            if isinstance(text, list):
                text = bytes(part for part in text if isinstance(part, int) and 0 <= part < 256)
            elif isinstance(text, str):
                text = text.encode()
            moment = entry.get("__REALTIME_TIMESTAMP")
            if isinstance(text, bytes) and str(moment).isdigit():
                lines.append(_line(int(str(moment)) / 1e6, text))
        document["cursor"] = cursor
        if lines:
            yield b"".join(lines)

    def _syslog(
        self,
        system: System,
        paths: Iterable[str],
        kept: dict[str, Any],
        document: dict[str, Any],
        *,
        kernel_only: bool,
    ) -> Iterator[bytes]:
        tail = LogTail(system.files, tuple(paths), kept if "places" in kept else None)
        for _, data in tail.blocks():
            yield b"".join(_OF_KERNEL.findall(data)) if kernel_only else data
        document.update(tail.position())
        if tail.problems:
            path, reason = next(iter(sorted(tail.problems.items())))
            raise SourceError(f"{path}: {reason}")


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:  # noqa: ARG001
    """The events of a saved kernel log (dmesg, journal text, syslog, raw kmsg), and the faults of
    cards that it tells. Raises SourceError when it cannot be read.
    """
    readable(data)
    book, faults = LogBook("kernel"), CardFaults(hold=float("inf"))
    items: list[Sample | Page | Event] = []
    for record in classify(data, "kernel"):
        labels = faults.note(record, 0.0)
        items.append(book.event(record, labels))
    return [*faults.samples(0.0), *items]


def _line(moment: float, text: bytes) -> bytes:
    """One record as text: its own moment, and lines of a record as lines below it."""
    stamp = datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="microseconds")
    return stamp.encode() + b" kernel: " + text.rstrip(b"\n") + b"\n"


def _boot(system: System) -> str:
    try:
        return system.files.text("/proc/sys/kernel/random/boot_id", 64).strip()
    except OSError:
        return ""


def _uptime(system: System) -> float:
    try:
        return float(system.files.text("/proc/uptime", 64).split()[0])
    except (OSError, ValueError, IndexError):
        return system.clock.mono()
