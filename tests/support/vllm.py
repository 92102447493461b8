"""A stand-in for a vLLM server: the pages and answers of one, with figures that a test sets.

Serves /metrics, /health, /v1/models, /openapi.json and completions on a free loopback port. Written from the
published interface; it computes nothing.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeVllm:
    """The figures of the server; a test changes them while it runs."""

    port: int = 0
    healthy: bool = True
    completion_status: int = 200
    requests_2xx: float = 0.0
    requests_5xx: float = 0.0
    tokens: float = 0.0
    running: float = 0.0
    waiting: float = 0.0
    padding: int = 0
    latencies: dict[str, float] = field(default_factory=dict)
    completions: int = 0
    scrapes: int = 0
    beside: bytes = b""  # what /beside serves after the page: series of other exporters

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def page(self) -> bytes:
        """The metrics page; ``padding`` further series make it as large as a test wants."""
        self.scrapes += 1
        m = '{model_name="tiny",engine="0"}'
        http = 'handler="/v1/completions",method="POST"'
        lines = [
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{m} {self.running}",
            f"vllm:num_requests_waiting{m} {self.waiting}",
            f"vllm:kv_cache_usage_perc{m} 0.25",
            f"vllm:generation_tokens_total{m} {self.tokens}",
            f"vllm:prompt_tokens_total{m} {self.tokens}",
            f'http_requests_total{{{http},status="2xx"}} {self.requests_2xx}',
            f'http_requests_total{{{http},status="5xx"}} {self.requests_5xx}',
        ]
        lines += [
            f'vllm:padding_seconds_bucket{{model_name="tiny",engine="0",part="{i // 20}",le="{i % 20}"}} '
            f"{self.scrapes + i}"
            for i in range(self.padding)
        ]
        return ("\n".join(lines) + "\n").encode()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeVllm

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/metrics":
            self._send(200, self.fake.page(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/beside":
            self._send(200, self.fake.page() + self.fake.beside, "text/plain; version=0.0.4")
        elif path == "/health":
            self._send(200 if self.fake.healthy else 503, b"")
        elif path == "/v1/models":
            self._json({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
        elif path == "/openapi.json":
            self._json(
                {"paths": {"/v1/completions": {"post": {}}, "/v1/chat/completions": {"post": {}}}}
            )
        else:
            self._json({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.fake.completions += 1
        if self.fake.completion_status != 200:
            self._json({"error": {"message": "boom"}}, self.fake.completion_status)
            return
        self.fake.tokens += 1
        choice = {"index": 0, "text": "4", "finish_reason": "length"}
        self._json(
            {"id": "cmpl-1", "object": "text_completion", "model": "tiny", "choices": [choice]}
        )

    def _json(self, doc: Any, status: int = 200) -> None:
        self._send(status, json.dumps(doc).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """No line a request."""


@contextlib.contextmanager
def fake_vllm(**figures: Any) -> Iterator[FakeVllm]:
    """Run a stand-in until the block ends."""
    fake = FakeVllm(**figures)
    handler = type("Handler", (_Handler,), {"fake": fake})
    server = ThreadingHTTPServer(("127.0.0.1", fake.port), handler)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
