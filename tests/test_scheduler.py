"""The host of collectors: batches, labels, deadlines, stalled runs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.watchdog.contracts import Yield
from vllm_watchdog.watchdog.errors import (
    CommandTimeout,
    NoData,
    NotSupported,
    SourceError,
    WatchdogError,
)
from vllm_watchdog.watchdog.labeller import Labeller
from vllm_watchdog.watchdog.model import (
    Alert,
    Batch,
    Checkpoint,
    Command,
    Event,
    Inputs,
    Outcome,
    Page,
    Request,
    Sample,
    labelset,
)
from vllm_watchdog.watchdog.scheduler import MAX_COMMANDS, RESTS, Inbox, Scheduler, _Slot, run_once
from vllm_watchdog.watchdog.system import System


@dataclass(frozen=True)
class Scripted:
    """Yields what the test says, or raises it."""

    script: tuple[object, ...] = ()
    name: str = "scripted"
    scope: Mapping[str, str] = field(default_factory=dict)
    interval: float = 5.0
    timeout: float = 10.0

    @property
    def instance(self) -> str:
        return self.name

    def collect(self, system: System) -> Iterator[Yield]:
        for item in self.script:
            if isinstance(item, BaseException):
                raise item
            yield item  # type: ignore[misc]


def test_samples_become_a_page_with_the_static_labels() -> None:
    collector = Scripted((Sample("m", 1.0, (("card", "a"),)),))

    batch = run_once(collector, fake_system(), Labeller({"job": "j"}))

    assert batch.pages == (Page((labelset({"card": "a", "job": "j"}, "m"),), (1.0,)),)


def test_a_label_of_the_source_wins_over_a_static_one() -> None:
    batch = run_once(
        Scripted((Sample("m", 1.0, (("job", "own"),)),)), fake_system(), Labeller({"job": "j"})
    )

    assert batch.pages[0].keys == (labelset({"job": "own"}, "m"),)


def test_repeated_series_give_the_same_keys_object() -> None:
    collector, labeller = Scripted((Sample("m", 1.0), Sample("n", 2.0))), Labeller({"job": "j"})

    first = run_once(collector, fake_system(), labeller)
    second = run_once(collector, fake_system(), labeller)

    assert first.pages[0].keys is second.pages[0].keys


def test_of_equal_series_the_last_value_counts() -> None:
    batch = run_once(Scripted((Sample("m", 1.0), Sample("m", 2.0))), fake_system())

    assert batch.pages[0].values == (2.0,)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SourceError("GPU is lost\nmore"), ("GPU is lost", False)),
        (OSError("no"), ("no", False)),
        (ValueError(), ("ValueError", False)),
        (NotSupported("no tool"), ("no tool", True)),
        (NoData("quiet"), (None, False)),
    ],
)
def test_what_a_collector_raises_becomes_one_line(
    error: Exception, expected: tuple[str | None, bool]
) -> None:
    batch = run_once(Scripted((Sample("m", 1.0), error)), fake_system())

    assert expected == (batch.error, batch.absent)
    assert batch.pages == ()


def test_a_collector_at_rest_is_not_started_and_says_so_once() -> None:
    inbox, still = Inbox(), set[str]()
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    scheduler.resting = lambda: frozenset(still)
    card = _Slot(Scripted((Sample("m", 1.0),), name="nvidia_smi"), Labeller({}))
    other = _Slot(Scripted((Sample("n", 1.0),), name="host"), Labeller({}))
    scheduler._slots = {"nvidia_smi": card, "host": other}

    def run() -> list[Batch]:
        for slot in (card, other):
            scheduler._once(slot)
        return list(inbox.take())

    still.add("nvidia_smi")
    host, rests = run()
    assert (rests.resting, rests.error, rests.pages) == (True, RESTS, ())
    assert (host.resting, host.error) == (False, None)
    assert [batch.collector for batch in run()] == ["host"]

    still.clear()
    assert [(b.collector, b.error) for b in run()] == [("host", None), ("nvidia_smi", None)]


def test_what_is_not_on_this_node_does_not_rest() -> None:
    inbox = Inbox()
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    slot = _Slot(Scripted((NotSupported("no tool"),), name="hccn_tool"), Labeller({}))
    scheduler._slots = {"hccn_tool": slot}
    scheduler._once(slot)
    inbox.take()

    scheduler.resting = lambda: frozenset({"hccn_tool"})
    scheduler._once(slot)

    assert inbox.take() == ()


def test_a_checkpoint_is_remembered_for_the_next_run() -> None:
    system = fake_system()

    batch = run_once(Scripted((Checkpoint({"at": 7}),)), system)

    assert batch.checkpoint == Checkpoint({"at": 7})
    assert system.checkpoints.get("scripted") == {"at": 7}


def test_a_run_that_never_ends_yielding_is_cut() -> None:
    @dataclass(frozen=True)
    class Endless(Scripted):
        def collect(self, system: System) -> Iterator[Yield]:
            while True:
                yield Sample("m", 1.0)

    batch = run_once(Endless(), fake_system())

    assert batch.error is not None
    assert batch.pages == ()


def test_the_inbox_keeps_the_newest_pages_and_all_events() -> None:
    inbox = Inbox()
    first = Batch("c", (Page((labelset({}, "m"),), (1.0,)),), (Event("a"),))
    second = replace(first, pages=(Page((labelset({}, "m"),), (2.0,)),), events=(Event("b"),))

    inbox.put(first)
    inbox.put(second)
    (batch,) = inbox.take()

    assert (batch.pages, [e.kind for e in batch.events]) == (second.pages, ["a", "b"])
    assert inbox.take() == ()


def test_an_urgent_event_wakes_the_loop() -> None:
    inbox = Inbox()

    inbox.put(Batch("c", events=(Event("device_lost", urgent=True),)))

    assert inbox.wake.is_set()


class Gate:
    """A collector that hangs until the test lets it go."""

    def __init__(self) -> None:
        self.name, self.instance, self.scope = "gate", "gate", {"service": "s"}
        self.interval, self.timeout = 0.05, 10.0
        self.entered, self.release, self.runs = threading.Event(), threading.Event(), 0

    def collect(self, system: System) -> Iterator[Yield]:
        self.runs += 1
        self.entered.set()
        assert self.release.wait(10)
        yield Sample("m", 1.0)


def test_a_hung_run_is_told_once_as_stalled_and_not_started_again() -> None:
    clock = VirtualClock()
    inbox, gate = Inbox(), Gate()
    scheduler = Scheduler(fake_system(clock=clock), inbox, {}, lambda *_, **__: None)
    scheduler.start()
    try:
        scheduler.add([gate])
        assert gate.entered.wait(10)
        clock.advance(11.5)
        scheduler.overdue()
        scheduler.overdue()

        batches = inbox.take()
        assert [(b.stalled, b.error, b.scope) for b in batches] == [
            (True, "no answer within 10 s", (("service", "s"),))
        ]
        assert gate.runs == 1
    finally:
        gate.release.set()
        scheduler.stop()


def test_a_collector_that_is_absent_is_logged_once() -> None:
    lines: list[str] = []
    system = fake_system()
    inbox = Inbox()
    scheduler = Scheduler(system, inbox, {}, lambda text, **_: lines.append(text))
    collector = Scripted((NotSupported("no tool"),), interval=0.02)
    scheduler.start()
    try:
        scheduler.add([collector])
        seen = 0
        for _ in range(500):
            seen += len(inbox.take())
            if seen >= 3:
                break
            threading.Event().wait(0.01)

        assert seen >= 3
        assert lines == ["not on this node"]
    finally:
        scheduler.stop()


def test_a_collector_that_waits_for_its_source_runs_again_at_once() -> None:
    @dataclass(frozen=True)
    class Waiting(Scripted):
        wait: float = 5.0

    inbox, seen = Inbox(), threading.Semaphore(0)
    put = inbox.put
    inbox_put = lambda batch: (put(batch), seen.release())  # noqa: E731
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    scheduler._inbox = type("Counting", (), {"put": staticmethod(inbox_put)})()  # type: ignore[assignment]
    scheduler.start()
    try:
        scheduler.add([Waiting((Sample("m", 1.0),), interval=3600.0)])

        assert all(seen.acquire(timeout=10) for _ in range(3))
    finally:
        scheduler.stop()


def test_a_waiting_collector_that_fails_waits_for_its_interval() -> None:
    runs: list[int] = []

    @dataclass(frozen=True)
    class Broken(Scripted):
        wait: float = 5.0

        def collect(self, system: System) -> Iterator[Yield]:
            runs.append(1)
            raise SourceError("no")

    scheduler = Scheduler(fake_system(), Inbox(), {}, lambda *_, **__: None)
    scheduler.start()
    try:
        scheduler.add([Broken(interval=3600.0)])
        threading.Event().wait(0.3)

        assert runs == [1]
    finally:
        scheduler.stop()


def test_a_tool_that_outlives_its_kill_is_told_once_until_it_answers_again() -> None:
    stuck = CommandTimeout("npu-smi: cannot be killed (uninterruptible sleep)", stuck=True)
    inbox, told = Inbox(), []
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    for outcome in (stuck, stuck, Sample("m", 1.0), stuck):
        slot = scheduler._slots.setdefault("scripted", _Slot(Scripted(()), Labeller({})))
        slot.collector = Scripted((outcome,))
        scheduler._once(slot)
        (batch,) = inbox.take()
        told.append((batch.stalled, [event.kind for event in batch.events]))

    assert told == [(True, ["tool_stuck"]), (True, []), (False, []), (True, ["tool_stuck"])]


def test_a_tool_that_could_be_killed_has_failed_and_is_not_stuck() -> None:
    batch = run_once(Scripted((CommandTimeout("npu-smi did not end"),)), fake_system())

    assert (batch.error, batch.stalled) == ("npu-smi did not end", False)


def test_outcomes_and_commands_wake_the_engine_and_are_taken_in_their_order() -> None:
    inbox = Inbox()
    alert = Alert("g/A", (("alertname", "A"),), "firing", 0.0, 1.0)
    outcome = Outcome(Request("restart", alert), "done")
    inbox.command(Command("pause"))
    inbox.command(Command("resume"))
    inbox.outcome(outcome)
    woken = inbox.wake.is_set()

    taken = inbox.gather()

    assert woken
    assert not inbox.wake.is_set()
    assert taken == Inputs((), (outcome,), (Command("pause"), Command("resume")))
    assert inbox.gather() == Inputs()


def test_too_many_waiting_commands_are_refused() -> None:
    inbox = Inbox()
    for _ in range(MAX_COMMANDS):
        inbox.command(Command("pause"))

    with pytest.raises(WatchdogError, match="try again later"):
        inbox.command(Command("pause"))


def test_a_collector_taken_out_runs_no_more_and_those_beside_it_do() -> None:
    inbox = Inbox()
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    runs: Counter[str] = Counter()

    @dataclass(frozen=True)
    class Counted(Scripted):
        def collect(self, system: System) -> Iterator[Yield]:
            runs[self.name] += 1
            yield Sample("m", 1.0)

    scheduler.start()
    try:
        scheduler.add([Counted(name=name, interval=0.02) for name in ("a", "b")])
        assert soon(lambda: runs["a"] and runs["b"])
        scheduler.remove("a")
        threading.Event().wait(0.05)  # a run under way
        before = dict(runs)

        assert soon(lambda: runs["b"] >= before["b"] + 3)
        assert runs["a"] == before["a"]
        assert scheduler.instances == ["b"]
    finally:
        scheduler.stop()


def test_a_collector_taken_out_can_come_again() -> None:
    inbox = Inbox()
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    scheduler.start()
    try:
        for value in (1.0, 2.0):
            scheduler.add([Scripted((Sample("m", value),), interval=0.02)])
            assert soon(
                lambda value=value: any(b.pages[0].values == (value,) for b in inbox.take())
            )
            scheduler.remove("scripted")
            scheduler.remove("scripted")
        threading.Event().wait(0.05)
        inbox.take()
        threading.Event().wait(0.1)

        assert inbox.take() == ()
    finally:
        scheduler.stop()


def test_a_second_reading_comes_at_once_and_wakes_the_loop() -> None:
    inbox = Inbox()
    scheduler = Scheduler(fake_system(), inbox, {}, lambda *_, **__: None)
    scheduler.start()
    try:
        scheduler.add([Scripted((Sample("m", 1.0),), interval=3600.0)])
        assert soon(inbox.take)
        inbox.wake.clear()
        scheduler.soon(["scripted", "unknown"], 0.01)

        assert inbox.wake.wait(10.0)
        assert [batch.collector for batch in inbox.take()] == ["scripted"]
    finally:
        scheduler.stop()


def soon(check: Callable[[], object]) -> bool:
    """Whether something comes true within ten seconds."""
    return any(check() or threading.Event().wait(0.01) for _ in range(1000))
