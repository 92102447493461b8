"""A report is written, and stays small, whatever the journal or the recording holds."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report import story
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.model import Event
from vllm_watchdog.watchdog.report import RecordingSource, StateSource, compose, html, markdown
from vllm_watchdog.watchdog.report.sources import Values


def crowded(count: int) -> Iterator[tuple[float, Event]]:
    """An incident of which so many events tell, each as long as the journal takes them."""
    endless = "<&>" * 3000
    yield story.story()[10]
    for number in range(count):
        yield 211, story.alert("firing", 200, 210, f"A{number}{endless}")
        yield (
            211,
            story.about(
                "remediation_refused", endless, remediation="restart", checks={"a": endless}
            ),
        )
        yield 211, story.act("remediation_requested", endless, number, attempt=1)
        yield 211, story.act("remediation_step", endless, number, step=endless, detail=endless)
        yield 211, Event("engine_dead", endless, story.about("", "").labels, severity="critical")
    yield 270, story.about("case_closed", "chat: over", cause="engine_dead")


def test_a_report_on_thousands_of_endless_events_can_still_be_opened(tmp_path: Path) -> None:
    source = StateSource(story.state(tmp_path, [*crowded(600)]), "n")
    report = compose(source, source.incidents()[0], "1", story.START)

    assert "Shown are 100 of 600 alerts." in report.notes
    assert "Shown are 30 of 600 acts." in report.notes
    assert "Shown are 100 of 600 refusals." in report.notes
    assert max(len(html(report)), len(markdown(report))) < 5_000_000


@pytest.mark.parametrize(
    "wrong",
    [None, [], {"a": 1}, 10**400, -1, "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"],
    ids=lambda wrong: str(wrong)[:30],
)
def test_whatever_stands_in_the_fields_of_an_event_its_report_is_written(
    tmp_path: Path, wrong: Any
) -> None:
    names = ("active_at", "fired_at", "seconds", "seconds_to_healthy", "attempt", "checks", "step")
    told = [
        (at, replace(event, fields={**event.fields, **dict.fromkeys(names, wrong)}))
        for at, event in story.story()
    ]
    source = StateSource(story.state(tmp_path, told), "n")
    for incident in source.incidents():
        report = compose(source, incident, "1", story.START)

        assert html(report)
        assert markdown(report)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("time", "0001-01-01T00:00:00Z"),
        ("time", "9999-12-31T23:59:59-14:00"),
        ("tick", float("inf")),
        ("events", [{"kind": "case_opened", "fields": [], "time": 1e300}]),
    ],
)
def test_a_garbled_line_of_a_recording_is_refused_with_its_place(
    tmp_path: Path, place: str, wrong: Any
) -> None:
    lines = (story.recording(tmp_path) / "decisions.jsonl").read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), place: wrong})
    (tmp_path / "decisions.jsonl").write_text("\n".join([*lines, ""]))
    with pytest.raises(ConfigError, match=r"decisions.jsonl:3: is no line of a recording"):
        RecordingSource(tmp_path)


@pytest.mark.parametrize(
    ("low", "high"), [(-1e308, 1.7e308), (5e-324, 5e-324), (0.0, 5e-324), (math.nan, math.inf)]
)
def test_a_value_that_no_card_can_have_spoils_no_report(
    tmp_path: Path, low: float, high: float
) -> None:
    class Wild(StateSource):
        def values(self, begin: float, end: float) -> Values:
            return lambda *_: [({"service": "chat", "card": "c"}, ((begin, low), (end, high)))]

    source = Wild(story.state(tmp_path), "n")
    report = compose(source, source.incidents()[0], "1", story.START)

    assert report.plots
    assert "nan" not in html(report) + markdown(report)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"window": 3}', '{"window": {"saved_ms": 1e999}}', '{"window": {"saved_ms": "x"}}',
     "[" * 100_000],
    ids=lambda text: text[:30] or "empty",
)  # fmt: skip
def test_without_a_readable_window_the_report_has_no_plots_and_says_so(
    tmp_path: Path, text: str
) -> None:
    source = StateSource(story.state(tmp_path), "n")
    (tmp_path / "engine.json").write_text(text)
    report = compose(source, source.incidents()[0], "1", story.START)

    assert report.plots == ()
    assert any("no plots" in note for note in report.notes)


@pytest.mark.parametrize(
    ("column", "value"),
    [("fields", "[]"), ("fields", "{"), ("labels", "3"), ("labels", "[3]"), ("time", 1e300),
     ("severity", b"\xff")],
)  # fmt: skip
def test_a_journal_with_a_damaged_event_is_refused_in_one_line(
    tmp_path: Path, column: str, value: object
) -> None:
    source = StateSource(story.state(tmp_path), "n")
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.db")) as journal, journal:
        journal.execute(f"UPDATE events SET {column} = ? WHERE kind = 'case_opened'", [value])
    with pytest.raises(ConfigError) as refused:
        [compose(source, each, "1", story.START) for each in source.incidents()]

    assert "\n" not in str(refused.value)
