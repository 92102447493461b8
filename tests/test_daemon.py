"""The daemon's parts joined, in virtual time: journal, recording, reload, discovery."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import FakeHost, VirtualClock, fake_system
from vllm_watchdog.watchdog import config
from vllm_watchdog.watchdog.daemon import MAX_UNWRITTEN, Daemon, prepare, static_labels
from vllm_watchdog.watchdog.figures import OutletFigures
from vllm_watchdog.watchdog.journal import Beside, Journal, JournalFull, Pruned
from vllm_watchdog.watchdog.model import (
    Alert,
    Batch,
    Checkpoint,
    Event,
    Json,
    Page,
    StoredEvent,
    Tick,
    labelset,
)
from vllm_watchdog.watchdog.recording import Recording
from vllm_watchdog.watchdog.replay import replay
from vllm_watchdog.watchdog.system import Process

RULES = """\
groups:
  - name: g
    rules:
      - alert: Busy
        expr: load > 0.85
"""


class Kept(Journal):
    """A journal in memory that can be full."""

    def __init__(self) -> None:
        self.full = False
        self.unread = ""
        self.kinds: list[str] = []
        self.docs: dict[str, Json] = {}
        self.notes_: list[str] = []

    @property
    def notes(self) -> list[str]:
        return self.notes_

    def append(
        self,
        tick: Tick,
        events: Sequence[Event],
        checkpoints: Mapping[str, Json] | None = None,
        *,
        durable: bool = False,
        beside: Beside | None = None,
    ) -> list[StoredEvent]:
        if self.full:
            raise JournalFull("journal.db: no room left on the disk")
        self.kinds += [event.kind for event in events]
        self.docs.update(checkpoints or {})
        return []

    def patient(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def load_state(self, name: str) -> Json | None:
        return None

    def prune(self, max_bytes: int, max_age: float) -> Pruned:
        return Pruned()

    def close(self) -> None: ...


class Told:
    """An outlet that remembers."""

    name = "told"

    def __init__(self) -> None:
        self.offers: list[tuple[list[str], float, float]] = []

    def start(self) -> None: ...

    def offer(self, alerts: Sequence[Alert], now: float, offset: float = 0.0) -> None:
        self.offers.append(([alert.state for alert in alerts], now, offset))

    def figures(self) -> OutletFigures:
        return OutletFigures(self.name)

    def stop(self, timeout: float) -> None: ...


def make(tmp_path: Path, rules: str = RULES, more: str = "", **system: Any) -> Daemon:
    (tmp_path / "r.yaml").write_text(rules)
    text = f"rules: {{files: [{tmp_path}/r.yaml]}}\n{more}"
    loaded = prepare(config.parse(text, str(tmp_path / "w.yaml")), text)
    return Daemon(
        fake_system(**system), loaded, {"job": "j", "instance": "i"}, lambda *_, **__: None
    )


def load(value: float, *kinds: str) -> Batch:
    events = tuple(Event(kind) for kind in kinds)
    page = Page((labelset({}, "load"),), (value,))
    return Batch("tool", (page,), events, checkpoint=Checkpoint({"at": value}))


def run(daemon: Daemon, *batches: Batch) -> None:
    clock = daemon.system.clock
    assert isinstance(clock, VirtualClock)
    for batch in batches:
        clock.advance(5.0)
        daemon.inbox.put(batch)
        daemon.tick()


def test_events_and_checkpoints_are_journaled_together(tmp_path: Path) -> None:
    daemon, journal = make(tmp_path), Kept()
    daemon.journal = journal

    run(daemon, load(0.5, "oom_device"), load(0.9))

    assert journal.kinds == ["oom_device", "alert_firing"]
    assert journal.docs == {"tool": {"at": 0.9}}


def test_while_the_disk_is_full_alerts_go_on_and_events_wait(tmp_path: Path) -> None:
    daemon, journal, told = make(tmp_path), Kept(), Told()
    daemon.journal, daemon.outlets = journal, [told]
    journal.full = True
    run(daemon, load(0.5, "a"), load(0.9, "b"))
    before = list(journal.kinds)

    journal.full = False
    run(daemon, load(0.9, "c"))

    assert before == []
    assert told.offers[1][0] == ["firing"]
    assert journal.kinds == ["a", "b", "alert_firing", "c"]


def test_a_journal_that_another_process_has_holds_up_no_tick(tmp_path: Path) -> None:
    daemon, told = make(tmp_path), Told()
    journal = Journal.open(tmp_path / "journal.db", daemon.system.clock)
    daemon.journal, daemon.outlets = journal, [told]
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    run(daemon, load(0.5, "a"), load(0.9, "b"), *[load(0.9)] * 8)
    took, error = time.monotonic() - began, daemon.journal_error
    other.close()
    run(daemon, load(0.9, "c"))
    kinds = [event.kind for event in journal.read(0, 10)]
    journal.close()

    assert took < 3.0  # half a second for the first of ten ticks; each had waited for 5 s
    assert "is locked" in (error or "")
    assert told.offers[1][0] == ["firing"]
    assert (kinds, daemon.journal_error) == (["a", "b", "alert_firing", "c"], None)


def test_what_waits_for_the_disk_is_bounded_and_the_loss_is_told(tmp_path: Path) -> None:
    daemon, journal = make(tmp_path), Kept()
    daemon.journal = journal
    journal.full = True
    many = ["x"] * (MAX_UNWRITTEN // 4)
    run(daemon, *[load(0.1, *many) for _ in range(6)])

    journal.full = False
    run(daemon, load(0.1), load(0.1))

    assert journal.kinds.count("x") == 4 * len(many)
    assert journal.kinds[-1] == "events_lost"


def test_a_recording_that_cannot_be_written_ends_and_watching_goes_on(tmp_path: Path) -> None:
    daemon, journal = make(tmp_path), Kept()
    daemon.journal = journal

    class Full:
        folder = tmp_path / "r"

        def write(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise OSError(28, "No space left on device")

    daemon.recorder = Full()  # type: ignore[assignment]
    run(daemon, load(0.9), load(0.9))

    assert daemon.recorder is None
    assert journal.kinds == ["alert_firing", "recording_ended"]


def test_a_reload_takes_other_rules_and_records_into_a_folder_of_its_own(tmp_path: Path) -> None:
    daemon = make(tmp_path)
    daemon.scheduler.start()
    daemon.record(tmp_path / "rec")
    run(daemon, load(0.9))
    (tmp_path / "r.yaml").write_text(RULES.replace("0.85", "0.95"))

    daemon.reload(prepare(daemon.loaded.config))
    run(daemon, load(0.9))
    daemon.stop(None)

    assert [len(list(Recording(tmp_path / name).inputs())) for name in ("rec", "rec.1")] == [1, 1]
    assert [alert.state for alert in daemon.engine.alerts()] != ["firing"]


def test_a_reload_records_beside_what_is_there_already(tmp_path: Path) -> None:
    daemon = make(tmp_path)
    daemon.scheduler.start()
    daemon.record(tmp_path / "rec")
    (tmp_path / "rec.1").mkdir()
    (tmp_path / "rec.1" / "manifest.json").write_text("{}")

    for _ in range(2):
        daemon.reload(daemon.loaded)
        run(daemon, load(0.9))
    daemon.stop(None)

    assert [len(list(Recording(tmp_path / name).inputs())) for name in ("rec.2", "rec.3")] == [1, 1]


def test_a_reload_that_cannot_go_on_recording_goes_on_watching(tmp_path: Path) -> None:
    daemon = make(tmp_path)
    daemon.scheduler.start()
    daemon.record(tmp_path / "rec")
    (tmp_path / "r.yaml").unlink()

    daemon.reload(daemon.loaded)
    run(daemon, load(0.9))
    daemon.stop(None)

    assert daemon.recorder is None
    assert [alert.state for alert in daemon.engine.alerts()] == ["firing"]


def test_names_that_are_no_utf8_are_recorded_and_replayed(tmp_path: Path) -> None:
    name = b"/var/log/a\xff.log".decode("utf-8", "surrogateescape")
    seen = Event("oom", f"in {name}", labelset({"file": name}), {"file": name}, severity="critical")
    page = Page((labelset({"file": name}, "log_lines"),), (1.0,))
    daemon = make(tmp_path)
    daemon.scheduler.start()
    daemon.record(tmp_path / "rec")

    run(daemon, Batch("c", (page,), (seen,), checkpoint=Checkpoint({name: 3})))
    daemon.stop(None)

    assert replay(tmp_path / "rec").difference == ""
    assert all(value.encode() for key in page.keys for _, value in key)


def test_outlets_are_told_how_far_the_clock_was_set(tmp_path: Path) -> None:
    clock, told = VirtualClock(), Told()
    daemon = make(tmp_path, clock=clock)
    daemon.outlets = [told]

    run(daemon, load(0.9))
    clock._wall += 3600
    run(daemon, load(0.9))

    assert [offset for _, _, offset in told.offers] == [0.0, 3600.0]
    assert daemon.last_tick is not None
    assert daemon.last_tick.wall == 1_700_000_010.0


def test_a_server_that_comes_and_goes_is_watched_and_let_go(tmp_path: Path) -> None:
    server = Process(10, 1, "vllm", ("vllm", "serve", "tiny"), 0.0)
    host = FakeHost([server])
    daemon, journal = make(tmp_path, host=host), Kept()
    daemon.journal = journal
    daemon.scheduler.start()
    try:
        run(daemon, load(0.1))
        _discovered()
        watched = daemon.scheduler.instances
        host.table.clear()
        daemon.system.clock.sleep(60.0)
        run(daemon, load(0.1))
        _discovered()
        run(daemon, load(0.1))
    finally:
        daemon.scheduler.stop()

    assert "vllm_metrics/tiny" in watched
    assert "vllm_metrics/tiny" not in daemon.scheduler.instances
    assert [k for k in journal.kinds if k.startswith("service_")] == [
        "service_found",
        "service_gone",
    ]


def _discovered() -> None:
    for thread in threading.enumerate():
        if thread.name == "discovery":
            thread.join(10)


def test_state_comes_back_and_a_broken_state_file_is_told(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    clock = VirtualClock()
    daemon = make(tmp_path, clock=clock)
    daemon.system = _with_real_files(daemon)
    run(daemon, load(0.9))
    daemon.save(state)

    again = make(tmp_path, clock=clock)
    again.restore(state)
    (state / "engine.json").write_text("{")
    broken, journal = make(tmp_path, clock=clock), Kept()
    broken.journal = journal
    broken.restore(state)
    run(broken, load(0.1))

    assert [alert.state for alert in again.engine.alerts()] == ["firing"]
    assert journal.kinds == ["state_unusable"]


def _with_real_files(daemon: Daemon) -> Any:
    from dataclasses import replace

    from vllm_watchdog.watchdog.system import Files

    return replace(daemon.system, files=Files())


@pytest.mark.parametrize("doc", ["nope", "[]", "{}", '{"version": 2, "standing": 5}'])
def test_a_node_that_cannot_read_what_it_did_only_observes(tmp_path: Path, doc: str) -> None:
    daemon = make(tmp_path, more="mode: act\n")
    journal = Journal.open(tmp_path / "journal.db", daemon.system.clock)
    journal.save_state("healing", {})
    journal.write(lambda db: db.execute("UPDATE state SET doc = ?", (doc,)))
    daemon.open(journal)
    daemon.restore(tmp_path)
    run(daemon, load(0.1))
    kinds = [event.kind for event in journal.read(0, 99)]
    journal.close()

    assert "cannot be read" in daemon.engine.healer.standing.forced
    assert {"state_unusable", "observing_only"} <= set(kinds)


def test_a_node_whose_journal_is_away_at_the_start_only_observes(tmp_path: Path) -> None:
    daemon, journal = make(tmp_path, more="mode: act\n"), Kept()
    journal.unread = "journal.db: is locked"
    daemon.journal = journal
    daemon.restore(tmp_path)
    run(daemon, load(0.1))

    assert "is locked" in daemon.engine.healer.standing.forced


def test_labels_are_those_of_the_central_scrape() -> None:
    assert static_labels(config.parse(b""), "node-1") == {
        "job": "vllm-watchdog",
        "instance": "node-1:9710",
    }
    own = config.parse("labels: {job: w, instance: 'n:1', zone: a}")
    assert static_labels(own, "node-1") == {"job": "w", "instance": "n:1", "zone": "a"}
