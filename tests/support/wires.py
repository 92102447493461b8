"""A server between a client and another one, or in its place, that misbehaves as told."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Request:
    """What a client asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    """What goes back. ``cut``: the connection ends after so many bytes of the body (0: before the
    status line), as if the network had failed."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None

    @property
    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Answerer = Callable[[Request], Reply]


@contextmanager
def wire(answer: Answerer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server whose answers come from a function; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = Request(self.command, self.path, dict(self.headers), self.rfile.read(length))
            reply = answer(asked)
            if reply.cut == 0:
                self.close_connection = True
                return
            self.send_response(reply.status)
            given = {"Content-Type": "application/json", **reply.headers}
            for name, value in {**given, "Content-Length": str(len(reply.data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.data[: reply.cut])
            self.close_connection = self.close_connection or reply.cut is not None

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    class Listener(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            pass

    with Listener(("127.0.0.1", 0), Handler) as listener:
        if tls is not None:
            listener.socket = tls.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        scheme = "https" if tls is not None else "http"
        try:
            yield f"{scheme}://127.0.0.1:{listener.server_address[1]}"
        finally:
            listener.shutdown()
            thread.join()


def forward(url: str, asked: Request) -> Reply:
    """The answer of the server behind the wire."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        headers = {
            n: v for n, v in asked.headers.items() if n.lower() not in ("host", "connection")
        }
        connection.request(asked.method, asked.path, asked.body, headers)
        answer = connection.getresponse()
        kept = ("content-type", "x-elastic-product")
        given = {n.title(): value for n, value in answer.getheaders() if n.lower() in kept}
        return Reply(answer.status, answer.read(), given)
    finally:
        connection.close()
