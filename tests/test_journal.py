"""The journal's promises: nothing twice, nothing lost silently, never a crash of the daemon."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.database import StorageAway
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.journal import (
    Cursor,
    Journal,
    JournalBroken,
    JournalError,
    JournalFull,
)
from vllm_watchdog.watchdog.model import Event, Tick, labelset

DAY = 86400.0
WALL = 1_700_000_000.0
ROOMY = 1 << 40


def tick(number: int = 1, wall: float = WALL) -> Tick:
    return Tick(number, float(number), wall)


def events(count: int, kind: str = "xid", message: str = "a line") -> list[Event]:
    return [Event(kind, message, fields={"n": n}) for n in range(count)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(WALL)


@pytest.fixture
def journal(tmp_path: Path, clock: VirtualClock) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db", clock)
    yield opened
    opened.close()


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:
            stream.write(b"x" * 4096)
    return ballast


def test_events_are_read_back_as_they_were_written(journal: Journal) -> None:
    event = Event(
        "xid",
        "GPU is lost",
        labelset({"card": "0000:53:00"}),
        {"xid": 79},
        "critical",
        time=WALL - 3,
    )

    (stored,) = journal.append(tick(7), [event])

    assert [stored] == journal.read(0, 10)
    assert (1, f"{journal.run}-00000007-0000") == (stored.seq, stored.id)
    assert (stored.time, stored.recorded) == (WALL - 3, WALL)
    assert (stored.kind, stored.severity, stored.message) == ("xid", "critical", "GPU is lost")
    assert (labelset({"card": "0000:53:00"}), {"xid": 79}) == (stored.labels, stored.fields)


def test_ids_are_unique_and_sort_in_order(tmp_path: Path, clock: VirtualClock) -> None:
    ids = []
    for number in (1, 1, 2, 30):
        journal = Journal.open(tmp_path / "journal.db", clock)
        for _ in range(2):
            ids += [stored.id for stored in journal.append(tick(number), events(3))]
        journal.close()
        clock.advance(1)

    assert sorted(set(ids)) == ids


def test_seq_goes_on_after_a_restart(tmp_path: Path, clock: VirtualClock) -> None:
    first = Journal.open(tmp_path / "journal.db", clock)
    first.append(tick(), events(3))
    first.close()

    again = Journal.open(tmp_path / "journal.db", clock)
    (stored,) = again.append(tick(), events(1))
    again.close()

    assert stored.seq == 4
    assert again.notes == []


def too_many() -> list[Event]:
    return events(2000, message="m" * 500)


def test_events_and_checkpoints_are_one_transaction(journal: Journal) -> None:
    journal.append(tick(1), events(1), {"vllm_log/a": {"offset": 10}})
    with file_limit(64 * 1024), pytest.raises(JournalError):
        journal.append(tick(2), too_many(), {"vllm_log/a": {"offset": 20}})

    assert len(journal.read(0, 9999)) == 1
    assert journal.checkpoints() == {"vllm_log/a": {"offset": 10}}


def test_what_could_not_be_written_can_be_brought_again(journal: Journal) -> None:
    brought = (tick(2), too_many(), {"vllm_log/a": {"offset": 20}})
    with file_limit(64 * 1024), pytest.raises(JournalError):
        journal.append(*brought)
    journal.append(*brought)
    (more,) = journal.append(tick(2), events(1))

    assert len(journal.read(0, 9999)) == journal.written == 2001
    assert (more.seq, more.id) == (2001, f"{journal.run}-00000002-2000")
    assert journal.checkpoints() == {"vllm_log/a": {"offset": 20}}


def test_a_durable_append_is_synced_before_it_returns(journal: Journal) -> None:
    traced: list[str] = []
    writer = journal._database._writer
    assert writer is not None
    writer.set_trace_callback(traced.append)
    journal.append(tick(), events(1), durable=True)

    assert traced[:2] == ["PRAGMA busy_timeout=5000", "PRAGMA synchronous=FULL"]
    assert traced[-1] == "PRAGMA synchronous=NORMAL"
    assert traced.index("COMMIT") < len(traced) - 1


def test_hostile_text_is_kept_as_valid_utf8_and_plain_json(journal: Journal) -> None:
    hostile = Event(
        "ki\0nd",
        "lone \udc80 surrogate and \0" + "x" * 100_000,
        (("card", "y" * 5000),),
        {"nan": float("nan"), "bytes": b"\xff", "set": {1}, "\0": None, "deep": _nest(30)},
    )
    (stored,) = journal.append(tick(), [hostile])

    assert stored.message[:22] == "lone ? surrogate and \ufffd"
    assert (len(stored.message), len(dict(stored.labels)["card"])) == (8192, 1024)
    assert tuple(stored.fields[k] for k in ("nan", "bytes", "set")) == ("nan", "b'\\xff'", [1])
    assert "\0" not in stored.kind + stored.message
    json.dumps(stored.fields, allow_nan=False).encode()


def _nest(levels: int) -> dict[str, object]:
    return {"x": _nest(levels - 1)} if levels else {}


def test_fields_that_are_too_large_are_cut(journal: Journal) -> None:
    (stored,) = journal.append(tick(), [Event("evidence", fields={"log": ["z" * 8000] * 20})])

    assert stored.fields["cut"] is True
    assert len(stored.fields_json) < 70_000


@pytest.mark.parametrize(
    "large",
    [
        [f"alert {n} of {'x' * 90}" for n in range(3000)],
        "\\\x01" * 100_000,
        {f"name {n}": "y" * 100 for n in range(3000)},
        [["z" * 100_000]],
    ],
    ids=["list", "text", "mapping", "one item"],
)
def test_a_field_that_is_too_large_takes_none_of_the_small_ones_with_it(
    journal: Journal, large: object
) -> None:
    fields = {"evidence": large, "case": "chat", "attempt": 2, "more": large}
    (stored,) = journal.append(tick(), [Event("case_opened", fields=fields)])

    assert (stored.fields["case"], stored.fields["attempt"]) == ("chat", 2)
    assert len(stored.fields_json) <= 65536
    if isinstance(large, list):
        assert stored.fields["evidence"] == large[: len(stored.fields["evidence"])]


def test_too_many_fields_are_cut(journal: Journal) -> None:
    fields = {f"{n}{'f' * 200}": n for n in range(5000)}
    (stored,) = journal.append(tick(), [Event("evidence", fields={**fields, "case": "chat"})])

    assert (stored.fields["cut"], stored.fields["0" + "f" * 200]) == (True, 0)
    assert len(stored.fields_json) <= 65536


def test_reading_stops_at_its_byte_bound(journal: Journal) -> None:
    journal.append(tick(), events(10, message="m" * 1000))

    assert len(journal.read(0, 10, max_bytes=3000)) == 3
    assert [event.seq for event in journal.read(4, 2)] == [5, 6]


def test_history_filters_and_gives_the_newest_last(journal: Journal) -> None:
    for number, card in enumerate(("a", "b", 'a","x":"b'), 1):
        labels = labelset({"card": card})
        journal.append(
            tick(number, WALL + number),
            [Event("xid", f"line {number}", labels, severity="warning"), Event("other", "line")],
        )

    assert [e.seq for e in journal.history(limit=2)] == [5, 6]
    assert [e.seq for e in journal.history(kinds=["xid"])] == [1, 3, 5]
    assert [e.seq for e in journal.history(severities=["warning"], until=WALL + 3)] == [1, 3]
    assert [e.seq for e in journal.history(labels={"card": "b"})] == [3]
    assert [e.seq for e in journal.history(since=WALL + 2, until=WALL + 3)] == [3, 4]
    assert [e.seq for e in journal.history(text="line 1")] == [1]
    assert [e.seq for e in journal.history(after=5)] == [6]


def test_a_new_outlet_begins_at_the_start_and_never_goes_back(journal: Journal) -> None:
    journal.append(tick(), events(5))

    assert Cursor(0) == journal.cursor("elasticsearch")
    journal.advance("elasticsearch", 3)
    journal.advance("elasticsearch", 2)
    assert Cursor(3) == journal.cursor("elasticsearch")


def test_refused_events_are_set_aside_with_their_reason_up_to_a_bound(journal: Journal) -> None:
    kept = journal.append(tick(), events(1500))
    journal.advance("elasticsearch", 1500, [(event, f"no {event.seq}") for event in kept])

    refused = journal.refused("elasticsearch")
    assert len(refused) == 1000
    assert (kept[-1].id, "no 1500") == refused[-1]


def test_old_events_go_and_an_outlet_that_was_behind_is_told_its_loss(
    journal: Journal, clock: VirtualClock
) -> None:
    journal.append(tick(1, WALL), events(6000))
    journal.append(tick(2, WALL + DAY), events(4))
    journal.cursor("slow")
    journal.advance("fast", 6001)
    clock.advance(DAY)

    pruned = journal.prune(ROOMY, DAY / 2)

    assert (pruned.deleted, pruned.lost) == (6000, {"slow": 6000})
    assert [event.seq for event in journal.read(0, 10)] == [6001, 6002, 6003, 6004]
    assert Cursor(6000, lost=6000) == journal.cursor("slow")
    assert Cursor(6001) == journal.cursor("fast")


def test_a_quiet_prune_takes_nothing(journal: Journal) -> None:
    journal.append(tick(), events(10))

    assert journal.prune(ROOMY, DAY).deleted == 0
    assert len(journal.read(0, 100)) == 10


def test_the_journal_stays_within_its_bytes_and_keeps_the_newest(
    journal: Journal, tmp_path: Path
) -> None:
    for number in range(20):
        journal.append(tick(number), events(500, message="m" * 200))
    pruned = journal.prune(1_000_000, DAY)

    assert 0 < pruned.deleted < 10_000
    assert journal.size() <= 1_000_000
    assert journal.last() == 10_000
    assert (tmp_path / "journal.db").stat().st_size <= 1_100_000


def test_state_documents_replace_one_another(journal: Journal) -> None:
    journal.save_state("alerts", {"a": 1})
    journal.save_state("alerts", {"a": 2})

    assert journal.load_state("alerts") == {"a": 2}
    assert journal.load_state("other") is None


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"this is no database" * 500, id="rubbish"),
        pytest.param(lambda data: data[:100] + b"\xff" * (len(data) - 100), id="overwritten"),
        pytest.param(lambda data: data[: len(data) // 2], id="cut"),
    ],
)
def test_a_broken_database_is_set_aside_told_and_begun_anew(
    tmp_path: Path, clock: VirtualClock, damage: object
) -> None:
    path = tmp_path / "journal.db"
    first = Journal.open(path, clock)
    first.append(tick(), events(2000))
    first.close()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]

    journal = Journal.open(path, clock)
    journal.append(tick(), events(1))
    journal.close()

    assert len(journal.notes) == 1
    assert "was set aside as journal.db.broken-20231114T221320" in journal.notes[0]
    assert (tmp_path / "journal.db.broken-20231114T221320").exists()


def test_a_database_that_breaks_in_use_is_set_aside_by_the_next_append(
    tmp_path: Path, clock: VirtualClock, journal: Journal
) -> None:
    journal.append(tick(), events(5000))
    journal._database.shrink()
    with (tmp_path / "journal.db").open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xff" * 400_000)

    with pytest.raises(JournalBroken):
        journal.read(0, 10_000)
    journal.append(tick(), events(1))

    assert len(journal.read(0, 10)) == 1
    assert "damaged while in use" in journal.notes[0]


def test_a_database_of_a_newer_version_is_kept_aside(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "journal.db"
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version=99")
    newer.close()

    journal = Journal.open(path, clock)
    journal.close()

    assert "written by a newer version (schema 99)" in journal.notes[0]


def test_only_a_few_broken_files_are_kept(tmp_path: Path, clock: VirtualClock) -> None:
    path = tmp_path / "journal.db"
    for _ in range(5):
        path.write_bytes(b"rubbish" * 1000)
        Journal.open(path, clock).close()
        clock.advance(1)

    assert len(list(tmp_path.glob("journal.db.broken-*"))) == 3


def test_a_removed_file_is_noticed_and_begun_anew(tmp_path: Path, journal: Journal) -> None:
    journal.append(tick(1), events(2))
    (tmp_path / "journal.db").unlink()
    journal.append(tick(2), events(1))

    assert len(journal.read(0, 10)) == 1
    assert journal.notes[0].endswith("was removed; a new one is begun")


@pytest.mark.parametrize("what", ["gone", "empty"])
def test_a_file_that_went_while_no_daemon_ran_counts_as_lost(
    tmp_path: Path, clock: VirtualClock, what: str
) -> None:
    if what == "empty":
        (tmp_path / "journal.db").touch()

    journal = Journal.open(tmp_path / "journal.db", clock, known=True)
    journal.close()
    first = Journal.open(tmp_path / "other.db", clock)
    first.close()

    assert (journal.begun_anew, first.begun_anew) == (1, 0)
    assert journal.notes[0].endswith("was removed; a new one is begun")


def test_a_folder_in_the_place_of_the_file_is_set_aside(
    tmp_path: Path, clock: VirtualClock, journal: Journal
) -> None:
    journal.append(tick(1), events(2))
    (tmp_path / "journal.db").unlink()
    (tmp_path / "journal.db").mkdir()
    journal.append(tick(2), events(1))
    (tmp_path / "other.db").mkdir()
    other = Journal.open(tmp_path / "other.db", clock)
    other.close()

    assert len(journal.read(0, 10)) == 1
    assert "it is no file" in " ".join(journal.notes)
    assert "it is no file" in other.notes[0]


def test_another_file_put_in_its_place_is_kept_and_told(
    tmp_path: Path, clock: VirtualClock, journal: Journal
) -> None:
    restored = Journal.open(tmp_path / "backup.db", clock)
    restored.append(tick(1), events(3))
    restored.close()
    journal.append(tick(1), events(1))
    (tmp_path / "backup.db").rename(tmp_path / "journal.db")
    journal.append(tick(2), events(1))

    assert len(journal.read(0, 10)) == 4
    assert journal.begun_anew == 1
    assert "exchanged" in journal.notes[0]


@pytest.mark.parametrize("end", ["", "-wal"])
@pytest.mark.parametrize("damage", ["emptied", "rubbish"])
def test_a_file_that_lost_its_beginning_in_use_is_not_written_on(
    tmp_path: Path, journal: Journal, end: str, damage: str
) -> None:
    journal.append(tick(1), events(1))
    path = tmp_path / f"journal.db{end}"
    os.truncate(path, 0)
    if damage == "rubbish" or end:
        path.write_bytes(b"rubbish" * 10_000)
    journal.append(tick(2), events(1))

    assert "damaged while in use" in journal.notes[0]
    with sqlite3.connect(tmp_path / "journal.db") as beside:
        assert beside.execute("SELECT COUNT(*) FROM events").fetchone() == (1,)
    beside.close()


def test_a_log_that_is_removed_in_use_costs_nothing(
    tmp_path: Path, clock: VirtualClock, journal: Journal
) -> None:
    journal.append(tick(1), events(3))
    (tmp_path / "journal.db-wal").unlink()
    journal.append(tick(2), events(1), durable=True)
    shutil.copytree(tmp_path, tmp_path / "as-after-a-crash")
    again = Journal.open(tmp_path / "as-after-a-crash" / "journal.db", clock)

    assert len(again.read(0, 10)) == 4
    again.close()
    assert (journal.begun_anew, journal.notes) == (0, [])


def test_a_journal_that_another_process_has_is_no_obstacle_at_the_start(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vllm_watchdog.watchdog.database.BUSY", 0.05)
    path = tmp_path / "journal.db"
    Journal.open(path, clock).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")

    journal = Journal.open(path, clock, known=True)

    assert "is locked" in journal.unread
    with pytest.raises(JournalError, match="is locked"):
        journal.append(tick(1), events(1))
    other.close()
    assert len(journal.append(tick(1), events(1))) == 1
    journal.close()


def test_who_is_in_a_hurry_waits_for_another_process_no_longer_than_said(
    tmp_path: Path, journal: Journal
) -> None:
    journal.append(tick(1), events(1))
    other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()

    with journal.patient(0.05), pytest.raises(StorageAway, match="is locked"):
        journal.append(tick(2), events(1))
    assert time.monotonic() - began < 2.0  # not the 5 s of who has time
    other.close()
    assert len(journal.append(tick(2), events(1))) == 1


def test_who_is_in_a_hurry_waits_for_another_thread_no_longer_than_said(journal: Journal) -> None:
    holds, over = threading.Event(), threading.Event()

    def hold(_: sqlite3.Connection) -> None:
        holds.set()
        over.wait(30)

    thread = threading.Thread(target=lambda: journal.write(hold))
    thread.start()
    assert holds.wait(30)

    with journal.patient(0.05), pytest.raises(StorageAway, match="another thread"):
        journal.append(tick(1), events(1))
    over.set()
    thread.join()
    with journal.patient(0.05):
        assert len(journal.append(tick(1), events(1))) == 1


def test_documents_that_cannot_be_read_are_told_or_left_out(journal: Journal) -> None:
    journal.append(tick(1), [], {"good": {"a": 1}, "bad": {}})
    journal.save_state("healing", {})
    with journal._database.write() as connection:
        connection.execute("UPDATE checkpoints SET doc = 'nope' WHERE name = 'bad'")
        connection.execute("UPDATE state SET doc = '[]'")

    assert journal.checkpoints() == {"good": {"a": 1}}
    with pytest.raises(JournalError, match="healing is no document"):
        journal.load_state("healing")


def test_a_full_disk_with_a_journal_is_no_obstacle_at_the_start(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        Journal.open(disk / "journal.db", clock).close()
        ballast = fill(disk)
        journal = Journal.open(disk / "journal.db", clock, known=True)
        unread = journal.unread
        with pytest.raises(JournalError):
            journal.append(tick(), events(1))
        ballast.unlink()
        journal.append(tick(), events(1))
        journal.close()

    assert unread
    assert journal.begun_anew == 0


def test_a_full_disk_is_one_clear_error_and_ends_when_there_is_room(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        journal = Journal.open(disk / "journal.db", clock)
        journal.append(tick(1), events(1))
        ballast = fill(disk)
        with pytest.raises(JournalFull, match="no room left on the disk"):
            for number in range(2, 100):
                journal.append(tick(number), events(100))
        written = journal.written
        ballast.unlink()
        journal.append(tick(200), events(1))
        journal.close()

        again = Journal.open(disk / "journal.db", clock)
        assert written + 1 == len(again.read(0, 100_000))
        again.close()


def test_the_daemon_starts_on_a_full_disk_and_records_once_there_is_room(
    tmp_path: Path, clock: VirtualClock
) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        ballast = fill(disk)
        journal = Journal.open(disk / "journal.db", clock)

        assert "nothing is recorded until that is over" in journal.notes[0]
        assert (
            journal.checkpoints(),
            journal.load_state("alerts"),
            journal.history(),
        ) == ({}, None, [])
        with pytest.raises(JournalFull):
            journal.append(tick(), events(1))
        ballast.unlink()
        journal.append(tick(), events(1))
        assert len(journal.read(0, 10)) == 1
        journal.close()


def test_a_folder_that_becomes_unusable_in_use_is_an_error_of_the_append(
    tmp_path: Path, clock: VirtualClock
) -> None:
    journal = Journal.open(tmp_path / "state" / "journal.db", clock)
    journal.append(tick(1), events(1))
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state").write_text("in the way")

    with pytest.raises(JournalError, match="File exists"):
        journal.append(tick(2), events(1))
    (tmp_path / "state").unlink()
    journal.append(tick(3), events(1))
    assert len(journal.read(0, 10)) == 1
    journal.close()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.support.system import VirtualClock\n"
        "from vllm_watchdog.watchdog.journal import Journal\n"
        "from vllm_watchdog.watchdog.errors import ConfigError\n"
        "try: Journal.open(Path(sys.argv[1]) / 'journal.db', VirtualClock())\n"
        "except ConfigError as error: print(error)\n"
    )
    folder = Path("/proc/self") if os.geteuid() == 0 else tmp_path / "state"
    if os.geteuid() != 0:
        folder.mkdir(mode=0o500)
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True
    )

    assert len(done.stdout.splitlines()) == 1
    assert f"{folder}: cannot be used as the state folder: " in done.stdout
    assert "--state" in done.stdout


def test_a_file_in_the_place_of_the_folder_is_one_line(tmp_path: Path, clock: VirtualClock) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(ConfigError, match="cannot be used as the state folder: File exists"):
        Journal.open(tmp_path / "state" / "journal.db", clock)


def test_a_read_only_disk_at_start_is_one_line(tmp_path: Path, clock: VirtualClock) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        journal = Journal.open(disk / "journal.db", clock)
        journal.append(tick(1), events(1))
        journal.close()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)

        with pytest.raises(ConfigError, match="cannot be used as the state folder"):
            Journal.open(disk / "journal.db", clock)


def test_the_file_is_private(tmp_path: Path, journal: Journal) -> None:
    assert (tmp_path / "journal.db").stat().st_mode & 0o777 == 0o600


def test_readers_and_cursors_of_other_threads_lose_nothing(journal: Journal) -> None:
    seen: list[int] = []

    def follow() -> None:
        at = 0
        while len(seen) < 2000:
            for event in journal.read(at, 100):
                seen.append(event.seq)
                at = event.seq
            journal.advance("follower", at)

    thread = threading.Thread(target=follow)
    thread.start()
    for number in range(200):
        journal.append(tick(number), events(10))
    thread.join(30)

    assert list(range(1, 2001)) == seen


def test_nothing_committed_is_lost_by_kill_9(tmp_path: Path, clock: VirtualClock) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from tests.support.system import VirtualClock\n"
        "from vllm_watchdog.watchdog.journal import Journal\n"
        "from vllm_watchdog.watchdog.model import Event, Tick\n"
        "journal = Journal.open(Path(sys.argv[1]), VirtualClock())\n"
        "for n in range(1_000_000):\n"
        "    journal.append(Tick(n, n, n), [Event('k')] * 3)\n"
        "    print(n, flush=True)\n"
    )
    path = tmp_path / "journal.db"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if int(line) >= 50:
                child.kill()
                break
        said = int(line)

    journal = Journal.open(path, clock)
    found = journal.read(0, 1_000_000)
    journal.close()
    assert journal.notes == []
    assert len(found) >= 3 * (said + 1)
    assert len(found) % 3 == 0
