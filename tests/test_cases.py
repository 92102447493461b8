"""Cases from first sign to last rung: ladders, pages, what is told, what outlives a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.incidents import ONE, SPARE, STANDBY, event_kinds, incident, series
from vllm_watchdog.watchdog.assembly import shipped_rules
from vllm_watchdog.watchdog.cases import Healer, healing
from vllm_watchdog.watchdog.config import parse as parse_config
from vllm_watchdog.watchdog.engine import Engine, EngineSettings
from vllm_watchdog.watchdog.incidents import Played, play
from vllm_watchdog.watchdog.incidents.collecting import Collecting
from vllm_watchdog.watchdog.incidents.noise import Noise
from vllm_watchdog.watchdog.incidents.playing import START, Answer, _shipped
from vllm_watchdog.watchdog.model import Alert, Inputs, Outcome, OutcomeStatus, Request, Tick
from vllm_watchdog.watchdog.outlook import outlook
from vllm_watchdog.watchdog.recording import Manifest, Recorder
from vllm_watchdog.watchdog.replay import replay
from vllm_watchdog.watchdog.rulepack import load as load_rules
from vllm_watchdog.watchdog.wire import decisions_doc

GONE = series(up="1x11 0x400", probe="1x11 0x400")
EXITS = "processes: [{at: 62s, service: chat, event: exit, code: 0}]\n"
DEAD = GONE + EXITS
FIXED = (
    series(up="1x11 0x4 1x400", probe="1x11 0x4 1x400") + "processes:\n"
    "  - {at: 62s, service: chat, event: exit, code: 0}\n"
    "  - {at: 76s, service: chat, event: start}\n"
)
LOST = series(present="1x11 0x400")


def ends(*statuses: OutcomeStatus, after: float = 10.0) -> Answer:
    """Each act in its turn ends so."""
    left = list(statuses)
    return lambda _: (after, left.pop(0)) if left else None


def acts(played: Played) -> list[tuple[float, str, int]]:
    return [(at, request.remediation, request.attempt) for at, request in played.requests]


def firing(played: Played, name: str) -> list[dict[str, str]]:
    return [
        dict(a.labels) for a in played.engine.alerts() if a.name == name and a.state == "firing"
    ]


def test_the_next_rung_starts_when_one_fails_and_page_is_the_last() -> None:
    played = play(incident(DEAD, SPARE, until="3m"), answer=ends("failed", "failed"))

    assert acts(played) == [(65.0, "restart", 1), (75.0, "card_failover", 1), (85.0, "page", 1)]


@pytest.mark.parametrize("status", ["failed", "timed_out", "declined"])
def test_whatever_ends_a_rung_without_success_leads_to_the_next(status: OutcomeStatus) -> None:
    played = play(incident(DEAD, SPARE), answer=ends(status))

    assert [act for _, act, _ in acts(played)] == ["restart", "card_failover"]


def test_a_rung_without_a_destination_is_skipped_and_a_person_paged() -> None:
    played = play(incident(DEAD, ONE, until="3m"), answer=ends("failed"))

    assert [act for _, act, _ in acts(played)] == ["restart", "page"]


def test_an_act_whose_result_is_unknown_is_never_repeated() -> None:
    played = play(incident(DEAD, SPARE, until="20m"), answer=ends("unknown", "done", "done"))

    assert acts(played) == [(65.0, "restart", 1), (75.0, "page", 1)]


def test_an_act_that_reports_nothing_counts_as_unknown_a_minute_after_its_deadline() -> None:
    played = play(incident(DEAD, ONE, until="20m"))

    assert acts(played) == [(65.0, "restart", 1), (65.0 + 900 + 60, "page", 1)]


def test_what_was_planned_while_a_person_paused_is_judged_anew_when_healing_goes_on() -> None:
    failing = [
        f"  - {{series: 'http_requests_total{{service=\"chat\",status=\"{status}\"}}', values: '{values}'}}\n"
        for status, values in (("2xx", "0+50x400"), ("5xx", "0x19 0+10x380"))
    ]
    body = (
        series(up="1x400", probe="1x400")
        + "".join(failing)
        + (
            "people: [{at: 30s, do: pause}, {at: 400s, do: resume}]\n"
            "policies: [{name: failing, when: [RequestFailuresHigh], do: [restart, page]}]\n"
        )
    )
    played = play(incident(body, ONE, until="9m"), answer=ends("done"))

    assert acts(played)[0] == (400.0, "restart", 1)


@pytest.mark.parametrize(("well", "asked"), [(8, ["restart"]), (24, ["restart", "restart"])])
def test_what_a_person_cancelled_stays_so_until_its_alerts_were_over_for_a_while(
    well: int, asked: list[str]
) -> None:
    values = f"1x11 0x3 1x{well // 5} 0x400"
    body = series(up=values, probe=values) + (
        "processes:\n"
        "  - {at: 62s, service: chat, event: exit, code: 0}\n"
        "  - {at: 74s, service: chat, event: start}\n"
        f"  - {{at: {76 + well}s, service: chat, event: exit, code: 0}}\n"
    )
    played = play(incident(body, ONE, until="4m"), answer=ends("cancelled", "done", after=2.0))

    assert [act for _, act, _ in acts(played) if act != "page"] == asked


def test_a_persons_cancel_ends_the_ladder_and_pages_nobody() -> None:
    played = play(incident(DEAD, SPARE, until="20m"), answer=ends("cancelled"))

    assert acts(played) == [(65.0, "restart", 1)]


def test_an_act_that_helped_closes_the_case() -> None:
    played = play(incident(FIXED, ONE), answer=ends("done"))

    assert acts(played) == [(65.0, "restart", 1)]
    assert event_kinds(played)[-1] == "case_closed"
    assert played.engine.healer.cases == {}


def test_a_fault_that_stays_after_success_is_tried_again_with_a_growing_rest() -> None:
    body = DEAD + "guard: {attempts: 3, cooldown: 5m}\n"
    played = play(incident(body, ONE, until="50m"), answer=lambda _: (10.0, "done"))

    restarts = [at for at, act, _ in acts(played) if act == "restart"]
    assert restarts == [65.0, 75.0 + 300, 385.0 + 600]


def test_a_ladder_that_failed_is_tried_again_after_a_rest_while_attempts_are_left() -> None:
    played = play(incident(DEAD, ONE, until="20m"), answer=lambda _: (10.0, "failed"))

    restarts = [(at, attempt) for at, act, attempt in acts(played) if act == "restart"]
    assert restarts == [(65.0, 1), (200.0, 2), (450.0, 3)]


def test_attempts_end_with_a_page() -> None:
    body = DEAD + "guard: {attempts: 1, cooldown: 0}\n"
    played = play(incident(body, ONE, until="10m"), answer=lambda _: (10.0, "done"))

    assert [act for _, act, _ in acts(played)] == ["restart", "page"]


def test_within_pages_at_once_while_the_act_goes_on() -> None:
    played = play(incident(LOST, SPARE), answer=lambda _: (100.0, "done"))

    assert acts(played)[:2] == [(65.0, "card_failover", 1), (90.0, "page", 1)]


def test_no_page_goes_out_when_the_act_ends_in_time() -> None:
    played = play(incident(LOST, SPARE, until="2m"), answer=lambda _: (20.0, "done"))

    assert acts(played) == [(65.0, "card_failover", 1)]


def test_the_spares_of_an_act_are_reserved_and_the_sick_card_is_quarantined() -> None:
    guard = play(incident(LOST, SPARE)).engine.healer.guard

    assert list(guard.reserved) == ["0000:75:00"]
    assert guard.quarantined == {"0000:53:00": "card_lost"}


def test_a_service_of_two_cards_moves_to_the_two_spares_that_are_joined() -> None:
    a, b, c = "0000:75:00", "0000:86:00", "0000:97:00"
    way = 'accelerator_topology{{vendor="nvidia",card="{}",peer="{}",path="{}"}}'
    ways = [way.format(a, b, "SYS"), way.format(a, c, "SYS"), way.format(b, c, "NV4")]
    told = "".join(f"  - {{series: '{name}', values: '1x411'}}\n" for name in ways)
    services = (
        '{chat: {url: "http://127.0.0.1:8000", cards: ["0000:53:00", "0000:54:00"], '
        f'spares: ["{a}", "{b}", "{c}"]}}}}'
    )
    played = play(incident(LOST + told, services), answer=ends("done"))

    assert played.requests[0][1].spares == (b, c)


def test_a_failed_failover_gives_its_spares_back_and_the_quarantine_stays() -> None:
    guard = play(incident(LOST, SPARE, until="3m"), answer=ends("failed")).engine.healer.guard

    assert guard.reserved == {}
    assert list(guard.quarantined) == ["0000:53:00"]


def test_two_services_do_not_get_one_spare() -> None:
    services = (
        '{a: {url: "http://h:1", cards: ["0000:53:00"], spares: ["0000:75:00"]}, '
        'b: {url: "http://h:2", cards: ["0000:54:00"], spares: ["0000:75:00"]}, '
        'c: {url: "http://h:3"}, d: {url: "http://h:4"}}'
    )
    two = series(present="1x11 0x400") + (
        "  - {series: 'accelerator_present{vendor=\"nvidia\",card=\"0000:54:00\"}', values: '1x20 0x400'}\n"
        "  - {series: 'accelerator_present{vendor=\"nvidia\",card=\"0000:75:00\"}', values: '1x400'}\n"
    )
    played = play(incident(two, services, until="8m"), answer=lambda _: (10.0, "done"))

    assert played.act("a") == ("card_failover", 65.0)
    assert played.act("b")[0] == "page"


READY = (
    '{chat: {url: "http://127.0.0.1:8000", cards: ["0000:53:00"], manager: {systemd: a.service}, '
    'front: {nginx: /etc/nginx/chat.conf, url: "http://127.0.0.1:80"}, '
    "profiles: {fp16: a.env, int8: b.env}, start_profile: fp16, "
    'standby: {url: "http://127.0.0.1:8001", cards: ["0000:64:00"]}}}'
)
AT_EASE = (
    "  - {series: 'service_probe_success{service=\"chat/standby\"}', values: '1x900'}\n"
    "  - {series: 'service_up{service=\"chat/standby\"}', values: '1x900'}\n"
)


@pytest.mark.parametrize(("more", "kept"), [(AT_EASE, True), ("", False)])
def test_users_are_kept_on_a_standby_that_is_seen_to_answer_while_theirs_is_restarted(
    more: str, kept: bool
) -> None:
    played = play(incident(GONE + more + EXITS, READY, until="2m"))
    (request,) = [request for _, request in played.requests]

    assert (request.remediation, request.standby) == ("restart", kept)


def test_a_restart_beside_a_standby_counts_as_a_restart() -> None:
    guard = play(incident(GONE + AT_EASE + EXITS, READY, until="2m")).engine.healer.guard

    assert [list(guard.ledger.acts), list(guard.ledger.traffic)] == [[START + 65.0], []]


OOM = (
    "(EngineCore_DP0 pid=90) ERROR 05-06 10:20:31 [core.py:710] EL0004: [PID: 90] "
    "2026-05-06-10:20:31.100.200 Failed to allocate memory."
)
OVERFLOWN = (
    "logs:\n"
    f'  - {{at: 60s, source: vllm, text: "{OOM}"}}\n'
    '  - {at: 61s, source: vllm, text: "(EngineCore_DP0 pid=90) ERROR 05-06 10:20:31 '
    '[core.py:710] EngineCore encountered a fatal error."}\n'
    "processes:\n"
    "  - {at: 63s, service: chat, event: exit, code: 0}\n"
    "  - {at: 76s, service: chat, event: start}\n"
)


@pytest.mark.parametrize(
    ("pending", "more", "went"),
    [("0x900", AT_EASE, True), ("9x900", AT_EASE, False), ("0x900", "", False)],
    ids=["at low load beside a standby", "at high load", "without a standby"],
)
def test_the_first_profile_comes_back_by_itself_after_half_an_hour_at_low_load(
    pending: str, more: str, went: bool
) -> None:
    seen = series(up="1x11 0x4 1x900", probe="1x11 0x4 1x900", running=pending, waiting="0x900")
    body = seen + more + OVERFLOWN
    played = play(incident(body, READY, until="40m"), answer=lambda _: (10.0, "done"))
    back = [(at, request.standby) for at, request in played.requests if request.back]

    assert acts(played)[0][1] == "quantize"
    assert [kept for _, kept in back] == ([True] if went else [])
    waiting = [each["id"] for each in outlook(played.engine)["waiting"]]
    assert waiting == (["chat|back"] if not went and pending == "0x900" else [])
    assert all(at >= 1800.0 for at, _ in back)


def test_a_quarantined_card_is_left_to_a_person_who_releases_it() -> None:
    played = play(incident(LOST, SPARE))
    healer = played.engine.healer
    events = healer.hear(Inputs(commands=(_command("release", card="0000:53:00"),)), START).events

    assert healer.guard.quarantined == {}
    assert [event.kind for event in events] == ["card_released"]


def test_a_free_card_that_is_sick_is_told_and_quarantined_and_nothing_more() -> None:
    free = series(present="1x60", standby_present="1x11 0x60")
    played = play(incident(free, ONE))

    assert played.requests == []
    assert played.engine.healer.guard.quarantined == {"0000:64:00": "card_lost"}


# What is told


def test_remediation_running_fires_while_an_act_is_under_way() -> None:
    played = play(incident(DEAD, ONE, until="2m"))

    assert firing(played, "RemediationRunning") == [
        {"alertname": "RemediationRunning", "service": "chat", "remediation": "restart"}
    ]
    (alert,) = (a for a in played.engine.alerts() if a.name == "RemediationRunning")
    assert dict(alert.annotations)["ends_at"] == "2026-01-01T00:16:05.000Z"  # 65 s + 15 min
    assert alert.ends_at == START + 65.0 + 900.0


def test_an_act_about_cards_is_told_for_each_of_them_and_for_no_other_card_of_the_service() -> None:
    cards = {"0000:53:00": "1x11 0x400", "0000:54:00": "1x11 0x400", "0000:55:00": "1x411"}
    way = 'accelerator_present{{vendor="nvidia",card="{}"}}'
    told = [f"  - {{series: '{way.format(card)}', values: '{at}'}}\n" for card, at in cards.items()]
    body = "series:\n" + "".join(told) + "policies: [{when: [CardLost], do: [restart, page]}]\n"
    services = f'{{chat: {{url: "http://127.0.0.1:8000", cards: {json.dumps(list(cards))}}}}}'
    played = play(incident(body, services, until="2m"))
    running = {"alertname": "RemediationRunning", "service": "chat", "remediation": "restart"}
    wanted = [{**running, "card": "0000:53:00"}, {**running, "card": "0000:54:00"}]

    assert firing(played, "RemediationRunning") == wanted
    ended = play(incident(body, services, until="2m"), answer=ends("done"))
    assert firing(ended, "RemediationRunning") == []


def test_remediation_failed_pages_when_the_ladder_ends_and_nothing_runs_any_more() -> None:
    played = play(incident(DEAD, ONE, until="3m"), answer=ends("failed"))

    assert firing(played, "RemediationRunning") == []
    assert firing(played, "RemediationFailed") == [
        {"alertname": "RemediationFailed", "service": "chat", "remediation": "card_failover",
         "severity": "page"}
    ]  # fmt: skip


def test_a_refusal_that_a_person_or_the_configuration_asked_for_pages_nobody() -> None:
    for body in (
        DEAD + "people: [{at: 1s, do: pause}]\n",
        DEAD + "people: [{at: 1s, do: silence, alert: EngineDead}]\n",
        DEAD + "mode: observe\n",
        DEAD + "mode: confirm\n",
    ):
        played = play(incident(body, ONE, until="20m"))
        assert played.requests == []
        assert firing(played, "RemediationFailed") == []


def test_a_refusal_is_journaled_once_with_every_check() -> None:
    played = play(incident(DEAD + "mode: confirm\n", ONE))
    (refused,) = [event for _, event in played.events if event.kind == "remediation_refused"]

    assert refused.fields["reason"] == "warming" or refused.fields["reason"] == "mode"
    assert len(refused.fields["checks"]) == 16
    assert [verdict.reason for _, verdict in played.refusals] == ["mode"]


def test_in_observe_what_would_be_done_is_journaled_once_and_counted_apart() -> None:
    played = play(incident(DEAD + "mode: observe\n", ONE, until="20m"))
    would = [event for _, event in played.events if event.kind == "remediation_would"]
    guard = played.engine.healer.guard

    assert [event.fields["remediation"] for event in would] == ["restart"]
    assert guard.ledger.acts == []
    assert guard.shadow.acts == [START + 65]


def test_what_is_explained_away_is_refused_once_with_that_reason() -> None:
    body = series(present="1x11 0x60", up="1x11 0x60", probe="1x11 0x60") + EXITS
    played = play(incident(body, STANDBY))

    reasons = {(v.request.alert.name, v.reason) for _, v in played.refusals}
    assert ("EngineDead", "explained") in reasons
    assert [act for _, act, _ in acts(played) if act != "page"] == ["card_failover"]


def test_the_breaker_is_told_when_it_opens_and_closed_by_a_person() -> None:
    services = '{a: {url: "http://h:1"}, b: {url: "http://h:2"}, c: {url: "http://h:3"}}'
    body = "processes:\n" + "".join(
        f"  - {{at: 60s, service: {name}, event: exit}}\n" for name in "ab"
    )
    played = play(incident(body, services))
    assert "breaker_opened" in event_kinds(played)
    assert {act for _, act, _ in acts(played)} == {"page"}

    healer = played.engine.healer
    told = healer.hear(Inputs(commands=(_command("close_breaker"),)), START + 400).events
    assert [event.kind for event in told] == ["breaker_closed"]


# What outlives a restart, what is the same twice


def _command(verb: str, **args: str) -> object:
    from vllm_watchdog.watchdog.model import Command

    return Command(verb, args, "a person")


def engine_for(body: str, services: str = ONE) -> tuple[Engine, Callable[[int], Inputs]]:
    one = incident(body, services)
    engine = Engine(EngineSettings(), _shipped(), healing=healing(one.config, warm=True))
    collecting = Collecting(one, START, Noise())
    return engine, lambda step: Inputs(tuple(collecting.regular(step * 5.0, step)))


def test_an_act_under_way_is_remembered_over_a_restart_and_not_asked_for_again() -> None:
    body = series(present="1x11 0x400")
    engine, inputs = engine_for(body, SPARE)
    asked: list[Request] = []
    for step in range(20):
        asked += engine.step(Tick(step, step * 5.0, START + step * 5), inputs(step)).requests
    again, _ = engine_for(body, SPARE)
    again.restore(json.loads(json.dumps(engine.dump())), START + 100)
    for step in range(20, 40):
        asked += again.step(Tick(step, step * 5.0, START + step * 5), inputs(step)).requests

    assert [request.remediation for request in asked if request.remediation != "page"] == [
        "card_failover"
    ]
    assert again.healer.guard.ledger == engine.healer.guard.ledger
    assert again.healer.guard.reserved == engine.healer.guard.reserved != {}


def test_equal_inputs_give_equal_decisions() -> None:
    documents = []
    for _ in range(2):
        engine, inputs = engine_for(LOST, SPARE)
        ticks = [Tick(step, step * 5.0, START + step * 5) for step in range(30)]
        documents.append([decisions_doc(t, engine.step(t, inputs(t.number))) for t in ticks])

    assert documents[0] == documents[1]


def test_a_recording_is_replayed_to_the_same_decisions(tmp_path: Path) -> None:
    text = f"mode: act\nservices: {SPARE}\n"
    config = parse_config(text)
    rules = [(f"{n:02d}-{path.name}", path.read_bytes()) for n, path in enumerate(shipped_rules())]
    urgent = config.rules.urgent
    manifest = Manifest("0", START, 5.0, 300.0, ("*",), urgent, {}, tuple(n for n, _ in rules))
    engine = Engine(EngineSettings(), load_rules(shipped_rules(), ("*",)).groups,
                    healing=healing(config))  # fmt: skip
    collecting = Collecting(incident(LOST, SPARE), START, Noise())
    with Recorder(tmp_path / "r", manifest, text, rules) as recorder:
        for step in range(30):
            tick = Tick(step, step * 5.0, START + step * 5)
            inputs = Inputs(tuple(collecting.regular(step * 5.0, step)))
            recorder.write(tick, inputs, engine.step(tick, inputs))
    again = replay(tmp_path / "r")

    assert again.difference == ""
    assert again.doc["requests"][0]["remediation"] == "card_failover"
    assert again.doc["requests"][0]["spares"] == ["0000:75:00"]


def test_a_saved_state_of_another_version_is_refused() -> None:
    healer = Healer(healing(incident("", ONE).config))

    with pytest.raises(ValueError, match="another version"):
        healer.restore({**healer.dump(), "version": 99})


def test_a_cold_rule_starts_nothing() -> None:
    engine, inputs = engine_for(GONE + EXITS)
    engine.healer.configure(healing(incident(DEAD, ONE).config))
    engine.rules.warm = lambda rule, ms: False  # type: ignore[method-assign]
    ticks = [Tick(step, step * 5.0, START + step * 5) for step in range(30)]
    words = [engine.step(tick, inputs(tick.number)) for tick in ticks]

    assert [request for word in words for request in word.requests] == []


def test_alerts_of_remediation_stand_among_the_others() -> None:
    alerts = play(incident(DEAD, ONE, until="2m")).engine.alerts()

    assert {"EngineDead", "RemediationRunning"} <= {alert.name for alert in alerts}
    assert all(isinstance(alert, Alert) for alert in alerts)


def test_a_reset_that_passed_its_check_ends_the_quarantine() -> None:
    body = (
        series(reset="1x200") + "policies: [{when: [CardResetRequired], do: [reset_card, page]}]\n"
    )
    played = play(incident(body, ONE), answer=lambda _: None)
    (at, request) = played.requests[0]
    healer = played.engine.healer
    healer.guard.quarantined["0000:53:00"] = "card_reset_required"

    events = healer.hear(Inputs(outcomes=(Outcome(request, "done"),)), START + at + 60).events

    assert healer.guard.quarantined == {}
    assert "card_released" in [event.kind for event in events]
