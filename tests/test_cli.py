"""The command line: help, exit statuses, one line for what is wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon import COMMAND
from tests.support.gpus import answer
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.cli.output import print_json, print_table
from vllm_watchdog.watchdog.options import Options
from vllm_watchdog.watchdog.system import RealHttp, Response

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
    "test-incidents",
    "faults",
    "explain",
    "pause",
    "resume",
    "approve",
    "cancel",
    "quarantine",
    "release",
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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["nonsense"], "no such command 'nonsense' (see `vllm-watchdog --help`)"),
        (["query"], "query: missing argument 'expr' (see `vllm-watchdog query --help`)"),
        (["run", "--xyzzy"], "run: no such option: --xyzzy (see `vllm-watchdog run --help`)"),
        (["faults", "--nil"], "faults: no such option: --nil (try: --help)"),
        (["query", "up", "--url", "node-1"], "node-1: is no URL (write http://127.0.0.1:9710)"),
    ],
)
def test_bad_usage_is_one_line_that_leads_to_the_right_one(
    words: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert capsys.readouterr().err == f"vllm-watchdog: {line}\n"


def test_a_signal_is_asked_about_without_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["faults", "exit", "-9"]) == 0
    assert capsys.readouterr().out.startswith("exit -9: ended by SIGKILL")


def test_a_log_without_meaning_is_said_so_beside_an_empty_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.log").write_text("good morning\n")

    assert run(["classify", str(tmp_path / "a.log")]) == 0

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"vllm-watchdog: {tmp_path / 'a.log'}: no record that means something\n"


def test_each_collector_of_a_tool_is_run_by_its_own_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    for name in ("nvidia_smi", "nvidia_links"):
        assert run(["collect", name]) == 1
        assert capsys.readouterr().err == f"{name}: nvidia-smi is not on this node\n"


def test_a_collector_without_a_server_to_ask_says_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["collect", "vllm_log", "--service", "nobody"]) == 2
    assert "nothing to ask at a service 'nobody'" in capsys.readouterr().err


def test_a_table_for_a_program_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 3000

    print_table("t", ("a", "b"), [("one", long), ("two", "y\x1b[2J")], whole=("a",))

    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[-3:-1]] == [["one", long], ["two", "y\\x1b[2J"]]
    assert all(line == line.rstrip() for line in lines)


def test_on_a_narrow_terminal_the_columns_named_whole_are_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    name = "accelerator_temperature_celsius"

    print_table("", ("series", "labels"), [(name, "card=0000:c1:00, " * 4)], whole=("series",))

    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert any(name in line for line in lines)
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("words", [["status"], ["alerts"], ["query", "up"]])
@pytest.mark.parametrize("answer_text", ["{}", "[3]", '"x"', "null", "[" * 100_000])
def test_an_answer_of_another_program_is_one_line_and_exit_2(
    words: list[str],
    answer_text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def request(self: RealHttp, *words: object, **options: object) -> Response:
        return Response(200, answer_text.encode())

    monkeypatch.setattr(RealHttp, "request", request)

    assert run(words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-", "| head -c1 >/dev/null"])
def test_an_answer_that_nobody_can_take_is_no_traceback(redirect: str) -> None:
    line = f"set -o pipefail; {shlex.join([*COMMAND, 'faults', '79'])} {redirect}"

    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)

    assert (done.returncode, b"Traceback" in done.stderr) == (2 * ("full" in redirect), False)
    assert len(done.stderr.splitlines()) == ("full" in redirect)


def test_a_terminal_without_the_characters_gets_escapes() -> None:
    words = [*COMMAND, "check", "no-such-\N{SNOWMAN}.yaml"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}

    done = subprocess.run(words, capture_output=True, timeout=60, env=env, check=False)

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_an_endless_capture_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["collect", "nvidia_smi", "--from", "/dev/zero"]) == 2
    assert "is larger than" in capsys.readouterr().err


def test_a_person_who_records_is_told_how_long_and_what_shows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vllm_watchdog.watchdog.service.serve", lambda _options: 0)
    monkeypatch.setattr("vllm_watchdog.watchdog.cli._unload", lambda: None)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    assert run(["record", "/tmp/a b", "--for", "2m"]) == 0

    assert capsys.readouterr().err == (
        "vllm-watchdog: recording for 120 s; Ctrl-C ends it, "
        "`vllm-watchdog replay '/tmp/a b'` shows it\n"
    )


def test_the_matrix_has_a_row_and_a_column_for_each_word() -> None:
    from vllm_watchdog.watchdog.cli.judging import matrix

    lines = matrix("causes", {"card_lost": {"card_lost": 13, "sensor": 1}, "none": {"none": 2}})

    assert lines == [
        "causes (row: expected, column: got, numbered like the rows)",
        "",
        "                1   2   3",
        " 1  card_lost  13   ·   1",
        " 2  none        ·   2   ·",
        " 3  sensor      ·   ·   ·",
        "",
    ]


HOSTILE = "a\x1b[2Jb\u202ec\x9b31md\x7fe\x00\nfake row\U000e0041"


def test_a_text_with_line_breaks_stays_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ("what", "more"), [("one\ntwo", "x"), ("three", "y")])
    lines = capsys.readouterr().out.split("\n")

    assert [line.split() for line in lines if line][2:] == [["one\\ntwo", "x"], ["three", "y"]]


def test_json_on_a_terminal_holds_nothing_that_the_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"text": HOSTILE, HOSTILE: "中文"})
    text = capsys.readouterr().out

    assert json.loads(text) == {"text": HOSTILE, HOSTILE: "中文"}
    assert {c for c in text if not c.isprintable()} == {"\n"}
    assert "中文" in text


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("string", [1, HOSTILE]),
        ("vector", [{"metric": {"__name__": "up", "by": HOSTILE}, "value": [1, "1"]}]),
        ("matrix", [{"metric": {"by": HOSTILE}, "values": [[1, "1"]]}]),
    ],
)
def test_what_a_query_finds_is_shown_and_never_obeyed(
    kind: str,
    result: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
    monkeypatch.setattr(RealHttp, "request", lambda *_, **__: Response(200, body.encode()))

    assert run(["query", "x"]) == 0
    text = capsys.readouterr().out
    assert (text.count("\n"), {c for c in text if not c.isprintable()}) == (1, {"\n"})
