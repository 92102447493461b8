"""Requests keep their deadline and their bound, whatever the server does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.errors import HttpError
from vllm_watchdog.watchdog.system import RealHttp
from vllm_watchdog.watchdog.web import unix_url

Play = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextlib.contextmanager
def server(play: Play, path: Path | None = None) -> Iterator[str]:
    """A server that does what ``play`` says with each connection, after one request on it; on a
    Unix socket where a ``path`` is given."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            play(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with _listener(path) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield unix_url(path) if path else f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)


def _listener(path: Path | None) -> socket.socket:
    if path is None:
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def drip(piece: bytes) -> Play:
    """Send a piece every 50 ms, for ever."""

    def play(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        while True:
            connection.sendall(piece)
            time.sleep(0.05)

    return play


@pytest.mark.parametrize(
    "piece",
    [b"X: y\r\n", b"\r\nx", b"x", b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"],
    ids=["head", "body", "line", "chunk"],
)
def test_a_server_that_sends_a_byte_now_and_then_gains_no_time(piece: bytes) -> None:
    start = time.monotonic()

    with server(drip(piece)) as url, pytest.raises(HttpError) as told:
        RealHttp().request("GET", url, timeout=0.5)

    assert told.value.reason in ("timeout", "broken")
    assert time.monotonic() - start < 3


def test_a_body_that_drips_is_told_as_a_timeout() -> None:
    def play(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        drip(b"x")(connection)

    with (
        server(play) as url,
        pytest.raises(HttpError, match=r"no whole answer within 0\.5 s") as told,
    ):
        RealHttp().request("GET", url, timeout=0.5)

    assert told.value.reason == "timeout"


def test_an_endless_answer_is_cut_at_the_limit() -> None:
    def play(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    with server(play) as url:
        answer = RealHttp().request("GET", url, timeout=10, limit=100_000)

    assert (answer.truncated, len(answer.body)) == (True, 100_000)


def test_a_connection_is_used_again() -> None:
    opened = []

    def play(connection: socket.socket) -> None:
        opened.append(connection)
        for _ in range(2):
            connection.sendall(HEAD + b"Content-Length: 2\r\n\r\nok")
            connection.recv(65536)

    http = RealHttp()
    with server(play) as url:
        answers = [http.request("GET", url, timeout=5).text for _ in range(2)]

    assert answers == ["ok", "ok"]
    assert len(opened) == 1


def test_a_server_on_a_unix_socket_is_asked_by_its_path(tmp_path: Path) -> None:
    asked = []

    def play(connection: socket.socket) -> None:
        connection.sendall(HEAD + b"Content-Length: 2\r\n\r\nok")
        data = connection.recv(65536)
        while not data.endswith(b"{}"):
            data += connection.recv(65536)
        asked.append(data)
        connection.sendall(HEAD + b"Content-Length: 5\r\n\r\nagain")

    http = RealHttp()
    path = tmp_path / "An Own.sock"  # blanks and capitals are kept
    with server(play, path):
        first = http.request("GET", unix_url(path, "/v1/x?all=1"), timeout=5).text
        second = http.request("POST", unix_url(path, "/v1/x?all=1"), timeout=5, body=b"{}").text

    assert (first, second) == ("ok", "again")
    assert asked[0].splitlines()[:2] == [b"POST /v1/x?all=1 HTTP/1.1", b"Host: localhost"]
    assert asked[0].endswith(b"{}")


@pytest.mark.parametrize("left", [False, True], ids=["absent", "left behind"])
def test_a_socket_without_a_server_refuses_and_is_named(tmp_path: Path, left: bool) -> None:
    path = tmp_path / "s.sock"
    if left:
        _listener(path).close()

    with pytest.raises(HttpError, match=r"^/.*/s\.sock: ") as told:
        RealHttp().request("GET", unix_url(path), timeout=5)

    assert told.value.reason == "refused"


def test_a_silent_server_on_a_unix_socket_has_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with (
        server(drip(b"x"), path),
        pytest.raises(HttpError, match=r"no answer within 0\.5 s") as told,
    ):
        RealHttp().request("GET", unix_url(path), timeout=0.5)

    assert told.value.reason == "timeout"


def answers(*told: bytes, closing: bool = False) -> tuple[Play, list[bytes]]:
    """Give one answer to each request of a connection; what was asked after the first."""
    asked: list[bytes] = []

    def play(connection: socket.socket) -> None:
        for answer in told:
            connection.sendall(answer)
            if closing:
                return
            asked.append(connection.recv(65536))

    return play, asked


OK = HEAD + b"Content-Length: 2\r\n\r\nok"


def test_a_connection_that_the_server_closed_in_between_is_opened_anew() -> None:
    play, _ = answers(OK, closing=True)
    http = RealHttp()

    with server(play) as url:
        told = [http.request("POST", url, timeout=5, body=b"x").text]
        time.sleep(0.1)  # the end of the connection has come
        told.append(http.request("POST", url, timeout=5, body=b"x").text)

    assert told == ["ok", "ok"]


@pytest.mark.parametrize(("method", "reason"), [("GET", ""), ("POST", "broken")])
def test_what_only_reads_is_asked_again_when_an_idle_connection_ends_under_it(
    method: str, reason: str
) -> None:
    def play(connection: socket.socket) -> None:
        connection.sendall(OK)
        if len(opened) < 2:
            opened.append(connection.recv(65536))  # and then closes without an answer

    opened: list[bytes] = [b""]
    http = RealHttp()
    found = ""
    with server(play) as url:
        http.request("GET", url, timeout=5)
        try:
            assert http.request(method, url, timeout=5).text == "ok"
        except HttpError as error:
            found = error.reason

    assert found == reason


def test_a_body_shorter_than_promised_is_broken() -> None:
    play, _ = answers(HEAD + b"Content-Length: 9\r\n\r\nok", closing=True)

    with server(play) as url, pytest.raises(HttpError) as told:
        RealHttp().request("GET", url, timeout=5)

    assert told.value.reason == "broken"


def test_chunks_are_put_together_and_the_connection_is_used_again() -> None:
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    play, asked = answers(chunked, HEAD + b"Content-Length: 0\r\n\r\n")
    http = RealHttp()

    with server(play) as url:
        told = [http.request("GET", url + part, timeout=5).body for part in ("", "p?a=ü b#c")]

    assert told == [b"abc", b""]
    assert asked[0].startswith(b"GET /p?a=%C3%BC%20b HTTP/1.1\r\nHost: 127.0.0.1:")


def test_a_redirect_is_told_and_not_followed() -> None:
    play, _ = answers(b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")

    with server(play) as url:
        answer = RealHttp().request("GET", url, timeout=5)

    assert (answer.status, answer.headers["Location"]) == (302, "/x")


def test_a_password_is_sent_and_never_told() -> None:
    play, asked = answers(OK, b"no HTTP\r\n")
    http = RealHttp()

    with server(play) as url, pytest.raises(HttpError) as told:
        secret = url.replace("://", "://me:s%40cret@")
        http.request("GET", url, timeout=5)
        http.request("GET", secret, timeout=5)

    assert b"\r\nAuthorization: Basic bWU6c0BjcmV0\r\n" in asked[0]
    assert str(told.value).startswith(url)


@pytest.mark.parametrize(
    "url", ["", "ftp://x/", "http://", "http://[::1", "http://x:99999/", "http+unix:///x"]
)
def test_what_is_no_address_is_told_as_broken(url: str) -> None:
    with pytest.raises(HttpError) as told:
        RealHttp().request("GET", url, timeout=5)

    assert told.value.reason == "broken"


def test_a_header_with_a_line_break_is_not_sent() -> None:
    play, asked = answers(OK)

    with server(play) as url, pytest.raises(HttpError):
        RealHttp().request("GET", url, timeout=5, headers={"X": "a\r\nY: b"})

    assert asked == []


def test_a_server_that_speaks_no_tls_is_told_apart() -> None:
    play, _ = answers(OK, closing=True)

    with server(play) as url, pytest.raises(HttpError) as told:
        RealHttp().request("GET", url.replace("http:", "https:"), timeout=5)

    assert told.value.reason == "tls"
