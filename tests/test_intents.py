"""Acts in the journal: what is read back after a crash is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.config import parse
from vllm_watchdog.watchdog.intents import Intent, Intents, StepRow, case_doc, case_of
from vllm_watchdog.watchdog.journal import Journal
from vllm_watchdog.watchdog.model import Alert, Outcome, Request, ServiceMode, Tick

ALERT = Alert("g/A", (("alertname", "A"),), "firing", 1.0, 2.0, fired_at=1.0)
SETTINGS = parse(
    """
services:
  chat:
    url: http://one
    cards: ["0000:53:00"]
    manager: {command: [vllm, serve, m]}
    standby: {url: "http://two"}
    profiles: {int8: p.env}
    probe: {timeout: 500ms, expect: "4"}
""",
    "/etc/w.yaml",
).services["chat"]


def case(name: str = "chat-1", began: float = 100.0) -> ActCase:
    request = Request("restart", ALERT, 2, "chat", name, "engine_dead", ("c",), ("d",), True, 60.0)
    return ActCase(request, "chat", SETTINGS, ServiceMode(profile="int8"), ("c",), ("c",), ("d",),
                   began, Path("/state"), {"c": "nvidia"})  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal.open(tmp_path / "journal.db", VirtualClock())
    yield made
    made.close()


def write(journal: Journal, *cases: ActCase, heard: tuple[str, ...] = ()) -> Intents:
    intents = Intents(journal)
    tick = Tick(1, 1.0, 1.0)
    journal.append(tick, [], {}, durable=True, beside=intents.beside(cases, heard))
    return intents


def test_a_case_is_read_back_as_it_was_written() -> None:
    assert case_of(case_doc(case())) == case()


def test_open_acts_are_found_with_their_steps_oldest_first(journal: Journal) -> None:
    intents = write(journal, case("b", 200.0), case("a", 100.0))
    intents.step("a", StepRow("stop", "started", 101.0, {}))
    intents.step("a", StepRow("stop", "done", 102.0, {"serving": "standby"}, True))

    found, unreadable = intents.unheard()

    stop = StepRow("stop", "done", 102.0, {"serving": "standby"}, True)
    assert found == [Intent(case("a", 100.0), (stop,)), Intent(case("b", 200.0))]
    assert unreadable == []


def test_an_act_that_ended_is_found_until_its_end_was_heard(journal: Journal) -> None:
    intents = write(journal, case())
    outcome = Outcome(case().request, "done", "2 steps", 3.5)
    intents.end(outcome, 110.0)
    before = intents.unheard()[0]

    write(journal, heard=("chat-1",))

    assert before == [Intent(case(), (), outcome)]
    assert intents.unheard()[0] == []


def test_an_intent_that_cannot_be_read_is_named_and_hides_no_other(journal: Journal) -> None:
    intents = write(journal, case("a"), case("b"), case("c"))
    intents.step("c", StepRow("stop", "done", 101.0, {}))
    journal.write(lambda db: db.execute("UPDATE acts SET doc = '{}' WHERE id = 'a'"))
    journal.write(lambda db: db.execute("UPDATE steps SET sets = 'nope'"))

    found, unreadable = intents.unheard()

    assert [each.case.request.id for each in found] == ["b"]
    assert unreadable == ["a", "c"]


def test_an_end_that_found_no_room_is_noted_when_it_is_heard(journal: Journal) -> None:
    intents = write(journal, case("a"), case("b"))
    intents.end(Outcome(case("b").request, "failed", "first"), 110.0)
    ends = [Outcome(case(name).request, "done", "late") for name in ("a", "b")]
    journal.write(intents.beside((), ("a", "b"), ends, 120.0))

    rows = journal.rows("SELECT id, ended, status, detail, heard FROM acts ORDER BY id")
    assert rows == [("a", 120.0, "done", "late", 1), ("b", 110.0, "failed", "first", 1)]


def test_acts_that_are_long_over_are_forgotten_when_another_begins(journal: Journal) -> None:
    intents = write(journal, case("old", 100.0), heard=("old",))
    intents.step("old", StepRow("stop", "done", 101.0, {}))

    write(journal, case("new", 100.0 + 91 * 86_400.0))

    assert journal.rows("SELECT id FROM acts") == [("new",)]
    assert intents.steps("old") == []


def test_a_journal_of_the_first_version_takes_acts(tmp_path: Path) -> None:
    from vllm_watchdog.watchdog.database import Database
    from vllm_watchdog.watchdog.journal import SCHEMA

    old = Database(tmp_path / "journal.db", SCHEMA[:1], VirtualClock())
    old.open()
    old.close()
    journal = Journal.open(tmp_path / "journal.db", VirtualClock())

    intents = write(journal, case())

    assert [each.case for each in intents.unheard()[0]] == [case()]
    journal.close()
