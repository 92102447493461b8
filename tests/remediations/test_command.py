"""Servers that a plain command starts: real processes, a session of their own, ended as a whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_watchdog.remediations.adapters.command import Command
from vllm_watchdog.remediations.adapters.handled import Handled
from vllm_watchdog.remediations.adapters.instances import Instance
from vllm_watchdog.remediations.adapters.managers import Settings
from vllm_watchdog.remediations.adapters.starting import start_steps
from vllm_watchdog.remediations.restart import Restart
from vllm_watchdog.watchdog import processes
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.config import Service
from vllm_watchdog.watchdog.errors import NotSupported, Permanent, SourceError
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


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of nobody's, leader of a session."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process
        process.kill()


def kept_of(process: subprocess.Popen[bytes], **other: object) -> str:
    """A pid file that names this process."""
    stat = processes.stat(Files(), process.pid)
    assert stat is not None
    doc = {"pid": stat.pid, "started": stat.started, "boot": processes.boot(Files()), "at": 1.0}
    return json.dumps({**doc, **other})


@pytest.mark.parametrize(
    ("other", "state"), [({}, "running"), ({"started": 1}, "failed"), ({"boot": "0"}, "stopped")]
)
def test_a_pid_that_came_again_or_is_of_an_earlier_boot_is_nobody_s(
    tmp_path: Path, stranger: subprocess.Popen[bytes], other: dict[str, object], state: str
) -> None:
    (tmp_path / "services").mkdir()
    (tmp_path / "services/chat.pid").write_text(kept_of(stranger, **other))
    server = Command("chat", ("true",), tmp_path)

    assert server.status(System()).state == state
    assert bool(server.processes(System())) == (state == "running")


KILLED = """
import os, signal, sys
from pathlib import Path
from vllm_watchdog.remediations.adapters.command import Command
from vllm_watchdog.watchdog.system import Files, System


class Dying(Files):
    def write(self, path, data, mode=0o600):
        os.kill(os.getpid(), signal.SIGKILL)


Command("chat", tuple(sys.argv[2:]), Path(sys.argv[1])).start(System(files=Dying()))
"""


def start_and_die(server: Command) -> None:
    """Start it in a process that is killed before it can write the pid file."""
    argv = [sys.executable, "-c", KILLED, str(server.state), *server.argv]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGKILL


def starting(server: Command, began: float) -> Step:
    """The start of an act that began then."""
    settings = Service.model_validate({"url": "http://127.0.0.1:9"})
    alert = Alert("g/A", (("alertname", "A"),), "firing", 1.0, 2.0)
    request = Request("restart", alert, service="chat", id="act-1", cause="engine_dead")
    case = ActCase(request, "chat", settings, ServiceMode(), (), (), (), began, server.state)
    instance = Instance("http://127.0.0.1:9", None, (), "chat")
    return start_steps(Handled(case, instance, server))[0]


def test_a_server_whose_starter_was_killed_before_the_pid_file_is_not_started_again(
    server: Command,
) -> None:
    system, began = System(), time.time()
    before = starting(server, began).done(system)
    start_and_die(server)
    assert eventually(lambda: up(server, system))

    assert not (server.state / "services/chat.pid").exists()
    assert (before, starting(server, began).done(system)) == ("no", "yes")
    assert [p.pid for p in server.processes(system) if os.getsid(p.pid) == p.pid] == [
        server.status(system).pid
    ]


def test_the_server_after_a_kill_is_the_new_one_not_an_orphan_of_the_one_before(
    server: Command,
) -> None:
    system = System()
    server.start(system)
    assert eventually(lambda: up(server, system))
    old = server.status(system).pid
    assert old is not None
    os.kill(old, signal.SIGKILL)
    assert eventually(lambda: server.status(system).state == "failed")
    began = time.time()

    start_and_die(server)

    assert eventually(lambda: len(server.processes(system)) == 3)  # the orphan and two new ones
    assert starting(server, began).done(system) == "yes"
    assert server.status(system).pid != old


def test_a_server_with_a_damaged_pid_file_is_found_and_ended(server: Command) -> None:
    system = System()
    server.start(system)
    assert eventually(lambda: up(server, system))
    pid = server.status(system).pid

    (server.state / "services/chat.pid").write_bytes(b"\0" * 64)
    found = server.status(system)
    server.kill(system)

    assert (found.state, found.pid) == ("running", pid)
    assert eventually(lambda: server.status(system).state == "failed")
    assert eventually(lambda: server.processes(system) == ())


def test_a_damaged_pid_file_without_a_server_says_what_to_do(server: Command) -> None:
    (server.state / "services").mkdir()
    file = server.state / "services/chat.pid"
    file.write_text("{")

    with pytest.raises(SourceError, match="remove it if no server of chat runs"):
        server.status(System())
    file.unlink()


def test_a_server_of_the_same_name_of_another_daemon_is_nobody_s(
    server: Command, tmp_path: Path
) -> None:
    start_and_die(server)
    assert eventually(lambda: up(server, System()))
    other = Command("chat", server.argv, tmp_path / "other")

    assert (other.status(System()).state, other.processes(System())) == ("stopped", ())


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
