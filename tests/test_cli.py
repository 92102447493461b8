"""The command line: help, exit statuses, one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.gpus import answer
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.options import Options

COMMANDS = (
    "run",
    "status",
    "alerts",
    "query",
    "discover",
    "check",
    "collect",
    "classify",
    "record",
    "replay",
    "test-rules",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_teaches(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0

    text = capsys.readouterr().out
    assert f"vllm-watchdog {command}" in text
    assert len(text.splitlines()) > 5


def test_without_words_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2

    text = "".join(capsys.readouterr())
    assert all(command in text for command in COMMANDS)


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("vllm-watchdog ")


@pytest.mark.parametrize(
    "words", [["nonsense"], ["run", "--nonsense"], ["query"], ["collect"], ["replay"]]
)
def test_bad_usage_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err != ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["collect", "nvidia_smy"], "no such collector"),
        (["collect", "nvidia_smi", "--from", "/nonexistent"], "No such file"),
        (["classify", "/nonexistent"], "No such file"),
        (["classify", "-", "--source", "syslog"], "no such source"),
        (["alerts", "--state", "loud", "--url", "http://127.0.0.1:1"], "no such state"),
        (["record", "/tmp/x", "--for", "soon"], "duration"),
        (["replay", "/nonexistent"], "holds no recording"),
        (["check", "--config", "/nonexistent"], "No such file"),
        (["check", "/nonexistent"], "No such file"),
        (["test-rules", "/nonexistent"], "No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_a_captured_output_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.xml").write_text(answer({"0000:53:00": 42}))

    status = run(["collect", "nvidia_smi", "--from", str(tmp_path / "a.xml"), "--json"])

    doc = json.loads(capsys.readouterr().out)
    assert (status, doc["collector"], doc["success"], doc["error"]) == (0, "nvidia_smi", True, None)
    load = {
        "name": "accelerator_utilization_ratio",
        "labels": {"card": "0000:53:00", "vendor": "nvidia"},
        "value": 0.42,
    }
    assert load in doc["samples"]
    assert doc["events"] == []


def test_a_captured_failure_is_exit_1_with_what_the_source_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_bytes(b"\x00\x01\x02")

    status = run(["collect", "nvidia_smi", "--from", str(tmp_path / "a.txt"), "--json"])

    doc = json.loads(capsys.readouterr().out)
    assert (status, doc["success"], doc["samples"]) == (1, False, [])
    assert doc["error"]


def test_classify_gives_one_json_line_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "[ 12.5] usb 1-1: new device\n[ 13.0] NVRM: Xid (PCI:0000:53:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    (tmp_path / "k.log").write_text(text)

    assert run(["classify", str(tmp_path / "k.log"), "--source", "kernel", "--json"]) == 0

    (line,) = capsys.readouterr().out.splitlines()
    doc = json.loads(line)
    assert doc.keys() == {"kind", "severity", "line", "text", "time", "fields"}
    assert (doc["kind"], doc["severity"], doc["line"]) == ("device_lost", "critical", 2)
    assert (str(doc["fields"]["xid"]), doc["fields"]["bus_id"]) == ("79", "0000:53:00")


def test_check_names_file_line_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = tmp_path / "r.yaml"
    rules.write_text("groups:\n- name: g\n  rules:\n  - alert: A\n    expr: sum(up\n")

    assert run(["check", str(rules)]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert f"{rules}:5:14" in line


def test_check_of_the_shipped_rules_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check"]) == 0
    assert "ready to run" in capsys.readouterr().out


def test_run_is_asked_for_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(
        "vllm_watchdog.watchdog.cli._start", lambda options: asked.append(options) or 0
    )

    assert run(["run", "--listen", "127.0.0.1:1", "--state", "/tmp/s"]) == 0

    assert asked == [Options(listen="127.0.0.1:1", state=Path("/tmp/s"))]
