"""Requests keep their deadline and their bound, whatever the server does."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from vllm_watchdog.watchdog.errors import HttpError
from vllm_watchdog.watchdog.system import RealHttp

Play = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextlib.contextmanager
def server(play: Play) -> Iterator[str]:
    """A server that does what ``play`` says with each connection, after one request on it."""

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65536)
            play(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        listener.shutdown(socket.SHUT_RDWR)


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
