"""Acts carried out step by step, on virtual time: what is done, journaled, honoured, taken back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.acts import ACTING, RULES, Killed, Scripted, World, daemon_with, ends, kinds, run
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.acting import ActCase, Done, Step
from vllm_watchdog.watchdog.cases import Case, Running
from vllm_watchdog.watchdog.config import parse
from vllm_watchdog.watchdog.daemon import Daemon, prepare
from vllm_watchdog.watchdog.desk import DaemonDesk
from vllm_watchdog.watchdog.errors import HttpError, Permanent, SourceError
from vllm_watchdog.watchdog.model import Alert, Command, Diagnosis, Outcome, Request
from vllm_watchdog.watchdog.recording import Recording
from vllm_watchdog.watchdog.replay import replay


@pytest.fixture
def world() -> Iterator[World]:
    made = World(VirtualClock())
    yield made
    made.close()


def carried(
    tmp_path: Path, world: World, *steps: Step, act: Scripted | None = None, **more: object
) -> tuple[Daemon, Outcome]:
    """A daemon in which the act was asked for and carried out; and how it ended."""
    act = act or Scripted(world, steps)
    daemon = daemon_with(tmp_path, world, act, **more)  # type: ignore[arg-type]
    run(daemon, 0.9, 0.9)
    (outcome,) = daemon.inbox._outcomes
    return daemon, outcome


def test_steps_are_done_in_order_each_waited_for(tmp_path: Path, world: World) -> None:
    world.takes["stop"] = 3.0

    daemon, outcome = carried(tmp_path, world, world.step("stop"), world.step("start"))
    run(daemon, 0.9)

    assert world.did == ["stop", "start"]
    assert (outcome.status, outcome.duration) == ("done", 3.0)
    assert ends(daemon) == [("restart", "done")]


def test_what_is_so_already_is_not_done_and_never_taken_back(tmp_path: Path, world: World) -> None:
    world.true.add("drain")
    world.never.add("start")

    _, outcome = carried(
        tmp_path,
        world,
        world.step("drain", temporary=True),
        world.step("stop"),
        world.step("start"),
    )

    assert world.did == ["stop", "start", "undo stop"]
    assert outcome.status == "timed_out"
    assert outcome.detail == "step start is not done within 10 s"


def test_a_failed_step_undoes_the_done_ones_in_reverse(tmp_path: Path, world: World) -> None:
    world.fails["c"] = SourceError("nginx -t: unknown directive")

    _, outcome = carried(tmp_path, world, *(world.step(name) for name in "abcd"))

    assert world.did == ["a", "b", "c", "undo b", "undo a"]
    assert (outcome.status, outcome.detail) == ("failed", "step c: nginx -t: unknown directive")


def test_an_undo_that_fails_is_told(tmp_path: Path, world: World) -> None:
    def broken(_: object) -> None:
        raise SourceError("the front is gone")

    world.never.add("b")
    _, outcome = carried(tmp_path, world, world.step("a", undo=broken), world.step("b"))

    assert outcome.detail.endswith("could not be taken back: a (the front is gone)")


def test_a_fault_while_taking_back_goes_to_a_person(tmp_path: Path, world: World) -> None:
    def faulty(_: object) -> None:
        raise KeyError("front")

    world.never.add("b")
    daemon, outcome = carried(tmp_path, world, world.step("a", undo=faulty), world.step("b"))
    run(daemon, 0.9)

    assert (outcome.status, outcome.detail) == (
        "unknown",
        "KeyError while it was taken back: 'front'",
    )
    assert daemon.foreman is not None
    assert daemon.foreman.workers.running == []


def futile(_: object) -> Done:
    raise Permanent("the unit failed")


def test_a_step_whose_end_cannot_come_any_more_fails_at_once(tmp_path: Path, world: World) -> None:
    _, outcome = carried(
        tmp_path, world, world.step("start"), world.step("answers", do=None, done=futile)
    )

    assert world.did == ["start", "undo start"]
    assert (outcome.status, outcome.detail) == ("failed", "step answers: the unit failed")
    assert outcome.duration == 0.0


def test_what_failed_before_it_is_begun_is_begun_all_the_same(tmp_path: Path, world: World) -> None:
    def done(_: object) -> Done:
        return world.done("start") if world.did else futile(_)

    _, outcome = carried(tmp_path, world, world.step("start", done=done))

    assert (world.did, outcome.status) == (["start"], "done")


def test_an_act_goes_on_past_a_futile_step_that_need_not_be(tmp_path: Path, world: World) -> None:
    aside = world.step("evidence", done=futile, must=False)

    _, outcome = carried(tmp_path, world, aside, world.step("stop"))

    assert (world.did, outcome.status) == (["evidence", "stop"], "done")


def test_events_name_what_a_step_gave_once_it_is_done(tmp_path: Path, world: World) -> None:
    daemon, _ = carried(
        tmp_path,
        world,
        world.step("drain"),
        world.step("evidence", gives={"evidence": "/s/evidence/1"}, must=False),
        world.step("stop"),
    )
    run(daemon, 0.9)

    assert daemon.journal is not None
    steps = [e.fields for e in daemon.journal.read(0, 1000) if e.kind == "remediation_step"]
    assert [each.get("evidence") for each in steps] == [None, "/s/evidence/1", "/s/evidence/1"]


def test_a_step_that_need_not_be_may_fail(tmp_path: Path, world: World) -> None:
    world.fails["evidence"] = SourceError("py-spy is not here")

    _, outcome = carried(tmp_path, world, world.step("evidence", must=False), world.step("stop"))

    assert outcome.status == "done"


def test_temporary_steps_are_taken_back_at_the_end_whatever_comes(
    tmp_path: Path, world: World
) -> None:
    _, outcome = carried(tmp_path, world, world.step("drain", temporary=True), world.step("stop"))

    assert world.did == ["drain", "stop", "undo drain"]
    assert outcome.status == "done"


def test_another_s_restart_under_way_leaves_the_rung_due_and_pages_nobody(
    tmp_path: Path, world: World
) -> None:
    world.later = "its manager restarts it by itself"
    daemon = daemon_with(tmp_path, world, Scripted(world, (world.step("stop"),)))
    for _ in range(3):
        run(daemon, 0.9)
        world.clock.sleep(5.0)
    world.later = ""
    world.clock.sleep(10.0)
    for _ in range(3):
        run(daemon, 0.9)

    assert daemon.journal is not None
    told = [(e.kind, e.fields.get("status")) for e in daemon.journal.read(0, 1000)]
    assert ("page_sent", None) not in told
    assert ("remediation_ended", "done") in told
    assert world.did == ["stop"]
    assert daemon.engine.healer.guard.ledger.attempts("chat|none", world.clock.wall(), 3600) <= 1


def test_a_reason_of_the_precheck_declines_and_nothing_is_touched(
    tmp_path: Path, world: World
) -> None:
    world.declines = "the unit reads no file of ours"

    _, outcome = carried(tmp_path, world, world.step("stop"))

    assert (outcome.status, outcome.detail) == ("declined", "the unit reads no file of ours")
    assert world.did == []


def test_the_next_rung_follows_at_once(tmp_path: Path, world: World) -> None:
    world.declines = "not here"
    daemon = daemon_with(
        tmp_path, world, Scripted(world, [], "restart"), Scripted(world, [], "drain")
    )

    decided = run(daemon, 0.9, 0.9, 0.9)

    assert [r.remediation for d in decided for r in d.requests] == ["restart", "drain"]
    assert daemon.inbox.wake.is_set()


def test_a_fault_of_a_remediation_ends_its_act_and_nothing_else(
    tmp_path: Path, world: World
) -> None:
    world.fails["b"] = KeyError("cards")

    _, outcome = carried(tmp_path, world, world.step("a"), world.step("b"))

    assert (outcome.status, outcome.detail) == ("failed", "KeyError: 'cards'")
    assert world.did == ["a", "b", "undo a"]


def test_an_answer_that_stays_unknown_goes_to_a_person(tmp_path: Path, world: World) -> None:
    world.untold.add("stop")

    daemon, outcome = carried(tmp_path, world, world.step("stop"), world.step("start"))
    (decided,) = run(daemon, 0.9)

    assert outcome.status == "unknown"
    assert outcome.detail == (
        "nobody can tell whether stop is done; done: nothing; not done: stop, start"
    )
    assert [r.remediation for r in decided.requests] == ["page"]


def test_the_acts_limit_ends_every_wait(tmp_path: Path, world: World) -> None:
    world.never.add("load")
    text = ACTING.replace("page]", "page], at_most: 30s")

    _, outcome = carried(tmp_path, world, world.step("load", deadline=900.0), text=text)

    assert (outcome.status, outcome.duration) == ("timed_out", 30.0)


def test_the_hold_file_ends_an_act_between_two_looks(tmp_path: Path, world: World) -> None:
    world.takes["stop"] = 5.0
    world.meanwhile["stop"] = (tmp_path / "hold").touch

    _, outcome = carried(
        tmp_path,
        world,
        world.step("drain", temporary=True),
        world.step("stop"),
        world.step("start"),
    )

    assert outcome.status == "cancelled"
    assert outcome.detail == "the hold file is there; done: drain; not done: stop, start"
    assert world.did == ["drain", "stop", "undo drain"]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_persons_word_ends_the_act_on_the_service(
    tmp_path: Path, world: World, verb: str
) -> None:
    daemons: list[Daemon] = []
    world.takes["stop"] = 5.0
    world.meanwhile["stop"] = lambda: daemons[0].command(Command(verb, {"service": "chat"}, "ann"))
    daemon = daemon_with(
        tmp_path, world, Scripted(world, [world.step("stop"), world.step("start")])
    )
    daemons.append(daemon)

    run(daemon, 0.9, 0.9, 0.9, 0.9)

    assert world.did == ["stop"]
    assert ends(daemon) == [("restart", "cancelled")]
    assert "page_sent" not in kinds(daemon)


@pytest.mark.parametrize(("name", "status"), [("chat|Busy", "cancelled"), ("node|Other", "done")])
def test_a_cancel_is_about_the_case_that_it_names(
    tmp_path: Path, world: World, name: str, status: str
) -> None:
    daemons: list[Daemon] = []
    world.meanwhile["stop"] = lambda: daemons[0].command(
        Command("cancel", {"service": "", "id": name})
    )
    daemon = daemon_with(
        tmp_path, world, Scripted(world, [world.step("stop"), world.step("start")])
    )
    daemons.append(daemon)

    run(daemon, 0.9, 0.9, 0.9)

    assert ends(daemon) == [("restart", status)]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("mode: act", "mode: observe"), "cancelled"),
        (('{chat: {url: "http://chat"}}', "{}"), "cancelled"),
        (("drain, page", "page"), "done"),
    ],
)
def test_a_configuration_that_does_not_allow_the_act_any_more_ends_it(
    tmp_path: Path, world: World, change: tuple[str, str], status: str
) -> None:
    daemons: list[Daemon] = []

    def reload() -> None:
        text = f"rules: {{files: [{tmp_path}/r.yaml]}}\n{ACTING.replace(*change)}"
        daemons[0].reload(prepare(parse(text, str(tmp_path / "w.yaml")), text))

    world.meanwhile["stop"] = reload
    daemon = daemon_with(
        tmp_path, world, Scripted(world, [world.step("stop"), world.step("start")])
    )
    daemons.append(daemon)

    run(daemon, 0.9, 0.9, 0.9)

    assert ends(daemon) == [("restart", status)]
    assert world.did == (["stop"] if status == "cancelled" else ["stop", "start"])


def test_a_word_about_another_service_leaves_the_act_alone(tmp_path: Path, world: World) -> None:
    daemons: list[Daemon] = []
    world.meanwhile["stop"] = lambda: daemons[0].command(Command("pause", {"service": "other"}))
    daemon = daemon_with(
        tmp_path, world, Scripted(world, [world.step("stop"), world.step("start")])
    )
    daemons.append(daemon)

    run(daemon, 0.9, 0.9)

    assert world.did == ["stop", "start"]


def test_what_a_step_sets_is_kept_and_seen_as_the_services_mode(
    tmp_path: Path, world: World
) -> None:
    act = [
        world.step("switch", sets={"serving": "standby"}, moves_traffic=True),
        world.step("stop"),
    ]
    text = ACTING.replace('"http://chat"', '"http://chat", standby: {url: "http://aside"}')

    daemon, _ = carried(tmp_path, world, *act, text=text)
    run(daemon, 0.9)
    again = daemon_with(tmp_path, world, text=text)

    assert again.engine.healer.standing.mode("chat").serving == "standby"
    assert again.engine.healer.healing.services["chat"].url == "http://aside"
    mode = [k for k in daemon.watching.facts().keys if dict(k)["__name__"] == "service_mode"]
    assert [dict(k)["mode"] for k in mode] == ["standby"]


def test_what_is_taken_back_is_so_in_the_mode_too(tmp_path: Path, world: World) -> None:
    flag = world.step("flag", temporary=True, sets={"front": "cache_only"})

    daemon, _ = carried(tmp_path, world, flag)
    commands = [c.args["sets"] for c in daemon.inbox._commands]

    assert commands == [{"front": "cache_only"}, {"front": "open"}]


def turned(daemon: Daemon) -> list[tuple[str, str, float]]:
    """What the engine is told of our own stops: the step, what began, how long after the first."""
    told = [
        (str(c.args["step"]), word, c.args[word])
        for c in daemon.inbox._commands
        for word in ("stopping", "starting")
        if word in c.args
    ]
    return [(step, word, round(at - told[0][2], 3)) for step, word, at in told]


def test_the_engine_is_told_when_an_act_ends_the_server_and_when_it_starts_it(
    tmp_path: Path, world: World
) -> None:
    world.takes = {"stop": 4.0, "wait": 2.0}
    stop, start = world.step("stop", turns="off"), world.step("start", turns="on")

    daemon, _ = carried(tmp_path, world, stop, world.step("wait"), start)

    assert turned(daemon) == [
        ("stop", "stopping", 0.0),
        ("start", "starting", 6.0),
        ("start", "starting", 6.0),  # and once more when it is there
    ]


def test_ending_the_instance_that_users_left_says_nothing_of_the_service(
    tmp_path: Path, world: World
) -> None:
    text = ACTING.replace('"http://chat"', '"http://chat", standby: {url: "http://aside"}')
    away = world.step("switch", sets={"serving": "standby"}, moves_traffic=True)

    daemon, _ = carried(tmp_path, world, away, world.step("stop", turns="off"), text=text)

    assert turned(daemon) == []


PAGES = {
    "GET http://front/v1/models": json.dumps({"data": [{"id": "m"}]}),
    "GET http://front/openapi.json": json.dumps({"paths": {"/v1/completions": {}}}),
}
ANSWER = json.dumps({"choices": [{"text": "4", "finish_reason": "length"}], "usage": {}})
FRONTED = ACTING.replace(
    '"http://chat"', '"http://chat", front: {nginx: /etc/x.conf, url: "http://front"}'
)


def verified(answers: Sequence[object]) -> dict[str, object]:
    return {**PAGES, "POST http://front/v1/completions": list(answers)}


def test_success_is_two_answers_in_a_row_by_the_users_way(tmp_path: Path, world: World) -> None:
    act = Scripted(world, [world.step("start")], verified=True)
    answers = [ANSWER, HttpError("refused", "refused"), ANSWER, ANSWER]
    _, outcome = carried(tmp_path, world, act=act, text=FRONTED, pages=verified(answers))

    assert (outcome.status, outcome.duration) == ("done", 1.5)


def test_an_act_after_which_users_get_no_answer_has_failed(tmp_path: Path, world: World) -> None:
    act = Scripted(world, [world.step("start")], verified=True)
    text = FRONTED.replace("page]", "page], at_most: 20s")
    pages = verified([HttpError("connection refused", "refused")])

    _, outcome = carried(tmp_path, world, act=act, text=text, pages=pages)

    assert outcome.status == "timed_out"
    assert outcome.detail.startswith("no right answer through http://front: failed")
    assert world.did == ["start", "undo start"]


# The daemon ends in the middle


STEPS = ("drain", "stop", "start")


def plan(world: World) -> list[Step]:
    return [
        world.step("drain", temporary=True),
        world.step("stop", undo=None),
        world.step("start", undo=None),
    ]


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_crash_at_any_step_repeats_nothing_and_forgets_nothing(
    tmp_path: Path, world: World, at: str, moment: str
) -> None:
    def die() -> None:
        if moment == "after":
            world.true.add(at)
        raise Killed

    world.meanwhile[at] = die
    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, plan(world))), 0.9, 0.9)
    world.meanwhile.clear()

    again = daemon_with(tmp_path, world, Scripted(world, plan(world)))
    run(again, 0.9)

    twice = [at] if moment == "before" else []
    done = [name for name in world.did if not name.startswith("undo")]
    assert done == sorted([*STEPS, *twice], key=STEPS.index)
    assert world.did[-1] == "undo drain"
    assert ends(again) == [("restart", "done")]
    assert "remediation_found_open" in kinds(again)


def test_a_step_of_which_nobody_can_tell_after_a_crash_goes_to_a_person(
    tmp_path: Path, world: World
) -> None:
    def die() -> None:
        raise Killed

    world.meanwhile["stop"] = die
    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, plan(world))), 0.9, 0.9)
    world.untold.add("stop")

    again = daemon_with(tmp_path, world, Scripted(world, plan(world)))
    run(again, 0.9)

    assert world.did == ["drain", "stop", "undo drain"]
    assert ends(again) == [("restart", "unknown")]
    assert "page_sent" in kinds(again)


@pytest.mark.parametrize("word", ["hold", "observe"])
def test_an_open_act_that_is_allowed_no_longer_is_handed_over(
    tmp_path: Path, world: World, word: str
) -> None:
    def die() -> None:
        raise Killed

    world.meanwhile["stop"] = die
    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, plan(world))), 0.9, 0.9)
    world.meanwhile.clear()
    text = ACTING.replace("mode: act", "mode: observe") if word == "observe" else ACTING
    if word == "hold":
        (tmp_path / "hold").touch()

    again = daemon_with(tmp_path, world, Scripted(world, plan(world)), text=text)
    run(again, 0.9)

    assert world.did == ["drain", "stop", "undo drain"]
    assert ends(again) == [("restart", "unknown")]


def never_begun(tmp_path: Path, world: World) -> None:
    """An act was asked for and its intent written; then the process ended."""

    def die(_: str, __: object) -> None:
        raise Killed

    with pytest.raises(Killed):
        run(daemon_with(tmp_path, world, Scripted(world, plan(world)), spawn=die), 0.9, 0.9)


def test_an_intent_of_which_nothing_was_begun_is_carried_out_while_its_alert_fires(
    tmp_path: Path, world: World
) -> None:
    never_begun(tmp_path, world)

    again = daemon_with(tmp_path, world, Scripted(world, plan(world)))
    run(again, 0.9, 0.9, 0.9)

    assert world.did == [*STEPS, "undo drain"]
    assert ends(again) == [("restart", "done")]


def test_an_intent_of_which_nothing_was_begun_ends_when_its_alert_is_gone(
    tmp_path: Path, world: World
) -> None:
    never_begun(tmp_path, world)

    again = daemon_with(tmp_path, world, Scripted(world, plan(world)))
    run(again, *[0.1] * 14)

    assert world.did == []
    assert ends(again) == [("restart", "cancelled")]


def test_an_end_that_nobody_heard_is_told_again(tmp_path: Path, world: World) -> None:
    act = Scripted(world, [world.step("quantize", sets={"profile": "int8"})])
    daemon = daemon_with(tmp_path, world, act)
    run(daemon, 0.9, 0.9)  # carried out; killed before the next tick

    again = daemon_with(tmp_path, world, act)
    run(again, 0.9)

    assert world.did == ["quantize"]
    assert ends(again) == [("restart", "done")]
    assert again.engine.healer.standing.mode("chat").profile == "int8"


def test_a_daemon_that_ends_lets_go_between_steps_and_the_next_one_goes_on(
    tmp_path: Path, world: World
) -> None:
    daemons: list[Daemon] = []
    world.takes["stop"] = 5.0
    world.meanwhile["stop"] = lambda: daemons[0].foreman.workers.leave(0.0)  # type: ignore[union-attr]
    daemons.append(daemon_with(tmp_path, world, Scripted(world, plan(world))))
    run(daemons[0], 0.9, 0.9)
    first = list(world.did)

    run(daemon_with(tmp_path, world, Scripted(world, plan(world))), 0.9)

    assert first == ["drain", "stop", "undo drain"]
    assert world.did[3:] == ["drain", "start", "undo drain"]


def test_a_run_with_acts_is_replayed_to_the_same_decisions(tmp_path: Path, world: World) -> None:
    act = Scripted(world, [world.step("switch", sets={"serving": "standby"}), world.step("stop")])
    text = ACTING.replace('"http://chat"', '"http://chat", standby: {url: "http://aside"}')
    daemon = daemon_with(tmp_path / "d", world, act, text=text)
    daemon.record(tmp_path / "rec")

    run(daemon, 0.9, 0.9, 0.9)
    daemon.command(Command("pause", {"reason": "lunch"}, "ann"))
    (tmp_path / "d" / "hold").touch()
    run(daemon, 0.1, 0.9, 0.9, 0.1)

    assert daemon.recorder is not None
    daemon.recorder.close()
    again = replay(tmp_path / "rec")
    events = [e["kind"] for e in again.doc["events"]]
    assert again.difference == ""
    assert len(list(Recording(tmp_path / "rec").inputs())) == 7
    assert {"remediation_step", "service_mode_changed", "remediation_ended", "hold_file"} <= set(
        events
    )


# Ways back


LOWERING = """\
mode: act
services: {chat: {url: "http://chat", cards: ["0000:53:00"]}}
policies: [{when: [Busy], do: [lower_frequency, page]}]
"""


def lowering(world: World) -> list[Scripted]:
    class Lower(Scripted):
        def plan(self, system: object, case: ActCase) -> Sequence[Step]:
            self.cases.append(case)
            return [world.step("restore" if case.back else "lower")]

    return [Lower(world, [], "lower_frequency")]


def test_what_was_lowered_is_given_back_when_its_alert_is_over(
    tmp_path: Path, world: World
) -> None:
    daemon = daemon_with(tmp_path, world, *lowering(world), text=LOWERING, rules=CARD_RULES)
    run(daemon, 0.9, 0.9, 0.9, 0.9)
    lowered = list(world.did)

    run(daemon, 0.1, 0.1)

    assert lowered == ["lower"]
    assert world.did == ["lower", "restore"]
    assert ends(daemon) == [("lower_frequency", "done")] * 2
    assert daemon.engine.healer.cases == {}


CARD_RULES = """\
groups:
  - name: g
    rules:
      - alert: Busy
        expr: load > 0.85
        labels: {service: chat, card: "0000:53:00"}
"""


def test_what_was_lowered_is_given_back_after_a_crash(tmp_path: Path, world: World) -> None:
    run(daemon_with(tmp_path, world, *lowering(world), text=LOWERING, rules=CARD_RULES),
        0.9, 0.9, 0.9)  # fmt: skip

    run(daemon_with(tmp_path, world, *lowering(world), text=LOWERING, rules=CARD_RULES), 0.9)

    assert world.did == ["lower", "restore"]


def test_what_was_lowered_is_given_back_when_the_daemon_stops(tmp_path: Path, world: World) -> None:
    daemon = daemon_with(tmp_path, world, *lowering(world), text=LOWERING, rules=CARD_RULES)
    daemon.scheduler.start()
    run(daemon, 0.9, 0.9, 0.9)

    daemon.stop(None)

    assert world.did == ["lower", "restore"]


def test_the_first_profile_comes_back_when_a_person_approves_it(
    tmp_path: Path, world: World
) -> None:
    class Profile(Scripted):
        def plan(self, system: object, case: ActCase) -> Sequence[Step]:
            name = "fp16" if case.back else "int8"
            return [world.step(name, sets={"profile": "" if case.back else name})]

    text = ACTING.replace("restart, drain, page", "quantize, page").replace(
        '{url: "http://chat"}',
        '{url: "http://chat", profiles: {fp16: a.env, int8: b.env}, start_profile: fp16}',
    )
    daemon = daemon_with(tmp_path, world, Profile(world, [], "quantize"), text=text, rules=RULES)
    healer = daemon.engine.healer
    done = Request("quantize", BUSY, 1, "chat", "q-1", "device_memory", limit=60.0)
    case = Case("chat", Diagnosis("chat", "device_memory", BUSY), 0.0, 0.0, ladder=("quantize", "page"),
                mode="act", running=Running(done, 0.0, 2e9))  # fmt: skip
    healer.cases["chat"] = case
    daemon.inbox.outcome(Outcome(done, "done"))
    run(daemon, 0.1, 0.1)
    asked = DaemonDesk(daemon).standing().waiting
    run(daemon, *[0.1] * 500)
    waiting = healer.cases["chat|back"].refusal

    assert [(each.id, each.act) for each in asked] == [("chat|back", "quantize")]
    daemon.command(Command("approve", {"service": "chat"}, "ann"))
    run(daemon, 0.1, 0.1)

    assert waiting == "how many requests run is not known"
    assert world.did == ["fp16"]
    assert healer.standing.mode("chat").profile == ""
    assert kinds(daemon, "page_sent") == []


BUSY = Alert(
    "g/Busy", (("alertname", "Busy"), ("service", "chat")), "firing", 0.0, 1.0, fired_at=0.0
)


def test_attempts_ends_and_times_are_series_of_the_daemon(tmp_path: Path, world: World) -> None:
    world.takes["switch"] = 2.0
    act = Scripted(world, [world.step("switch", moves_traffic=True), world.step("stop")])
    daemon = daemon_with(tmp_path, world, act)

    run(daemon, 0.9, 0.9, 0.9, 0.9)

    found = {
        dict(key)["__name__"].removeprefix("watchdog_remediation_"): value
        for key, value, _ in daemon.engine.window.latest(daemon.engine.ms)
        if dict(key)["__name__"].startswith("watchdog_remediation_")
    }
    assert found == {
        "attempts_total": 1.0, "outcomes_total": 1.0, "refusals_total": 1.0,
        "detection_seconds": 0.0, "moved_seconds": 7.0, "healthy_seconds": 12.0,
    }  # fmt: skip
