"""Who is paged: a receiver of Alertmanager's webhooks, and the shipped configuration leading to it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
SHIPPED = REPOSITORY / "deploy/alertmanager/alertmanager.yml"


class Pages:
    """Bodies by receiver (the path's last word), in the order in which they came."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: dict[str, list[dict[str, Any]]] = {}
        self.lock = threading.Lock()

    def told(self, receiver: str, status: str = "firing") -> list[str]:
        """Names of the alerts that a receiver heard of in this status, once each notification."""
        with self.lock:
            bodies = list(self.bodies.get(receiver, ()))
        return [
            alert["labels"]["alertname"]
            for body in bodies
            for alert in body["alerts"]
            if alert["status"] == status
        ]


@contextlib.contextmanager
def pages() -> Iterator[Pages]:
    """A receiver on a free loopback port."""
    found = Pages()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with found.lock:
                found.bodies.setdefault(self.path.rpartition("/")[2], []).append(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


def shipped(
    told: Pages, wait: str = "1s", node: str = "127.0.0.1:1", token: Path | None = None
) -> str:
    """The shipped configuration with these receivers and short waits."""
    text = SHIPPED.read_text()
    for old, new in (
        ("http://127.0.0.1:9095", told.url),
        ("http://node-1:9710", f"http://{node}"),
        ('instance=~"node-1:9710|"', f'instance=~"{node}|"'),
        ("/etc/prometheus/vllm-watchdog.token", str(token or "/nonexistent")),
        ("group_wait: 30s", f"group_wait: {wait}"),
        ("group_interval: 5m", "group_interval: 1s"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    return text
