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
        asked.append(connection.recv(65536))
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
