"""What belongs to one incident: read from a journal and from a recording alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import story
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.report import (
    RecordingSource,
    Report,
    Source,
    StateSource,
    compose,
)


@pytest.fixture(params=["journal", "recording"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    if request.param == "recording":
        return RecordingSource(story.recording(tmp_path / "r"))
    return StateSource(story.state(tmp_path / "s"), "node-1:9710")


def report(source: Source, number: int = 0) -> Report:
    return compose(source, source.incidents()[number], "1", story.START + 300)


def test_an_act_is_told_with_its_steps_and_how_long_it_took(source: Source) -> None:
    (act,) = report(source).acts

    assert (act.remediation, act.attempt, act.status, act.detail) == (
        "restart",
        2,
        "done",
        "2 steps",
    )
    assert (act.ended or 0) - act.began == 35.0
    assert act.healthy == 52.0
    assert [(step.name, step.status, step.seconds) for step in act.steps] == [
        ("kill", "done", 1.5), ("start", "found", 0.01),
    ]  # fmt: skip


def test_nothing_of_the_incident_before_it_is_told_as_its_own(source: Source) -> None:
    newest, older = report(source), report(source, 1)

    assert min(entry.time for entry in newest.timeline) == story.START + 205
    assert max(entry.time for entry in older.timeline) == story.START + 40
    assert [act.request for act in older.acts] == ["chat-1"]


def test_an_incident_right_after_another_says_that_the_plots_show_both(tmp_path: Path) -> None:
    told = [(at, event) for at, event in story.cases("chat", 2)]
    found = report(StateSource(story.state(tmp_path, told), "n"))

    assert found.notes[0] == (
        "The incident before it (20231114T221320Z-chat) ended at 22:14:10: "
        "the plots show its end, too."
    )


def test_events_of_another_service_are_left_out(source: Source) -> None:
    assert "of another" not in str(report(source))


def test_the_timeline_tells_what_happened_in_order_steps_and_pending_left_out(
    source: Source,
) -> None:
    assert [(e.sort, e.kind) for e in report(source).timeline] == [
        ("log", "engine_dead"),
        ("alert", "alert_firing"),
        ("case", "case_opened"),
        ("act", "remediation_refused"),
        ("act", "remediation_requested"),
        ("case", "case_changed"),
        ("act", "remediation_ended"),
        ("alert", "alert_resolved"),
        ("case", "case_closed"),
    ]


def test_an_alert_is_told_from_its_first_sign_to_its_end(source: Source) -> None:
    (alert,) = report(source).alerts

    times = (alert.active, alert.fired, alert.resolved)
    assert [round((at or 0) - story.START) // 5 * 5 for at in times] == [200, 210, 255]
    assert alert.summary == "chat is gone"


def test_a_refusal_is_told_with_the_checks_that_stood_against_it(source: Source) -> None:
    (refusal,) = report(source).refusals

    assert (refusal.remediation, refusal.reason) == ("restart", "cooldown")
    assert refusal.against == {"cooldown": "2 min are not over"}


def test_log_lines_are_kept_as_they_were_written(source: Source) -> None:
    (line,) = report(source).log

    assert (line.kind, line.text) == ("engine_dead", story.HOSTILE)


def test_clients_are_told_before_worst_and_at_the_end(source: Source) -> None:
    (seen,) = report(source).clients

    assert seen.service == "chat"
    assert seen.failed_for == 50.0  # from 200 s to 250 s, ten looks five seconds apart
    assert seen.rows[0] == (
        "A real request of ours",
        "answered",
        "failed for about 50 s",
        "answered",
    )


def test_plots_begin_before_the_first_sign_and_show_the_services_cards(source: Source) -> None:
    found = report(source)

    assert (found.begin - story.START, found.end - story.START) == (80.0, 330.0)
    assert {plot.name: plot.lines[0][0] for plot in found.plots} == {
        "probe": "chat", "temperature": "0000:53:00",
    }  # fmt: skip
    assert found.plots[0].lines[0][1][24:26] == (
        (story.START + 200, 0.0), (story.START + 205, 0.0),
    )  # fmt: skip


def test_a_state_without_values_gives_a_report_that_says_so(tmp_path: Path) -> None:
    folder = story.state(tmp_path)
    (folder / "engine.json").write_text("[]")

    found = report(StateSource(folder, "n"))

    assert found.plots == ()
    assert found.notes == ("No values of this time are held any more, so there are no plots.",)


def test_a_folder_without_a_journal_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no journal"):
        StateSource(tmp_path, "n")


def test_reading_changes_no_byte_of_the_journal(tmp_path: Path) -> None:
    folder = story.state(tmp_path / "s")
    before = (folder / "journal.db").read_bytes()

    report(StateSource(folder, "n"))

    assert (folder / "journal.db").read_bytes() == before


def test_a_garbled_line_of_a_recording_is_named(tmp_path: Path) -> None:
    folder = story.recording(tmp_path / "r")
    with (folder / "decisions.jsonl").open("a") as stream:
        stream.write('{"tick": 1}\n')

    with pytest.raises(ConfigError, match=r"decisions.jsonl:81: is no line of a recording"):
        RecordingSource(folder)
