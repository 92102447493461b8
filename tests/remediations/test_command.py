"""Servers that a plain command starts: real processes, a session of their own, ended as a whole."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_watchdog.remediations.adapters.command import Command
from vllm_watchdog.remediations.adapters.managers import Settings
from vllm_watchdog.remediations.restart import Restart
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.config import Service
from vllm_watchdog.watchdog.errors import NotSupported, Permanent
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import Files, System

SERVER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up", os.environ.get("MODEL"), flush=True)
time.sleep(60)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Command]:
    made = Command("chat", (sys.executable, "-c", SERVER), tmp_path)
    yield made
    made.kill(System())
    eventually(lambda: not made.processes(System()))


def eventually(check: Callable[[], bool], within: float = 15.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.02)
    return False


def up(server: Command, system: System) -> bool:
    return len(server.processes(system)) == 2


def test_it_is_started_in_a_session_of_its_own_with_its_environment(server: Command) -> None:
    system = System()
    before = server.status(system).state
    server.configure(system, Settings({"MODEL": "/models/int8"}, "act-1"))
    began = time.time()
    server.start(system)
    assert eventually(lambda: up(server, system))
    status = server.status(system)

    assert before == "stopped"
    assert (status.state, status.since is not None and status.since >= began) == ("running", True)
    assert status.pid is not None
    assert os.getsid(status.pid) == status.pid
    log = server.state / "services/chat.log"
    assert eventually(lambda: log.read_text() == "up /models/int8\n")


def test_stop_asks_the_first_process_and_kill_ends_who_is_left(server: Command) -> None:
    system = System()
    server.start(system)
    assert eventually(lambda: up(server, system))

    server.stop(system)
    assert eventually(lambda: server.status(system).state == "failed")
    left = server.processes(system)
    server.kill(system)

    assert len(left) == 1
    assert eventually(lambda: server.processes(system) == ())


def test_orphans_of_a_killed_server_belong_to_it(server: Command) -> None:
    system = System()
    server.start(system)
    assert eventually(lambda: up(server, system))
    pid = server.status(system).pid
    assert pid is not None

    os.kill(pid, signal.SIGKILL)

    assert eventually(lambda: len(server.processes(system)) == 1)
    assert server.status(system).state == "failed"


def test_a_pid_that_came_again_is_nobody_s(server: Command) -> None:
    system = System()
    server.start(system)
    assert eventually(lambda: up(server, system))
    kept = server.state / "services/chat.pid"
    text = kept.read_text()

    kept.write_text(text.replace('"started": ', '"started": 1'))
    found = (server.status(system).state, server.processes(system))
    kept.write_text(text)

    assert found == ("failed", ())


def test_a_pid_of_an_earlier_boot_is_nobody_s(server: Command) -> None:
    system = System()
    server.start(system)
    kept = server.state / "services/chat.pid"
    text = kept.read_text()

    kept.write_text(text.replace('"boot": "', '"boot": "0'))
    found = server.status(system).state
    kept.write_text(text)

    assert found == "stopped"


def test_a_program_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="no-such-program is not on this node"):
        Command("chat", ("no-such-program",), tmp_path).start(System())


def test_nothing_is_started_inside_the_daemon_s_own_unit(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/vllm-watchdog.service\n")

    with pytest.raises(Permanent, match="would end with it"):
        Command("chat", ("true",), Path("/state")).start(System(files=Files(tmp_path)))


@pytest.mark.parametrize(
    ("program", "env", "group", "said"),
    [
        ("/no/such/vllm", None, "/", "/no/such/vllm is no program that can be started"),
        ("sh", b"no line of one\n", "/", "line 1 is not KEY=value"),
        ("sh", b"A=b\0c\n", "/", "line 1 is not KEY=value"),
        ("sh", b"A=" + b"x" * 70_000, "/", "is larger than 65536 bytes"),
        ("sh", None, "/system.slice/vllm-watchdog.service", "would end with it"),
        ("sh", b"A=b\n", "/", ""),
    ],
)
def test_what_could_not_be_started_again_is_not_stopped(
    tmp_path: Path, program: str, env: bytes | None, group: str, said: str
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"0::{group}\n")
    (tmp_path / "state/services").mkdir(parents=True)
    if env is not None:
        (tmp_path / "state/services/chat.env").write_bytes(env)
    settings = Service.model_validate(
        {"url": "http://127.0.0.1:9", "manager": {"command": [program, "serve"]}}
    )
    alert = Alert("g/A", (("alertname", "A"),), "firing", 1.0, 2.0)
    request = Request("restart", alert, service="chat", id="act-1", cause="engine_stalled")
    case = ActCase(
        request, "chat", settings, ServiceMode(), (), (), (), time.time(), Path("/state")
    )

    why = Restart().precheck(System(files=Files(tmp_path)), case)

    assert said in why
    assert bool(said) == bool(why)
