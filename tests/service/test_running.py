"""The real process: start, answers, reload, stop, kill and restart."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from tests.support.daemon import COMMAND, Running, command, daemon, wait_for
from tests.support.gpus import ScriptedGpus
from tests.support.servers import free_port, running
from tests.support.vllm import fake_vllm

CARDS = ["0000:53:00", "0000:64:00"]
RULES = """\
groups:
  - name: hardware
    rules:
      - alert: TooBusy
        expr: accelerator_utilization_ratio > 0.85
        for: 1s
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.card }} at {{ $value | humanizePercentage }}"}
      - record: card:load
        expr: accelerator_utilization_ratio
"""
QUICK = {"interval": "250ms"}


def rules(folder: Path, text: str = RULES) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rules.yaml").write_text(text)
    return {"files": [str(folder / "rules.yaml")]}


def page(url: str) -> str:
    with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
        return answer.read().decode()


def firing(node: Running, name: str = "TooBusy") -> bool:
    return name in node.alerts().get("firing", set())


def test_without_configuration_it_shows_figures_of_this_machine(tmp_path: Path) -> None:
    port = free_port()
    argv = [*COMMAND, "run", "--listen", f"127.0.0.1:{port}", "--state", str(tmp_path / "state")]
    url = f"http://127.0.0.1:{port}"

    with running(argv, url=url, ready="/-/ready", folder=tmp_path) as server:
        text = page(url)
        status = json.loads(command("status", "--json", "--url", url).stdout)
        alerts = command("alerts", "--json", "--url", url)
        greeting = wait_for(lambda: "look at" in server.log.read_text() and server.log.read_text())

    assert "host_memory_total_bytes " in text
    assert f"host_cpus {os.cpu_count()}.0" in text
    assert {c["collector"] for c in status["collectors"]} >= {"host", "numa"}
    assert alerts.returncode == 0
    assert "firing" not in {alert["state"] for alert in json.loads(alerts.stdout)}
    assert f"{url}/metrics" in greeting


def test_a_busy_card_fires_and_ends(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)

    with daemon(tmp_path / "d", {**QUICK, "rules": rules(tmp_path)}, path=[gpus.folder]) as node:
        gpus.set(c53=95)
        wait_for(lambda: firing(node))
        (alert,) = [a for a in node.ask("alerts") if a["state"] == "firing"]
        gpus.set(c53=50)
        wait_for(lambda: not firing(node))

    assert (alert["alert"], alert["labels"]["card"]) == ("TooBusy", "0000:53:00")
    assert (alert["value"], alert["annotations"]["summary"]) == (0.95, "0000:53:00 at 95%")


def test_sigterm_ends_it_with_status_0(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", QUICK) as node:
        start = time.monotonic()
        node.server.process.send_signal(signal.SIGTERM)

        assert node.server.process.wait(10) == 0
        assert time.monotonic() - start < 10


def test_sigterm_ends_it_although_a_tool_hangs(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nsleep 600\n")
    (tools / "nvidia-smi").chmod(0o755)

    with daemon(tmp_path / "d", QUICK, path=[tools]) as node:
        node.server.process.send_signal(signal.SIGTERM)

        assert node.server.process.wait(10) == 0


def test_sighup_takes_over_other_rules_and_keeps_firing_alerts(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS, load=95)

    with daemon(tmp_path / "d", {**QUICK, "rules": rules(tmp_path)}, path=[gpus.folder]) as node:
        wait_for(lambda: firing(node))
        before = [a["fired_at"] for a in node.ask("alerts")]
        more = RULES + "      - {alert: Always, expr: vector(1)}\n"
        rules(tmp_path, more)
        node.server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: firing(node, "Always"))

        assert before == [a["fired_at"] for a in node.ask("alerts") if a["alert"] == "TooBusy"]


def test_a_broken_configuration_is_not_taken_over(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", QUICK) as node:
        (node.folder / "watchdog.yaml").write_text("mode: loud\n")
        node.server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "not reloaded" in node.server.log.read_text())

        assert node.ask("status")["mode"] == "observe"


def test_a_firing_alert_survives_kill_and_restart(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS, load=95)
    config = {**QUICK, "rules": rules(tmp_path)}
    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        wait_for(lambda: firing(node))
        before = {a["labels"]["card"]: a["fired_at"] for a in node.ask("alerts")}
        node.server.process.send_signal(signal.SIGTERM)
        node.server.process.wait(10)

    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        wait_for(lambda: firing(node))

        assert before == {a["labels"]["card"]: a["fired_at"] for a in node.ask("alerts")}


def test_a_failing_tool_makes_its_series_end_and_holds_the_alert(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS, load=95)

    with daemon(tmp_path / "d", {**QUICK, "rules": rules(tmp_path)}, path=[gpus.folder]) as node:
        wait_for(lambda: firing(node))
        gpus.play("Segmentation fault\n")
        wait_for(lambda: 'watchdog_collector_success{collector="nvidia_smi"} 0.0' in page(node.url))
        text = page(node.url)
        held = [a for a in node.ask("alerts") if a["state"] == "firing"]

    assert "accelerator_utilization_ratio{" not in text
    assert "card:load" not in text
    assert len(held) == 2
    assert all("unknown_since" in a["annotations"] for a in held)


def test_a_vllm_server_named_in_the_configuration_is_watched(tmp_path: Path) -> None:
    with fake_vllm(running=3.0) as fake:
        config = {**QUICK, "services": {"tiny": {"url": fake.url, "probe": {"interval": "250ms"}}}}
        with daemon(tmp_path / "d", config) as node:
            wait_for(lambda: 'service_probe_success{service="tiny"} 1.0' in page(node.url))
            text = page(node.url)
            (result,) = node.ask("query", "vllm:num_requests_running")["result"]

    assert 'service_up{service="tiny"} 1.0' in text
    assert result["value"][1] == "3"
    assert result["metric"]["service"] == "tiny"


def test_a_port_in_use_is_one_line_and_exit_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        done = command("run", "--listen", f"127.0.0.1:{port}", "--state", str(tmp_path))

    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert f"127.0.0.1:{port}" in line


def test_a_second_daemon_on_the_same_state_is_refused_in_one_line(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", QUICK) as node:
        state = str(node.folder / "state")

        done = command("run", "--listen", f"127.0.0.1:{free_port()}", "--state", state)

    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert f"{state}: another daemon uses this state" in line


def test_a_killed_daemon_leaves_no_lock_behind(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", QUICK) as node:
        node.server.process.kill()
        node.server.process.wait(10)

    with daemon(tmp_path / "d", QUICK) as node:
        assert node.ask("status")["mode"] == "observe"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"w.yaml": "mode: act\nliste: x\n"}, ["w.yaml:2:1", "liste"]),
        ({"w.yaml": "mode: [\n"}, ["w.yaml:2:1", "YAML"]),
        ({"w.yaml": "rules: {files: [r.yaml]}"}, ["r.yaml", "No such file"]),
        (
            {
                "w.yaml": "rules: {files: [r.yaml]}",
                "r.yaml": "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up ==\n",
            },
            ["r.yaml:5:", "'g'", "A"],
        ),
        ({"w.yaml": "state: w.yaml/sub\n"}, ["state folder"]),
    ],
)
def test_bad_input_is_said_in_one_line_with_exit_2(
    tmp_path: Path, files: dict[str, str], words: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text.replace("w.yaml/sub", str(tmp_path / "w.yaml/sub")))
    listen = f"127.0.0.1:{free_port()}"
    state = [] if "state:" in files["w.yaml"] else ["--state", str(tmp_path / "s")]

    done = command("run", "--config", str(tmp_path / "w.yaml"), "--listen", listen, *state)

    assert done.returncode == 2
    (line,) = done.stderr.decode().splitlines()
    assert all(word in line for word in words), line


def test_a_missing_configuration_file_is_said_with_exit_2() -> None:
    done = command("run", "--config", "/nonexistent/w.yaml")

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_asking_without_a_daemon_is_one_line_and_exit_2() -> None:
    for words in (["status"], ["alerts"], ["query", "up"]):
        done = command(*words, "--url", f"http://127.0.0.1:{free_port()}")

        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_a_wrong_query_names_line_and_column(tmp_path: Path) -> None:
    with daemon(tmp_path / "d", QUICK) as node:
        done = command("query", "up ==", "--url", node.url)

    assert done.returncode == 2
    assert b"1:6" in done.stderr


def test_what_run_recorded_is_replayed_to_the_same_bytes(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    config = {**QUICK, "rules": rules(tmp_path)}
    recording = tmp_path / "recording"
    options = ["--record", str(recording)]
    with daemon(tmp_path / "d", config, path=[gpus.folder], options=options) as node:
        gpus.set(c53=95)
        wait_for(lambda: firing(node))
        gpus.lose("0000:64:00")
        wait_for(lambda: "resolved" in node.alerts() or gpus.set(c53=10))

    first = command("replay", str(recording), "--json")
    second = command("replay", str(recording), "--json")

    assert (first.returncode, first.stderr) == (0, b"")
    assert first.stdout == second.stdout
    changes = [
        (each["before"], each["after"])
        for each in json.loads(first.stdout)["transitions"]
        if each["labels"]["alertname"] == "TooBusy"  # another may be about a server that runs here
    ]
    assert changes[:2] == [("inactive", "pending"), ("pending", "firing")]


def test_a_recording_stays_readable_after_kill(tmp_path: Path) -> None:
    recording = tmp_path / "recording"
    with daemon(tmp_path / "d", QUICK, options=["--record", str(recording)]) as node:
        wait_for(lambda: node.server.get("/api/v1/status")["ticks"] > 5)
        node.server.process.kill()
        node.server.process.wait(10)

    done = command("replay", str(recording), "--json")

    assert done.returncode == 0
    assert json.loads(done.stdout)["ticks"] > 5


def test_record_runs_for_the_time_given_and_touches_no_state(tmp_path: Path) -> None:
    config = {**QUICK, "rules": rules(tmp_path), "state": str(tmp_path / "state")}
    with fake_vllm() as fake:  # a configured service: no server that runs here is looked for
        doc = {**config, "services": {"chat": {"url": fake.url}}}
        (tmp_path / "w.yaml").write_text(yaml.safe_dump(doc))

        done = command(
            "record", str(tmp_path / "r"), "--config", str(tmp_path / "w.yaml"), "--for", "2s"
        )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    told = {line["vllm_watchdog"]["kind"] for line in lines if line["log.level"] != "info"}
    assert (done.returncode, told) == (0, {"port_held_by_other"})  # the stand-in is no vLLM
    assert not (tmp_path / "state").exists()
    assert command("replay", str(tmp_path / "r")).returncode == 0


def test_recording_over_a_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")

    done = command("record", str(tmp_path), "--for", "1s")

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_discover_prints_a_configuration_that_check_accepts(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    env = {"PATH": f"{gpus.folder}{os.pathsep}{os.environ['PATH']}"}
    done = command("discover", env=env)
    (tmp_path / "w.yaml").write_bytes(done.stdout)

    checked = command("check", "--config", str(tmp_path / "w.yaml"))

    assert b"0000:53:00" in done.stdout
    assert (checked.returncode, checked.stderr) == (0, b"")
