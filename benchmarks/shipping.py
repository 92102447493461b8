"""What it costs to bring events to Elasticsearch, and that an outage of it costs nothing else.

    python benchmarks/shipping.py [--events 1000000] [--ticks 200]

A journal with a backlog of so many events is shipped to a server that answers bulks as
Elasticsearch does (a process of its own: only our processor time is counted); beside it the client
library's own `helpers.bulk` and ready-made lines ship the same documents. Then a daemon ticks with
no outlet, and with one whose Elasticsearch takes the connection and never answers. The last line is
one JSON object: ``events_per_cpu_second``, ``ratio_helpers_bulk`` (ours over the library's),
``helpers_bulk_per_cpu_second``, ``ready_lines_per_cpu_second``, ``backlog_seconds``,
``rss_growth_mib`` (from a tenth of the backlog to its end), ``tick_ms``, ``tick_hanging_ms`` and
``ratio_tick_hanging`` (medians).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_watchdog.watchdog.config import Config
from vllm_watchdog.watchdog.config.models import Elasticsearch as Settings
from vllm_watchdog.watchdog.daemon import Daemon, prepare
from vllm_watchdog.watchdog.ecs import STREAM, Encoder
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import Batch, Event, Tick, labelset
from vllm_watchdog.watchdog.outlets.elasticsearch import Elasticsearch
from vllm_watchdog.watchdog.outlets.follower import COUNT, Follower
from vllm_watchdog.watchdog.system import RealClock, System

AIM = 40_000.0
LABELS = labelset({"card": "0000:53:00", "service": "deepseek", "vendor": "nvidia"})
SAMPLE = 60_000  # documents that the peers ship
RUNS = 3
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def events(start: int, count: int) -> list[Event]:
    """Events as a bad day gives them."""
    return [
        Event(
            "xid",
            f"GPU 0000:53:00 has fallen off the bus, line {n}",
            LABELS,
            {"xid": 79, "pid": 123, "line": n},
            "critical",
        )
        for n in range(start, start + count)
    ]


def sink(port: Any) -> None:
    """Takes bulks and answers as Elasticsearch does: each item created."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    port.put(listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def serve(connection: socket.socket) -> None:
    """One connection of a client."""
    data = b""
    with connection:
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(1 << 20)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            found = LENGTH.search(head)
            length = int(found[1]) if found else 0
            parts, have = [data], len(data)
            while have < length:
                parts.append(connection.recv(1 << 20))
                have += len(parts[-1])
            body = b"".join(parts)
            data, body = body[length:], body[:length]
            answer = answer_to(head, body)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nX-elastic-product: Elasticsearch\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(answer)
                + answer
            )


def answer_to(head: bytes, body: bytes) -> bytes:
    """The JSON of an answer."""
    if b"_bulk" in head.split(b"\r\n", 1)[0]:
        count = body.count(b"\n") // 2
        return b'{"errors":false,"items":[%s]}' % b",".join([b'{"create":{"status":201}}'] * count)
    if b"_search" in head:
        return b'{"hits":{"hits":[]}}'
    return b'{"_shards":{"failed":0},"version":{"number":"8.19.7"}}'


def resident() -> float:
    """Memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def backlog(folder: Path, count: int) -> Journal:
    """A journal that holds so many events."""
    journal = Journal.open(folder / "journal.db", RealClock())
    for start in range(0, count, 5000):
        now = time.time()
        journal.append(Tick(start + 1, 0.0, now), events(start, min(5000, count - start)))
        if start % 100_000 == 0:
            print(f"  {start} of {count} events written", flush=True)
    return journal


def ship(journal: Journal, url: str, count: int) -> dict[str, float]:
    """The whole backlog, as the daemon ships it."""
    follower = Follower(journal, Elasticsearch(Settings(hosts=(url,)), "node-1"), print)
    follower.step()
    early = 0.0
    cpu, wall, steps = time.process_time(), time.monotonic(), 0
    while follower.step() == 0.0:
        steps += 1
        if steps == count // COUNT // 10:
            early = resident()
    return {
        "events_per_cpu_second": (count - COUNT) / (time.process_time() - cpu),
        "backlog_seconds": time.monotonic() - wall,
        "rss_growth_mib": resident() - early,
    }


def documents(count: int) -> Iterator[Any]:
    """The same documents, ready to be made into lines."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder) / "journal.db", RealClock())
        encoder = Encoder("node-1")
        for start in range(0, count, 5000):
            yield from map(
                encoder.document,
                journal.append(Tick(start + 1, 0.0, time.time()), events(start, 5000)),
            )
        journal.close()


def by_library(url: str, docs: list[Any]) -> float:
    """Documents a CPU second by the client library's helper."""
    from elasticsearch import Elasticsearch as Client
    from elasticsearch import helpers

    client = Client([url])
    actions = (
        {"_op_type": "create", "_index": STREAM, "_id": doc["event"]["id"], "_source": doc}
        for doc in docs
    )
    cpu = time.process_time()
    helpers.bulk(client, actions, chunk_size=COUNT)
    return len(docs) / (time.process_time() - cpu)


def by_lines(url: str, docs: list[Any]) -> float:
    """Documents a CPU second where their lines are there already: the bound of any shipper."""
    from elasticsearch import Elasticsearch as Client

    client = Client([url])
    lines = [
        f'{{"create":{{"_id":"{doc["event"]["id"]}"}}}}\n{json.dumps(doc, separators=(",", ":"))}\n'
        for doc in docs
    ]
    headers = {"Content-Type": "application/x-ndjson", "Accept": "application/json"}
    cpu = time.process_time()
    for start in range(0, len(lines), COUNT):
        body = "".join(lines[start : start + COUNT]).encode()
        path = f"/{STREAM}/_bulk?filter_path=errors,items.*.status,items.*.error"
        client.perform_request("POST", path, headers=headers, body=body)
    return len(docs) / (time.process_time() - cpu)


def ticks(folder: Path, count: int, url: str | None) -> float:
    """The median of a daemon's tick in milliseconds, 20 events in each."""
    from vllm_watchdog.watchdog.outlets import make_outlets

    hosts = {"outlets": {"elasticsearch": {"hosts": [url] if url else []}}}
    services = {
        "services": {"deepseek": {"url": "http://127.0.0.1:9"}}
    }  # so that none is looked for
    config = Config.model_validate({"state": str(folder), **hosts, **services})
    daemon = Daemon(System(), prepare(config), {"instance": "bench"}, lambda *_, **__: None)
    daemon.open(Journal.open(folder / "journal.db", RealClock()))
    daemon.outlets += make_outlets(daemon, config)
    times = []
    for number in range(count):
        daemon.inbox.put(Batch("bench", events=tuple(events(number * 20, 20))))
        begin = time.perf_counter()
        daemon.tick()
        times.append(time.perf_counter() - begin)
    for outlet in daemon.outlets:
        outlet.stop(0.1)
    return statistics.median(times) * 1e3


def hanging() -> tuple[socket.socket, str]:
    """An address that takes connections and never answers."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--ticks", type=int, default=200)
    words = parser.parse_args()
    ports: Any = multiprocessing.Queue()
    server = multiprocessing.Process(target=sink, args=(ports,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ports.get()}"
    result: dict[str, float] = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            journal = backlog(Path(folder), words.events)
            result |= ship(journal, url, words.events)
            journal.close()
        docs = list(documents(SAMPLE))
        ours = result["events_per_cpu_second"]
        library = statistics.median(by_library(url, docs) for _ in range(RUNS))
        result["helpers_bulk_per_cpu_second"] = library
        result["ratio_helpers_bulk"] = ours / library
        result["ready_lines_per_cpu_second"] = statistics.median(
            by_lines(url, docs) for _ in range(RUNS)
        )
    finally:
        server.terminate()
    listener, dead = hanging()
    rounds: dict[str, list[float]] = {"tick_ms": [], "tick_hanging_ms": []}
    with listener, tempfile.TemporaryDirectory() as folder:
        for number in range(2 * RUNS):
            key, where = ("tick_hanging_ms", dead) if number % 2 else ("tick_ms", None)
            place = Path(folder) / str(number)
            place.mkdir()
            rounds[key].append(ticks(place, words.ticks, where))
    result |= {key: statistics.median(times) for key, times in rounds.items()}
    result["ratio_tick_hanging"] = result["tick_hanging_ms"] / result["tick_ms"]
    for key, value in result.items():
        print(f"{key:30} {value:12.3f}")
    if ours < AIM:
        print(f"below the aim of {AIM:.0f} events a CPU second")
    print(json.dumps({key: round(value, 3) for key, value in result.items()}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
