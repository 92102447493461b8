"""The log of a vLLM server as events and counters."""

from __future__ import annotations

import threading
from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.vllm_log import VllmLog, capture
from vllm_watchdog.watchdog import logevents
from vllm_watchdog.watchdog.contracts import Collector
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.logscan import scanner
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.scheduler import run_once
from vllm_watchdog.watchdog.system import System

DEAD = "(EngineCore pid=7) ERROR 11-14 22:13:00 [core.py:9] EngineCore encountered a fatal error.\n"
FOREIGN = (
    "RuntimeError: NPU out of memory. Tried to allocate 1.00 GiB (NPU 0; 60.00 GiB total capacity;"
    " 5.00 GiB already allocated; 5.00 GiB current active; 0.50 GiB free; 6.00 GiB reserved in"
    " total by PyTorch)\n"
)


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


class Node:
    """A folder with a log, and a collector that follows it over its runs."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.path = root / "a.log"
        self.path.write_text("")
        self.system: System = fake_system(root=root)
        self.collector = VllmLog("s", ("/*.log",), **settings)
        self.run()

    def run(self) -> list[Any]:
        found = list(self.collector.collect(self.system))
        for item in found:
            if isinstance(item, Checkpoint):
                self.system.checkpoints.put(self.collector.instance, item.doc)
        return found

    def write(self, text: str) -> list[Any]:
        with self.path.open("a") as stream:
            stream.write(text)
        return self.run()


def events(found: list[Any]) -> list[Event]:
    return [item for item in found if isinstance(item, Event)]


def counts(found: list[Any]) -> dict[str, float]:
    samples = [x for x in found if isinstance(x, Sample) and x.name == "log_events_total"]
    return {dict(x.labels)["kind"]: x.value for x in samples if x.value}


def test_it_is_a_collector() -> None:
    assert isinstance(VllmLog("s"), Collector)


def test_a_dead_engine_is_an_urgent_event_and_a_count(tmp_path: Path) -> None:
    found = Node(tmp_path).write(DEAD)

    (event,) = events(found)
    assert (event.kind, event.severity, event.urgent) == ("engine_dead", "critical", True)
    assert (event.labels, event.fields["pid"]) == ((("service", "s"),), 7)
    assert event.message == DEAD.strip()
    assert counts(found) == {"engine_dead": 1.0}


def test_the_year_comes_from_the_clock(tmp_path: Path) -> None:
    # The clock stands at 2023-11-14 22:13:20 UTC.
    node = Node(tmp_path, zone=timezone.utc)
    (event,) = events(node.write(DEAD))

    assert event.time == 1_700_000_000.0 - 20.0


def test_counters_are_there_from_the_first_run_and_stay(tmp_path: Path) -> None:
    node = Node(tmp_path)
    samples = {dict(x.labels)["kind"]: x.value for x in node.run() if isinstance(x, Sample)}
    node.write(DEAD)

    assert samples["engine_dead"] == 0.0
    assert counts(node.run()) == {"engine_dead": 1.0}


def test_memory_that_another_holds_counts_under_both_words(tmp_path: Path) -> None:
    found = Node(tmp_path).write(FOREIGN)

    assert counts(found) == {"oom_device": 1.0, "oom_foreign_process": 1.0}


def test_an_engine_that_was_stopped_is_told_but_not_counted(tmp_path: Path) -> None:
    stop = "(APIServer pid=1) INFO 11-14 22:12:59 [launcher.py:9] [shutdown] API server: shutdown triggered\n"
    found = Node(tmp_path).write(stop + DEAD)

    assert [event.kind for event in events(found)] == ["lifecycle", "engine_dead"]
    assert counts(found) == {"lifecycle": 1.0}


def test_requests_are_counted_by_their_access_lines(tmp_path: Path) -> None:
    line = 'INFO:     192.0.2.1:4 - "POST /v1/completions HTTP/1.1" {}\n'
    found = Node(tmp_path).write(
        line.format("200 OK") * 3 + line.format("500 Internal Server Error")
    )

    requests = {
        dict(x.labels)["status"]: x.value
        for x in found
        if isinstance(x, Sample) and x.name == "log_requests_total"
    }
    assert requests == {"2xx": 3.0, "5xx": 1.0}


def test_an_access_line_tells_its_route_only(tmp_path: Path) -> None:
    line = 'INFO:     192.0.2.1:4 - "POST /v1/completions?user=alice HTTP/1.1" 500 Internal Server Error\n'
    (event,) = events(Node(tmp_path).write(line))

    assert event.message == "POST /v1/completions 500"


def test_a_flood_is_counted_and_its_events_are_bounded(tmp_path: Path) -> None:
    found = Node(tmp_path).write("INFO:     Finished server process [12]\n" * 900)

    kinds = [event.kind for event in events(found)]
    assert (len(kinds), kinds[-1]) == (33, "log_flood")
    assert counts(found) == {"server_exit": 900.0}


def test_what_users_wrote_never_leaves(tmp_path: Path) -> None:
    text = (
        "(EngineCore pid=7) ERROR 11-14 22:13:00 [dump_input.py:7] Dumping input data for V1 LLM"
        " engine (v0.11.0) with config: x, prompt: SECRET\n"
        "INFO 11-14 22:13:00 [logger.py:43] Received request cmpl-1: prompt: SECRET, params: x\n"
    )
    found = Node(tmp_path).write(text)

    assert len(events(found)) == 1
    assert "SECRET" not in repr(found)


def test_nothing_new_needs_no_checkpoint(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(DEAD)

    assert not [item for item in node.run() if isinstance(item, Checkpoint)]


def test_a_restart_neither_loses_nor_repeats(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.write(DEAD)
    node.collector = VllmLog("s", ("/*.log",))
    repeated = events(node.run())
    with node.path.open("a") as stream:
        stream.write(DEAD)

    assert (repeated, [event.kind for event in events(node.run())]) == ([], ["engine_dead"])


def test_a_service_without_a_log_yet_has_counters_only(tmp_path: Path) -> None:
    found = list(VllmLog("s", ("/none/*.log",)).collect(fake_system(root=tmp_path)))

    assert events(found) == []
    assert {"log_events_total"} == {x.name for x in found if isinstance(x, Sample)}


def test_a_log_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.log").mkdir()

    with pytest.raises(SourceError, match=r"a\.log"):
        list(VllmLog("s", ("/*.log",)).collect(fake_system(root=tmp_path)))


def test_a_saved_log_gives_its_events() -> None:
    assert [x.kind for x in capture(DEAD.encode()) if isinstance(x, Event)] == ["engine_dead"]


def test_a_saved_log_without_faults_is_fine() -> None:
    assert capture(b"INFO 01-02 03:04:05 [x.py:1] hello\n") == []


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\0\0", bytes(range(32)) * 100])
def test_what_is_no_log_is_refused(data: bytes) -> None:
    with pytest.raises(SourceError):
        capture(data)


def test_a_run_that_waits_ends_when_a_line_comes(tmp_path: Path) -> None:
    node = Node(tmp_path, wait=20.0)
    node.run()  # the watch begins
    writer = threading.Timer(0.05, append, (node.path, DEAD))
    writer.start()
    kinds: list[str] = []
    while not kinds:
        kinds = [event.kind for event in events(node.run())]
    writer.join()

    assert kinds == ["engine_dead"]


class Waits:
    """A watch that counts how often it is asked to wait."""

    count = 0

    def wait(self, *_: object) -> None:
        self.count += 1


def test_the_rest_of_a_backlog_is_read_without_waiting_for_a_new_line(tmp_path: Path) -> None:
    node, waits = Node(tmp_path, wait=600.0, from_start=True, budget=1), Waits()
    assert node.collector.state is not None
    node.collector.state.watch = waits  # type: ignore[assignment]
    append(node.path, "a quiet line\n" * 100_000 + DEAD)  # more than one block

    kinds = [[event.kind for event in events(node.run())] for _ in range(3)]

    assert kinds == [[], ["engine_dead"], []]
    assert waits.count == 2  # before the first run, and again once all is read


def test_waiting_for_a_line_is_no_work(tmp_path: Path) -> None:
    class Quiet:
        def wait(self, *_: object) -> None:
            clock.advance(5.0)

    node = Node(tmp_path, wait=5.0)
    clock = node.system.clock
    assert isinstance(clock, VirtualClock)
    assert node.collector.state is not None
    node.collector.state.watch = Quiet()  # type: ignore[assignment]

    assert run_once(node.collector, node.system).duration == 0.0


def test_the_first_line_finds_the_scanner_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(literals: tuple[str, ...]) -> object:
        made.append(len(literals))
        return scanner(literals)

    monkeypatch.setattr(logevents, "scanner", counted)
    node = Node(tmp_path)
    before = len(made)
    node.write(DEAD)

    assert (before, len(made)) == (1, 1)


def test_requests_that_fail_alike_are_one_event_and_one_more_with_their_number(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    line = 'INFO:     192.0.2.7:4040 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
    first = node.write(line * 3)
    second = node.write(line * 2)
    node.system.clock.sleep(30.0)
    third = node.run()
    node.system.clock.sleep(30.0)
    again = node.write(line)

    told = [
        [(event.message, event.fields.get("requests")) for event in events(found)]
        for found in (first, second, third, again)
    ]
    one = ("POST /v1/completions 500", None)
    assert told == [[one], [], [("4 more: POST /v1/completions 500", 4)], [one]]
    assert counts(again) == {"request_error_server": 6.0}
