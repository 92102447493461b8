"""Real servers for tests: each on a free loopback port, in its own folder, stopped by its pid.

A server is a context manager that yields a ``Server``. It starts nothing twice and looks for no
server that it did not start.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import peers

ELASTICSEARCH_USER = "vllm-watchdog-peer"
"""Elasticsearch refuses to run as root; `make peers` makes this user when it is root."""


@dataclass(frozen=True)
class Server:
    """A running server: ``url`` without a trailing slash, its folder, its process, its log."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> Path:
        """Standard output and error."""
        return self.folder / "server.log"

    def get(self, path: str) -> Any:
        """The JSON answer of ``GET path``."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer (None if empty) of a request with a JSON body; HTTP errors are raised."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read()
        return json.loads(text) if text else None


def free_port() -> int:
    """A TCP port that nobody listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def answers(url: str) -> bool:
    """Does the URL answer with 200, or ask for a password?"""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return error.code == 401
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


@contextlib.contextmanager
def running(
    argv: Sequence[str | Path],
    *,
    url: str,
    ready: str,
    folder: Path,
    within: float = 60.0,
    user: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start a command, wait until ``url + ready`` answers 200, and stop it at the end.

    ``within`` bounds the wait in seconds; a server that ends early or stays silent fails the test
    with the end of its log.
    """
    as_user: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in argv],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(os.environ) | dict(env or {}),
            start_new_session=True,
            **as_user,
        )
    server = Server(url, folder, process)
    try:
        _wait(server, ready, within)
        yield server
    finally:
        stop(process)


def _wait(server: Server, ready: str, within: float) -> None:
    deadline = time.monotonic() + within
    while not answers(server.url + ready):
        if server.process.poll() is not None or time.monotonic() > deadline:
            ended = server.process.poll()
            state = f"ended with {ended}" if ended is not None else f"silent for {within:.0f} s"
            tail = server.log.read_text(errors="replace")[-2000:]
            pytest.fail(f"{server.process.args!r} {state}; its log ends:\n{tail}")
        time.sleep(0.1)


def stop(process: subprocess.Popen[bytes], patience: float = 15.0) -> None:
    """End a server by its own process group: TERM, and KILL after ``patience`` seconds."""
    for sign, limit in ((signal.SIGTERM, patience), (signal.SIGKILL, 10.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
            return


@contextlib.contextmanager
def prometheus(
    folder: Path, config: str = "", *, port: int | None = None, flags: Sequence[str] = ()
) -> Iterator[Server]:
    """Prometheus 3.x with the given configuration file text (empty: it scrapes nothing).

    The remote-write receiver and the admin API are on, so that a test can hand in samples.
    """
    program = peers.require("prometheus")
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config or "global: {}\n")
    argv = [
        program,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-lifecycle",
        "--web.enable-admin-api",
        "--web.enable-remote-write-receiver",
        *flags,
    ]
    with running(argv, url=f"http://127.0.0.1:{port}", ready="/-/ready", folder=folder) as server:
        yield server


QUIET_ROUTE = """\
route: {receiver: none, group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: none}]
"""


@contextlib.contextmanager
def alertmanager(
    folder: Path, config: str = QUIET_ROUTE, *, port: int | None = None
) -> Iterator[Server]:
    """Alertmanager, alone (no cluster), with the given configuration file text."""
    program = peers.require("alertmanager")
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config)
    argv = [
        program,
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with running(argv, url=f"http://127.0.0.1:{port}", ready="/-/ready", folder=folder) as server:
        yield server


@contextlib.contextmanager
def elasticsearch(
    major: int = 8, *, port: int | None = None, password: str | None = None
) -> Iterator[Server]:
    """One open Elasticsearch node (8 or 9) with a small heap; ready after about 25 s.

    With ``password`` security is on and the user ``admin`` has it. Its folder is a temporary one
    of its own, because its user cannot enter pytest's.
    """
    name = f"elasticsearch-{major}"
    home = peers.require(name)
    java = peers.java_home(peers.HOMES[name])
    port = port or free_port()
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    user = ELASTICSEARCH_USER if os.geteuid() == 0 else None
    env = {
        "ES_JAVA_HOME": str(java),
        "ES_JAVA_OPTS": "-Xms384m -Xmx384m -XX:TieredStopAtLevel=1",
        "ES_PATH_CONF": str(folder / "config"),
        "ES_TMPDIR": str(folder / "tmp"),
        "HOME": str(folder),
    }
    try:
        _configure_elasticsearch(home, folder, port, secured=password is not None)
        if user is not None:
            _give(folder, user)
        if password is not None:
            words = ["useradd", "admin", "-p", password, "-r", "superuser"]
            subprocess.run(
                [home / "bin/elasticsearch-users", *words],
                env=dict(os.environ) | env,
                check=True,
                capture_output=True,
                user=user,
                group=user,
            )
        with running(
            [home / "bin/elasticsearch"],
            url=f"http://127.0.0.1:{port}",
            ready="/_cluster/health?wait_for_status=yellow",
            folder=folder,
            within=180.0,
            user=user,
            env=env,
        ) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure_elasticsearch(home: Path, folder: Path, port: int, *, secured: bool) -> None:
    shutil.copytree(home / "config", folder / "config")
    (folder / "tmp").mkdir()
    (folder / "config/elasticsearch.yml").write_text(
        f"""\
cluster.name: test
node.name: one
network.host: 127.0.0.1
http.port: {port}
transport.port: {free_port()}
discovery.type: single-node
path.data: {folder}/data
path.logs: {folder}/logs
cluster.routing.allocation.disk.threshold_enabled: false
xpack.security.enabled: {str(secured).lower()}
"""
    )


def _give(folder: Path, user: str) -> None:
    owner = pwd.getpwnam(user)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, owner.pw_uid, owner.pw_gid)
