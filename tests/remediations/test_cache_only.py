"""When the cache may serve, for how long, and what a crash amid it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.remediations.cache_only import CacheOnly
from vllm_watchdog.remediations.shed_load import ShedLoad
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.config import Service, parse
from vllm_watchdog.watchdog.errors import HttpError, Permanent
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import Response, System

FRONT, UPSTREAM = "http://127.0.0.1:80", "http://10.0.0.2:8000"
FLAG = "/flags/deepseek.cache-only"
SHED = "/flags/deepseek.shed"
LOOK = f"GET {FRONT}/vllm-watchdog/cache-only"
ONLY = Response(503, b'{"error": {"code": "cache_only"}}')
OK = '{"choices": [{"text": "4", "finish_reason": "length"}]}'
DOWN = HttpError("no answer", "timeout")


def settings(front: str = "") -> Service:
    text = f"""
peers: {{node-2: {{host: 10.0.0.2}}}}
services:
  deepseek:
    url: {UPSTREAM}
    needs: [node-2]
    probe: {{kind: completion, model: tiny}}
    front: {{nginx: /flags/deepseek.conf, url: "{FRONT}"{front}}}
"""
    return parse(text).services["deepseek"]


def case(
    *,
    request: str = "r1",
    cause: str = "network_outage",
    active: float = 0.0,
    limit: float = 600.0,
    service: Service | None = None,
) -> ActCase:
    alert = Alert("serving/X", (("alertname", "X"),), "firing", active, 1.0)
    return ActCase(
        request=Request(
            "cache_only", alert, service="deepseek", id=request, cause=cause, limit=limit
        ),
        name="deepseek",
        settings=service or settings(),
        mode=ServiceMode(),
        cards=(),
        sick=(),
        spares=(),
        began=0.0,
        state=Path("/state"),
    )


def node(tmp_path: Path, pages: dict[str, Any] | None = None) -> System:
    both = {
        f"POST {FRONT}/v1/completions": DOWN,
        f"POST {UPSTREAM}/v1/completions": DOWN,
        LOOK: ONLY,
        **(pages or {}),
    }
    system = fake_system({}, both, root=tmp_path, clock=VirtualClock())
    system.files.make_folder("/flags")
    system.files.write("/flags/deepseek.conf", b"server 10.0.0.2:8000;\n")
    return system


def advance(system: System, seconds: float) -> None:
    system.clock.sleep(seconds)


def steps(system: System, act: ActCase) -> tuple[Step, Step, Step]:
    raising, holding, lowering = CacheOnly().plan(system, act)
    return raising, holding, lowering


def do(step: Step, system: System) -> None:
    assert step.do is not None
    step.do(system)


def undo(step: Step, system: System) -> None:
    assert step.undo is not None
    step.undo(system)


def test_it_serves_only_where_what_is_needed_is_known_to_be_out_of_reach(tmp_path: Path) -> None:
    system = node(tmp_path)

    assert CacheOnly().precheck(system, case()) == ""
    assert "not known to be out of reach" in CacheOnly().precheck(system, case(cause="engine_dead"))


def test_one_answer_of_two_is_enough_to_leave_the_service_alone(tmp_path: Path) -> None:
    system = node(tmp_path, {f"POST {FRONT}/v1/completions": [DOWN, OK]})

    assert CacheOnly().precheck(system, case()) == "it still answers through its front"


def test_a_server_that_will_not_talk_to_us_proves_nothing(tmp_path: Path) -> None:
    system = node(tmp_path, {f"POST {FRONT}/v1/completions": Response(401, b"{}")})

    assert CacheOnly().precheck(system, case()).startswith("whether it answers cannot be told")


def test_without_njs_nothing_is_kept_and_nothing_can_be_served(tmp_path: Path) -> None:
    act = case(service=settings(", njs: false"))

    assert "without njs" in CacheOnly().precheck(node(tmp_path), act)


def test_the_flag_counts_as_up_only_when_the_front_behaves_so(tmp_path: Path) -> None:
    system = node(tmp_path, {LOOK: [Response(200, b"{}"), ONLY]})
    raising, _, _ = steps(system, case())
    do(raising, system)

    assert [raising.done(system), raising.done(system)] == ["no", "yes"]


def test_the_hold_ends_when_the_upstream_answers_by_itself(tmp_path: Path) -> None:
    system = node(tmp_path, {f"POST {UPSTREAM}/v1/completions": [DOWN, OK]})
    raising, holding, _ = steps(system, case())
    do(raising, system)

    assert [holding.done(system), holding.done(system)] == ["no", "yes"]


@pytest.mark.parametrize(("limit", "seconds"), [(600.0, 600.0), (120.0, 120.0), (3600.0, 600.0)])
def test_it_lasts_as_long_as_the_request_may_and_never_over_ten_minutes(
    tmp_path: Path, limit: float, seconds: float
) -> None:
    system = node(tmp_path)
    raising, holding, _ = steps(system, case(limit=limit))
    do(raising, system)

    assert holding.deadline == seconds
    assert f"seconds={seconds:g}\n" in system.files.text(FLAG)


def test_a_person_who_takes_the_flag_away_ends_the_hold(tmp_path: Path) -> None:
    system = node(tmp_path)
    raising, holding, _ = steps(system, case())
    do(raising, system)
    system.files.remove(FLAG)

    assert holding.done(system) == "yes"


def test_a_flag_that_a_person_raised_is_left_alone(tmp_path: Path) -> None:
    system = node(tmp_path)
    raising, _, lowering = steps(system, case())
    do(raising, system)
    system.files.write(FLAG, b"")
    do(lowering, system)
    undo(raising, system)

    assert system.files.exists(FLAG)


def test_a_crash_after_the_end_does_not_raise_the_flag_again(tmp_path: Path) -> None:
    system = node(tmp_path)
    raising, _, lowering = steps(system, case())
    do(raising, system)
    do(lowering, system)
    again, _, lowered = steps(system, case())

    assert (again.done(system), lowered.done(system)) == ("yes", "yes")
    assert not system.files.exists(FLAG)


def test_a_flag_raised_again_after_a_restart_gets_only_what_is_left_of_its_time(
    tmp_path: Path,
) -> None:
    system = node(tmp_path)
    raising, _, _ = steps(system, case())
    do(raising, system)
    advance(system, 400.0)
    undo(raising, system)
    do(raising, system)

    assert "seconds=200\n" in system.files.text(FLAG)


def test_a_flag_is_not_raised_again_when_its_time_is_over(tmp_path: Path) -> None:
    system = node(tmp_path)
    raising, _, _ = steps(system, case())
    do(raising, system)
    advance(system, 600.0)

    with pytest.raises(Permanent):
        do(raising, system)


def served(system: System, request: str, lasted: float) -> None:
    """One act that ended with its time."""
    raising, _, _ = steps(system, case(request=request))
    do(raising, system)
    advance(system, lasted)
    undo(raising, system)


def test_it_does_not_serve_twice_for_one_outage(tmp_path: Path) -> None:
    system = node(tmp_path)
    began = system.clock.wall()
    served(system, "r1", 600.0)
    advance(system, 7200.0)

    said = CacheOnly().precheck(system, case(request="r2", active=began))
    assert said.startswith("the cache has served for this outage")


@pytest.mark.parametrize(("healthy", "again"), [(1799.0, False), (1801.0, True)])
def test_it_serves_again_after_thirty_minutes_of_health(
    tmp_path: Path, healthy: float, again: bool
) -> None:
    system = node(tmp_path)
    served(system, "r1", 100.0)
    advance(system, healthy)
    act = case(request="r2", active=system.clock.wall())

    assert (CacheOnly().precheck(system, act) == "") is again


def test_health_counts_from_the_last_sight_of_the_outage(tmp_path: Path) -> None:
    system = node(tmp_path)
    began = system.clock.wall()
    served(system, "r1", 600.0)
    advance(system, 900.0)
    CacheOnly().precheck(system, case(request="r2", active=began))  # it goes on
    advance(system, 1000.0)
    act = case(request="r3", active=system.clock.wall())

    assert CacheOnly().precheck(system, act) != ""


def test_a_first_look_writes_nothing(tmp_path: Path) -> None:
    system = node(tmp_path)
    CacheOnly().precheck(system, case())

    assert system.files.names("/state") == []


def page(waiting: int) -> str:
    return f'vllm:num_requests_running{{model_name="tiny"}} 8\nvllm:num_requests_waiting{{model_name="tiny"}} {waiting}\n'


def test_load_is_shed_only_where_requests_wait(tmp_path: Path) -> None:
    metrics = f"GET {UPSTREAM}/metrics"

    assert ShedLoad().precheck(node(tmp_path, {metrics: page(3)}), case()) == ""
    assert ShedLoad().precheck(node(tmp_path, {metrics: page(0)}), case()) == "no request waits"
    assert "does not tell" in ShedLoad().precheck(node(tmp_path, {metrics: DOWN}), case())


def test_shedding_ends_when_nobody_waits_and_a_minute_at_least(tmp_path: Path) -> None:
    system = node(tmp_path, {f"GET {UPSTREAM}/metrics": [page(0), page(2), page(0)]})
    raising, holding, lowering = ShedLoad().plan(system, case())
    do(raising, system)
    raised = system.files.modified(SHED)
    advance(system, raised - system.clock.wall() + 59.0)
    early = holding.done(system)
    advance(system, 2.0)

    assert early == "no"
    assert [holding.done(system) for _ in range(3)] == ["yes", "no", "yes"]
    do(lowering, system)
    assert not system.files.exists(SHED)
