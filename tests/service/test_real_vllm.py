"""The daemon beside a real vLLM server: what happens to it is seen as what it is, and nothing else.

Runs where VLLM_WATCHDOG_REAL_VLLM names a folder with vLLM in `venv` and a tiny model in `model`.
All of it takes about ten minutes on two CPUs. Seconds are real ones, counted from the fault.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import yaml

from tests.support.daemon import COMMAND, command, daemon, wait_for
from tests.support.realvllm import RealVllm, abort, load
from tests.support.servers import Server, free_port, running

VARIABLE = "VLLM_WATCHDOG_REAL_VLLM"
HOME = Path(os.environ.get(VARIABLE) or "/nonexistent")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (HOME / "venv/bin/vllm").exists() or not (HOME / "model/config.json").exists(),
        reason=f"{VARIABLE} names no folder with vLLM in venv and a model in model",
    ),
]

SERVICE = "tiny"
SOON = 10.0  # seconds within which a thing is seen as what it is
HOST = {"HostOverloaded", "HostCpuStolen", "HostWaitsForDisk", "NumaMissesHigh"}
"""A small machine is busy with a real server: alerts of the host that are true here."""
QUICKLY = {"timeout": "5s"}
"""So that a hang under load shows in the 30 s that are asked for, whatever waits before the probe."""
SYMPTOMS = {"ServiceProbeFailing", "RequestFailuresHigh", "AvailabilityBurn"}
"""What users suffer while an engine hangs or is gone: true, and explained by the case."""


@dataclass
class Watch:
    """Remembers every alert that a daemon fires: (name, proof) and when it fired first."""

    node: Server
    fired: dict[tuple[str, str], float] = field(default_factory=dict)
    firing: set[tuple[str, str]] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.over.wait(0.5):
            with contextlib.suppress(OSError):
                self._look()

    def _look(self) -> None:
        now = set()
        for alert in self.node.get("/api/v1/alerts"):
            if alert["state"] == "firing" and alert["alert"] not in HOST:
                found = (alert["alert"], alert["labels"].get("proof", ""))
                now.add(found)
                self.fired.setdefault(found, seconds(alert["fired_at"]))
        self.firing = now

    @property
    def names(self) -> set[str]:
        """Of all alerts that ever fired."""
        return {name for name, _ in self.fired}

    def when(self, name: str, proof: str, within: float) -> float:
        """Unix seconds at which an alert fired; waited for."""
        wait_for(lambda: (name, proof) in self.fired, within, f"{name} {proof} in {self.fired}")
        return self.fired[name, proof]

    # What the daemon says

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector of an expression."""
        answer = self.node.get(f"/api/v1/query?query={quote(expression)}")
        return list(answer["data"]["result"])

    def sees(self, expression: str, within: float = SOON) -> None:
        """Wait until an expression has a result."""
        wait_for(lambda: self.query(expression), within, expression)

    def cases(self) -> list[tuple[str, str]]:
        """Cause and naming alert of each open case of the service."""
        said = self.node.get(f"/api/v1/explain?what={SERVICE}")
        return [(case["cause"], case["named_by"]) for case in said["cases"]]

    def known(self) -> list[str]:
        """What the daemon says it knows of the service."""
        return list(self.node.get(f"/api/v1/explain?what={SERVICE}")["known"])

    def rest(self, duration: float) -> None:
        """Let real time pass while alerts are looked at."""
        self.over.wait(duration)


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """The server; a test brings it into the state that it needs."""
    server = RealVllm(HOME, tmp_path_factory.mktemp("vllm"))
    try:
        yield server
    finally:
        server.end()


@contextlib.contextmanager
def watching(node: Server) -> Iterator[Watch]:
    watch = Watch(node)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.over.set()
        thread.join(30)


@contextlib.contextmanager
def watched(server: RealVllm, folder: Path, probe: Mapping[str, str] = QUICKLY) -> Iterator[Watch]:
    """A daemon that watches the server and knows its log; targets fit a slow machine."""
    config = {
        "interval": "2s",
        "services": {
            SERVICE: {
                "url": server.url,
                "probe": dict(probe),
                "targets": {"p95": "5m"},
                "logs": [str(server.logs / "*.log")],
            }
        },
    }
    with daemon(folder / "d", config) as node, watching(node.server) as watch:
        yield watch


@contextlib.contextmanager
def serving(
    server: RealVllm, folder: Path, probe: Mapping[str, str] = QUICKLY, **wanted: bool
) -> Iterator[Watch]:
    """A server that serves as wanted, and a daemon that has seen it do so."""
    server.serve(**wanted)
    with watched(server, folder, probe) as watch:
        watch.sees("service_probe_success == 1", 30)
        watch.sees('service_phase{phase="serving"} == 1', 30)
        yield watch


def test_a_start_is_a_start_and_asks_for_nothing(vllm: RealVllm, tmp_path: Path) -> None:
    vllm.end()
    with watched(vllm, tmp_path) as watch:
        watch.sees("service_up == 0")
        vllm.begin()
        watch.sees('service_phase{phase="starting"} == 1')
        watch.sees("service_process_up == 1")
        vllm.ready()
        watch.sees('service_phase{phase="serving"} == 1')
        watch.sees("service_up == 1")
        watch.sees('service_probe_verdict{verdict="ok"}')
        watch.sees("service_health == 1")

    assert watch.fired == {}


def test_load_is_no_fault(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path) as watch:
        with load(vllm, clients=48, tokens=300) as statuses:
            watch.sees("service:requests_pending:sum > 8")
            watch.rest(75)
        failed = watch.query(f'service_probe_verdict{{verdict="failed",service="{SERVICE}"}}[5m]')

    assert set(statuses) == {200}
    assert (failed, watch.names) == ([], set())


def test_clients_that_all_leave_at_once_are_no_fault(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path) as watch:
        abort(vllm, clients=60, tokens=900)
        watch.rest(75)
        failed = watch.query(f'service_probe_verdict{{verdict="failed",service="{SERVICE}"}}[5m]')

    assert (failed, watch.names) == ([], set())


def test_a_pause_is_a_pause_although_requests_hang(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path, development=True) as watch:
        assert vllm.post("/pause") == 200
        watch.sees('service_phase{phase="paused"} == 1')
        with load(vllm, clients=4, tokens=8, requests=1) as statuses:
            watch.rest(75)
            waited = list(statuses)
            assert vllm.post("/resume") == 200
        watch.sees('service_phase{phase="serving"} == 1')
        watch.sees("service_probe_success == 1", 30)

    assert (waited, statuses) == ([], [200] * 4)
    assert watch.names == set()


def test_a_hang_under_load_is_shown_in_30_s_and_proved_after_60(
    vllm: RealVllm, tmp_path: Path
) -> None:
    with serving(vllm, tmp_path) as watch:
        with load(vllm, clients=24, tokens=300) as statuses:
            watch.sees("service:requests_pending:sum > 8")
            with vllm.hanging_core() as begun:
                watch.sees("service_probe_success == 0", 30)
                stood = "service:engine_progress:sum == service:engine_progress:sum offset 10s"
                watch.sees(
                    f"service:requests_pending:sum > 0 and {stood}", begun + 30 - time.time()
                )
                shown = watch.known()
                fired = watch.when("EngineStalled", "progress", 90)
                wait_for(watch.cases, SOON)
                cases = watch.cases()
        wait_for(lambda: not watch.firing & {("EngineStalled", "progress")}, 30)
    print(f"fired after {fired - begun:.1f} s")

    assert "probe: failed" in shown
    assert 58 <= fired - begun <= 75
    assert cases == [("engine_stalled", "EngineStalled")]
    assert set(statuses) == {200}
    assert watch.names - SYMPTOMS == {"EngineStalled"}


def test_an_idle_hang_is_proved_by_the_probe(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path, probe={}) as watch:
        watch.sees("count_over_time(service_probe_success[1m]) >= 4", 40)
        with vllm.hanging_core() as begun:
            watch.sees("service_probe_success == 0", SOON)
            shown = time.time()
            fired = watch.when("EngineStalled", "probe", 75)
            wait_for(watch.cases, SOON)
            cases = watch.cases()
        wait_for(lambda: not watch.firing & {("EngineStalled", "probe")}, 30)
    print(f"shown after {shown - begun:.1f} s, fired after {fired - begun:.1f} s")

    assert 30 <= fired - begun <= 70  # 30 s without a token, and 30 s more
    assert cases == [("engine_stalled", "EngineStalled")]
    assert watch.names - SYMPTOMS == {"EngineStalled"}


def test_a_killed_engine_core_is_a_dead_engine(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path) as watch:
        with load(vllm, clients=16, tokens=300):
            watch.sees("service:requests_pending:sum > 8")
            begun = time.time()
            vllm.core.kill()
            wait_for(lambda: vllm.reaped() is not None, 20)
            fired = [watch.when("EngineDead", proof, 20) for proof in ("process", "log")]
        watch.rest(40)
        cases = watch.cases()
    print(f"fired after {[round(at - begun, 1) for at in fired]} s")

    assert [0 <= at - begun <= SOON for at in fired] == [True, True], fired
    assert cases == [("engine_dead", "EngineDead")]
    assert watch.names - SYMPTOMS == {"EngineDead"}


def test_a_killed_api_server_is_a_dead_engine_with_orphans(vllm: RealVllm, tmp_path: Path) -> None:
    with serving(vllm, tmp_path) as watch:
        begun = time.time()
        os.kill(vllm.pid, signal.SIGKILL)
        wait_for(lambda: vllm.reaped() is not None, 20)
        fired = watch.when("EngineDead", "process", 20)
        watch.sees("service_orphan_processes > 0", begun + SOON - time.time())
        watch.when("OrphanProcesses", "", 60)
        events = watch.node.get(f"/api/v1/events?kind=orphan_processes&service={SERVICE}")
        cases = watch.cases()
        for member in vllm.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        watch.sees("service_orphan_processes == 0")
    print(f"fired after {fired - begun:.1f} s")

    assert fired - begun <= SOON
    assert cases == [("engine_dead", "EngineDead")]
    assert ["VLLM::EngineCor" in event["message"] for event in events] == [True]
    assert watch.names - SYMPTOMS == {"EngineDead", "OrphanProcesses"}


def test_a_clean_end_that_nobody_told_of_is_a_gone_process_only(
    vllm: RealVllm, tmp_path: Path
) -> None:
    with serving(vllm, tmp_path, pristine=True) as watch:
        assert vllm.complete(8) == 200
        begun = time.time()
        os.kill(vllm.pid, signal.SIGTERM)
        wait_for(lambda: vllm.reaped() is not None, 30)
        fired = watch.when("EngineDead", "process", 20)
        watch.rest(40)
    said = command("classify", "--json", str(vllm.log)).stdout.decode().splitlines()
    records = [json.loads(line) for line in said]
    print(f"fired after {fired - begun:.1f} s")

    assert fired - begun <= SOON
    assert set(watch.fired) - {(name, "") for name in SYMPTOMS} == {("EngineDead", "process")}
    assert {record["severity"] for record in records} == {"info"}
    grave = [r for r in records if r["kind"] != "lifecycle"]
    assert [record for record in grave if not record["fields"].get("during_shutdown")] == []
    phases = {r["fields"]["phase"] for r in records if r["kind"] == "lifecycle"}
    assert phases >= {"startup", "ready", "shutdown"}


def test_a_daemon_without_configuration_finds_it(vllm: RealVllm, tmp_path: Path) -> None:
    vllm.serve()
    found = yaml.safe_load(command("discover").stdout)["services"]
    (name,) = [name for name, service in found.items() if service["url"] == vllm.url]
    port = free_port()
    argv = [*COMMAND, "run", "--listen", f"127.0.0.1:{port}", "--state", str(tmp_path / "state")]
    url = f"http://127.0.0.1:{port}"
    with running(argv, url=url, ready="/-/ready", folder=tmp_path) as server:
        watch = Watch(server)
        watch.sees(f'service_up{{service="{name}"}} == 1', 30)
        watch.sees(f'service_probe_success{{service="{name}"}} == 1', 30)

    assert name.startswith(SERVICE)
