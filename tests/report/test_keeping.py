"""The reports that a daemon keeps: one after each incident, whole files, never too many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import story
from vllm_watchdog.watchdog.model import Event
from vllm_watchdog.watchdog.report import (
    Keeper,
    StateSource,
    compose,
    keeping,
    kept_reports,
    write_report,
)
from vllm_watchdog.watchdog.report.keeping import kept_report

CLOSED = Event("case_closed", fields={"case": "chat"})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "reports").iterdir())


def test_when_a_case_is_closed_its_report_is_written_for_the_owner_alone(tmp_path: Path) -> None:
    source = StateSource(story.state(tmp_path), "n")
    keeper = Keeper(tmp_path, source, "1", lambda: story.START, pytest.fail)

    keeper.offer([Event("case_opened", fields={"case": "chat"}), CLOSED])
    keeper.stop(30)

    assert names(tmp_path) == ["20231114T221650Z-chat.html", "20231114T221650Z-chat.md"]
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "reports").iterdir()} == {0o600}
    assert (tmp_path / "reports").stat().st_mode & 0o777 == 0o700


def test_events_that_close_no_case_write_nothing(tmp_path: Path) -> None:
    keeper = Keeper(
        tmp_path, StateSource(story.state(tmp_path), "n"), "1", lambda: 0.0, pytest.fail
    )

    keeper.offer([Event("case_opened", fields={"case": "chat"})])
    keeper.stop(30)

    assert not (tmp_path / "reports").exists()


def test_a_report_that_fails_is_told_and_the_next_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = StateSource(story.state(tmp_path), "n")
    told: list[str] = []
    keeper = Keeper(tmp_path, source, "1", lambda: 0.0, told.append)

    with monkeypatch.context() as broken:
        broken.setattr(keeping, "compose", lambda *_: 1 // 0)
        keeper.offer([CLOSED])
        keeper.stop(30)
    keeper.offer([CLOSED])
    keeper.stop(30)

    assert told == ["no report on chat: ZeroDivisionError: integer division or modulo by zero"]
    assert len(kept_reports(tmp_path)) == 1


def test_the_oldest_reports_go_past_their_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MOST", 3)
    source = StateSource(story.state(tmp_path, list(story.cases("chat", 5))), "n")

    for incident in reversed(source.incidents()):
        write_report(tmp_path, compose(source, incident, "1", 0))

    assert [path.stem for path in kept_reports(tmp_path)] == [
        "20231114T222000Z-chat", "20231114T221820Z-chat", "20231114T221640Z-chat",
    ]  # fmt: skip
    assert len(names(tmp_path)) == 6


def test_the_newest_report_stays_however_large_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "MOST_BYTES", 1)
    source = StateSource(story.state(tmp_path), "n")

    for incident in reversed(source.incidents()):
        write_report(tmp_path, compose(source, incident, "1", 0))

    assert [path.stem for path in kept_reports(tmp_path)] == ["20231114T221650Z-chat"]


@pytest.mark.parametrize("name", ["../journal", "/etc/passwd", "", ".hidden", "a/b", "none"])
def test_a_name_leads_to_no_other_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "journal.html").write_text("")
    (tmp_path / "reports").mkdir()

    assert kept_report(tmp_path, name) is None
