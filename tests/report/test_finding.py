"""Which incidents events tell of, and by which names they are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import story
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.model import Event, StoredEvent
from vllm_watchdog.watchdog.records import stored
from vllm_watchdog.watchdog.report import Incident, chosen, incidents


def journaled(told: list[tuple[float, Event]]) -> list[StoredEvent]:
    return [stored(e, n, str(n), story.tick(at, n)) for n, (at, e) in enumerate(told, 1)]


def found(told: list[tuple[float, Event]] | None = None) -> list[Incident]:
    return incidents(journaled(story.story() if told is None else told))


def test_each_case_is_an_incident_from_its_opening_to_its_end_the_newest_first() -> None:
    assert [(each.name, each.opened - story.START, (each.closed or 0) - story.START) for each in found()] == [
        ("20231114T221650Z-chat", 210.0, 270.0),
        ("20231114T221330Z-chat", 10.0, 40.0),
    ]  # fmt: skip


def test_that_our_own_act_is_planned_is_not_the_cause_that_it_answers() -> None:
    newest = found()[0]

    assert (newest.cause, newest.result, newest.ladder) == (
        "engine_dead", "healed by restart", "restart → page",
    )  # fmt: skip


def test_what_a_person_planned_is_the_cause_where_nothing_was_done() -> None:
    told = [
        (0, story.about("case_opened", "", cause="engine_dead")),
        (5, story.about("case_changed", "", cause="planned")),
        (9, story.about("case_closed", "")),
    ]

    assert [(each.cause, each.result) for each in found(told)] == [("planned", "told only")]


@pytest.mark.parametrize(
    ("more", "result"),
    [
        ([("remediation_refused", {"reason": "cooldown"})], "nothing was done (cooldown)"),
        ([("remediation_would", {"allowed": True})], "observed only: would restart"),
        ([("remediation_requested", {})], "restart under way"),
        ([("remediation_ended", {"status": "failed"}), ("page_sent", {})], "restart failed, a person was paged"),
        ([("case_cancelled", {})], "cancelled by a person"),
    ],
)  # fmt: skip
def test_the_result_says_in_words_what_came_of_it(
    more: list[tuple[str, dict[str, object]]], result: str
) -> None:
    told = [(0.0, story.about("case_opened", "", cause="engine_dead"))]
    told += [
        (n, story.about(kind, "", remediation="restart", **fields))
        for n, (kind, fields) in enumerate(more, 1)
    ]

    assert [(each.result, each.closed) for each in found(told)] == [(result, None)]


def test_an_end_without_a_beginning_is_no_incident() -> None:
    assert found(story.story()[5:6]) == []


def test_the_newest_is_taken_by_the_beginning_of_its_name_by_service_or_by_card() -> None:
    newest, older = found()

    assert chosen([newest, older], "") is newest
    assert chosen([newest, older], "20231114T2213") is older
    assert chosen([newest, older], "chat") is newest
    assert chosen([newest, older], "0000:53:00") is newest


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no such incident.*20231114T221650Z-chat"):
        chosen(found(), "2024")


def test_the_name_of_a_hostile_service_stays_a_file_name() -> None:
    told = list(story.cases("../../etc/<passwd>", 1))

    (name,) = (each.name for each in found(told))

    assert name == "20231114T221320Z-etc-passwd"
    assert Path(name).name == name
