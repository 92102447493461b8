"""The cache-only act as a worker carries it, in virtual time: how it ends and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.remediations.test_cache_only import DOWN, FLAG, FRONT, LOOK, OK, ONLY, UPSTREAM, case
from tests.support.healing.node import TimedFiles
from tests.support.system import ScriptedHttp, ScriptedRunner, VirtualClock
from vllm_watchdog.remediations.cache_only import CacheOnly
from vllm_watchdog.watchdog.intents import StepRow
from vllm_watchdog.watchdog.model import Command, Outcome
from vllm_watchdog.watchdog.scheduler import Inbox
from vllm_watchdog.watchdog.system import System
from vllm_watchdog.watchdog.workers.carrying import Carrying
from vllm_watchdog.watchdog.workers.tools import Tools
from vllm_watchdog.watchdog.workers.words import StopWord


class Commands:
    """Takes what the worker reports; keeps how the service was said to stand."""

    def __init__(self) -> None:
        self.fronts: list[str] = []

    def command(self, command: Command) -> None:
        self.fronts.append(command.args["sets"].get("front", ""))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def node(tmp_path: Path, **pages: Any) -> System:
    clock = VirtualClock()
    files = TimedFiles(root=tmp_path, clock=clock)
    script = {
        f"POST {FRONT}/v1/completions": DOWN,
        f"POST {UPSTREAM}/v1/completions": DOWN,
        LOOK: ONLY,
        **pages,
    }
    files.make_folder("/flags")
    files.write("/flags/deepseek.conf", b"server 10.0.0.2:8000;\n")
    return System(clock=clock, runner=ScriptedRunner({}), files=files, http=ScriptedHttp(script))


def carrying(system: System, rows: dict[str, StepRow] | None = None) -> tuple[Carrying, Commands]:
    told = Commands()
    inbox: Inbox = told  # type: ignore[assignment]
    tools = Tools(system=system, inbox=inbox, now=system.clock.wall)
    return Carrying(tools, CacheOnly(), case(), StopWord(), 660.0, rows or {}), told


def ended(outcome: Outcome | None) -> str:
    assert outcome is not None
    return outcome.status


def test_it_ends_done_when_the_upstream_answers_and_users_are_served(tmp_path: Path) -> None:
    back = [*[DOWN] * 30, OK]
    front = [DOWN, DOWN, OK]
    system = node(
        tmp_path,
        **{f"POST {UPSTREAM}/v1/completions": back, f"POST {FRONT}/v1/completions": front},
    )
    act, told = carrying(system)
    begin = system.clock.mono()

    assert ended(act.run()) == "done"
    assert (told.fronts[0], set(told.fronts[1:])) == ("cache_only", {"open"})
    assert not system.files.exists(FLAG)
    # 30 looks, the first two at once, the others 2 s apart; two answers 0.5 s apart.
    assert system.clock.mono() - begin == 58.5


def test_it_is_timed_out_after_ten_minutes_and_leaves_no_flag(tmp_path: Path) -> None:
    system = node(tmp_path)
    act, told = carrying(system)
    begin = system.clock.mono()

    assert ended(act.run()) == "timed_out"
    assert told.fronts == ["cache_only", "open"]
    assert not system.files.exists(FLAG)
    assert 600.0 <= system.clock.mono() - begin <= 603.0


def test_a_person_who_cancels_ends_it_at_the_next_look(tmp_path: Path) -> None:
    system = node(tmp_path)
    act, _ = carrying(system)
    clock = system.clock
    begin = clock.mono()
    sleep = clock.sleep

    def slept(seconds: float) -> None:
        sleep(seconds)
        if clock.mono() - begin > 100.0:
            act.word.say("cancelled by a person")

    clock.sleep = slept  # type: ignore[method-assign]

    assert ended(act.run()) == "cancelled"
    assert not system.files.exists(FLAG)
    assert clock.mono() - begin < 104.0


def test_a_daemon_that_ends_and_one_that_goes_on_hold_it_ten_minutes_together(
    tmp_path: Path,
) -> None:
    system = node(tmp_path)
    first, _ = carrying(system)
    clock = system.clock
    begin = clock.mono()
    sleep = clock.sleep

    def slept(seconds: float) -> None:
        sleep(seconds)
        if clock.mono() - begin > 400.0:
            first.tools.leaving.set()

    clock.sleep = slept  # type: ignore[method-assign]
    assert first.run() is None
    assert not system.files.exists(FLAG)
    second, _ = carrying(system, first.rows)
    second.tools.leaving.clear()
    second.seconds = 660.0 - 400.0

    assert ended(second.run()) == "timed_out"
    assert not system.files.exists(FLAG)
    assert clock.mono() - begin <= 665.0
