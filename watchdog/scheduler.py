"""Runs each collector on a thread of its own and turns what it yields into batches.

It times, bounds and labels runs; it judges nothing. A run past its deadline makes one stalled
batch, and the collector is not started again while that run lives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from .contracts import Collector, Yield
from .errors import CommandTimeout, NoData, NotSupported, WatchdogError
from .labeller import Labeller
from .model import (
    Batch,
    Checkpoint,
    Command,
    Event,
    Inputs,
    Outcome,
    Page,
    Sample,
    labelset,
)
from .system import System

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler

MAX_SAMPLES = 50_000  # a run that yields more is broken, not rich
MAX_EVENTS = 5_000
MAX_COMMANDS = 1_000  # that may wait between two ticks
PAUSE = 0.02  # seconds between two runs of a collector that waits: lines come in groups
FIRST_RUNS = 2.0  # seconds over which the first runs are spread: a start shows something soon
WAVES = 2  # in which they begin: a wake-up of the scheduler costs as much as a small collector
RESTS = "rests while an act is on what it reads"
STEP = timedelta(seconds=FIRST_RUNS / WAVES)


@dataclass(slots=True)
class _Run:
    """One run under way."""

    since: float
    overdue: bool = False


@dataclass(slots=True)
class _Slot:
    """A collector with all that the host knows of it, and the one thread that it may have."""

    collector: Collector
    labeller: Labeller
    run: _Run | None = None
    absent: bool = False
    stuck: bool = False
    resting: bool = False
    awaited: bool = False
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    started: Future[None] | None = None


@dataclass(slots=True)
class Inbox:
    """What is on its way to the engine: batches, how acts ended, what people asked.

    ``wake`` is set when it cannot wait for the next regular tick. Any thread may put.
    """

    wake: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: dict[str, Batch] = field(default_factory=dict)
    _outcomes: list[Outcome] = field(default_factory=list)
    _commands: list[Command] = field(default_factory=list)

    def put(self, batch: Batch) -> None:
        """Add a batch; a later one of the same collector keeps the earlier one's events."""
        with self._lock:
            earlier = self._waiting.get(batch.collector)
            if earlier is not None and earlier.events:
                merged = (*earlier.events, *batch.events)[-MAX_EVENTS:]
                batch = replace(
                    batch, events=merged, checkpoint=batch.checkpoint or earlier.checkpoint
                )
            self._waiting[batch.collector] = batch
        if any(event.urgent for event in batch.events):
            self.wake.set()

    def outcome(self, outcome: Outcome) -> None:
        """Report how an act ended; the next rung may be due, so it is heard at once."""
        with self._lock:
            self._outcomes.append(outcome)
        self.wake.set()

    def command(self, command: Command) -> None:
        """Pass on what a person asked, or what an act changed. Raises WatchdogError when too many
        wait already."""
        with self._lock:
            if len(self._commands) >= MAX_COMMANDS:
                raise WatchdogError(f"{MAX_COMMANDS} commands wait already: try again later")
            self._commands.append(command)
        self.wake.set()

    def take(self) -> tuple[Batch, ...]:
        """All waiting batches in the order of their collectors' names; the rest goes on waiting."""
        with self._lock:
            batches = tuple(self._waiting[name] for name in sorted(self._waiting))
            self._waiting.clear()
            if not self._outcomes and not self._commands:
                self.wake.clear()
        return batches

    def gather(self) -> Inputs:
        """All that waits: batches by their collectors' names, the rest as it came."""
        with self._lock:
            batches = tuple(self._waiting[name] for name in sorted(self._waiting))
            inputs = Inputs(batches, tuple(self._outcomes), tuple(self._commands))
            for waiting in (self._waiting, self._outcomes, self._commands):
                waiting.clear()
            self.wake.clear()
        return inputs


def run_once(collector: Collector, system: System, labeller: Labeller | None = None) -> Batch:
    """Run a collector now and give its batch; what it raises becomes the batch's error."""
    labeller = labeller or Labeller({})
    start = system.clock.mono()
    scope = labelset(collector.scope)
    empty = Batch(collector.instance, scope=scope)
    try:
        batch = _batch(empty, collector.collect(system), labeller)
    except NotSupported as reason:
        batch = replace(empty, absent=True, error=_line(reason))
    except NoData:
        batch = empty
    except CommandTimeout as late:
        batch = replace(empty, error=_line(late), stalled=late.stuck)
    except Exception as error:  # noqa: BLE001 (boundary: a collector's run)
        batch = replace(empty, error=_line(error))
    if batch.checkpoint is not None:
        system.checkpoints.put(collector.instance, batch.checkpoint.doc)
    waited = float(getattr(collector, "waited", 0.0))  # for its source: no work
    return replace(batch, duration=max(system.clock.mono() - start - waited, 0.0))


def _batch(empty: Batch, yielded: Iterable[Yield], labeller: Labeller) -> Batch:
    pages: list[Page] = []
    samples: list[Sample] = []
    events: list[Event] = []
    checkpoint: Checkpoint | None = None
    for item in yielded:
        if isinstance(item, Sample):
            samples.append(item)
        elif isinstance(item, Page):
            pages.append(labeller.page(item, len(pages)))
        elif isinstance(item, Event):
            events.append(item)
        else:
            checkpoint = item
        if len(samples) > MAX_SAMPLES or len(events) > MAX_EVENTS:
            raise ValueError("yielded more than a node can have; the reading is not used")
    if samples:
        pages.append(labeller.samples(samples))
    return replace(empty, pages=tuple(pages), events=tuple(events), checkpoint=checkpoint)


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


class Scheduler:
    """APScheduler with one single-thread executor per collector: a hung one starves nobody.

    ``resting`` gives the names of the collectors that must not start now; it is asked before each
    run, by any thread.
    """

    def __init__(
        self,
        system: System,
        inbox: Inbox,
        static: Mapping[str, str],
        log: Callable[..., object],
    ) -> None:
        self._system, self._inbox, self._static, self._log = system, inbox, static, log
        self.resting: Callable[[], frozenset[str]] = frozenset
        self._slots: dict[str, _Slot] = {}
        self._beats: dict[str, list[_Slot]] = {}
        self._begin = datetime.now(timezone.utc)
        self._lock = threading.Lock()
        self._scheduler: BackgroundScheduler | None = None
        self._stopping = threading.Event()

    @property
    def instances(self) -> list[str]:
        """Names of the collectors that run here."""
        return sorted(self._slots)

    def start(self) -> None:
        """Begin to run collectors."""
        from apscheduler.executors.debug import DebugExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        for name in ("apscheduler.scheduler", "apscheduler.executors"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        at_once = DebugExecutor()  # in the scheduler's own thread: a beat only starts others
        self._scheduler = BackgroundScheduler(timezone=timezone.utc, executors={"default": at_once})
        self._scheduler.start()

    def add(self, collectors: Sequence[Collector]) -> None:
        """Run further collectors from now on."""
        begin = self._wave()
        beats: dict[tuple[float, int], list[_Slot]] = {}
        for position, collector in enumerate(collectors):
            slot = _Slot(collector, Labeller(self._static))
            wave = position * WAVES // len(collectors)
            beats.setdefault((collector.interval, wave), []).append(slot)
            with self._lock:
                self._slots[collector.instance] = slot
        for (interval, wave), slots in beats.items():
            first = begin + min(timedelta(seconds=interval), wave * STEP)
            self._schedule(slots, interval, first)

    def remove(self, instance: str) -> None:
        """Stop running a collector; a run under way is let go of."""
        with self._lock:
            slot = self._slots.pop(instance, None)
            if slot is None:
                return
            slot.thread.shutdown(wait=False)
            for slots in self._beats.values():
                slots[:] = [other for other in slots if other is not slot]
            ended = [name for name, slots in self._beats.items() if not slots]
            for name in ended:
                del self._beats[name]
            scheduler = self._scheduler
        for name in ended:  # not under the lock, which a beat wants under the scheduler's own
            if scheduler is not None:
                scheduler.remove_job(name)

    def soon(self, instances: Iterable[str], delay: float) -> None:
        """Run these collectors once more ``delay`` seconds from now, where their turn comes later,
        and have what they read heard at once."""
        with self._lock:
            known = [self._slots[name] for name in sorted(instances) if name in self._slots]
        slots = [slot for slot in known if slot.collector.interval > delay]
        if not slots or self._scheduler is None:
            return
        at = datetime.now(timezone.utc) + timedelta(seconds=delay)
        self._scheduler.add_job(
            self._again, "date", args=(slots,), run_date=at, misfire_grace_time=None
        )

    def _again(self, slots: list[_Slot]) -> None:
        for slot in slots:
            slot.awaited = True
        self._beat(slots)

    def overdue(self) -> None:
        """Put one stalled batch for each run that has just passed its deadline."""
        now = self._system.clock.mono()
        with self._lock:
            late = [s for s in self._slots.values() if self._passed(s, now)]
        for slot in late:
            collector = slot.collector
            self._inbox.put(
                Batch(
                    collector.instance,
                    duration=collector.timeout,
                    error=f"no answer within {collector.timeout:g} s",
                    stalled=True,
                    scope=labelset(collector.scope),
                )
            )

    def stop(self) -> None:
        """End the schedule without waiting for runs under way."""
        self._stopping.set()
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None
        with self._lock:
            for slot in self._slots.values():
                slot.thread.shutdown(wait=False)

    def _passed(self, slot: _Slot, now: float) -> bool:
        run = slot.run
        if run is None or run.overdue or now - run.since <= slot.collector.timeout + 1.0:
            return False
        run.overdue = True
        return True

    def _wave(self) -> datetime:
        """When the present wave began: what is added now falls in with those that run already."""
        since = datetime.now(timezone.utc) - self._begin
        return self._begin + since // STEP * STEP

    def _schedule(self, slots: list[_Slot], interval: float, first: datetime) -> None:
        scheduler = self._scheduler
        assert scheduler is not None
        job = scheduler.add_job(
            self._beat,
            "interval",
            args=(slots,),
            seconds=interval,
            next_run_time=first,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=None,
        )
        with self._lock:
            self._beats[job.id] = slots

    def _beat(self, slots: list[_Slot]) -> None:
        """Start those of the beat whose last run has ended."""
        with self._lock:
            for slot in slots:
                idle = slot.started is None or slot.started.done()
                if idle and self._slots.get(slot.collector.instance) is slot:
                    slot.started = slot.thread.submit(self._run, slot)

    def _run(self, slot: _Slot) -> None:
        """One run; of a collector that waits for its source, run after run while all is well."""
        while self._once(slot) and float(getattr(slot.collector, "wait", 0)) > 0:
            if self._stopping.wait(PAUSE):
                return

    def _once(self, slot: _Slot) -> bool:
        """Run a collector and put its batch; whether another run may follow at once."""
        if self._rests(slot):
            return False
        with self._lock:
            if slot.run is not None:
                return False
            slot.run = run = _Run(self._system.clock.mono())
        batch = run_once(slot.collector, self._system, slot.labeller)
        with self._lock:
            slot.run = None
            gone = self._slots.get(slot.collector.instance) is not slot
        if gone or run.overdue:
            return False  # an answer after its deadline is old: the next run gives a fresh one
        batch = _told_stuck(slot, batch)
        if batch.absent:
            self._absent(slot, batch)
        else:
            slot.absent = False
        self._inbox.put(batch)
        if slot.awaited:
            slot.awaited = False
            self._inbox.wake.set()
        return batch.error is None

    def _rests(self, slot: _Slot) -> bool:
        """Whether a collector must not start now; said once a rest, so that what it reads is held
        as unknown."""
        collector = slot.collector
        names = {collector.name, collector.instance.partition("/")[0]}
        rests, before = bool(names & self.resting()), slot.resting
        slot.resting = rests
        if rests and not before and not slot.absent:
            scope = labelset(collector.scope)
            self._inbox.put(Batch(collector.instance, error=RESTS, scope=scope, resting=True))
        return rests

    def _absent(self, slot: _Slot, batch: Batch) -> None:
        if not slot.absent:
            slot.absent = True
            self._log("not on this node", collector=batch.collector, reason=batch.error)


def _told_stuck(slot: _Slot, batch: Batch) -> Batch:
    """Tell once that a tool outlived its kill: only a reboot or the device itself frees it."""
    first, slot.stuck = batch.stalled and not slot.stuck, batch.stalled
    if not first:
        return batch
    labels = labelset({**dict(batch.scope), "collector": batch.collector})
    event = Event("tool_stuck", batch.error or "", labels, severity="warning")
    return replace(batch, events=(*batch.events, event))
