"""The real daemon as a process of its own: configuration, state and scripted tools in one folder."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.servers import Server, free_port, running

COMMAND = (
    (sys.executable, "-P", "-m", "vllm_watchdog.watchdog.cli")
    if sys.version_info >= (3, 11)
    else (sys.executable, "-m", "vllm_watchdog.watchdog.cli")
)
"""The command line; `-P` keeps the folder where the tests run off the import path."""


MACHINE_LOGS_OFF = {name: {"enabled": False} for name in ("kernel_log", "ascend_log")}
"""What this machine's kernel says is no part of a test."""


def command(
    *words: str, env: Mapping[str, str] | None = None, stdin: bytes = b"", timeout: float = 60
) -> subprocess.CompletedProcess[bytes]:
    """Run one command to its end."""
    return subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **(env or {})},
        cwd="/",
    )


@dataclass(frozen=True)
class Running:
    """A running daemon."""

    server: Server
    folder: Path

    @property
    def url(self) -> str:
        return self.server.url

    def ask(self, *words: str) -> Any:
        """The JSON answer of a reading command asked of this daemon."""
        done = command(*words, "--json", "--url", self.url)
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    def alerts(self) -> dict[str, set[str]]:
        """State → names of the alerts in it."""
        found: dict[str, set[str]] = {}
        for alert in self.server.get("/api/v1/alerts"):
            found.setdefault(alert["state"], set()).add(alert["alert"])
        return found


def wait_for(check: Callable[[], Any], within: float = 30.0, what: str = "") -> Any:
    """Poll until ``check`` gives something true, and give it. A real process has real time."""
    deadline = time.monotonic() + within
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within:g} s: {what or check}"
        time.sleep(0.05)


@contextlib.contextmanager
def daemon(
    folder: Path,
    config: Mapping[str, Any] | None = None,
    *,
    path: Sequence[Path] = (),
    options: Sequence[str] = (),
    ready: str = "/-/ready",
    port: int | None = None,
) -> Iterator[Running]:
    """Run a daemon with this configuration on a free port; tools in ``path`` come first."""
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    doc = {
        "listen": f"127.0.0.1:{port}",
        "state": str(folder / "state"),
        "collectors": MACHINE_LOGS_OFF,
        **(config or {}),
    }
    (folder / "watchdog.yaml").write_text(yaml.safe_dump(doc))
    argv = [*COMMAND, "run", "--config", str(folder / "watchdog.yaml"), *options]
    search = os.pathsep.join([*(str(p) for p in path), os.environ.get("PATH", "")])
    url = f"{'https' if 'tls' in doc else 'http'}://127.0.0.1:{port}"
    env = {"PATH": search, "RUNTIME_DIRECTORY": str(folder)}
    with running(argv, url=url, ready=ready, folder=folder, env=env) as server:
        yield Running(server, folder)
