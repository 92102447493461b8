"""What acts leave in the state folder, seen to by a daemon on virtual time."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.acts import Scripted, World, at_once, daemon_with, kinds, run
from tests.support.system import VirtualClock
from vllm_watchdog.remediations.adapters import frequency, readers, resetting
from vllm_watchdog.remediations.adapters.upkeep import StateFolder
from vllm_watchdog.watchdog.daemon import Daemon
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.model import Command
from vllm_watchdog.watchdog.service import keep_reports
from vllm_watchdog.watchdog.system import System
from vllm_watchdog.watchdog.upkeep import Upkeep

CARD = "0000:53:00"


@pytest.fixture
def world() -> Iterator[World]:
    made = World(VirtualClock())
    yield made
    made.close()


@dataclass
class Played:
    """Adapters that write down what is asked of them."""

    did: list[str] = field(default_factory=list)
    low: bool = True
    lines: list[str] = field(default_factory=list)
    many: int = 0
    fault: str = ""

    def resting(self, system: System, state: Path, now: float) -> frozenset[str]:
        return frozenset({"nvidia_smi"})

    def lowered(self, system: System, state: Path) -> bool:
        return self.low

    def restore(self, system: System, state: Path) -> list[str]:
        self.did.append("restore")
        self.low = False
        return self.lines

    def forgive(self, system: System, state: Path, cards: Collection[str]) -> None:
        if self.fault:
            raise SourceError(self.fault)
        self.did.append(f"forgive {' '.join(cards)}")

    def prune(self, system: System, state: Path, now: float) -> int:
        self.did.append("prune")
        return self.many


def kept(
    folder: Path,
    world: World,
    adapters: Played | StateFolder,
    *,
    act: Scripted | None = None,
    spawn: object = at_once,
) -> Daemon:
    return daemon_with(folder, world, act or Scripted(world), adapters=adapters, spawn=spawn)


def told(daemon: Daemon) -> list[tuple[str, str]]:
    """Events of this room as journaled: kind and message."""
    assert daemon.journal is not None
    wanted = ("settings_", "evidence_", "card_not")
    found = daemon.journal.read(0, 1000)
    return [(e.kind, e.message) for e in found if e.kind.startswith(wanted)]


def test_what_a_killed_run_had_lowered_goes_back_at_the_start(tmp_path: Path, world: World) -> None:
    adapters = Played()
    daemon = kept(tmp_path, world, adapters)
    run(daemon, 0.1)

    assert adapters.did[0] == "restore"
    assert told(daemon) == [("settings_restored", "what an act had lowered is as it was found")]


def test_what_could_not_be_put_back_is_told_line_by_line(tmp_path: Path, world: World) -> None:
    daemon = kept(tmp_path, world, Played(lines=["a: changed since", "b: no answer"]))
    run(daemon, 0.1)

    assert [text for _, text in told(daemon)] == ["a: changed since", "b: no answer"]


def test_where_nothing_is_lowered_nothing_is_put_back(tmp_path: Path, world: World) -> None:
    adapters = Played(low=False)
    daemon = kept(tmp_path, world, adapters)
    run(daemon, 0.1)
    daemon.stop(tmp_path)

    assert adapters.did == ["prune"]


def test_a_held_node_is_left_as_it_is(tmp_path: Path, world: World) -> None:
    (tmp_path / "hold").touch()
    adapters = Played()
    kept(tmp_path, world, adapters)

    assert adapters.did == []


def test_an_act_of_an_earlier_run_that_goes_on_keeps_what_it_lowered(
    tmp_path: Path, world: World
) -> None:
    def begins(_: str, __: Callable[[], None]) -> None:
        """A thread that is not seen to begin."""

    act = Scripted(world, [world.step("lower")], "lower_frequency")
    text = (
        "mode: act\nservices: {chat: {url: 'http://chat'}}\n"
        "policies: [{when: [Busy], do: [lower_frequency, page]}]\n"
    )
    first = daemon_with(tmp_path, world, act, text=text, spawn=begins)
    run(first, 0.9, 0.9)
    adapters = Played()
    daemon_with(tmp_path, world, act, text=text, spawn=begins, adapters=adapters)

    assert adapters.did == []


def test_what_was_lowered_goes_back_when_the_daemon_ends(tmp_path: Path, world: World) -> None:
    adapters = Played(low=False)
    daemon = kept(tmp_path, world, adapters)
    run(daemon, 0.1)
    adapters.low = True
    daemon.stop(tmp_path)

    assert adapters.did == ["prune", "restore"]


def test_clocks_that_do_not_come_back_in_time_hold_nothing_up(tmp_path: Path) -> None:
    events: list[str] = []

    class Stuck:
        def join(self, seconds: float) -> None:
            events.append(f"waited {seconds:g}")

        def is_alive(self) -> bool:
            return True

    upkeep = Upkeep(
        None,  # type: ignore[arg-type]
        tmp_path,
        Played(),
        lambda kind, text, severity: events.append(f"{severity} {kind}: {text}"),
        lambda _, __: Stuck(),  # type: ignore[arg-type, return-value]
    )
    upkeep.restore(5.0)

    assert events == [
        "waited 5",
        "warning settings_not_restored: what an act had lowered is not back within 5 s",
    ]


def test_bundles_are_looked_through_every_ten_minutes(tmp_path: Path, world: World) -> None:
    adapters = Played(low=False, many=3)
    daemon = kept(tmp_path, world, adapters)
    run(daemon, *[0.1] * 121)  # ten minutes after the first tick

    assert adapters.did == ["prune", "prune"]
    run(daemon, 0.1)
    text = "3 bundles of evidence or recordings went by age or size"
    assert told(daemon) == [("evidence_pruned", text)] * 2


def test_a_released_card_counts_its_resets_from_none(tmp_path: Path, world: World) -> None:
    daemon = kept(tmp_path, world, StateFolder())
    path = tmp_path / resetting.FILE
    path.write_text(json.dumps({"failed": {CARD: 3, "0000:9d:00": 2}}))

    daemon.command(Command("release", {"card": CARD}, "anna"))
    run(daemon, 0.1)

    assert json.loads(path.read_text())["failed"] == {"0000:9d:00": 2}


def test_a_count_that_cannot_be_ended_is_told(tmp_path: Path, world: World) -> None:
    daemon = kept(tmp_path, world, Played(low=False, fault="resets.json is damaged"))
    daemon.command(Command("release", {"card": CARD}, "anna"))
    run(daemon, 0.1, 0.1)

    text = f"the resets of {CARD} are still counted: resets.json is damaged"
    assert told(daemon) == [("card_not_forgiven", text)]


def test_the_readers_of_a_vendor_rest_while_a_reset_asks_for_it(
    tmp_path: Path, world: World
) -> None:
    daemon = kept(tmp_path, world, StateFolder())
    now = daemon.system.clock.wall()
    assert daemon.scheduler.resting() == frozenset()

    readers.rest(daemon.system, tmp_path, ["nvidia"], now + 60.0, "r1")
    assert daemon.scheduler.resting() == {"nvidia_smi", "nvidia_links"}

    world.clock.advance(60.0)
    assert daemon.scheduler.resting() == frozenset()


def test_only_noted_clocks_count_as_lowered(tmp_path: Path, world: World) -> None:
    daemon = kept(tmp_path, world, StateFolder())
    path = tmp_path / frequency.FILE
    assert not StateFolder().lowered(daemon.system, tmp_path)

    path.write_text("{}")
    assert not StateFolder().lowered(daemon.system, tmp_path)

    path.write_text("{")
    assert StateFolder().lowered(daemon.system, tmp_path)


def test_a_report_lies_in_the_state_folder_after_each_incident(
    tmp_path: Path, world: World
) -> None:
    daemon = daemon_with(tmp_path, world, Scripted(world, [world.step("stop")]))
    keeper = keep_reports(daemon, tmp_path)

    run(daemon, 0.9, 0.9, 0.9, *[0.1] * 30)
    keeper.stop(30.0)

    assert "case_closed" in kinds(daemon)
    (report,) = (tmp_path / "reports").glob("*.html")
    assert "chat" in report.read_text()
    assert report.with_suffix(".md").exists()
