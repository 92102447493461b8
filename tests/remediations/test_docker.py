"""Containers by the engine's API: asked, ended, started, and made anew with other settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.healing.engine_api import EngineApi, container, engine_api
from tests.support.system import FakeHost, fake_system
from vllm_watchdog.remediations.adapters.docker import Docker
from vllm_watchdog.remediations.adapters.managers import Settings, Status
from vllm_watchdog.watchdog.errors import NotSupported, Permanent, SourceError
from vllm_watchdog.watchdog.system import Process, RealHttp, System

INT8 = Settings({"MODEL": "/models/int8", "A": 'x y="z" $q'}, "act-1", "int8")
KEPT = "chat-before-act-1"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineApi]:
    with engine_api(tmp_path / "engine.sock") as api:
        api.containers["chat"] = container("chat")
        yield api


@pytest.fixture
def docker(engine: EngineApi) -> Docker:
    return Docker("chat", engine.path)


@pytest.fixture
def system() -> System:
    table = [Process(pid, 1, "vllm", ("vllm",), 1.0) for pid in (4100, 4101, 4102)]
    return replace(fake_system(host=FakeHost(table)), http=RealHttp())


def stopped(engine: EngineApi) -> None:
    engine.containers["chat"]["State"].update(Status="exited", Running=False, Pid=0)


def test_a_running_container_tells_its_first_process_and_its_start(
    docker: Docker, system: System
) -> None:
    assert docker.status(system) == Status("running", 4100, 1699999201.5, always=True)


@pytest.mark.parametrize(
    ("told", "state", "restarting", "result"),
    [
        ({"Status": "exited", "ExitCode": 0}, "stopped", False, "exit status 0"),
        ({"Status": "exited", "ExitCode": 1}, "failed", False, "exit status 1"),
        ({"Status": "exited", "ExitCode": 137, "OOMKilled": True}, "failed", False, "out of memory"),
        ({"Status": "restarting", "Restarting": True}, "starting", True, ""),
        ({"Status": "created", "ExitCode": 0}, "stopped", False, "exit status 0"),
        ({"Status": "paused"}, "running", False, ""),
        ({"Status": "of the future"}, "unknown", False, ""),
    ],
)  # fmt: skip
def test_the_engine_s_words_for_states(
    engine: EngineApi,
    docker: Docker,
    system: System,
    told: dict[str, Any],
    state: str,
    restarting: bool,
    result: str,
) -> None:
    engine.containers["chat"]["State"] = told

    status = docker.status(system)
    assert (status.state, status.restarting, status.result) == (state, restarting, result)


def test_a_container_that_was_never_started_has_no_start(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    engine.containers["chat"]["State"]["StartedAt"] = "0001-01-01T00:00:00Z"

    assert docker.status(system).since is None


def test_stop_sends_the_container_s_own_signal_and_kill_the_last_one(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    docker.stop(system)
    docker.kill(system)  # it has gone meanwhile: no error

    sent = [call for call in engine.calls if call.startswith("POST")]
    assert sent == [
        "POST /containers/chat/kill?signal=SIGINT",
        "POST /containers/chat/kill?signal=SIGKILL",
    ]


def test_start_of_one_that_runs_already_is_no_error(docker: Docker, system: System) -> None:
    docker.start(system)

    assert docker.status(system).pid == 4100


def test_its_processes_are_those_that_the_engine_lists(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    engine.pids = [4100, 4102, 9999]

    assert [process.pid for process in docker.processes(system)] == [4100, 4102]
    stopped(engine)
    assert docker.processes(system) == ()


def test_other_settings_make_a_successor_and_keep_the_old_one(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)

    docker.configure(system, INT8)

    assert set(engine.containers) == {"chat", KEPT}
    assert docker.settings(system) == INT8
    assert docker.configured_at(system) == 1699999999.0


def test_the_successor_differs_in_environment_and_labels_only(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)
    old = engine.containers["chat"]
    docker.configure(system, INT8)
    body = engine.created[0]

    assert body["Env"] == ["PATH=/usr/bin", "MODEL=/models/int8", 'A=x y="z" $q']
    assert body["Labels"] == {
        "team": "a",
        "vllm-watchdog.request": "act-1",
        "vllm-watchdog.keys": "A,MODEL",
        "vllm-watchdog.profile": "int8",
    }
    assert body["Image"] == "sha256:aaaa"
    assert body["Cmd"] == old["Config"]["Cmd"]
    assert "Hostname" not in body
    assert body["HostConfig"]["Binds"] == ["/models:/models:ro", "c0ffee:/cache"]
    assert body["HostConfig"]["DeviceRequests"] == old["HostConfig"]["DeviceRequests"]
    assert body["NetworkingConfig"]["EndpointsConfig"]["inference"] == {
        "IPAMConfig": {"IPv4Address": "10.9.0.5"},
        "Links": None,
        "Aliases": ["chat"],
        "DriverOpts": None,
    }


@pytest.mark.parametrize("crash", ["before", "renamed", "created"])
def test_configure_completes_what_a_killed_daemon_began(
    engine: EngineApi, docker: Docker, system: System, crash: str
) -> None:
    stopped(engine)
    if crash == "renamed":
        old = engine.containers.pop("chat")
        engine.containers[KEPT] = {**old, "Name": f"/{KEPT}"}
    elif crash == "created":
        docker.configure(system, INT8)

    docker.configure(system, INT8)

    assert set(engine.containers) == {"chat", KEPT}
    assert len(engine.created) == 1


def test_between_the_two_containers_it_counts_as_stopped(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)
    old = engine.containers.pop("chat")
    engine.containers[KEPT] = {**old, "Name": f"/{KEPT}"}

    assert docker.status(system).state == "stopped"
    assert docker.processes(system) == ()
    assert docker.settings(system) == Settings()
    docker.kill(system)


def test_taken_back_the_old_container_has_its_name_again(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)
    docker.configure(system, INT8)
    docker.start(system)

    docker.restore(system, "act-1")

    assert set(engine.containers) == {"chat"}
    assert docker.settings(system) == Settings()


def test_taking_back_leaves_a_container_that_somebody_else_made(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)
    docker.configure(system, INT8)
    engine.containers["chat"] = container("chat")

    with pytest.raises(SourceError, match="is not what this act made"):
        docker.restore(system, "act-1")

    assert set(engine.containers) == {"chat", KEPT}


def test_a_second_act_drops_what_the_first_one_gave(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    stopped(engine)
    docker.configure(system, INT8)

    docker.configure(system, Settings({"MODEL": "/models/fp16"}, "act-2", "fp16"))

    assert engine.created[1]["Env"] == ["PATH=/usr/bin", "MODEL=/models/fp16"]


def test_a_container_that_goes_with_its_end_takes_no_profile(
    engine: EngineApi, docker: Docker, system: System
) -> None:
    assert docker.takes_profile(system) == ""
    engine.containers["chat"]["HostConfig"]["AutoRemove"] = True

    assert docker.takes_profile(system) == "chat is removed when it stops (--rm)"


@pytest.mark.parametrize(
    ("host", "fit"),
    [
        ({"DeviceRequests": [{"Count": -1, "DeviceIDs": None}]}, True),
        ({"DeviceRequests": [{"Count": 0, "DeviceIDs": ["0", "1"]}]}, False),
        ({"DeviceRequests": None}, False),
        ({"DeviceRequests": None, "Privileged": True}, True),
    ],
)
def test_only_a_container_with_all_cards_can_move_to_others(
    engine: EngineApi, docker: Docker, system: System, host: dict[str, Any], fit: bool
) -> None:
    engine.containers["chat"]["HostConfig"].update(host)

    assert (docker.takes_cards(system) == "") is fit


def test_the_engine_s_own_message_is_told(engine: EngineApi, system: System) -> None:
    with pytest.raises(SourceError, match="there is no container other"):
        Docker("other", engine.path).status(system)
    with pytest.raises(SourceError, match="No such container: other"):
        Docker("other", engine.path).start(system)


def test_no_engine_at_all_is_said_so(tmp_path: Path, system: System) -> None:
    with pytest.raises(NotSupported, match="no container engine answers"):
        Docker("chat", tmp_path / "none.sock").status(system)


@pytest.mark.parametrize("name", ["a/b", "../x", "", "a b", "-x", "a?signal=9"])
def test_a_name_that_is_none_reaches_no_engine(
    engine: EngineApi, system: System, name: str
) -> None:
    with pytest.raises(Permanent):
        Docker(name, engine.path).start(system)

    assert engine.calls == []
