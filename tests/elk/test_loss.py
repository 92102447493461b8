"""Every event is in the index once, whatever befalls Elasticsearch, the network and the daemon.

EVENTS=5000 sets how many (``make loss EVENTS=100000`` is the full proof).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.servers import Server, answers, free_port, stop
from tests.support.system import VirtualClock
from tests.support.wires import Reply, Request, forward, wire
from vllm_watchdog.watchdog.ecs import STREAM
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import Event, Tick, labelset

EVENTS = int(os.environ.get("EVENTS") or 5000)
BATCHES = 50
KILLS = (4, 13, 21, 34, 45)  # numbers of bulks at which the daemon is killed
OUTAGE = 27  # the bulk at which Elasticsearch is killed
ELASTIC = {"X-Elastic-Product": "Elasticsearch"}
PATIENCE = 600.0 + EVENTS / 50

SHIP = """
import sys, time
from pathlib import Path
from vllm_watchdog.watchdog.config.models import Elasticsearch as Settings
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.outlets import elasticsearch, follower
from vllm_watchdog.watchdog.system import RealClock
elasticsearch.COUNT = follower.COUNT = int(sys.argv[3])
follower.FIRST_DELAY, follower.LONGEST_DELAY, follower.IDLE = 0.05, 0.5, 0.05
journal = Journal.open(Path(sys.argv[1]), RealClock())
delivery = elasticsearch.Elasticsearch(Settings(hosts=(sys.argv[2],)), "node-1")
shipping = follower.Follower(journal, delivery, lambda *_, **__: None)
shipping.start()
while True:
    time.sleep(1)
"""


class Weather:
    """Between the daemon and Elasticsearch: bulk after bulk something else goes wrong."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bulks = 0
        self.seen: Counter[str] = Counter()
        self.kill = threading.Event()
        self.outage = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, asked: Request) -> Reply:
        if "_bulk" not in asked.path:
            return self.passed(asked)
        with self._lock:
            self.bulks += 1
            number = self.bulks
        if number in KILLS:
            if number % 2:
                self.passed(asked)  # it arrives, and nobody lives to hear of it
            self.seen["daemon killed"] += 1
            self.kill.set()
            return Reply(cut=0)
        if number == OUTAGE:
            self.outage.set()
        return self.trouble(number % 9, asked)

    def trouble(self, kind: int, asked: Request) -> Reply:
        if kind in (2, 3):
            self.seen[{2: "429", 3: "503"}[kind]] += 1
            error = {"type": "circuit_breaking_exception", "reason": "busy"}
            return Reply({2: 429, 3: 503}[kind], {"error": error}, ELASTIC)
        if kind == 5:
            return self.half(asked)
        reply = self.passed(asked)
        if kind == 7 and reply.status == 200:
            self.seen["answer cut, stream rolled over"] += 1
            forward(self.url, Request("POST", f"/{STREAM}/_rollover", {}, b""))
            reply.cut = 20
        if kind == 8 and reply.status == 200:
            self.seen["no answer"] += 1
            reply.cut = 0
        return reply

    def half(self, asked: Request) -> Reply:
        """Half of a bulk is taken, the other half failed."""
        lines = asked.body.splitlines(keepends=True)
        half = len(lines) // 4 * 2
        reply = self.passed(
            Request(asked.method, asked.path, asked.headers, b"".join(lines[:half]))
        )
        if reply.status != 200 or not half:
            return reply
        self.seen["half of a bulk failed"] += 1
        error = {"type": "unavailable_shards_exception", "reason": "no primary"}
        failed = {"create": {"status": 503, "error": error}}
        items = json.loads(reply.data)["items"] + [failed] * ((len(lines) - half) // 2)
        return Reply(200, {"items": items}, ELASTIC)

    def passed(self, asked: Request) -> Reply:
        try:
            return forward(self.url, asked)
        except OSError:
            self.seen["Elasticsearch away"] += 1
            return Reply(cut=0)


@contextmanager
def shipping(journal: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    count = str(max(EVENTS // BATCHES, 20))
    child = subprocess.Popen([sys.executable, "-c", SHIP, str(journal), url, count])
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def restarted(server: Server) -> subprocess.Popen[bytes]:
    """Elasticsearch killed and started again on what it had written."""
    pid = server.process.pid
    raw = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    env = dict(entry.decode().split("=", 1) for entry in raw if b"=" in entry)
    user = servers.ELASTICSEARCH_USER if os.geteuid() == 0 else None
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    os.killpg(pid, signal.SIGKILL)
    server.process.wait()
    with server.log.open("ab") as log:
        return subprocess.Popen(
            server.process.args, env=env, cwd=server.folder, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, **as_user,
        )  # fmt: skip


def indexed(server: Server) -> Counter[str]:
    """How often each event's id is in the stream, in all its backing indices."""
    server.ask("POST", f"/{STREAM}/_refresh")
    found: Counter[str] = Counter()
    after: list[Any] = []
    while True:
        body: dict[str, Any] = {
            "size": 10_000, "_source": False, "sort": ["event.sequence", "_doc"],
            "query": {"match_all": {}},
        }  # fmt: skip
        if after:
            body["search_after"] = after
        hits = server.ask("POST", f"/{STREAM}/_search", body)["hits"]["hits"]
        if not hits:
            return found
        found.update(hit["_id"] for hit in hits)
        after = hits[-1]["sort"]


@pytest.mark.peer
@pytest.mark.slow
def test_each_event_is_in_the_index_once_whatever_fails(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = Journal.open(path, VirtualClock(time.time()))
    labels = labelset({"service": "deepseek"})
    events = [Event("request_error_server", f"line {n}", labels, {"n": n}) for n in range(EVENTS)]
    written = [
        kept.id
        for n in range(0, EVENTS, 500)
        for kept in journal.append(Tick(n + 1, 0.0, time.time()), events[n : n + 500])
    ]
    again: list[subprocess.Popen[bytes]] = []
    with servers.elasticsearch(8, port=free_port()) as server:
        weather = Weather(server.url)
        deadline = time.monotonic() + PATIENCE
        try:
            with wire(weather) as url:
                while lag(journal) and time.monotonic() < deadline:
                    weather.kill.clear()
                    with shipping(path, url) as child:
                        while lag(journal) and not weather.kill.wait(0.02):
                            assert child.poll() is None
                            if weather.outage.is_set():
                                weather.outage.clear()
                                again.append(restarted(server))
                            assert time.monotonic() < deadline, weather.seen
            while not answers(f"{server.url}/_cluster/health?wait_for_status=yellow"):
                time.sleep(0.1)
            found = indexed(server)
        finally:
            for process in again:
                stop(process)

    assert found == Counter(written)
    assert weather.seen["daemon killed"] == len(KILLS)
    assert set(weather.seen) == {
        "daemon killed", "429", "503", "half of a bulk failed", "answer cut, stream rolled over",
        "no answer", "Elasticsearch away",
    }  # fmt: skip


def lag(journal: Journal) -> int:
    return journal.last() - journal.cursor("elasticsearch").seq
