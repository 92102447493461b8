"""What a server says while our own act ends it changes nothing about why the act was begun."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.incidents import ONE, incident, series
from vllm_watchdog.watchdog.cases import healing
from vllm_watchdog.watchdog.engine import Engine, EngineSettings
from vllm_watchdog.watchdog.incidents.collecting import Collecting
from vllm_watchdog.watchdog.incidents.noise import Noise
from vllm_watchdog.watchdog.incidents.playing import START, _shipped
from vllm_watchdog.watchdog.model import (
    Batch,
    Command,
    Event,
    Inputs,
    Outcome,
    OutcomeStatus,
    Request,
    Tick,
    labelset,
)


def stalled(process: str) -> str:
    """An engine that stands still from 60 s to 195 s; ``process``: whether its process is there."""
    line = 'log_events_total{service="chat",kind="engine_dead"}'  # of the last minute: to 215 s
    said = f"  - {{series: '{line}', values: '0x30 1x400'}}\n"
    return (
        series(
            up="1x400",
            probe="1x11 0x26 1x400",
            running="3x400",
            tokens="0+9x11 99x26 99+9x360",
            process=process,
        )
        + said
    )


STALLED = stalled("1x29 0x3 1x400")  # gone from 150 s to 170 s
STOP, START_AGAIN = 145, 168  # seconds, of the act's steps
LINES = ("engine_dead", "worker_died", "hccl_link", "oom_device")


class Played:
    """A stalled engine, an act on it, and what came of it, in ticks of 5 s."""

    def __init__(self, body: str = STALLED, *, told: bool = True) -> None:
        self.incident = incident(body, ONE, until="20m")
        self.engine = self.fresh()
        self.collecting = Collecting(self.incident, START, Noise())
        self.told = told
        self.asked: list[Request] = []
        self.kinds: list[str] = []

    def fresh(self) -> Engine:
        return Engine(
            EngineSettings(), _shipped(), healing=healing(self.incident.config, warm=True)
        )

    def run(self, begin: int, end: int, outcome: OutcomeStatus | None = None) -> None:
        """Seconds from ``begin`` to before ``end``; the act ends at ``begin``."""
        for at in range(begin, end, 5):
            inputs = Inputs(tuple(self.collecting.regular(float(at), at // 5)))
            if outcome and at == begin:
                inputs = replace(inputs, outcomes=(Outcome(self.asked[0], outcome),))
            if at == 155:
                lines = tuple(
                    Event(kind, "x", labelset({"service": "chat"}), severity="critical")
                    for kind in LINES
                )
                inputs = replace(inputs, batches=(*inputs.batches, Batch("log", events=lines)))
            inputs = replace(inputs, commands=tuple(self.turns(at)))
            found = self.engine.step(Tick(at // 5, float(at), START + at), inputs)
            self.asked += found.requests
            self.kinds += [event.kind for event in found.events]

    def turns(self, at: int) -> list[Command]:
        told = {STOP: {"stopping": START + STOP}, 170: {"starting": START + START_AGAIN}}
        if at not in told or not self.told:
            return []
        args = {"service": "chat", "sets": {}, "step": "a step", **told[at]}
        return [Command("mode", args, self.asked[0].id)]

    @property
    def cause(self) -> str:
        return self.engine.healer.cases["chat"].diagnosis.cause


@pytest.mark.parametrize(("told", "causes"), [(True, {"engine_stalled"}), (False, {"link_down"})])
def test_what_the_server_says_while_our_act_ends_it_changes_no_cause(
    told: bool, causes: set[str]
) -> None:
    played = Played(told=told)
    played.run(0, 200)

    assert [request.cause for request in played.asked] == ["engine_stalled"]
    assert {played.cause} == causes
    assert ("case_changed" in played.kinds) == (not told)


def test_the_echo_of_our_stop_begins_no_ladder_anew_after_the_act() -> None:
    played = Played()
    played.run(0, 200)
    played.run(200, 500, outcome="done")

    assert [request.remediation for request in played.asked] == ["restart"]
    assert "case_changed" not in played.kinds
    assert played.engine.healer.cases == {}


def test_a_server_that_does_not_come_back_is_dead_once_the_act_has_failed() -> None:
    played = Played(stalled("1x29 0x400"))
    played.run(0, 200)
    before = played.cause
    played.run(200, 220, outcome="failed")

    assert (before, played.cause) == ("engine_stalled", "engine_dead")


def test_a_card_that_is_lost_meanwhile_is_the_cause_all_the_same() -> None:
    gone = series(present="1x32 0x400").removeprefix("series:\n")
    played = Played(STALLED + gone)
    played.run(0, 200)

    assert played.cause == "card_lost"


def test_a_daemon_that_was_killed_meanwhile_knows_that_it_was_our_stop() -> None:
    played = Played()
    played.run(0, 150)
    kept = json.loads(json.dumps(played.engine.dump()))
    played.engine = played.fresh()
    played.engine.restore(kept, START + 149)
    played.run(150, 200)

    assert played.cause == "engine_stalled"
