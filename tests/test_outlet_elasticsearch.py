"""Events on their way to Elasticsearch: each exactly once, whatever fails in between."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.servers import Server, free_port
from tests.support.system import VirtualClock
from tests.support.wires import Reply, Request, forward, wire
from vllm_watchdog.watchdog.config.models import Elasticsearch as Settings
from vllm_watchdog.watchdog.ecs import STREAM
from vllm_watchdog.watchdog.errors import Temporary
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import Event, Labels, StoredEvent, Tick, labelset
from vllm_watchdog.watchdog.outlets import node
from vllm_watchdog.watchdog.outlets.elasticsearch import Elasticsearch
from vllm_watchdog.watchdog.outlets.follower import COUNT, Follower

ELASTIC = {"X-Elastic-Product": "Elasticsearch"}


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = Journal.open(tmp_path / "journal.db", VirtualClock(time.time()))
    yield opened
    opened.close()


def write(journal: Journal, count: int, labels: Labels = (), first: int = 1) -> list[StoredEvent]:
    now = time.time()
    events = [Event("xid", f"line {n}", labels, {"xid": 79, "n": n}) for n in range(count)]
    return [
        stored
        for start in range(0, count, 500)
        for stored in journal.append(Tick(first + start, 0.0, now), events[start : start + 500])
    ]


class Shipping:
    """A follower with a delivery, stepped by hand; ``log`` holds its lines."""

    def __init__(self, journal: Journal, url: str, **settings: Any) -> None:
        self.log: list[str] = []
        self.delivery = Elasticsearch(Settings(hosts=(url,), **settings), "node-1")
        self.follower = Follower(journal, self.delivery, lambda text, **_: self.log.append(text))

    def run(self, steps: int = 100) -> list[float]:
        """Step until there is nothing to do, at most so often; the delays asked for."""
        delays = []
        for _ in range(steps):
            delays.append(self.follower.step())
            if delays[-1] == 1.0 and not self.follower._failures:
                break
        self.delivery.close()
        return delays


def indexed(server: Server, run: str) -> Counter[str]:
    """How often each event of one run of the journal is in the index."""
    server.ask("POST", f"/{STREAM}/_refresh")
    query = {"prefix": {"event.id": run}}
    body = {"query": query, "size": 10_000, "_source": False, "sort": ["event.sequence"]}
    found = server.ask("POST", f"/{STREAM}/_search", body)["hits"]
    ids = Counter(hit["_id"] for hit in found["hits"])
    assert found["total"]["value"] == sum(ids.values())
    return ids


def each_once(events: Sequence[StoredEvent]) -> Counter[str]:
    return Counter(event.id for event in events)


# Against real servers


@pytest.mark.peer
def test_each_event_is_in_the_index_once_and_can_be_found(
    journal: Journal, elasticsearch: Server
) -> None:
    card = f"card-{journal.run}"
    events = write(journal, 4500, labelset({"card": card, "service": "deepseek"}))
    shipping = Shipping(journal, elasticsearch.url)
    delays = shipping.run()

    assert delays == [0.0, 0.0, 0.0, 1.0]
    assert indexed(elasticsearch, journal.run) == each_once(events)
    assert (shipping.log, shipping.delivery.notes) == ([], [])
    conditions = [
        {"term": {"labels.card": card}},
        {"term": {"vllm_watchdog.fields.n": "7"}},
        {"term": {"service.name": "deepseek"}},
        {"term": {"event.action": "xid"}},
        {"match": {"message": "line 7"}},
    ]
    query = {"query": {"bool": {"filter": conditions}}}
    assert elasticsearch.ask("POST", f"/{STREAM}/_search", query)["hits"]["total"]["value"] == 1


@pytest.mark.peer
def test_the_stream_is_made_from_our_template(journal: Journal, elasticsearch: Server) -> None:
    write(journal, 1)
    Shipping(journal, elasticsearch.url).run()

    (template,) = elasticsearch.get("/_index_template/logs-vllm_watchdog")["index_templates"]
    assert template["index_template"]["template"]["lifecycle"]["data_retention"] == "90d"
    (index, *_) = elasticsearch.get(f"/{STREAM}/_mapping").items()
    assert index[0].startswith(f".ds-{STREAM}-")
    fields = index[1]["mappings"]["properties"]["vllm_watchdog"]["properties"]["fields"]
    assert fields["type"] == "flattened"


@pytest.mark.peer
@pytest.mark.parametrize("cut", [0, 20], ids=["no answer", "half an answer"])
def test_a_bulk_whose_answer_is_lost_is_not_repeated_in_the_next_backing_index(
    journal: Journal, elasticsearch: Server, cut: int
) -> None:
    events = write(journal, 300)
    lost: list[str] = []

    def answer(asked: Request) -> Reply:
        reply = forward(elasticsearch.url, asked)
        if "_bulk" in asked.path and not lost:
            lost.append(asked.path)
            reply.cut = cut
            elasticsearch.ask("POST", f"/{STREAM}/_rollover")
        return reply

    with wire(answer) as url:
        shipping = Shipping(journal, url)
        shipping.follower.step()
        more = write(journal, 50, first=10_000)
        shipping.run()

    assert len(lost) == 1
    assert indexed(elasticsearch, journal.run) == each_once([*events, *more])


@pytest.mark.peer
def test_an_event_that_the_mapping_refuses_is_set_aside_and_the_others_arrive(
    journal: Journal, elasticsearch: Server
) -> None:
    name = f"x{journal.run}"
    good = write(journal, 3, ((name, "text"),))
    bad = write(journal, 1, ((f"{name}.below", "text"),), first=10_000)
    more = write(journal, 3, first=20_000)
    shipping = Shipping(journal, elasticsearch.url)
    shipping.run()

    assert indexed(elasticsearch, journal.run) == each_once([*good, *more])
    ((refused, reason),) = journal.refused("elasticsearch")
    assert refused == bad[0].id
    assert reason.startswith("400 document_parsing_exception: ")
    assert shipping.follower.figures().refused == 1
    assert shipping.log == ["elasticsearch refused 1 events for good; they are set aside"]


SHIP = """
import sys, time
from pathlib import Path
from vllm_watchdog.watchdog.config.models import Elasticsearch as Settings
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.outlets import elasticsearch, follower
from vllm_watchdog.watchdog.system import RealClock
follower.COUNT = 40
journal = Journal.open(Path(sys.argv[1]), RealClock())
delivery = elasticsearch.Elasticsearch(Settings(hosts=(sys.argv[2],)), "node-1")
shipping = follower.Follower(journal, delivery, print)
while shipping.step() == 0.0:
    print("batch", flush=True)
print("done", flush=True)
time.sleep(60)
"""


@pytest.mark.peer
@pytest.mark.slow
def test_an_outlet_that_is_killed_repeats_nothing_and_loses_nothing(
    journal: Journal, tmp_path: Path, elasticsearch: Server
) -> None:
    events = write(journal, 2000)
    said = ""
    for kill_at in (3, 5, 1, 7, 10_000):
        elasticsearch.ask("POST", f"/{STREAM}/_rollover") if said else None
        argv = [sys.executable, "-c", SHIP, str(tmp_path / "journal.db"), elasticsearch.url]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for number, line in enumerate(child.stdout, 1):
                said = line
                if number == kill_at or line == "done\n":
                    # A further batch is on its way now: the kill falls before, in or after it.
                    threading.Event().wait(0.002 * kill_at % 0.02)
                    break
            child.kill()

    assert said == "done\n"
    assert indexed(elasticsearch, journal.run) == each_once(events)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("major", [8, 9])
def test_what_happened_before_elasticsearch_started_arrives_once_afterwards(
    journal: Journal, major: int
) -> None:
    port = free_port()
    events = write(journal, 2500)
    shipping = Shipping(journal, f"http://127.0.0.1:{port}")
    early = [shipping.follower.step() for _ in range(8)]
    with servers.elasticsearch(major, port=port) as server:
        write_and_ship(shipping)

        assert indexed(server, journal.run) == each_once(events)
    assert early == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    assert shipping.log == [
        "elasticsearch cannot be reached; events wait",
        "elasticsearch takes events again",
    ]


def write_and_ship(shipping: Shipping) -> None:
    for _ in range(200):
        shipping.run()
        if not shipping.follower._failures:
            return
        time.sleep(0.1)


@pytest.mark.peer
@pytest.mark.slow
def test_basic_authentication_with_a_password_that_is_mended_while_running(
    journal: Journal, tmp_path: Path
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong\n")
    events = write(journal, 3)
    with servers.elasticsearch(8, password="right-one") as server:
        shipping = Shipping(journal, server.url, username="admin", password_file=secret)
        refused = shipping.follower.step()
        error = shipping.follower.figures().last_error
        secret.write_text("right-one\n")
        shipping.run()
        figures = shipping.follower.figures()

    assert refused == 60.0
    assert error.startswith("401 security_exception: ")
    assert "wrong" not in error + "".join(shipping.log)
    assert (len(events), 0) == (figures.sent, figures.lag)


# Against a scripted server


class Script:
    """A cluster as the documented interface has it; ``bulks`` are answers for the next bulks: a
    Reply, or a function from the number of an event in the bulk to its item."""

    def __init__(self) -> None:
        self.bulks: list[Reply | Callable[[int], dict[str, Any]]] = []
        self.asked: list[Request] = []
        self.sizes: list[int] = []
        self.templates: Reply = Reply(404, {"error": "no such template"}, ELASTIC)
        self.put: Reply = Reply(200, {"acknowledged": True}, ELASTIC)
        self.present: list[str] = []

    def __call__(self, asked: Request) -> Reply:
        self.asked.append(asked)
        if asked.path.startswith("/_index_template/"):
            return self.templates if asked.method == "GET" else self.put
        if asked.path.endswith("/_refresh"):
            return Reply(200, {"_shards": {"failed": 0}}, ELASTIC)
        if "/_search" in asked.path:
            wanted = json.loads(asked.body)["query"]["ids"]["values"]
            hits = [{"_id": found} for found in wanted if found in self.present]
            return Reply(200, {"hits": {"hits": hits}}, ELASTIC)
        assert asked.path.startswith(f"/{STREAM}/_bulk")
        count = asked.body.count(b"\n") // 2
        self.sizes.append(count)
        given = self.bulks.pop(0) if self.bulks else (lambda _: {"status": 201})
        if isinstance(given, Reply):
            return given
        return Reply(200, {"items": [{"create": given(n)} for n in range(count)]}, ELASTIC)

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path.partition('?')[0]}" for asked in self.asked]


def error(status: int, kind: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": "because"}}


def test_the_first_bulk_after_a_start_looks_before_it_sends_and_later_ones_do_not(
    journal: Journal,
) -> None:
    script = Script()
    write(journal, 3 * COUNT)
    with wire(script) as url:
        Shipping(journal, url).run()

    assert script.paths() == [
        "GET /_index_template/logs-vllm_watchdog",
        "PUT /_index_template/logs-vllm_watchdog",
        f"POST /{STREAM}/_refresh",
        f"POST /{STREAM}/_search",
        *[f"POST /{STREAM}/_bulk"] * 3,
    ]


def test_only_what_is_missing_is_sent(journal: Journal) -> None:
    script = Script()
    events = write(journal, 5)
    script.present = [events[0].id, events[3].id]
    with wire(script) as url:
        Shipping(journal, url).run()

    assert script.sizes == [3]


def test_busy_and_failed_items_are_repeated_alone(journal: Journal) -> None:
    script = Script()
    script.bulks = [
        lambda n: error(429, "es_rejected_execution_exception") if n in (1, 4) else {"status": 201},
        lambda n: error(503, "unavailable_shards_exception") if n == 1 else {"status": 409},
    ]
    write(journal, 6)
    with wire(script) as url:
        delays = Shipping(journal, url).run()

    assert script.sizes == [6, 2, 1]
    assert delays == [1.0, 2.0, 0.0, 1.0]
    searches = [path for path in script.paths() if path.endswith("_search")]
    assert len(searches) == 3  # after the start each time; the stream is short


@pytest.mark.parametrize(
    "reply",
    [
        Reply(503, {"error": "no master"}, ELASTIC),
        Reply(502, b"<html>bad gateway</html>", {"Content-Type": "text/html"}),
        Reply(200, b"no json", ELASTIC),
        Reply(200, {"items": []}, ELASTIC),
        Reply(200, b"[1]", ELASTIC),
    ],
)
def test_after_a_doubtful_answer_it_looks_before_it_sends_again(
    journal: Journal, reply: Reply
) -> None:
    script = Script()
    write(journal, 2 * COUNT + 10)
    with wire(script) as url:
        shipping = Shipping(journal, url)
        shipping.follower.step()
        shipping.follower.step()
        script.bulks, script.asked = [reply], []
        shipping.run()

    assert script.paths() == [
        f"POST /{STREAM}/_bulk",
        f"POST /{STREAM}/_refresh",
        f"POST /{STREAM}/_search",
        f"POST /{STREAM}/_bulk",
    ]


def test_a_body_that_is_too_large_is_halved_until_it_fits_or_one_event_is_refused(
    journal: Journal,
) -> None:
    script = Script()
    write(journal, 4)
    script.bulks = [Reply(413, {}, ELASTIC)] * 3
    with wire(script) as url:
        shipping = Shipping(journal, url)
        shipping.run()

    assert script.sizes == [4, 2, 1, 1, 2]
    assert (shipping.follower.figures().sent, shipping.follower.figures().refused) == (3, 1)


@pytest.mark.parametrize(
    ("limit", "timeout", "said"), [(1000, 30.0, "larger"), (1 << 20, -1.0, "whole")]
)
def test_an_answer_without_end_is_not_read_to_its_end(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, limit: int, timeout: float, said: str
) -> None:
    monkeypatch.setattr(node, "LIMIT", limit)
    monkeypatch.setattr(node, "TIMEOUT", timeout)
    script = Script()
    script.templates = Reply(200, b" " * 200_000 + b"{}", ELASTIC)
    events = write(journal, 1)
    with wire(script) as url:
        delivery = Elasticsearch(Settings(hosts=(url,)), "node-1")
        with pytest.raises(Temporary, match=said):
            delivery.deliver(events)
        delivery.close()


@pytest.mark.parametrize(
    "body", [{"items": "x"}, {"items": [{"index": {}}]}, {"items": [{"create": 5}]}, []]
)
def test_after_an_answer_of_another_form_it_looks_before_it_sends_again(
    journal: Journal, body: Any
) -> None:
    script = Script()
    script.bulks = [lambda _: {"status": 201}, Reply(200, body, ELASTIC)]
    write(journal, COUNT + 1)
    with wire(script) as url:
        Shipping(journal, url).run()

    assert script.paths()[-4:] == [
        f"POST /{STREAM}/_bulk",
        f"POST /{STREAM}/_refresh",
        f"POST /{STREAM}/_search",
        f"POST /{STREAM}/_bulk",
    ]


def test_what_the_failure_store_took_is_told_as_refused(journal: Journal) -> None:
    script = Script()
    script.bulks = [lambda n: {"status": 201, **({"failure_store": "used"} if n == 1 else {})}]
    events = write(journal, 3)
    with wire(script) as url:
        Shipping(journal, url).run()

    assert journal.refused("elasticsearch") == [
        (events[1].id, "the stream's failure store took it")
    ]


@pytest.mark.parametrize("status", [400, 403, 405])
def test_a_server_without_the_template_call_is_used_all_the_same_and_told(
    journal: Journal, status: int
) -> None:
    script = Script()
    script.templates = script.put = Reply(status, {"error": "no handler found"}, ELASTIC)
    write(journal, 3)
    with wire(script) as url:
        shipping = Shipping(journal, url)
        shipping.run()

    assert script.sizes == [3]
    assert shipping.delivery.notes == [f"the index template could not be put: {status} no handler found"]  # fmt: skip


def test_a_newer_template_is_left_alone(journal: Journal) -> None:
    script = Script()
    known = {"index_templates": [{"index_template": {"version": 99}}]}
    script.templates = Reply(200, known, ELASTIC)
    write(journal, 1)
    with wire(script) as url:
        Shipping(journal, url).run()

    assert not any(path.startswith("PUT") for path in script.paths())


def test_no_event_is_sent_before_the_template_is_there(journal: Journal) -> None:
    script = Script()
    script.put = Reply(503, {"error": "no master"}, ELASTIC)
    write(journal, 1)
    with wire(script) as url:
        shipping = Shipping(journal, url)
        shipping.follower.step()
        shipping.delivery.close()

    assert script.sizes == []


def test_an_api_key_from_a_file_goes_into_the_header_and_nowhere_else(
    journal: Journal, tmp_path: Path
) -> None:
    script = Script()
    (tmp_path / "key").write_text("c2VjcmV0\n")
    script.bulks = [Reply(403, {"error": "no"}, ELASTIC)]
    write(journal, 1)
    with wire(script) as url:
        shipping = Shipping(journal, url, api_key_file=tmp_path / "key")
        delays = [shipping.follower.step()]
        shipping.delivery.close()

    assert delays == [60.0]
    assert {asked.headers["authorization"] for asked in script.asked} == {"ApiKey c2VjcmV0"}
    assert "c2VjcmV0" not in repr(shipping.follower.figures()) + repr(shipping.log)


def test_a_secret_that_cannot_be_read_is_one_line_and_is_tried_again(
    journal: Journal, tmp_path: Path
) -> None:
    write(journal, 1)
    shipping = Shipping(journal, "http://127.0.0.1:1", api_key_file=tmp_path / "key")

    assert shipping.follower.step() == 60.0
    assert "No such file" in shipping.follower.figures().last_error


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=es"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *words, *files, *extension], check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls_with_a_known_authority_and_never_without(
    journal: Journal, certificate: tuple[Path, Path]
) -> None:
    script = Script()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    write(journal, 2)
    with wire(script, context) as url:
        strict = Shipping(journal, url)
        strict.follower.step()
        strict.delivery.close()
        trusting = Shipping(journal, url, ca_file=certificate[0])
        trusting.run()

    assert "CERTIFICATE_VERIFY_FAILED" in strict.follower.figures().last_error
    assert script.sizes == [2]


def test_the_library_writes_nothing_to_standard_error(
    journal: Journal, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script()
    write(journal, 1)
    warned = {**ELASTIC, "Warning": '299 Elasticsearch-8.19.7 "this is old"'}
    script.templates = Reply(404, {}, warned)
    script.put = Reply(200, {}, warned)
    Shipping(journal, "http://127.0.0.1:1").follower.step()
    with wire(script) as url:
        Shipping(journal, url).run()

    assert script.sizes == [1]
    assert capfd.readouterr() == ("", "")


def test_another_host_is_asked_when_one_is_gone(journal: Journal) -> None:
    script = Script()
    write(journal, 1)
    with wire(script) as url:
        dead = f"http://127.0.0.1:{free_port()}"
        shipping = Shipping(journal, dead)
        shipping.delivery = Elasticsearch(Settings(hosts=(dead, url)), "node-1")
        shipping.follower._delivery = shipping.delivery
        shipping.run()

    assert script.sizes == [1]


# The follower alone


class Scripted:
    """A delivery that takes or fails as told."""

    name = "scripted"

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.taken: list[int] = []
        self.failure: Exception | None = None
        self.refused: list[str] = []
        self.hold: threading.Event | None = None
        self.closed = False

    def deliver(self, batch: Sequence[StoredEvent]) -> list[tuple[StoredEvent, str]]:
        if self.hold is not None:
            self.hold.wait(30)
        if self.failure is not None:
            raise self.failure
        self.taken += [event.seq for event in batch]
        return [(event, "no") for event in batch if event.message in self.refused]

    def close(self) -> None:
        self.closed = True


def follow(journal: Journal, delivery: Scripted) -> tuple[Follower, list[str]]:
    log: list[str] = []
    return Follower(journal, delivery, lambda text, **_: log.append(text)), log


@pytest.mark.parametrize("failure", [Temporary("down"), ValueError("ours")])
def test_a_failed_batch_comes_again_whole_and_later_each_time(
    journal: Journal, failure: Exception
) -> None:
    delivery = Scripted()
    follower, log = follow(journal, delivery)
    write(journal, 3)
    delivery.failure = failure
    delays = [follower.step() for _ in range(3)]
    down = follower.figures()
    delivery.failure = None

    assert delays == [1.0, 2.0, 4.0]
    assert (down.up, down.lag, down.errors, down.sent) == (False, 3, 3, 0)
    assert (follower.step(), delivery.taken) == (0.0, [1, 2, 3])
    assert log == ["scripted cannot be reached; events wait", "scripted takes events again"]


def test_batches_are_bounded_by_count_and_bytes(journal: Journal) -> None:
    delivery = Scripted()
    follower, _ = follow(journal, delivery)
    journal.append(Tick(1, 0, 0), [Event("k", "m")] * (COUNT + 1))
    journal.append(Tick(2, 0, 0), [Event("k", "m" * 8000, fields={"f": "x" * 8000})] * 300)
    sizes = []
    while follower.step() == 0.0:
        sizes.append(len(delivery.taken) - sum(sizes))

    assert sizes == [2000, 1 + 131, 131, 38]


def test_a_restarted_follower_goes_on_where_it_stood(journal: Journal) -> None:
    write(journal, 3)
    first, second = Scripted(), Scripted()
    follow(journal, first)[0].step()
    write(journal, 2, first=10_000)
    follow(journal, second)[0].step()

    assert (first.taken, second.taken) == ([1, 2, 3], [4, 5])


def test_a_hanging_delivery_holds_up_neither_the_journal_nor_the_end(journal: Journal) -> None:
    delivery = Scripted()
    delivery.hold = threading.Event()
    follower, _ = follow(journal, delivery)
    write(journal, 1)
    follower.start()
    started = time.monotonic()
    for number in range(100):
        journal.append(Tick(100 + number, 0.0, 0.0), [Event("k")])
        follower.offer([], 0.0)
    follower.stop(0.1)

    assert time.monotonic() - started < 5.0
    assert follower.figures().lag == 101
    delivery.hold.set()


def test_the_thread_ships_what_comes_and_the_rest_at_the_end(journal: Journal) -> None:
    delivery = Scripted()
    follower, _ = follow(journal, delivery)
    follower.start()
    write(journal, 5)
    follower.offer([], 0.0)
    follower.stop(10.0)

    assert delivery.taken == [1, 2, 3, 4, 5]
    assert delivery.closed


def test_the_client_library_is_not_loaded_unless_it_is_needed() -> None:
    script = (
        "import sys\n"
        "from vllm_watchdog.watchdog.config import Config\n"
        "from vllm_watchdog.watchdog.outlets import make_outlets\n"
        "assert make_outlets(None, Config()) == []\n"
        "assert 'elasticsearch' not in sys.modules, 'loaded'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
