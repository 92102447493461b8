"""The server's processes: found, followed, gone, replaced, and what they leave behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.proctree import ProcTree
from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.vllm_process import VllmProcess
from vllm_watchdog.watchdog.errors import HttpError, NoData
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.system import Files, Response, System

URL = "http://127.0.0.1:8000"
PLAIN = {f"GET {URL}/is_sleeping": Response(404, b"")}
PAGE = os.sysconf("SC_PAGE_SIZE")
HERTZ = os.sysconf("SC_CLK_TCK")


class Node:
    """A node whose processes the test moves, and one collector that looks at them."""

    def __init__(self, root: Path, pages: Mapping[str, Any] = PLAIN, **settings: Any) -> None:
        self.tree = ProcTree(root)
        self.clock = VirtualClock()
        self.system: System = fake_system(pages=pages, root=root, clock=self.clock)
        self.collector = VllmProcess(**{"service": "deepseek", "url": URL, **settings})
        self.events: list[Event] = []
        self.kept = 0

    def look(self, after: float = 5.0) -> dict[str, float]:
        """One run as the host makes it: series by name (a phase by its word)."""
        self.clock.advance(after)
        found: dict[str, float] = {}
        self.events = []
        for item in self.collector.collect(self.system):
            if isinstance(item, Checkpoint):
                self.kept += 1
                self.system.checkpoints.put(self.collector.instance, item.doc)
            elif isinstance(item, Event):
                self.events.append(item)
            elif isinstance(item, Sample):
                labels = dict(item.labels)
                found[labels.get("phase", item.name)] = item.value
        return found

    @property
    def told(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def serving(node: Node) -> Node:
    node.tree.vllm()
    node.tree.listen((8000, "5000"))
    node.look()
    return node


def test_a_server_is_found_by_its_socket_with_its_whole_family(node: Node) -> None:
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    assert node.look() == {
        "service_process_up": 1.0,
        "service_processes": 3.0,
        "service_process_memory_bytes": 60.0 * PAGE,
        "service_process_start_time_seconds": 1_700_000_000 + 1000 / HERTZ,
        "service_orphan_processes": 0.0,
        "serving": 1.0,
    }


def test_a_child_that_listens_leads_to_its_server(node: Node) -> None:
    node.tree.vllm()
    node.tree.process(100, ["vllm", "serve", "/models/m"], name="vllm", pages=10)
    node.tree.process(103, ["VLLM::APIServer"], parent=100, holds=["5000"])
    node.tree.listen((8000, "5000"))

    assert node.look()["service_processes"] == 4.0


def test_of_two_servers_the_one_on_the_port_is_taken(node: Node) -> None:
    node.tree.vllm()
    node.tree.process(200, ["vllm", "serve", "/models/m", "--port", "8001"], holds=["5001"])
    node.tree.listen((8000, "5000"), (8001, "5001"))

    assert node.look()["service_processes"] == 3.0


def test_a_server_that_does_not_listen_yet_is_starting(node: Node) -> None:
    node.tree.vllm()

    first = node.look()
    node.tree.listen((8000, "5000"))

    assert first["service_process_up"] == first["starting"] == 1.0
    assert node.look()["serving"] == 1.0


def test_nothing_there_and_never_seen_is_stopped_and_no_fault(node: Node) -> None:
    assert node.look() == {"service_orphan_processes": 0.0, "stopped": 1.0}
    assert node.told == []


def test_a_server_that_ended_is_down_and_told_once_and_at_once(serving: Node) -> None:
    serving.tree.end(100, 101, 102)
    serving.tree.listen()

    found = serving.look()
    urgent = [(event.kind, event.urgent, event.fields["pid"]) for event in serving.events]
    serving.look()

    assert found["service_process_up"] == 0.0
    assert found["stopped"] == 1.0
    assert urgent == [("server_exit", True, 100)]
    assert serving.told == []


def test_a_zombie_has_ended(serving: Node) -> None:
    serving.tree.process(100, ["vllm", "serve"], name="vllm", state="Z")
    serving.tree.end(101, 102)
    serving.tree.listen()

    assert serving.look()["service_process_up"] == 0.0


def test_a_pid_that_another_process_got_is_not_the_server(serving: Node) -> None:
    serving.tree.end(100, 101, 102)
    serving.tree.process(100, ["bash"], started=99_999)
    serving.tree.listen()

    assert serving.look()["service_process_up"] == 0.0


def test_a_new_server_takes_over_and_the_end_of_the_old_one_is_told(serving: Node) -> None:
    serving.tree.end(100, 101, 102)
    serving.tree.vllm(first=300)

    found = serving.look()

    assert found["service_process_up"] == 1.0
    assert found["service_process_start_time_seconds"] == 1_700_000_000 + 3000 / HERTZ
    assert serving.told == ["server_exit"]


def test_an_engine_that_outlives_its_server_is_an_orphan(serving: Node) -> None:
    serving.tree.end(100)
    serving.tree.adopt(101)
    serving.tree.listen()

    found = serving.look()
    first = serving.told
    serving.look()

    assert found["service_orphan_processes"] == 2.0
    assert first == ["server_exit"]
    assert serving.told == ["orphan_processes"]
    assert serving.events[0].fields == {"pids": [101, 102]}


def test_orphans_are_told_once_and_stay_counted_beside_a_new_server(serving: Node) -> None:
    serving.tree.end(100)
    serving.tree.adopt(101)
    serving.look()
    serving.look()
    serving.tree.vllm(first=300)

    found = serving.look()

    assert serving.told == []
    assert found["service_process_up"] == 1.0
    assert found["service_processes"] == 3.0
    assert found["service_orphan_processes"] == 2.0


def test_a_worker_that_ends_soon_after_its_server_is_not_told(serving: Node) -> None:
    serving.tree.end(100, 101)
    serving.tree.adopt(102)
    serving.tree.listen()
    serving.look()
    serving.tree.end(102)

    assert serving.look()["service_orphan_processes"] == 0.0
    assert serving.told == []


def test_an_engine_started_after_the_last_look_is_found_by_its_session(serving: Node) -> None:
    serving.tree.process(105, ["VLLM::Worker_TP1"], parent=101, session=100)
    serving.tree.end(100, 101, 102)
    serving.tree.adopt(105)
    serving.tree.listen()

    assert serving.look()["service_orphan_processes"] == 1.0


def test_a_shell_from_which_the_server_was_started_is_no_orphan(node: Node) -> None:
    node.tree.process(50, ["bash"], session=50)
    node.tree.vllm(session=50)
    node.tree.listen((8000, "5000"))
    node.look()
    node.tree.end(100, 101, 102)
    node.tree.listen()

    assert node.look()["service_orphan_processes"] == 0.0


def test_leftovers_of_the_unit_are_known_though_their_server_never_was(tmp_path: Path) -> None:
    node = Node(tmp_path, unit="vllm@deepseek.service", whole_node=True)
    node.tree.process(1, ["/sbin/init"], name="systemd", parent=0)
    node.tree.process(7, ["VLLM::EngineCore"])
    node.tree.write("proc/7/cgroup", "0::/system.slice/system-vllm.slice/vllm@deepseek.service\n")
    node.tree.process(8, ["VLLM::EngineCore"])
    node.tree.write("proc/8/cgroup", "0::/system.slice/system-vllm.slice/vllm@other.service\n")

    found = node.look()

    assert found["service_orphan_processes"] == 1.0
    assert found["vllm_orphan_processes"] == 2.0
    assert node.told == ["orphan_processes"]


def test_a_stranger_on_the_port_is_told_once_and_is_not_the_server(node: Node) -> None:
    node.tree.process(40, ["python3", "-m", "http.server", "8000"], holds=["9"])
    node.tree.listen((8000, "9"))

    found = node.look()
    told = [(event.kind, event.fields) for event in node.events]
    (event,) = node.events
    node.look()

    assert "service_process_up" not in found
    assert found["stopped"] == 1.0
    assert event.message.endswith("is held by python3 (pid 40), by its command line no vLLM server")
    assert told == [("port_held_by_other", {"pid": 40, "name": "python3", "port": 8000})]
    assert node.told == []


def test_a_server_whose_port_a_stranger_holds_is_starting_not_serving(node: Node) -> None:
    node.tree.process(40, ["nginx"], holds=["9"])
    node.tree.vllm()
    node.tree.listen((8000, "9"))

    assert node.look()["starting"] == 1.0


def test_a_launcher_of_ones_own_is_known_by_the_engine_below_it(node: Node) -> None:
    node.tree.process(60, ["python3", "serve_it.py"], holds=["5000"])
    node.tree.process(61, ["VLLM::EngineCore"], parent=60)
    node.tree.listen((8000, "5000"))

    assert node.look()["service_processes"] == 2.0


def test_a_server_in_a_container_is_found_behind_its_proxy(tmp_path: Path) -> None:
    pages = {**PLAIN, f"GET {URL}/health": HttpError("refused", "refused")}
    node = Node(tmp_path, pages)
    words = ["/usr/bin/docker-proxy", "-proto", "tcp", "-host-port", "8000"]
    node.tree.process(30, [*words, "-container-port", "9000"], holds=["9"])
    server = ["python3", "-m", "vllm.entrypoints.openai.api_server", "--port", "9000"]
    node.tree.process(70, server, net="net:[2]")
    node.tree.listen((8000, "9"))

    found = node.look()

    assert found["service_process_up"] == found["starting"] == 1.0
    assert node.told == []


def test_two_servers_that_could_be_meant_are_no_answer(node: Node) -> None:
    for pid in (70, 71):
        node.tree.process(pid, ["vllm", "serve", "/models/m"], net=f"net:[{pid}]")

    assert "service_process_up" not in node.look()


@pytest.mark.parametrize(
    ("sleeping", "paused", "phase"),
    [("true", "false", "sleeping"), ("false", "true", "paused"), ("false", "false", "serving")],
)
def test_sleep_and_pause_are_what_the_server_says(
    tmp_path: Path, sleeping: str, paused: str, phase: str
) -> None:
    pages = {
        f"GET {URL}/is_sleeping": f'{{"is_sleeping": {sleeping}}}',
        f"GET {URL}/is_paused": f'{{"is_paused": {paused}}}',
    }
    node = Node(tmp_path, pages)
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    assert node.look()[phase] == 1.0


@pytest.mark.parametrize(("awake", "phase"), [("1.0", "paused"), ("0.0", "sleeping")])
def test_where_both_routes_say_yes_the_gauge_tells_a_pause_from_sleep(
    tmp_path: Path, awake: str, phase: str
) -> None:
    pages = {
        f"GET {URL}/is_sleeping": '{"is_sleeping": true}',
        f"GET {URL}/is_paused": '{"is_paused": true}',
        f"GET {URL}/metrics": "\n".join(
            f'vllm:engine_sleep_state{{engine="0",sleep_state="{state}"}} {value}'
            for state, value in (("awake", awake), ("discard_all", "1.0"))
        ),
    }
    node = Node(tmp_path, pages)
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    assert node.look()[phase] == 1.0


def test_a_server_without_these_routes_is_asked_once(serving: Node) -> None:
    serving.look()
    serving.look()

    assert len(serving.system.http.calls) == 1  # type: ignore[attr-defined]


def test_a_server_that_does_not_answer_is_still_serving_here(tmp_path: Path) -> None:
    node = Node(
        tmp_path,
        {
            f"GET {URL}/is_sleeping": HttpError("late", "timeout"),
            f"GET {URL}/is_paused": HttpError("late", "timeout"),
        },
    )
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    assert node.look()["serving"] == 1.0


def test_after_a_reboot_nothing_was_seen(serving: Node) -> None:
    serving.tree.end(100, 101, 102)
    serving.tree.listen()
    serving.tree.write("proc/sys/kernel/random/boot_id", "another\n")

    assert serving.look() == {"service_orphan_processes": 0.0, "stopped": 1.0}
    assert serving.told == []


def test_a_server_on_another_node_is_not_looked_for(tmp_path: Path) -> None:
    node = Node(tmp_path, url="http://10.0.0.9:8000")
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    with pytest.raises(NoData, match="another node"):
        node.look()


def test_an_address_of_this_node_is_here(tmp_path: Path) -> None:
    url = "http://10.0.0.9:8000"
    node = Node(tmp_path, {f"GET {url}/is_sleeping": Response(404, b"")}, url=url)
    trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.9\n        /32 host LOCAL\n"
    node.tree.write("proc/net/fib_trie", trie)
    node.tree.vllm()
    node.tree.listen((8000, "5000"))

    assert node.look()["service_process_up"] == 1.0


def test_steady_runs_read_only_the_server_and_its_family(serving: Node) -> None:
    serving.look()
    kept = serving.kept
    serving.tree.process(500, ["VLLM::Worker_TP1"], parent=101)

    counts = [serving.look()["service_processes"] for _ in range(6)]

    assert counts == [3.0, 3.0, 3.0, 3.0, 4.0, 4.0]  # the newcomer is found by the next rescan
    assert serving.kept == kept + 1


def test_a_server_that_was_never_there_is_looked_for_seldom(node: Node) -> None:
    node.look()
    node.tree.vllm()

    assert [node.look().get("service_process_up") for _ in range(2)] == [None, 1.0]


def test_a_server_that_ended_is_looked_for_in_every_run_for_two_minutes(serving: Node) -> None:
    serving.tree.end(100, 101, 102)
    serving.tree.listen()
    serving.look()
    missed = [serving.look() for _ in range(23)][-1]
    serving.tree.vllm(first=300)

    assert missed["service_process_up"] == 0.0
    assert serving.look(4.0)["service_process_up"] == 1.0


def test_files_that_cannot_be_read_are_no_process(node: Node) -> None:
    node.tree.vllm()
    node.tree.write("proc/100/stat", "100 (vllm")
    node.tree.listen()

    assert "service_process_up" not in node.look()


SERVER = """
import os, socket, sys, time
reading, writing = os.pipe()
if os.fork() == 0:
    open("/proc/self/comm", "w").write("VLLM::EngineCore")
    os.write(writing, b"x")
    time.sleep(60)
    os._exit(0)
os.read(reading, 1)
with socket.socket() as listener:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(sys.argv[-1])))
    print("bound", flush=True)
    sys.stdin.readline()
    listener.listen()
    print("listening", flush=True)
    time.sleep(60)
"""


def test_real_processes_are_followed_from_start_to_orphan(tmp_path: Path) -> None:
    program = tmp_path / "vllm"
    program.write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    clock = VirtualClock()
    pages = {f"GET {url}/is_sleeping": Response(404, b"")}
    system = replace(fake_system(pages=pages, clock=clock), files=Files())
    node = Node(tmp_path / "unused", url=url)
    node.system, node.clock = system, clock
    server = subprocess.Popen(
        [sys.executable, str(program), "serve", "some-model", "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    orphans: list[int] = []
    try:
        server.stdout.readline()
        starting = node.look()
        print(file=server.stdin, flush=True)
        server.stdout.readline()
        serving = node.look()
        server.kill()
        server.wait()
        gone = node.look()
        node.look()
        orphans = list(node.events[0].fields["pids"])
    finally:
        server.kill()
        server.wait()
        server.stdin.close()
        server.stdout.close()
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)

    assert starting["starting"] == starting["service_process_up"] == 1.0
    assert serving["serving"] == 1.0
    assert serving["service_processes"] == 2.0
    assert serving["service_process_memory_bytes"] > 1_000_000
    assert abs(serving["service_process_start_time_seconds"] - time.time()) < 60
    assert gone["service_process_up"] == 0.0
    assert gone["service_orphan_processes"] == 1.0
