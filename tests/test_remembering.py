"""The commands `history` and `report`: what they ask, what they print, what they write."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.report import story
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.system import RealClock, RealHttp, Response

EVENT = {
    "seq": 1,
    "id": "a-1",
    "time": "2026-01-31T12:00:00Z",
    "kind": "engine_dead",
    "severity": "critical",
    "message": "worker \x1b[2Jdied\u202e",
    "labels": {"service": "chat", "card": "0000:53:00"},
    "fields": {},
}
INCIDENT = {
    "incident": "20231114T221650Z-chat", "service": "chat", "cards": [], "cause": "engine_dead",
    "alert": "Dead", "opened": "2023-11-14T22:16:50Z", "closed": None, "result": "restart under way",
}  # fmt: skip

Daemon = Callable[[dict[str, Any]], list[str]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """Let a daemon answer by path; returns the list of what it will be asked."""

    def set_up(pages: dict[str, Any]) -> list[str]:
        asked: list[str] = []

        def request(self: RealHttp, method: str, url: str, **_: object) -> Response:
            asked.append(url)
            found = pages[urlsplit(url).path]
            return (
                found if isinstance(found, Response) else Response(200, json.dumps(found).encode())
            )

        monkeypatch.setattr(RealHttp, "request", request)
        return asked

    return set_up


def asked_for(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def test_history_asks_with_all_its_filters(answers: Daemon) -> None:
    asked = answers({"/api/v1/events": []})
    words = [
        "--service",
        "chat",
        "--kind",
        "alert_firing",
        "--kind",
        "page_sent",
        "--severity",
        "critical",
    ]
    times = ["--since", "2026-01-31T12:00:00Z", "--until", "1769862000", "--limit", "7"]

    assert run(["history", *words, *times]) == 0

    assert asked_for(asked[0]) == {
        "service": "chat", "kind": "alert_firing,page_sent", "severity": "critical",
        "since": "1769860800.000", "until": "1769862000.000", "limit": "7",
    }  # fmt: skip


def test_history_takes_a_duration_as_that_long_ago(
    answers: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RealClock, "wall", lambda self: 10_000.0)
    asked = answers({"/api/v1/events": []})

    assert run(["history", "--since", "1h"]) == 0

    assert asked_for(asked[0]) == {"since": "6400.000", "limit": "100"}


def test_history_shows_control_characters_written_out(
    answers: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    answers({"/api/v1/events": [EVENT]})

    assert run(["history"]) == 0

    text = capsys.readouterr().out
    assert r"worker \x1b[2Jdied\x202e" in text
    assert "chat 0000:53:00" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_history_as_json_is_the_events_as_they_are(
    answers: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    answers({"/api/v1/events": [EVENT]})

    assert run(["history", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == [EVENT]


def test_history_without_an_event_says_so(
    answers: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    answers({"/api/v1/events": []})

    assert run(["history"]) == 0

    assert "no event fits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["history", "--since", "yesterday"], "neither a duration nor a time"),
        (["history", "--severity", "loud"], "info, warning or critical"),
        (["history", "--limit", "0"], "limit"),
        (["report", "--format", "pdf"], "html or markdown"),
        (["report", "--from", "/a", "--state", "/b"], "either a recording or a state folder"),
        (["report", "--from", "/nonexistent"], "holds no recording"),
        (["report", "--state", "/nonexistent"], "holds no journal"),
        (["status", "--watch"], "needs a terminal"),
        (["status", "--watch", "--url", "http://127.0.0.1:1"], "needs a terminal"),
    ],
)
def test_bad_usage_is_said_and_exit_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2

    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_report_writes_one_file_for_its_owner_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, target = story.state(tmp_path / "s"), tmp_path / "x.html"

    assert run(["report", "--state", str(state), "-o", str(target)]) == 0

    assert capsys.readouterr().out == f"{target}\n"
    assert target.read_text().startswith("<!doctype html>")
    assert target.stat().st_mode & 0o777 == 0o600


def test_report_of_a_recording_goes_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = story.recording(tmp_path / "r")

    words = ["report", "20231114T2213", "--from", str(folder), "--format", "markdown", "-o", "-"]
    assert run(words) == 0

    text = capsys.readouterr().out
    assert text.startswith("# chat: engine dead\n\nHealed by restart.\n")
    assert "- Incident: 20231114T221330Z-chat\n" in text


def test_report_takes_the_file_that_the_daemon_wrote_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = story.state(tmp_path / "s")
    (state / "reports").mkdir()
    (state / "reports/20231114T221650Z-chat.md").write_text("as it was then\n")

    assert run(["report", "--state", str(state), "--format", "markdown", "-o", "-"]) == 0

    assert capsys.readouterr().out == "as it was then\n"


def test_report_is_named_as_the_daemon_names_it_and_stays_in_this_folder(
    answers: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"content-disposition": 'attachment; filename="../../20231114T221650Z-chat.html"'}
    asked = answers(
        {
            "/api/v1/status": {},
            "/api/v1/incidents": [INCIDENT],
            "/report": Response(200, b"<!doctype html>", named),
        }
    )

    assert run(["report", "chat"]) == 0

    assert asked_for(asked[-1]) == {"incident": "chat", "format": "html"}
    assert os.listdir(tmp_path) == ["20231114T221650Z-chat.html"]


def test_report_lists_incidents_the_same_way_from_a_daemon_and_from_a_recording(
    answers: Daemon, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers({"/api/v1/status": {}, "/api/v1/incidents": [INCIDENT]})

    assert run(["report", "--json"]) == 0
    of_daemon = json.loads(capsys.readouterr().out)
    assert run(["report", "--json", "--from", str(story.recording(tmp_path / "r"))]) == 0
    of_recording = json.loads(capsys.readouterr().out)

    assert of_daemon == [INCIDENT]
    assert of_recording[0].keys() == INCIDENT.keys()
    assert [each["result"] for each in of_recording] == ["healed by restart", "healed by restart"]


def test_report_where_nothing_can_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = story.state(tmp_path / "s")

    assert run(["report", "--state", str(state), "-o", str(tmp_path / "none/x.html")]) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be written" in line
