"""The HTTP side over real sockets: what each path gives, and what no client can do to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from vllm_watchdog.watchdog.api import Snapshot
from vllm_watchdog.watchdog.api import server as server_module
from vllm_watchdog.watchdog.api.hosts import own
from vllm_watchdog.watchdog.api.routes import Routes
from vllm_watchdog.watchdog.api.server import Server
from vllm_watchdog.watchdog.errors import ConfigError, WatchdogError
from vllm_watchdog.watchdog.model import Json, labelset
from vllm_watchdog.watchdog.system import RealClock

ALERT = {
    "alert": "CardLost",
    "labels": {"alertname": "CardLost", "card": "<b>0000:c1:00</b>"},
    "annotations": {"summary": "A card is gone."},
    "state": "firing",
    "active_at": 1_700_000_000.0,
    "fired_at": 1_700_000_010.0,
    "value": float("nan"),
    "service": "deepseek",
}


SLOW_FORM = (
    b"POST /api/v1/query HTTP/1.1\r\nContent-Length: 99\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n\r\nq"
)


class FakeViews:
    """Answers that say what was asked."""

    def __init__(self) -> None:
        self.shown = Snapshot()
        self.asked: list[Any] = []
        self.error: Exception | None = None
        self.hold: threading.Event | None = None
        self.entered = threading.Semaphore(0)

    def snapshot(self) -> Snapshot:
        self.entered.release()
        if self.hold is not None:
            self.hold.wait(30)
        return self.shown

    def query(self, expr: str, at_ms: int | None) -> Json:
        if self.error is not None:
            raise self.error
        self.asked.append((expr, at_ms))
        return {"resultType": "scalar", "result": [1, "1"]}

    def query_range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Json:
        self.asked.append((expr, start_ms, end_ms, step_ms))
        return {"resultType": "matrix", "result": []}

    def alerts(self) -> Sequence[Json]:
        return [ALERT]

    def status(self) -> Json:
        return {"mode": "observe"}

    def events(self, after: int, limit: int, filters: Mapping[str, Any]) -> Sequence[Json]:
        self.asked.append((after, limit, dict(filters)))
        return [{"seq": after + 1}]


class Running:
    """A server on a free port, its views, and what it reported."""

    def __init__(self, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.views = FakeViews()
        self.reports: list[str] = []
        self.server = Server((host, 0), Routes(self.views), RealClock(), self.reports.append, tls)
        self.server.start()
        self.address = self.server.address

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection(*self.address, timeout=20)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        return json.loads(self.ask(path)[2])


@pytest.fixture
def running() -> Iterator[Running]:
    started = Running()
    yield started
    started.server.stop()


def test_healthy_at_once_and_ready_only_after_a_finished_tick(running: Running) -> None:
    assert (running.ask("/-/healthy")[0], running.ask("/-/ready")[0]) == (200, 503)

    running.views.shown = Snapshot(ready=True)
    assert running.ask("/-/ready")[0] == 200


def test_metrics_in_the_form_that_the_client_accepts(running: Running) -> None:
    running.views.shown = Snapshot(series=[(labelset({}, "service_up"), 1.0)])
    status, content_type, text = running.ask("/metrics")
    openmetrics = running.ask("/metrics", headers={"Accept": "application/openmetrics-text"})

    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "\nservice_up 1.0\n" in text
    assert openmetrics[1].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics[2].endswith("# EOF\n")


def test_a_query_by_address_or_form_is_answered_as_prometheus_does(running: Running) -> None:
    by_address = running.json("/api/v1/query?query=up%7Ba%3D%22b%22%7D&time=1700000000.5")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    running.ask("/api/v1/query", "POST", b"query=up&time=2023-11-14T22:13:20Z", form)
    running.ask("/api/v1/query?query=up")

    assert by_address == {"status": "success", "data": {"resultType": "scalar", "result": [1, "1"]}}
    assert running.views.asked == [
        ('up{a="b"}', 1_700_000_000_500),
        ("up", 1_700_000_000_000),
        ("up", None),
    ]


def test_a_range_query_hands_on_milliseconds(running: Running) -> None:
    running.ask("/api/v1/query_range?query=up&start=1700000000&end=1700000060&step=1m30s")

    assert running.views.asked == [("up", 1_700_000_000_000, 1_700_000_060_000, 90_000)]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/api/v1/query", "query: is missing"),
        ("/api/v1/query?query=+", "query: is missing"),
        ("/api/v1/query?query=up&time=yesterday", "time: 'yesterday' is no time: write Unix seconds or 2026-01-31T12:00:00Z"),
        ("/api/v1/query?query=up&time=2026-01-31T12:00:00", "time: '2026-01-31T12:00:00' is no time: write Unix seconds or 2026-01-31T12:00:00Z"),
        ("/api/v1/query?query=up&time=inf", "time: 'inf' is out of range"),
        ("/api/v1/query_range?query=up&start=1&end=2", "step: is missing"),
        ("/api/v1/query_range?query=up&start=2&end=1&step=1", "end: is before start"),
        ("/api/v1/query_range?query=up&start=1&end=2&step=0", "step: '0' is out of range"),
        ("/api/v1/query_range?query=up&start=1&end=2&step=1x", "step: '1x' is no duration: write 15s or 1m30s"),
        ("/api/v1/query_range?query=up&start=1&end=20000&step=1", "step: gives more than 11000 points a series; choose a larger one"),
        ("/api/v1/events?limit=-1", "limit: '-1' is no whole number from 0 to 10000"),
        ("/api/v1/events?color=red", "color: is no filter: use after, limit, kind, severity, service, since, until"),
    ],
)  # fmt: skip
def test_a_bad_parameter_is_one_line(running: Running, path: str, message: str) -> None:
    status, _, body = running.ask(path)

    assert status == 400
    assert {"status": "error", "errorType": "bad_data", "error": message} == json.loads(body)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(ConfigError("1:4: unexpected )"), 400, "bad_data"), (WatchdogError("many-to-many"), 422, "execution")],
)  # fmt: skip
def test_a_query_that_fails_says_why(
    running: Running, error: Exception, status: int, kind: str
) -> None:
    running.views.error = error
    got, _, body = running.ask("/api/v1/query?query=up")

    assert (status, kind) == (got, json.loads(body)["errorType"])
    assert str(error) == json.loads(body)["error"]


def test_a_fault_of_ours_shows_no_traceback_and_is_reported(running: Running) -> None:
    running.views.error = KeyError("secret")
    status, _, body = running.ask("/api/v1/query?query=up")

    assert (status, body) == (500, "internal error: see the daemon's log\n")
    assert running.reports == ["GET '/api/v1/query?query=up': KeyError: 'secret'"]


def test_alerts_status_and_events_are_plain_json(running: Running) -> None:
    assert running.json("/api/v1/alerts") == [{**ALERT, "value": "NaN"}]
    assert running.json("/api/v1/status") == {"mode": "observe"}
    assert running.json("/api/v1/events?after=7&limit=5&kind=xid&since=1700000000") == [{"seq": 8}]
    assert running.views.asked == [(7, 5, {"kind": "xid", "since": 1_700_000_000.0})]


def test_head_is_the_answer_without_its_body(running: Running) -> None:
    assert running.ask("/-/healthy", "HEAD")[::2] == (200, "")


def test_unknown_paths_and_wrong_methods_are_refused(running: Running) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    assert running.ask("/nothing")[0] == 404
    assert running.ask("/../../etc/passwd")[0] == 404
    assert running.ask("/metrics", "POST", b"", form)[0] == 405
    assert running.ask("/metrics", "DELETE")[0] == 501


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({"Content-Type": "application/json"}, "Content-Type: application/json is not"),
        ({"Content-Length": "9999999999"}, "the body is larger than 1048576 bytes"),
        ({"Content-Length": "many"}, "Content-Length: is missing"),
    ],
)
def test_a_body_that_is_no_small_form_is_refused(
    running: Running, headers: dict[str, str], message: str
) -> None:
    given = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    status, _, body = running.ask("/api/v1/query", "POST", b"query=up", given)

    assert status == 400
    assert body.startswith(message)


@pytest.mark.parametrize(
    "rubbish",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        b"GET /api/v1/query?" + b"a=b&" * 500 + b" HTTP/1.1\r\n\r\n",
        b"GET /%00%ff?\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_rubbish_gets_an_error_or_nothing_and_the_server_lives(
    running: Running, rubbish: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(running.address, 10) as client:
        client.sendall(rubbish)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk

    assert b"Traceback" not in answer
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert running.ask("/-/healthy")[0] == 200
    assert capfd.readouterr() == ("", "")
    assert running.reports == []


def test_connections_beyond_the_bound_are_refused_at_once(running: Running) -> None:
    running.views.hold = threading.Event()
    clients = [socket.create_connection(running.address, 20) for _ in range(32)]
    try:
        for client in clients:
            client.sendall(b"GET /-/ready HTTP/1.1\r\n\r\n")
        for _ in clients:
            assert running.views.entered.acquire(timeout=20)

        with socket.create_connection(running.address, 20) as late:
            assert late.recv(100).startswith(b"HTTP/1.1 503 ")
        running.views.hold.set()
        assert all(client.recv(12) == b"HTTP/1.1 503" for client in clients)  # not ready
    finally:
        for client in clients:
            client.close()


@pytest.mark.parametrize("sent", [b"", b"GET /-/healthy HTTP/1.1\r\n", SLOW_FORM])
def test_requests_that_never_come_keep_nobody_out(
    running: Running, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(server_module, "GRACE", 0.0)
    with contextlib.ExitStack() as held:
        for _ in range(server_module.CONNECTIONS):
            client = held.enter_context(socket.create_connection(running.address, timeout=20))
            client.sendall(sent)

        assert [running.ask("/-/healthy")[0] for _ in range(3)] == [200, 200, 200]
    assert running.reports == []


def test_a_client_that_dawdles_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    running = Running()
    try:
        with socket.create_connection(running.address, 20) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost")

            assert client.recv(100) == b""
    finally:
        running.server.stop()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9710", 200),
        ("LOCALHOST", 200),
        ("node.localhost", 200),
        ("127.0.0.1:9710", 200),
        ("[::1]:9710", 200),
        ("10.0.0.7", 200),
        ("", 200),
        ("evil.example:9710", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example@localhost.evil.example", 421),
        ("[::1.evil.example]", 421),
    ],
)
def test_a_name_that_was_made_to_lead_to_this_machine_reads_nothing(
    running: Running, host: str, status: int
) -> None:
    connection = http.client.HTTPConnection(*running.address, timeout=20)
    try:
        connection.putrequest("GET", "/api/v1/alerts", skip_host=True)
        connection.putheader("Host", host)
        connection.endheaders()
        assert connection.getresponse().status == status
    finally:
        connection.close()


@pytest.mark.parametrize("listening", ["0.0.0.0", "10.0.0.1", "::", "/", 47])
def test_a_listener_that_others_reach_goes_by_any_name(listening: object) -> None:
    assert own("node-1.example:9710", listening, "node-1")


def test_the_machine_s_own_name_leads_to_its_listener() -> None:
    assert own("node-1:9710", "127.0.0.1", "node-1.example")
    assert own("node-1.example", "::1", "node-1.example")


def test_a_port_in_use_is_one_line(running: Running) -> None:
    with pytest.raises(ConfigError) as caught:
        Server(running.address, Routes(running.views), RealClock(), print)

    host, port = running.address
    assert str(caught.value) == (
        f"listen: cannot listen on {host}:{port}: Address already in use"
        " (is another daemon running? choose another by listen: or --listen)"
    )


def test_a_host_that_is_not_ours_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^listen: cannot listen on 203\.0\.113\.1:9710: "):
        Server(("203.0.113.1", 9710), Routes(FakeViews()), RealClock(), print)


def test_it_listens_on_ipv6() -> None:
    try:
        running = Running("::1")
    except ConfigError:
        pytest.skip("this machine has no IPv6 loopback")
    try:
        assert running.ask("/-/healthy")[0] == 200
    finally:
        running.server.stop()


def test_it_speaks_tls_where_a_certificate_is_given(tmp_path: Path) -> None:
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    made = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    extension = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(["openssl", *words, *made, *extension], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    running = Running(tls=context)
    trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    connection = http.client.HTTPSConnection(*running.address, context=trusted, timeout=20)
    try:
        connection.request("GET", "/-/healthy")

        assert connection.getresponse().status == 200
    finally:
        connection.close()
        running.server.stop()
