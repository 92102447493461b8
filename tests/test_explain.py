"""Explanations: what is known, what is unknown, what would be done, what is refused, and why."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.daemon import command
from tests.support.incidents import ONE, SPARE, incident, series
from vllm_watchdog.watchdog.explain import explain
from vllm_watchdog.watchdog.incidents import play

LOST = series(present="1x11 0x400", running="2x400")
DEAD = series(up="1x11 0x400", probe="1x11 0x400") + (
    "processes: [{at: 62s, service: chat, event: exit, code: 0}]\n"
)


def about(what: str, body: str, services: str = ONE, until: str = "70s") -> dict:  # type: ignore[type-arg]
    doc = explain(play(incident(body, services, until)).engine, what)
    json.dumps(doc)
    return doc


def test_a_service_is_explained_by_its_case() -> None:
    doc = about("chat", LOST, SPARE)
    (case,) = doc["cases"]

    assert (doc["found"], case["cause"], case["named_by"]) == ("service", "card_lost", "CardLost")
    assert case["ladder"] == ["card_failover", "page"]
    assert case["decision"].startswith("card_failover is under way since 2026-01-01T00:01:05")
    assert "cards: 0000:53:00" in doc["known"]
    assert "whether a completion works (no probe)" in doc["unknown"]


def test_what_observe_would_do_is_told_with_the_reason() -> None:
    (case,) = about("chat", DEAD + "mode: observe\n", ONE)["cases"]

    assert case["decision"] == "restart would be done: mode observe: nothing is done"
    assert {name for name, text in case["checks"].items() if text} == {"mode"}


def test_what_waits_for_a_yes_is_told_with_the_command_that_says_it() -> None:
    (case,) = about("chat", DEAD + "mode: confirm\n", ONE)["cases"]

    assert case["decision"].endswith("not approved (`vllm-watchdog approve chat`)")


def test_what_is_refused_is_told_with_every_check() -> None:
    silence = "people: [{at: 1s, do: silence, alert: EngineDead}]\n"
    (case,) = about("chat", DEAD + silence, ONE)["cases"]

    assert case["decision"] == "restart is refused: EngineDead is silenced"
    assert len(case["checks"]) == 16


def test_a_card_is_explained_with_its_readings_users_and_quarantine() -> None:
    doc = about("0000:53:00", LOST, SPARE)

    assert doc["found"] == "card"
    assert {"present: 0", "used by chat", "quarantined: card_lost"} <= set(doc["known"])
    assert "no current reading of healthy" in doc["unknown"]


def test_an_alert_is_explained_with_its_rules_and_policy() -> None:
    doc = about("EngineDead", DEAD)

    assert doc["found"] == "alert"
    assert any(line.startswith("rule in group serving:") for line in doc["known"])
    assert "policy engine-dead: restart → card_failover → page" in doc["known"]
    assert doc["cases"][0]["cause"] == "engine_dead"


def test_an_alert_that_does_not_fire_is_explained_too() -> None:
    doc = about("AcceleratorBusy", DEAD)

    assert "no policy names it" in doc["known"]
    assert doc["decision"] == "it neither fires nor is about to: nothing is done"


def test_a_busy_service_is_told_to_be_busy() -> None:
    busy = series(up="1x60", running="256x60", waiting="900x60", tokens="0+9000x60")
    doc = about("chat", busy, until="4m")

    assert doc["observed"] == "saturated"
    assert doc["decision"] == "nothing is done: the engine works as fast as it can"


def test_a_silent_tool_is_among_what_is_unknown() -> None:
    doc = about("chat", LOST + "stalled: [{collector: nvidia_smi, from: 30s, to: 5m}]\n", SPARE)

    assert any(line.startswith("nvidia_smi fails since") for line in doc["unknown"])


def test_what_is_not_there_is_not_explained() -> None:
    doc = about("caht", LOST)

    assert (doc["found"], doc["services"]) == (None, ["chat"])


def test_the_node_is_explained_by_all_its_cases() -> None:
    doc = about("", LOST, SPARE)

    assert [case["cause"] for case in doc["cases"]] == ["card_lost"]
    assert doc["quarantined"] == {"0000:53:00": "card_lost"}


def test_the_command_plays_an_incident_and_draws_a_tree(tmp_path: Path) -> None:
    path = tmp_path / "dead.yaml"
    path.write_text(
        f"name: a dead engine\nuntil: 2m\nservices: {ONE}\n{DEAD}expect: {{act: restart}}\n"
    )
    shown = command("explain", str(path))
    read = command("explain", str(path), "--json")

    assert (shown.returncode, read.returncode) == (0, 0)
    assert "incident: a dead engine → restart at 65s" in shown.stdout.decode()
    assert json.loads(read.stdout)["answer"] == "restart at 65s"


def test_the_command_needs_a_daemon_for_anything_else() -> None:
    done = command("explain", "chat", "--url", "http://127.0.0.1:9")

    assert done.returncode == 2
    assert len(done.stderr.decode().strip().splitlines()) == 1
