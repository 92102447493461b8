"""The rules that never bend, each by its number, on virtual time with scripted acts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.acts import (
    ACTING,
    Killed,
    Scripted,
    World,
    daemon_with,
    ends,
    kinds,
    run,
)
from tests.support.incidents import ONE, SPARE, event_kinds, incident, series
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.acting import Step
from vllm_watchdog.watchdog.daemon import Daemon
from vllm_watchdog.watchdog.incidents import play
from vllm_watchdog.watchdog.journal import Beside, Journal, JournalFull
from vllm_watchdog.watchdog.model import (
    Batch,
    Command,
    Event,
    Inputs,
    Json,
    Page,
    StoredEvent,
    Tick,
    labelset,
)
from vllm_watchdog.watchdog.views import DaemonViews

LOST = series(present="1x11 0x400")
DEAD = series(up="1x11 0x400", probe="1x11 0x400") + (
    "processes: [{at: 62s, service: chat, event: exit, code: 0}]\n"
)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(VirtualClock())
    yield made
    made.close()


class Filling(Journal):
    """A real journal on a disk that fills up."""

    full = False

    def append(
        self,
        tick: Tick,
        events: Sequence[Event],
        checkpoints: Mapping[str, Json] | None = None,
        *,
        durable: bool = False,
        beside: Beside | None = None,
    ) -> list[StoredEvent]:
        if self.full:
            raise JournalFull("journal.db: no room left on the disk")
        return super().append(tick, events, checkpoints, durable=durable, beside=beside)

    def write(self, beside: Beside) -> None:
        if self.full:
            raise JournalFull("journal.db: no room left on the disk")
        super().write(beside)


# 1


def test_rule_1_observes_by_default_and_walks_the_whole_path(tmp_path: Path, world: World) -> None:
    text = ACTING.replace("mode: act\n", "")
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]), text=text)

    decided = run(daemon, 0.9, 0.9, 0.9)

    assert [r for d in decided for r in d.requests] == []
    assert world.did == []
    would = [e for d in decided for e in d.events if e.kind == "remediation_would"]
    assert [(e.fields["remediation"], e.fields["allowed"]) for e in would] == [("restart", True)]
    assert daemon.engine.healer.guard.ledger.acts == []


@pytest.mark.parametrize("stricter", ["services", "policies"])
def test_rule_1_the_strictest_mode_counts(tmp_path: Path, world: World, stricter: str) -> None:
    text = {
        "services": ACTING.replace('{url: "http://chat"}', '{url: "http://chat", mode: observe}'),
        "policies": ACTING.replace("page]}", "page], mode: observe}"),
    }[stricter]
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]), text=text)

    run(daemon, 0.9, 0.9, 0.9)

    assert world.did == []


def test_rule_1_a_reload_to_observe_holds_for_open_cases(tmp_path: Path, world: World) -> None:
    act = Scripted(world, [world.step("stop")])
    daemon = daemon_with(tmp_path, world, act)
    run(daemon, 0.9)
    daemon.scheduler.start()
    from vllm_watchdog.watchdog import config
    from vllm_watchdog.watchdog.daemon import prepare

    text = f"rules: {{files: [{tmp_path}/r.yaml]}}\n" + ACTING.replace("mode: act", "mode: observe")
    daemon.reload(prepare(config.parse(text, "w.yaml"), text))
    run(daemon, 0.9, 0.9)
    daemon.scheduler.stop()

    assert world.did == []


# 2


def test_rule_2_the_intent_is_written_and_synced_before_the_act(
    tmp_path: Path, world: World
) -> None:
    """What the act finds in the database, read by another connection."""
    found: list[tuple[str, str]] = []

    def look() -> None:
        other = Journal.open(tmp_path / "journal.db", world.clock)
        world.journals.append(other)
        acts = other.rows("SELECT id, doc FROM acts")
        steps = other.rows("SELECT act, name, state FROM steps")
        healing = other.load_state("healing")
        assert healing is not None
        running = [case["running"]["request"]["id"] for case in healing["cases"]]
        assert [row[0] for row in acts] == running == [steps[0][0]]
        found.extend((row[1], row[2]) for row in steps)

    world.meanwhile["stop"] = look
    run(daemon_with(tmp_path, world, Scripted(world, [world.step("stop")])), 0.9, 0.9)

    assert found == [("stop", "started")]


def test_rule_2_the_transaction_of_an_intent_is_a_synced_one(tmp_path: Path, world: World) -> None:
    durable: list[tuple[bool, list[str]]] = []

    class Noting(Journal):
        def append(self, tick: Tick, events: Any, checkpoints: Any = None, **how: Any) -> Any:
            kept = super().append(tick, events, checkpoints, **how)
            durable.append((how.get("durable", False), [event.kind for event in events]))
            return kept

    database = Journal.open(tmp_path / "journal.db", world.clock)._database
    journal = Noting(database, world.clock)
    daemon = daemon_with(tmp_path, world, Scripted(world, []), journal=journal)
    run(daemon, 0.9, 0.9)

    assert all(synced for synced, told in durable if "remediation_requested" in told)
    assert any("remediation_requested" in told for _, told in durable)


def test_rule_2_an_attempt_counts_whatever_comes_of_it(tmp_path: Path, world: World) -> None:
    def die() -> None:
        raise Killed

    world.meanwhile["stop"] = die
    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, [world.step("stop")])), 0.9, 0.9)

    again = daemon_with(tmp_path, world)

    assert len(again.engine.healer.guard.ledger.ladders["chat|Busy"]) == 1
    assert len(again.engine.healer.guard.ledger.acts) == 1


def test_rule_2_no_act_starts_while_the_journal_cannot_be_written_and_alerts_go_on(
    tmp_path: Path, world: World
) -> None:
    journal = Filling(Journal.open(tmp_path / "journal.db", world.clock)._database, world.clock)
    act = Scripted(world, [world.step("stop")])
    daemon = daemon_with(tmp_path, world, act, journal=journal)
    run(daemon, 0.1)
    journal.full = True

    decided = run(daemon, 0.9, 0.9, 0.9, 0.9)

    assert world.did == []
    names = {a.name for a in daemon.engine.alerts() if a.state == "firing"}
    assert names == {"Busy", "RemediationFailed"}
    assert [v.reason for d in decided for v in d.refusals] == ["precondition", "journal"]
    assert daemon.engine.healer.guard.running == {}

    journal.full = False
    run(daemon, 0.9, 0.9, 0.9)

    assert world.did == ["stop"]


def test_rule_2_an_intent_that_could_not_be_written_is_withdrawn_and_due_again(
    tmp_path: Path, world: World
) -> None:
    journal = Filling(Journal.open(tmp_path / "journal.db", world.clock)._database, world.clock)
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]), journal=journal)
    run(daemon, 0.9)
    journal.full = True  # between the ticks: nothing told of it yet

    asked, withdrawn = run(daemon, 0.9, 0.9)
    case = daemon.engine.healer.cases["chat|Busy"]

    assert [r.remediation for r in asked.requests] == ["restart"]
    assert "remediation_withdrawn" in [e.kind for e in withdrawn.events]
    assert (case.running, case.rung, case.ended) == (None, 0, "")
    assert daemon.engine.healer.guard.ledger.ladders["chat|Busy"] == []
    assert world.did == []


# 3


def test_rule_3_all_checks_are_journaled_and_the_first_refusal_is_the_reason(
    tmp_path: Path, world: World
) -> None:
    (tmp_path / "hold").touch()
    text = ACTING.replace("mode: act", "mode: confirm")
    daemon = daemon_with(tmp_path, world, Scripted(world, []), text=text)

    decided = run(daemon, 0.9, 0.9)
    refused = [e for d in decided for e in d.events if e.kind == "remediation_refused"]

    assert [each.fields["reason"] for each in refused] == ["hold"]
    assert list(refused[0].fields["checks"]) == [
        "hold", "mode", "silenced", "warming", "unknown", "explained", "destination",
        "other_restart", "breaker", "busy", "attempts", "cooldown", "node_budget", "fleet_budget",
        "journal", "precondition",
    ]  # fmt: skip
    assert refused[0].fields["checks"]["mode"] == "mode confirm: not approved"


def confirming(tmp_path: Path, world: World) -> Daemon:
    text = ACTING.replace("mode: act", "mode: confirm")
    return daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]), text=text)


def approve(daemon: Daemon) -> None:
    daemon.command(Command("approve", {"service": "chat"}, "ann"))


def test_rule_3_an_approval_ends_after_ten_minutes(tmp_path: Path, world: World) -> None:
    daemon = confirming(tmp_path, world)
    (tmp_path / "hold").touch()
    run(daemon, 0.9, 0.9)
    approve(daemon)
    run(daemon, *[0.9] * 121)
    (tmp_path / "hold").unlink()
    run(daemon, 0.9, 0.9)
    late = list(world.did)

    approve(daemon)
    run(daemon, 0.9)

    assert late == []
    assert world.did == ["stop"]


def test_rule_3_an_approval_is_for_one_request(tmp_path: Path, world: World) -> None:
    daemon = confirming(tmp_path, world)
    run(daemon, 0.9, 0.9)
    approve(daemon)
    run(daemon, 0.9, 0.9)
    world.undo("stop")
    world.did.clear()

    decided = run(daemon, *[0.9] * 100)

    assert world.did == []
    assert {v.reason for d in decided for v in d.refusals} == {"mode"}


# 4


def test_rule_4_smallest_act_first_and_a_person_after_the_last(
    tmp_path: Path, world: World
) -> None:
    world.fails["a"] = world.fails["b"] = OSError("no")
    acts = [
        Scripted(world, [world.step("a")], "restart"),
        Scripted(world, [world.step("b")], "drain"),
    ]
    daemon = daemon_with(tmp_path, world, *acts)

    run(daemon, 0.9, 0.9, 0.9, 0.9)

    assert world.did == ["a", "b"]
    assert ends(daemon) == [("restart", "failed"), ("drain", "failed")]
    assert kinds(daemon, "page_sent") == ["page_sent"]


def test_rule_4_an_act_whose_result_is_unknown_is_never_repeated(
    tmp_path: Path, world: World
) -> None:
    world.untold.add("stop")
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]))

    run(daemon, *[0.9] * 400)

    assert world.did == ["stop"]
    assert kinds(daemon, "page_sent") == ["page_sent"]


# 5


def test_rule_5_success_is_judged_by_the_users_path_not_by_a_return_code(
    tmp_path: Path, world: World
) -> None:
    from vllm_watchdog.watchdog.errors import HttpError

    text = ACTING.replace(
        '"http://chat"', '"http://chat", front: {nginx: /etc/x, url: "http://front"}'
    )
    text = text.replace("page]", "page], at_most: 20s")
    pages = {
        "GET http://front/v1/models": json.dumps({"data": [{"id": "m"}]}),
        "GET http://front/openapi.json": json.dumps({"paths": {"/v1/completions": {}}}),
        "POST http://front/v1/completions": HttpError("502", "refused"),
    }
    act = Scripted(world, [world.step("start")], verified=True)
    daemon = daemon_with(tmp_path, world, act, text=text, pages=pages)

    run(daemon, 0.9, 0.9, 0.9)

    assert ends(daemon)[0] == ("restart", "timed_out")


# 6 (what the plans themselves promise stands with the remediations)


def test_rule_6_a_step_begins_only_when_the_one_before_is_proved_done(
    tmp_path: Path, world: World
) -> None:
    """Traffic away, the stop proved, memory free: each is a step, and none is skipped by time."""
    world.never.add("memory free")
    steps = [world.step("traffic away"), world.step("memory free", do=None), world.step("start")]
    daemon = daemon_with(tmp_path, world, Scripted(world, steps))

    run(daemon, 0.9, 0.9, 0.9)

    assert "start" not in world.did
    assert ends(daemon)[0] == ("restart", "timed_out")


# 7


def test_rule_7_only_what_we_did_is_undone(tmp_path: Path, world: World) -> None:
    world.true.add("drained by a person")
    world.fails["stop"] = OSError("no")
    steps = [
        world.step("drained by a person", temporary=True),
        world.step("ours"),
        world.step("stop"),
    ]

    run(daemon_with(tmp_path, world, Scripted(world, steps)), 0.9, 0.9)

    assert world.did == ["ours", "stop", "undo ours"]


@pytest.mark.parametrize("word", ["pause", "cancel", "hold"])
def test_rule_7_a_person_wins_at_once_also_against_a_running_act(
    tmp_path: Path, world: World, word: str
) -> None:
    daemons: list[Daemon] = []
    say: Callable[[], object] = (
        (tmp_path / "hold").touch
        if word == "hold"
        else lambda: daemons[0].command(Command(word, {"service": "chat"}, "ann"))
    )
    world.takes["stop"] = 9.0
    world.meanwhile["stop"] = say
    daemons.append(
        daemon_with(tmp_path, world, Scripted(world, [world.step("stop"), world.step("start")]))
    )
    before = world.clock.mono()

    run(daemons[0], 0.9, 0.9, 0.9)

    assert world.did == ["stop"]
    assert ends(daemons[0]) == [("restart", "cancelled")]
    assert world.clock.mono() - before < 15.0 + 0.5


def test_rule_7_a_pause_survives_a_restart_and_is_told_daily(tmp_path: Path, world: World) -> None:
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]))
    daemon.command(Command("pause", {"reason": "work on the rack"}, "ann"))
    run(daemon, 0.1)

    again = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]))
    run(again, 0.9, 0.9)
    for _ in range(2):
        world.clock.advance(86_400.0)
        run(again, 0.1)

    assert world.did == []
    assert kinds(again, "healing_held") == ["healing_held"] * 2


# 8


def test_rule_8_many_sick_targets_open_the_breaker_and_a_person_closes_it() -> None:
    services = '{a: {url: "http://h:1"}, b: {url: "http://h:2"}, c: {url: "http://h:3"}}'
    body = "processes:\n" + "".join(
        f"  - {{at: 60s, service: {name}, event: exit}}\n" for name in "ab"
    )
    played = play(incident(body, services))

    assert "breaker_opened" in event_kinds(played)
    assert {r.remediation for _, r in played.requests} == {"page"}
    told = played.engine.healer.hear(
        Inputs(commands=(Command("close_breaker", {}, "ann"),)), played.engine.ms / 1000
    ).events
    assert [event.kind for event in told] == ["breaker_closed"]


# 9


@pytest.mark.parametrize("at", ["a", "b"])
def test_rule_9_a_crash_loses_no_event_and_repeats_no_act(
    tmp_path: Path, world: World, at: str
) -> None:
    def die() -> None:
        world.true.add(at)
        raise Killed

    steps = [world.step(name, undo=None) for name in "ab"]
    world.meanwhile[at] = die
    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, steps)), 0.9, 0.9)
    world.meanwhile.clear()

    again = daemon_with(tmp_path, world, Scripted(world, steps))
    run(again, 0.9)

    assert world.did == ["a", "b"]
    assert ends(again) == [("restart", "done")]
    assert kinds(again, "remediation_requested") == ["remediation_requested"]


def test_rule_9_quarantines_survive_a_crash(tmp_path: Path, world: World) -> None:
    daemon = daemon_with(tmp_path, world)
    daemon.command(Command("quarantine", {"card": "0000:53:00"}, "ann"))
    run(daemon, 0.1)  # killed after this tick: engine.json was never written

    again = daemon_with(tmp_path, world)

    assert list(again.engine.healer.guard.quarantined) == ["0000:53:00"]


def test_rule_9_a_broken_journal_is_set_aside_and_the_daemon_only_observes(
    tmp_path: Path, world: World
) -> None:
    act = Scripted(world, [world.step("stop")])
    run(daemon_with(tmp_path, world, act), 0.1)
    world.close()
    (tmp_path / "journal.db").write_bytes(b"rubbish" * 1000)

    daemon = daemon_with(tmp_path, world, act)
    run(daemon, 0.9, 0.9, 0.9)
    observed = list(world.did)
    status = DaemonViews(daemon).status()
    daemon.command(Command("resume", {}, "ann"))
    run(daemon, 0.9, 0.9)

    assert observed == []
    assert status["mode"] == "observe"
    assert status["observing_because"].startswith("the journal was damaged")
    assert "observing_only" in kinds(daemon)
    assert "journal_note" in kinds(daemon)
    assert world.did == ["stop"]


# 10


HOSTILE = '$(touch /tmp/pwned) `id` "; rm -rf / #\n{{ .Values }} \u202e ../../etc'


def test_rule_10_texts_of_logs_and_labels_reach_no_step(tmp_path: Path, world: World) -> None:
    """A case holds cards and settings of the configuration; of what the node said only the alert's
    own labels, which the plans of the acts do not look at (see the contract of remediations)."""
    seen: list[Json] = []

    class Watching(Scripted):
        def plan(self, system: Any, case: Any) -> Sequence[Step]:
            seen.append({"cards": case.cards, "sick": case.sick, "spares": case.spares,
                         "settings": case.settings, "name": case.name})  # fmt: skip
            return []

    daemon = daemon_with(tmp_path, world, Watching(world))
    page = Page((labelset({"who": HOSTILE}, "load"),), (0.9,))
    for _ in range(2):
        world.clock.advance(5.0)
        daemon.inbox.put(Batch("tool", (page,), (Event("oom_device", HOSTILE),)))
        daemon.tick()

    assert len(seen) == 1
    assert "pwned" not in repr(seen)


# 11


def test_rule_11_the_managers_own_restart_counts_as_the_one_under_way() -> None:
    body = DEAD.replace("processes: [", "processes: [{at: 64s, service: chat, event: start}, ")
    played = play(incident(body, ONE, until="90s"))

    assert [r.remediation for _, r in played.requests] == []


def test_the_spares_of_an_act_are_reserved_with_its_intent(tmp_path: Path) -> None:
    played = play(incident(LOST, SPARE))

    assert played.requests[0][1].spares == ("0000:75:00",)
    assert played.requests[0][1].cards == ("0000:53:00",)
    assert list(played.engine.healer.guard.reserved) == ["0000:75:00"]
