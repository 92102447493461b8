"""Connections to HTTP servers: addresses taken apart, requests written, answers read in time.

A part of ``web``, on the standard library alone: a scrape of each service every few seconds is
most of what the daemon does. No meaning of answers, and no choice of what is tried again.
"""

from __future__ import annotations

import base64
import http.client
import io
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    import ssl

UNIX = "http+unix://"
PORTS = {"http": 80, "https": 443}
CHUNK = 65536  # bytes read at once
_SAFE = "!#$%&'()*+,/:;=?@[]~"  # what may stand in a request's target as it is
_GONE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Address:
    """A URL taken apart. ``place`` is host or, for ``unix``, path; ``head`` what each request to
    this server says of it."""

    scheme: str
    place: str
    port: int
    target: str
    head: bytes

    @property
    def server(self) -> tuple[str, str]:
        """What tells servers apart."""
        return self.scheme, f"{self.place}:{self.port}"


@lru_cache(maxsize=256)
def address_of(url: str) -> Address:
    """Take a URL apart. Raises ValueError where it is none of ours."""
    parts = urlsplit(url)
    user, _, name = parts.netloc.rpartition("@")
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE)
    if url.startswith(UNIX) and name:
        return Address("unix", unquote(name), 0, target, b"Host: localhost\r\n")
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("not an address of an HTTP server")
    head = f"Host: {_host(name)}\r\n"
    if user:
        secret = base64.b64encode(unquote(user).encode()).decode()
        head += f"Authorization: Basic {secret}\r\n"
    port = parts.port or PORTS[parts.scheme]
    return Address(parts.scheme, parts.hostname, port, target, head.encode("ascii"))


def _host(name: str) -> str:
    """A server's name as it stands in the header: international ones in their ASCII form."""
    return name if name.isascii() else name.encode("idna").decode()


def message_of(
    method: str, address: Address, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """The request as it is sent. Raises ValueError for headers that would be more than that."""
    fields = {"User-Agent": "vllm-watchdog", "Accept": "*/*", "Accept-Encoding": "identity"}
    fields.update(headers)
    if body is not None or method not in ("GET", "HEAD"):
        fields["Content-Length"] = str(len(body or b""))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    if lines.count("\n") != len(fields) or lines.count("\r") != len(fields):
        raise ValueError("a header with a line break in it")
    first = f"{method} {address.target} HTTP/1.1\r\n".encode("ascii")
    return b"".join((first, address.head, lines.encode("latin-1"), b"\r\n", body or b""))


class Connection:
    """A connection to one server, opened when it is needed and used again while it can be."""

    def __init__(self, address: Address, context: ssl.SSLContext | None) -> None:
        self._address, self._context = address, context
        self._socket: socket.socket | None = None
        self.deadline = 0.0

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it; the next request opens it anew."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, method: str, message: bytes, deadline: float) -> http.client.HTTPResponse:
        """Send a request and read the head of its answer. Raises OSError, HTTPException.

        A server may close an idle connection at the very moment when it is used again: what only
        reads is then asked once more.
        """
        self.deadline = deadline
        again = self._still_open() and method in ("GET", "HEAD")
        try:
            return self._ask(method, message)
        except _GONE:
            if not again:
                raise
        return self._ask(method, message)

    def body(self, answer: http.client.HTTPResponse, limit: int) -> tuple[bytes, bool]:
        """The body up to a limit, and whether there was more. Raises OSError, HTTPException."""
        whole = False
        try:
            data, truncated = _read_body(answer, limit)
            whole = answer.isclosed() and not answer.will_close
        finally:
            if not whole:  # nothing of it may be taken for the next answer
                answer.close()
                self.close()
        return data, truncated

    def left(self) -> float:
        """Seconds until the deadline. Raises TimeoutError after it."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def _ask(self, method: str, message: bytes) -> http.client.HTTPResponse:
        try:
            if self._socket is None:
                self._socket = self._open()
            self._socket.settimeout(self.left())
            self._socket.sendall(message)
            source: Any = _Source(self._socket, self)
            answer = http.client.HTTPResponse(source, method=method)
            answer.begin()
        except BaseException:
            self.close()
            raise
        return answer

    def _open(self) -> socket.socket:
        address = self._address
        if address.scheme == "unix":
            opened = socket.socket(socket.AF_UNIX)
        else:
            opened = socket.create_connection((address.place, address.port), self.left())
        try:
            opened.settimeout(self.left())
            if address.scheme == "unix":
                _connect(opened, address.place)
            else:
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                opened = self._context.wrap_socket(opened, server_hostname=address.place)
        except BaseException:
            opened.close()
            raise
        return opened

    def _still_open(self) -> bool:
        """Whether there is a connection on which nothing has come: an end would have."""
        if self._socket is None:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if poll.poll(0):
            self.close()
        return self._socket is not None


class _Source:
    """What http.client takes for a socket: it reads until the connection's deadline."""

    def __init__(self, opened: socket.socket, connection: Connection) -> None:
        self._opened, self._connection = opened, connection

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Timed(self._opened, self._connection))


class _Timed(io.RawIOBase):
    """Reads a connection until its deadline: a server that sends a byte now and then gains nothing.

    (A socket's own time-out begins anew with each byte.)
    """

    def __init__(self, opened: socket.socket, connection: Connection) -> None:
        self._opened, self._connection = opened, connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._opened.settimeout(self._connection.left())
        return self._opened.recv_into(buffer)


def _connect(opened: socket.socket, path: str) -> None:
    try:
        opened.connect(path)
    except FileNotFoundError as error:
        raise ConnectionRefusedError("no server listens there") from error


def _read_body(answer: http.client.HTTPResponse, limit: int) -> tuple[bytes, bool]:
    """The body up to a limit, and whether there was more. Raises OSError, HTTPException."""
    chunks: list[bytes] = []
    size = 0
    while chunk := answer.read(CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], True
    if answer.length:  # its end came before its length was reached
        raise http.client.IncompleteRead(b"".join(chunks), answer.length)
    return b"".join(chunks), False
