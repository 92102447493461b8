"""Evidence in ten seconds: what came in time, nothing of users, never in the way of the act."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.remediations.actors import FIRST, PlayedRunner, Walk, case, gpus
from tests.support.system import FakeHost, VirtualClock, fake_system
from vllm_watchdog.remediations.adapters.evidence import MAX_BUNDLE, evidence_step, folder, gather
from vllm_watchdog.remediations.adapters.evidence_keeping import prune
from vllm_watchdog.remediations.adapters.evidence_parts import PARTS
from vllm_watchdog.remediations.adapters.evidence_processes import (
    environment,
    family,
    python_stacks,
    sockets,
    stacks,
)
from vllm_watchdog.remediations.adapters.evidence_scene import Family, Part, Scene
from vllm_watchdog.remediations.adapters.instances import Instance
from vllm_watchdog.watchdog.config.models import Manager
from vllm_watchdog.watchdog.errors import CommandTimeout, SourceError
from vllm_watchdog.watchdog.system import Files, Finished, System

STATE = Path("/state")
BUNDLE = STATE / "evidence/req-1"
PART = {part.name: part for part in PARTS}
HOUR, DAY = 3600.0, 86400.0


class Known(Family):
    """A family whose members the test knows."""

    def __init__(self, *pids: int) -> None:
        super().__init__()
        self._pids = pids


def scene(*pids: int, **more: Any) -> Scene:
    manager = more.pop("manager", None)
    instance = Instance("http://127.0.0.1:8000", manager, (), "deepseek")
    return Scene("req-1", "restart", "deepseek", instance, STATE, family=Known(*pids), **more)


def taken(root: Path, *parts: Part, limit: float = 2.0, **more: Any) -> tuple[dict[str, Any], Path]:
    """The manifest of these parts, and where they lie."""
    gather(fake_system(root=root), scene(**more), BUNDLE, parts, limit)
    bundle = root / "state/evidence/req-1"
    return json.loads((bundle / "manifest.json").read_text()), bundle


def text_of(name: str, said: str = "fine") -> Part:
    return Part(name, lambda _system, _scene: said)


def fails(_system: System, _scene: Scene) -> str:
    raise RuntimeError("broken\nfor good")


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A real process that only sleeps, with a secret in its environment and its command line."""
    env = {"HF_TOKEN": "hf_secretsecretsecret", "CUDA_VISIBLE_DEVICES": "3"}
    code = "import socket,sys,time;s=socket.create_server(('127.0.0.1',0));print(1,flush=True);time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", code, "--api-key", "sk-verysecretkey"],
        env=env,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    child.stdout.readline()
    stat, turn = Path(f"/proc/{child.pid}/stat"), threading.Event()
    while stat.read_text().rpartition(")")[2].split()[0] != "S":
        turn.wait(0.01)
    yield child.pid
    child.kill()
    child.wait()
    child.stdout.close()


def test_what_came_is_kept_and_the_manifest_names_it(tmp_path: Path) -> None:
    manifest, bundle = taken(tmp_path, text_of("host", "load\n"))

    assert (bundle / "host.txt").read_text() == "load\n"
    assert manifest["files"] == [{"file": "host.txt", "bytes": 5, "cut": False, "seconds": 0.0}]
    assert (manifest["request"], manifest["service"]) == ("req-1", "deepseek")


def test_a_part_that_fails_is_given_up_alone(tmp_path: Path) -> None:
    manifest, bundle = taken(tmp_path, Part("unit", fails), text_of("host"))

    assert manifest["given_up"] == {"unit": "broken for good"}
    assert (bundle / "host.txt").exists()


def test_a_part_that_hangs_is_given_up_alone_and_on_time(tmp_path: Path) -> None:
    released = threading.Event()
    hangs = Part("unit", lambda _system, _scene: str(released.wait(30.0)), limit=0.2)

    begun = time.monotonic()
    manifest, _ = taken(tmp_path, hangs, text_of("host"), limit=5.0)
    spent = time.monotonic() - begun
    released.set()

    assert manifest["given_up"] == {"unit": "it took more than 0.2 s"}
    assert spent < 3.0


def test_a_tool_that_really_hangs_delays_nothing_else(tmp_path: Path) -> None:
    tool = tmp_path / "hangs"
    tool.write_text("#!/bin/sh\ntrap '' TERM\nsleep 60\n")
    tool.chmod(0o755)
    real = System(files=Files(tmp_path))
    hangs = Part("unit", lambda system, _: system.runner.run([str(tool)], timeout=1.0).text)

    begun = time.monotonic()
    given_up = gather(real, scene(), BUNDLE, [hangs, text_of("host")], 8.5)
    assert given_up == {"unit": f"{tool} did not end within 1 s"}
    assert time.monotonic() - begun < 6.0


def test_everything_together_has_a_bound(tmp_path: Path) -> None:
    big = [Part(f"p{n}", lambda _s, _c: b"x" * 3_000_000, size=3_000_000) for n in range(4)]

    manifest, bundle = taken(tmp_path, *big)
    assert sum(one.stat().st_size for one in bundle.glob("p*")) == MAX_BUNDLE
    assert [one["cut"] for one in manifest["files"]] == [False, False, True, True]


def test_of_a_long_log_the_end_is_kept(tmp_path: Path) -> None:
    _, bundle = taken(tmp_path, Part("logs", lambda _s, _c: "oldnew", size=3, tail=True))

    assert (bundle / "logs.txt").read_text() == "new"


def test_bundles_are_for_their_owner_alone(tmp_path: Path) -> None:
    _, bundle = taken(tmp_path, text_of("host"))

    assert [oct(one.stat().st_mode & 0o777) for one in (bundle.parent, bundle)] == ["0o700"] * 2
    assert {oct(one.stat().st_mode & 0o777) for one in bundle.iterdir()} == {"0o600"}


@pytest.mark.parametrize("place", ["state/evidence", "state/evidence/req-1"])
def test_nothing_is_written_through_a_link(tmp_path: Path, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).symlink_to(elsewhere)

    with pytest.raises(SourceError, match="no folder of ours"):
        taken(tmp_path, text_of("host"))
    assert list(elsewhere.iterdir()) == []


def test_a_file_that_is_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    bundle = tmp_path / "state/evidence/req-1"
    bundle.mkdir(parents=True)
    (bundle / "host.txt").symlink_to(victim)

    taken(tmp_path, text_of("host"))
    assert victim.read_text() == "untouched"
    assert not (bundle / "host.txt").is_symlink()


@pytest.mark.parametrize("request_id", ["../../etc", "a/b", ".", "", "x" * 300, "a\0b"])
def test_no_name_of_a_request_leaves_the_folder(request_id: str) -> None:
    found = folder(STATE, request_id)

    assert found.parent == STATE / "evidence"
    assert len(found.name) == 64


def test_the_step_is_done_once_the_manifest_is_there(tmp_path: Path) -> None:
    clock = VirtualClock()
    system = fake_system(root=tmp_path, clock=clock)
    act = case("restart", STATE, [])
    step = evidence_step(act, Instance("http://127.0.0.1:9", None, (), "deepseek"))
    before = step.done(system)

    system = System(clock, system.runner, system.files, Silent(), host=system.host)
    Walk(system, clock).through([step])
    assert (before, step.done(system), step.must) == ("no", "yes", False)


class Silent:
    """HTTP that always refuses."""

    def request(self, *_: Any, **__: Any) -> Any:
        raise SourceError("refused")


# ---- logs ----


def test_the_ends_of_the_newest_logs_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "var/log/a.log"
    log.parent.mkdir(parents=True)
    line = "INFO 11-30 12:00:00 [engine.py:1] step {}\n"
    log.write_text("".join(line.format(n) for n in range(20_000)))

    _, bundle = taken(tmp_path, PART["logs"], logs=("/var/log/*.log",))
    text = (bundle / "logs.txt").read_text()
    assert text.rstrip().endswith("step 19999")
    assert len(text) <= 256 * 1024 + 100


def test_a_pipe_in_place_of_a_log_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    os.mkfifo(tmp_path / "var/a.log")

    _, bundle = taken(tmp_path, PART["logs"], logs=("/var/*.log",))
    assert "not a regular file" in (bundle / "logs.txt").read_text()


def test_a_service_without_logs_gives_none(tmp_path: Path) -> None:
    manifest, _ = taken(tmp_path, PART["logs"])

    assert manifest["given_up"] == {"logs": "no log files are configured"}


def test_a_link_to_nowhere_hides_no_other_log(tmp_path: Path) -> None:
    (tmp_path / "a.log").symlink_to("nowhere")
    (tmp_path / "b.log").write_text("INFO 11-30 12:00:00 [a.py:1] step\n")

    _, bundle = taken(tmp_path, PART["logs"], logs=("/*.log",))
    assert "step" in (bundle / "logs.txt").read_text()


def test_prompts_in_logs_are_cut(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "INFO 11-30 12:00:00 [logger.py:1] Received request cmpl-1: prompt: 'my diagnosis\n"
        "is terminal', params: x\n"
        "INFO 11-30 12:00:01 [engine.py:1] still here\n"
    )

    _, bundle = taken(tmp_path, PART["logs"], logs=("/a.log",))
    text = (bundle / "logs.txt").read_text()
    assert "still here" in text
    assert [word for word in ("diagnosis", "terminal") if word in text] == []


# ---- processes ----


def test_a_real_process_shows_where_it_sleeps(sleeper: int) -> None:
    text = stacks(System(), scene(sleeper))

    assert f"-- {sleeper} python" in text
    assert " S wchan=" in text


def test_only_names_of_variables_are_kept(sleeper: int) -> None:
    text = environment(System(), scene(sleeper))

    assert "HF_TOKEN\n" in text
    assert "CUDA_VISIBLE_DEVICES=3\n" in text
    assert "secret" not in text


def test_a_key_on_the_command_line_is_cut(sleeper: int) -> None:
    text = family(System(), scene(sleeper))

    assert "--api-key <cut>" in text
    assert "verysecret" not in text
    assert "State:\tS" in text


def test_the_sockets_of_a_process_are_listed(sleeper: int) -> None:
    assert f"{sleeper} LISTEN 127.0.0.1:" in sockets(System(), scene(sleeper))


def test_a_process_that_is_gone_leaves_no_error() -> None:
    gone = scene(2**22 + 1)

    for part in (stacks, family, environment, sockets):
        assert str(2**22 + 1) in part(System(), gone) or part is sockets


def test_the_family_of_who_listens_is_found(sleeper: int) -> None:
    rows = [row for row in sockets(System(), scene(sleeper)).splitlines() if "LISTEN" in row]
    port = rows[0].split()[2].rpartition(":")[2]
    instance = Instance(f"http://127.0.0.1:{port}", None, (), "x")

    found = Scene("r", "restart", "x", instance, STATE)
    assert found.family.pids(System(), found) == (sleeper,)


def test_py_spy_is_asked_without_stopping_and_without_values(tmp_path: Path) -> None:
    (tmp_path / "proc/70").mkdir(parents=True)
    (tmp_path / "proc/70/comm").write_text("VLLM::EngineCor\n")
    command = "py-spy dump --nonblocking --pid 70"
    system = fake_system({command: "Thread 70 (idle)\n    step (core.py:7)\n"}, root=tmp_path)

    assert "step (core.py:7)" in python_stacks(system, scene(70))


# ---- tools ----


class Said(PlayedRunner):
    """Every command answers ``said``."""

    def run(self, argv: Sequence[str], **_: Any) -> Finished:
        self.calls.append(list(argv))
        return Finished(0, b"ActiveState=active\nSubState=running\nMainPID=5\n")


def test_a_unit_is_shown_without_its_environment(tmp_path: Path) -> None:
    manager = Manager(systemd="vllm@deepseek.service", docker=None, command=None)
    runner = Said({"systemctl": ""})
    system = System(VirtualClock(), runner, Files(tmp_path), host=FakeHost())

    assert gather(system, scene(manager=manager), BUNDLE, [PART["unit"]], 2.0) == {}
    asked = runner.calls[-1]
    assert asked[:3] == ["systemctl", "show", "-p"]
    assert asked[-2:] == ["--", "vllm@deepseek.service"]
    assert {"Environment", "ExecStart"} & set(asked[3].split(",")) == set()


def test_a_container_is_asked_for_its_last_lines_by_name(tmp_path: Path) -> None:
    manager = Manager(systemd=None, docker="vllm-1", command=None)
    system = fake_system(
        {"docker logs --tail 400 -- vllm-1": "INFO 11-30 12:00:00 [a.py:1] step\n"}, root=tmp_path
    )

    gather(system, scene(manager=manager), BUNDLE, [PART["journal"]], 2.0)
    text = (tmp_path / "state/evidence/req-1/journal.txt").read_text()
    assert text.startswith("INFO 11-30 12:00:00 [a.py:1] step\n")


def test_a_card_tool_that_hangs_leaves_its_reason(tmp_path: Path) -> None:
    late = CommandTimeout("nvidia-smi did not end within 4 s", stuck=True)
    system = fake_system({"nvidia-smi": late, "nvidia-smi -q": gpus([FIRST])}, root=tmp_path)

    gather(system, scene(cards=(FIRST,), vendors={FIRST: "nvidia"}), BUNDLE, [PART["nvidia_smi"]])
    text = (tmp_path / "state/evidence/req-1/nvidia_smi.txt").read_text()
    assert text == "== nvidia-smi\n(nvidia-smi did not end within 4 s)\n"


def test_the_tool_of_another_vendor_is_not_asked(tmp_path: Path) -> None:
    given_up = gather(
        fake_system({"npu-smi info": ""}, root=tmp_path),
        scene(cards=(FIRST,), vendors={FIRST: "nvidia"}),
        BUNDLE,
        [PART["npu_smi"]],
    )

    assert given_up == {"npu_smi": "the instance uses no ascend card"}


def test_figures_are_kept_without_buckets(tmp_path: Path) -> None:
    page = '# HELP x\nvllm:num_requests_running{m="a"} 3\nvllm:ttft_bucket{le="1"} 4\n'
    system = fake_system(pages={"GET http://127.0.0.1:8000/metrics": page}, root=tmp_path)

    gather(system, scene(), BUNDLE, [PART["metrics"]])
    text = (tmp_path / "state/evidence/req-1/metrics.txt").read_text()
    assert text == 'HTTP 200\nvllm:num_requests_running{m="a"} 3\n'


# ---- keeping ----

NOW = 1_800_000_000.0


def bundle(root: Path, name: str, age: float, size: int = 10, kind: str = "evidence") -> Path:
    made = root / "state" / kind / name
    made.mkdir(parents=True)
    with (made / "data").open("wb") as stream:
        stream.truncate(size)
    for path in (made / "data", made):
        os.utime(path, (NOW - age, NOW - age))
    return made


def kept(root: Path) -> list[str]:
    prune(fake_system(root=root), STATE, NOW)
    return sorted(one.name for kind in (root / "state").iterdir() for one in kind.iterdir())


def test_what_is_older_than_a_fortnight_goes(tmp_path: Path) -> None:
    bundle(tmp_path, "old", 14 * DAY + 1)
    bundle(tmp_path, "young", 14 * DAY - 1)

    assert kept(tmp_path) == ["young"]


def test_the_oldest_go_until_all_fit_into_200_mb(tmp_path: Path) -> None:
    for name, age in (("a", 3 * HOUR), ("b", 2 * HOUR), ("c", HOUR)):
        bundle(tmp_path, name, age, 90_000_000, "recordings" if name == "b" else "evidence")

    assert kept(tmp_path) == ["b", "c"]


def test_a_recording_under_way_stays(tmp_path: Path) -> None:
    bundle(tmp_path, "now", 5.0, 250_000_000, "recordings")

    assert kept(tmp_path) == ["now"]


def test_of_a_link_only_the_link_goes(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    old = bundle(tmp_path, "old", 15 * DAY)
    (old / "link").symlink_to(outside)
    os.utime(old / "link", (NOW - 15 * DAY,) * 2, follow_symlinks=False)
    os.utime(old, (NOW - 15 * DAY,) * 2)

    assert kept(tmp_path) == []
    assert (outside / "file").read_text() == "stays"


def test_a_folder_that_is_a_link_is_not_looked_into(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("stays")
    (tmp_path / "state").mkdir()
    (tmp_path / "state/evidence").symlink_to(outside)

    assert prune(fake_system(root=tmp_path), STATE, 1e12) == 0
    assert (outside / "file").exists()


def test_nothing_to_prune_is_fine(tmp_path: Path) -> None:
    assert prune(fake_system(root=tmp_path), STATE, NOW) == 0
