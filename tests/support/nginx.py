"""A private nginx before two servers of our own: free loopback ports, own folder, ended by pid."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import peers
from tests.support.servers import Server, free_port, running
from vllm_watchdog.watchdog.config import Service, parse
from vllm_watchdog.watchdog.setup import nginx as texts

MODULES = (
    "/usr/lib/nginx/modules/ngx_http_js_module.so",
    "/usr/lib64/nginx/modules/ngx_http_js_module.so",
    "/usr/share/nginx/modules/ngx_http_js_module.so",
)


def require_njs() -> Path:
    """nginx's njs module; without it the test skips, and fails where ``CI=true``."""
    for path in MODULES:
        if Path(path).exists():
            return Path(path)
    reason = "nginx's njs module is not installed: run `make peers`"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass
class Upstream:
    """A server that says who it is and how often it was asked; a test changes it as it runs.

    A stream sends its first piece at once and the others when ``released`` is set. ``cut``: it
    answers nothing and closes the connection.
    """

    name: str
    port: int = 0
    status: int = 200
    cut: bool = False
    asked: int = 0
    streams: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    upstream: Upstream

    def do_GET(self) -> None:
        self.upstream.asked += 1
        if self.path == "/v1/models":
            self._json({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
        else:
            self._json({"path": self.path, "by": self.upstream.name})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.upstream.asked += 1
        if self.upstream.cut:
            self.close_connection = True
            return
        asked = json.loads(body)
        if asked.get("stream"):
            self._stream()
            return
        text = f"{self.upstream.name} {self.upstream.asked} {asked.get('prompt', '')[-20:]}"
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        self._json({"object": "text_completion", "choices": [choice]}, self.upstream.status)

    def _stream(self) -> None:
        self.upstream.streams += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(5):
            if number == 1:
                self.upstream.released.wait(30)
            self._chunk(f"data: {self.upstream.name} {number}\n\n")
        self._chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()

    def _json(self, doc: Any, status: int = 200) -> None:
        data = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """No line a request."""


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A front that breaks off is no error of the test."""


@contextlib.contextmanager
def upstream(name: str, port: int = 0) -> Iterator[Upstream]:
    """Run a server until the block ends."""
    told = Upstream(name)
    handler = type("Handler", (_Handler,), {"upstream": told})
    server = _Threads(("127.0.0.1", port), handler)
    told.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        told.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass(frozen=True)
class Answer:
    """What a client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def doc(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The completion's text."""
        return str(self.doc["choices"][0]["text"])


@dataclass(frozen=True)
class FrontServer:
    """A running nginx: the configuration of its service, its folder, where users come in."""

    server: Server
    config: Path
    name: str = "deepseek"

    @property
    def service(self) -> Service:
        return parse(self.config.read_bytes(), str(self.config)).services[self.name]

    @property
    def folder(self) -> Path:
        return self.server.folder

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def get(self, path: str, **headers: str) -> Answer:
        return request(self.url, "GET", path, None, headers)

    def post(self, body: Any, path: str = "/v1/completions", **headers: str) -> Answer:
        """A completion. Header names are written with ``_`` for ``-``."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return request(self.url, "POST", path, data, named)


def request(
    url: str, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Answer:
    """One request on a connection of its own; any status is an answer."""
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=30)
    try:
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, body, {**kind, **headers})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def ask(prompt: str = "2+2=", **more: Any) -> dict[str, Any]:
    """A body whose answer may be kept."""
    return {"model": "tiny", "prompt": prompt, "temperature": 0, **more}


@contextlib.contextmanager
def nginx_front(
    folder: Path, primary: str, standby: str | None = None, *, njs: bool = True, **front: Any
) -> Iterator[FrontServer]:
    """nginx with the server that `setup nginx` writes, before these two addresses.

    ``front``: further keys of the service's ``front``. Beside it nginx reads ``beside.conf``, empty
    until a test breaks it.
    """
    program = peers.require("nginx")
    module = require_njs() if njs else None
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    config = _configure(folder, program, port, primary, standby, njs=njs, **front)
    service = parse(config.read_bytes(), str(config)).services["deepseek"]
    (folder / "front").mkdir()
    (folder / "server.conf").write_text(texts.server_text("deepseek", service))
    (folder / "front" / texts.SCRIPT).write_text(texts.script_text())
    (folder / "front" / "deepseek.conf").write_text(texts.first_include("deepseek", service))
    (folder / "beside.conf").write_text("")
    (folder / "nginx.conf").write_text(_main(folder, module))
    argv = [program, "-c", folder / "nginx.conf", "-p", folder]
    url = f"http://127.0.0.1:{port}"
    with running(argv, url=url, ready="/ready", folder=folder) as server:
        yield FrontServer(server, config)


def _configure(
    folder: Path, program: Path, port: int, primary: str, standby: str | None, **front: Any
) -> Path:
    service: dict[str, Any] = {
        "url": primary,
        "front": {
            "nginx": str(folder / "front" / "deepseek.conf"),
            "url": f"http://127.0.0.1:{port}",
            "command": [str(program), "-c", str(folder / "nginx.conf"), "-p", str(folder)],
            "cache": str(folder / "cache"),
            **front,
        },
    }
    if standby:
        service["standby"] = {"url": standby}
    config = folder / "watchdog.yaml"
    config.write_text(json.dumps({"services": {"deepseek": service}}))
    return config


def _main(folder: Path, module: Path | None) -> str:
    user = "user root;\n" if os.geteuid() == 0 else ""
    load = f"load_module {module};\n" if module else ""
    temporary = "".join(
        f"    {kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""{user}{load}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
worker_processes 2;
worker_shutdown_timeout 60s;
events {{ worker_connections 512; }}
http {{
    access_log off;
{temporary}    include {folder}/server.conf;
    include {folder}/beside.conf;
}}
"""


def until(condition: Any, within: float = 10.0) -> bool:
    """Look again and again, at most so many seconds; whether it came to hold."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
