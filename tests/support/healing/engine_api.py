"""A container engine's API on a Unix socket, as its documentation says it answers; no containers.

Containers are documents in memory; ``calls`` notes each request as ``METHOD /path?query``.
"""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Answer = tuple[int, Any]


def container(name: str, **more: Any) -> dict[str, Any]:
    """A running container of vLLM's as ``inspect`` shows it; ``more`` goes over the top level."""
    document: dict[str, Any] = {
        "Id": "4fa6e0f0c678" + "0" * 52,
        "Name": f"/{name}",
        "Created": "2023-11-14T22:00:00.000000001Z",
        "Image": "sha256:aaaa",
        "RestartCount": 0,
        "State": {
            "Status": "running", "Running": True, "Restarting": False, "OOMKilled": False,
            "Pid": 4100, "ExitCode": 0, "StartedAt": "2023-11-14T22:00:01.5Z",
        },
        "Config": {
            "Hostname": "4fa6e0f0c678", "Image": "vllm/vllm-openai:latest", "Labels": {"team": "a"},
            "Env": ["PATH=/usr/bin", "MODEL=/models/fp16"], "Cmd": ["--port", "8000"],
            "StopSignal": "SIGINT", "Volumes": {"/cache": {}},
        },
        "HostConfig": {
            "NetworkMode": "inference", "Binds": ["/models:/models:ro"],
            "RestartPolicy": {"Name": "always"}, "Privileged": False, "AutoRemove": False,
            "DeviceRequests": [{"Driver": "nvidia", "Count": -1, "DeviceIDs": None}],
        },
        "Mounts": [
            {"Type": "bind", "Source": "/models", "Destination": "/models", "RW": False},
            {"Type": "volume", "Name": "c0ffee", "Destination": "/cache", "RW": True},
        ],
        "NetworkSettings": {"Networks": {"inference": {
            "Aliases": ["chat", "4fa6e0f0c678"], "IPAMConfig": {"IPv4Address": "10.9.0.5"},
            "Links": None, "MacAddress": "02:42:0a:09:00:05", "IPAddress": "10.9.0.5",
        }}},
    }  # fmt: skip
    return {**document, **more}


@dataclass
class EngineApi:
    """The engine. ``path``: its socket."""

    path: Path
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, method: str, target: str, body: bytes) -> Answer:
        self.calls.append(f"{method} {target}")
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        words = parts.path.strip("/").split("/")
        if parts.path == "/containers/json":
            return self._list(json.loads(query["filters"])["name"][0])
        if parts.path == "/containers/create":
            return self._create(query["name"], json.loads(body))
        by_id = {each["Id"]: each for each in self.containers.values()}
        found = self.containers.get(words[1]) or by_id.get(words[1])
        if words[0] != "containers" or found is None:
            return 404, {"message": f"No such container: {words[1]}"}
        verb = words[2] if len(words) > 2 else method
        return getattr(self, f"_{verb.lower()}")(found, query)

    def _list(self, pattern: str) -> Answer:
        found = [
            {"Id": each["Id"], "Names": [each["Name"]], "Created": at}
            for at, each in enumerate(self.containers.values())
            if re.search(pattern, each["Name"])
        ]
        return 200, found

    def _json(self, found: dict[str, Any], _: dict[str, str]) -> Answer:
        return 200, found

    def _create(self, name: str, body: dict[str, Any]) -> Answer:
        if name in self.containers:
            return 409, {"message": f'Conflict. The container name "/{name}" is already in use'}
        self.created.append(body)
        config = {key: value for key, value in body.items() if key[:4] not in ("Host", "Netw")}
        state = {"Status": "created", "Running": False, "Pid": 0, "ExitCode": 0}
        new = container(name, Id="b" * 64, Config=config, HostConfig=body["HostConfig"])
        new.update(State=state, Created="2023-11-14T22:13:19Z")
        self.containers[name] = new
        return 201, {"Id": "b" * 64, "Warnings": []}

    def _start(self, found: dict[str, Any], _: dict[str, str]) -> Answer:
        if found["State"]["Status"] == "running":
            return 304, None
        found["State"] = {
            "Status": "running", "Running": True, "Restarting": False, "Pid": 4200, "ExitCode": 0,
            "StartedAt": "2023-11-14T22:13:20.25Z",
        }  # fmt: skip
        return 204, None

    def _kill(self, found: dict[str, Any], query: dict[str, str]) -> Answer:
        if found["State"]["Status"] != "running":
            return 409, {"message": "Container is not running"}
        code = 137 if query["signal"] == "SIGKILL" else 0
        found["State"] = {**found["State"], "Status": "exited", "Pid": 0, "ExitCode": code}
        return 204, None

    def _rename(self, found: dict[str, Any], query: dict[str, str]) -> Answer:
        old = found["Name"][1:]
        found["Name"] = "/" + query["name"]
        self.containers[query["name"]] = self.containers.pop(old)
        return 204, None

    def _delete(self, found: dict[str, Any], query: dict[str, str]) -> Answer:
        if found["State"]["Status"] == "running" and query.get("force") != "true":
            return 409, {"message": "You cannot remove a running container"}
        del self.containers[found["Name"][1:]]
        return 204, None

    def _top(self, found: dict[str, Any], _: dict[str, str]) -> Answer:
        if found["State"]["Status"] != "running":
            return 409, {"message": "Container is not running"}
        rows = [[str(pid), "vllm"] for pid in self.pids]
        return 200, {"Titles": ["PID", "COMMAND"], "Processes": rows}


@contextlib.contextmanager
def engine_api(path: Path) -> Iterator[EngineApi]:
    """The engine listens on ``path`` for as long as the block lasts."""
    api = EngineApi(path)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, document = api.answer(self.command, self.path, body)
            data = b"" if document is None else json.dumps(document).encode()
            self.send_response(status)
            if status not in (204, 304):
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _serve

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: object) -> None:
            pass

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

    with Server(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
