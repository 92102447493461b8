"""A card is reset only with nobody on it nor on its mates, at most three times, and then checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.remediations.actors import (
    FIRST,
    SECOND,
    THIRD,
    Killed,
    Npu,
    PlayedRunner,
    Walk,
    case,
    gpus,
    npus,
    reader,
    sees_all,
    table,
)
from tests.support.system import FakeHost, VirtualClock, fake_system
from vllm_watchdog.remediations.adapters import readers
from vllm_watchdog.remediations.adapters.cardview import look
from vllm_watchdog.remediations.adapters.resetgroups import mates
from vllm_watchdog.remediations.adapters.resetting import forgive
from vllm_watchdog.remediations.reset_card import ResetCard
from vllm_watchdog.watchdog.errors import CommandTimeout
from vllm_watchdog.watchdog.system import Files, Finished, System

STATE = Path("/state")
QUERY, TOPO = "nvidia-smi -q -x", "nvidia-smi topo -m"
ONE, TWO = "0000:c1:00", "0000:81:00"
WELL = "        Status : OK\n        Message : Reset card successfully.\n"
ALONE = table({}, 2)
REFUSED = Finished(
    255,
    b"The following GPUs could not be reset:\n  GPU 00000000:53:00.0: In use by another client\n",
)


class Node:
    """Two GPUs, the first of which asks for a reset; ``resets`` says what each try ends with."""

    def __init__(self, root: Path, resets: list[Any], **query: Any) -> None:
        self.query = {"asks": [FIRST], **query}
        self.resets = resets
        self.topo = ALONE
        self.begun: set[str] = set()
        self.root, self.clock, self.host = root, VirtualClock(), FakeHost()
        reset = self.reset
        self.runner = PlayedRunner(
            {
                QUERY: lambda: gpus([FIRST, SECOND], **self.query),
                TOPO: lambda: self.topo,
                f"nvidia-smi --gpu-reset -i {FIRST}.0": reset,
                f"nvidia-smi --gpu-reset -i {FIRST}.0,{SECOND}.0": reset,
                f"nvidia-smi -i {FIRST}.0 -pm 0": lambda: self.persistence([]),
                f"nvidia-smi -i {FIRST}.0 -pm 1": lambda: self.persistence([FIRST]),
            }
        )

    @property
    def system(self) -> System:
        system = fake_system(root=self.root, clock=self.clock, host=self.host)
        return System(system.clock, self.runner, Files(self.root), system.http, host=self.host)

    def notes(self) -> dict[str, Any]:
        path = self.root / "state/resets.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def persistence(self, on: list[str]) -> str:
        self.query["persistent"] = on
        return "All done.\n"

    def reset(self) -> Finished:
        end = self.resets.pop(0)
        if isinstance(end, BaseException):
            raise end
        if end is not True:
            return Finished(end.code, end.stdout)
        self.query["asks"] = []
        said = f"GPU 0000{FIRST}.0 was successfully reset.\nGPU 0000{SECOND}.0 was successfully reset.\n"
        return Finished(0, said.encode())

    def run(self, **more: Any) -> tuple[str, Walk]:
        act = case("reset_card", STATE, [FIRST], **more)
        walk = Walk(self.system, self.clock, self.begun)
        return walk.through(ResetCard().plan(self.system, act)), walk

    def declined(self, sick: tuple[str, ...] = (FIRST,)) -> str:
        return ResetCard().precheck(self.system, case("reset_card", STATE, sick))


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Node]:
    return lambda *resets, **query: Node(tmp_path, list(resets), **query)


def test_a_reset_that_mends_the_card_is_done_once(node: Callable[..., Node]) -> None:
    machine = node(True)

    assert machine.declined() == ""
    assert machine.run()[0] == "done"
    assert machine.runner.lines("--gpu-reset") == [f"nvidia-smi --gpu-reset -i {FIRST}.0"]


def test_the_check_counts_only_ten_seconds_after_the_reset(node: Callable[..., Node]) -> None:
    machine = node(True)
    begun = machine.clock.mono()

    machine.run()
    assert 10.0 <= machine.clock.mono() - begun < 20.0


def test_a_second_try_comes_half_a_minute_after_the_first(node: Callable[..., Node]) -> None:
    machine = node(REFUSED, True)
    times: list[float] = []
    reset = machine.reset
    machine.runner.script[f"nvidia-smi --gpu-reset -i {FIRST}.0"] = lambda: (
        times.append(machine.clock.mono()),
        reset(),
    )[1]

    assert machine.run()[0] == "done"
    assert times[1] - times[0] == pytest.approx(30.0, abs=2.0)


def test_three_failed_tries_are_the_end(node: Callable[..., Node]) -> None:
    machine = node(REFUSED, REFUSED, REFUSED)

    verdict, _ = machine.run()
    assert verdict.startswith("reset, try 3: nvidia-smi --gpu-reset: The following GPUs could not")
    assert (
        machine.declined()
        == f"{FIRST}: 3 resets did not mend it; it stays out until it is released"
    )


def test_a_released_card_may_be_tried_again(node: Callable[..., Node]) -> None:
    machine = node(REFUSED, REFUSED, REFUSED)
    machine.run()

    forgive(machine.system, STATE, [FIRST])
    assert machine.declined() == ""


def test_a_mended_card_has_all_its_tries_again(node: Callable[..., Node]) -> None:
    machine = node(REFUSED, True)
    machine.run()

    kept = json.loads((machine.root / "state/resets.json").read_text())
    assert kept["failed"] == {}


def test_a_card_that_stays_sick_gets_its_three_tries_and_no_more(
    node: Callable[..., Node],
) -> None:
    good = Finished(0, f"GPU 0000{FIRST}.0 was successfully reset.\n".encode())
    machine = node(good, good, good)

    assert machine.run()[0] == "reset, try 3: timed out"
    assert len(machine.runner.lines("--gpu-reset")) == 3


def test_no_try_begins_when_the_time_of_the_act_is_up(node: Callable[..., Node]) -> None:
    good = Finished(0, f"GPU 0000{FIRST}.0 was successfully reset.\n".encode())
    machine = node(good, good, good)

    assert machine.run(limit=300.0)[0] == "reset, try 3: the act's time is up: no further try"
    assert len(machine.runner.lines("--gpu-reset")) == 2


def test_a_process_on_the_card_declines_the_act(node: Callable[..., Node]) -> None:
    machine = node(held={FIRST: [(4711, "C")]})

    assert machine.declined() == f"{FIRST}: process 4711 holds it"


def test_even_who_only_draws_is_in_the_way(node: Callable[..., Node]) -> None:
    assert node(held={FIRST: [(900, "G")]}).declined() == f"{FIRST}: process 900 holds it"


def test_a_process_on_a_linked_gpu_declines_the_act(node: Callable[..., Node]) -> None:
    machine = node(held={SECOND: [(4711, "C")]})
    machine.topo = table({(0, 1): "NV18"}, 2)

    assert machine.declined() == f"{SECOND}, reset with it: process 4711 holds it"


def test_a_process_on_a_gpu_without_a_link_is_not_in_the_way(node: Callable[..., Node]) -> None:
    assert node(held={SECOND: [(4711, "C")]}).declined() == ""


def test_where_no_link_is_told_the_whole_node_must_be_free(node: Callable[..., Node]) -> None:
    machine = node(held={SECOND: [(4711, "C")]})
    machine.topo = "nothing\n"

    assert machine.declined() == f"{SECOND}, reset with it: process 4711 holds it"


def test_memory_that_nobody_owns_up_to_declines_the_act(node: Callable[..., Node]) -> None:
    assert "nobody whom the tool names" in node(used={FIRST: 5000}).declined()


def test_who_only_watches_the_card_declines_the_act(node: Callable[..., Node]) -> None:
    machine = node()
    sees_all(machine.root, {812: ["/dev/nvidia0"]})

    assert machine.declined() == f"{FIRST}: process 812 (monitor) has it open"


def test_the_drivers_own_helper_is_no_reason_to_decline(node: Callable[..., Node]) -> None:
    machine = node()
    sees_all(machine.root, {812: ["/dev/nvidia0"]})
    (machine.root / "proc/812/comm").write_text("nvidia-persiste\n")

    assert machine.declined() == ""


@pytest.mark.parametrize(
    "answer", [CommandTimeout("nvidia-smi did not end within 10 s"), Finished(9, b"no driver")]
)
def test_a_silent_tool_declines_the_act(node: Callable[..., Node], answer: Any) -> None:
    machine = node()
    machine.runner.script[QUERY] = answer

    assert machine.declined().startswith(f"{FIRST}: it cannot be seen: ")


def test_a_lost_card_cannot_be_reached_by_a_reset(node: Callable[..., Node]) -> None:
    machine = node()
    machine.runner.script[QUERY] = gpus([SECOND])

    assert machine.declined() == f"{FIRST}: it is not there"


def test_a_mig_instance_is_declined(node: Callable[..., Node]) -> None:
    assert node().declined(("MIG-1234",)) == "a MIG instance cannot be reset alone"


def test_an_act_without_a_card_is_declined(node: Callable[..., Node]) -> None:
    assert node().declined(()) == "no card is named"


def test_whoever_comes_after_the_precheck_stops_the_reset(node: Callable[..., Node]) -> None:
    machine = node(True)
    machine.query["held"] = {FIRST: [(4711, "C")]}

    assert machine.run()[0] == "nobody on the cards: timed out"
    assert machine.runner.lines("--gpu-reset") == []


def test_readers_rest_during_the_reset_and_wake_afterwards(node: Callable[..., Node]) -> None:
    machine = node(True)
    seen: list[frozenset[str]] = []
    reset = machine.reset
    machine.runner.script[f"nvidia-smi --gpu-reset -i {FIRST}.0"] = lambda: (
        seen.append(readers.resting(machine.system, STATE, machine.clock.wall())),
        reset(),
    )[1]

    machine.run()
    assert seen == [frozenset({"nvidia_smi", "nvidia_links"})]
    assert readers.resting(machine.system, STATE, machine.clock.wall()) == frozenset()


def test_no_reset_while_a_reader_still_runs(node: Callable[..., Node]) -> None:
    machine = node(True)
    machine.host.table = [reader("nvidia-smi")]

    assert machine.run()[0] == "our readers at rest: timed out"
    assert machine.runner.lines("--gpu-reset") == []


def test_a_rest_ends_by_itself(node: Callable[..., Node]) -> None:
    machine = node()
    readers.rest(machine.system, STATE, ["ascend"], 100.0, "req-1")

    assert readers.resting(machine.system, STATE, 99.0) == frozenset({"npu_smi", "hccn_tool"})
    assert readers.resting(machine.system, STATE, 100.0) == frozenset()


def test_a_damaged_rest_keeps_nobody_still(node: Callable[..., Node]) -> None:
    machine = node()
    (machine.root / "state").mkdir()
    (machine.root / "state/readers.json").write_text('{"until": 1e99, "vendors": 3')

    assert readers.resting(machine.system, STATE, 0.0) == frozenset()


def test_persistence_mode_is_off_for_the_reset_and_on_again(node: Callable[..., Node]) -> None:
    machine = node(True, persistent=[FIRST])

    assert machine.run()[0] == "done"
    assert [line.split(" ", 1)[1] for line in machine.runner.lines(" -i ")] == [
        f"-i {FIRST}.0 -pm 0",
        f"--gpu-reset -i {FIRST}.0",
        f"-i {FIRST}.0 -pm 1",
    ]


def test_persistence_mode_that_was_off_stays_off(node: Callable[..., Node]) -> None:
    machine = node(True)

    machine.run()
    assert machine.runner.lines("-pm") == []


def test_linked_gpus_are_named_together_from_the_second_try_on(
    node: Callable[..., Node],
) -> None:
    machine = node(REFUSED, True)
    machine.topo = table({(0, 1): "NV18"}, 2)

    assert machine.run()[0] == "done"
    assert machine.runner.lines("--gpu-reset") == [
        f"nvidia-smi --gpu-reset -i {FIRST}.0",
        f"nvidia-smi --gpu-reset -i {FIRST}.0,{SECOND}.0",
    ]


def test_after_a_crash_a_try_without_an_end_goes_to_a_person(node: Callable[..., Node]) -> None:
    machine = node(True)
    (machine.root / "state").mkdir()
    run = {"try": 1, "begun": 1.0, "ended": None, "group": [FIRST], "said": ""}
    (machine.root / "state/resets.json").write_text(json.dumps({"runs": {"req-1": run}}))

    assert machine.run()[0] == ("reset, try 3: nobody can tell how try 1 ended: a person must look")
    assert machine.runner.lines("--gpu-reset") == []


def test_after_a_crash_a_failed_try_is_not_made_again(node: Callable[..., Node]) -> None:
    machine = node(True)
    (machine.root / "state").mkdir()
    run = {"try": 1, "begun": 1.0, "ended": 2.0, "group": [FIRST], "said": "refused"}
    (machine.root / "state/resets.json").write_text(json.dumps({"runs": {"req-1": run}}))

    verdict, walk = machine.run()
    assert (verdict, walk.ends["reset, try 1"]) == ("done", "try 1 was made already")
    assert len(machine.runner.lines("--gpu-reset")) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_command_no_reset_is_made_twice(tmp_path: Path, after: bool) -> None:
    number, finished = 0, False
    while not finished:
        machine = Node(tmp_path / str(number), [True, True], persistent=[FIRST])
        machine.runner.crash_at(number, after=after)
        try:
            machine.run()
            finished = True
        except Killed:
            machine.runner.crash_at(-1, after=False)
            made, begun = len(machine.runner.lines("--gpu-reset")), "'try'" in str(machine.notes())
            verdict, _ = machine.run()
            resets = len(machine.runner.lines("--gpu-reset"))
            assert resets == (made if begun else 1)
            assert verdict == "done" or "a person must look" in verdict
        assert machine.query["persistent"] == [FIRST]
        assert readers.resting(machine.system, STATE, machine.clock.wall()) == frozenset()
        number += 1
    assert number > 10


def test_the_steps_are_the_same_before_and_after(node: Callable[..., Node]) -> None:
    machine = node(True)
    act = case("reset_card", STATE, [FIRST])
    before = [step.name for step in ResetCard().plan(machine.system, act)]

    machine.run()
    assert before == [step.name for step in ResetCard().plan(machine.system, act)]


def test_damaged_notes_decline_the_act(node: Callable[..., Node]) -> None:
    machine = node(True)
    (machine.root / "state").mkdir()
    (machine.root / "state/resets.json").write_text("[]")

    assert "is damaged" in machine.declined()


class Rack:
    """Ascend cards; ``sick`` of them stand in alarm until a reset."""

    def __init__(self, root: Path, chips: list[Npu], said: str = WELL) -> None:
        self.chips, self.said = chips, said
        self.root, self.clock = root, VirtualClock()
        sick = chips[0]
        sick.health = "Alarm"
        self.runner = PlayedRunner(
            {
                "npu-smi info": lambda: npus(self.chips),
                "npu-smi info -m": "NPU ID      Chip ID      Chip Logic ID      Chip Name\n",
                f"npu-smi set -t reset -i {sick.npu} -c {sick.chip}": self.reset,
                f"npu-smi set -t reset -i {sick.npu} -m 1": self.reset,
            }
        )

    @property
    def system(self) -> System:
        base = fake_system(root=self.root, clock=self.clock)
        return System(base.clock, self.runner, Files(self.root), base.http, host=base.host)

    def reset(self) -> str:
        if self.said == WELL:
            self.chips[0].health = "OK"
        return self.said

    def declined(self) -> str:
        act = case("reset_card", STATE, [self.chips[0].bus], "ascend")
        return ResetCard().precheck(self.system, act)

    def run(self) -> str:
        act = case("reset_card", STATE, [self.chips[0].bus], "ascend")
        walk = Walk(self.system, self.clock)
        return walk.through(ResetCard().plan(self.system, act))


def eight(model: str, **busy: int) -> list[Npu]:
    """Eight cards; ``n5=99``: process 99 on the card of NPU 5."""
    return [
        Npu(n, f"0000:{n:02x}:00", 100 if model == "910ProB" else 3300, model=model)
        if f"n{n}" not in busy
        else Npu(n, f"0000:{n:02x}:00", 30000, model=model, pids=[busy[f"n{n}"]])
        for n in range(8)
    ]


def test_an_npu_is_reset_by_its_ids_and_the_question_is_answered(tmp_path: Path) -> None:
    rack = Rack(tmp_path, eight("910B3"))

    assert (rack.declined(), rack.run()) == ("", "done")
    assert rack.runner.lines("set") == ["npu-smi set -t reset -i 0 -c 0"]
    assert rack.runner.fed[rack.runner.calls.index(rack.runner.lines("set")[0].split())] == b"Y\n"


def test_a_950_is_reset_in_band(tmp_path: Path) -> None:
    rack = Rack(tmp_path, eight("Ascend950PR"))

    assert rack.run() == "done"
    assert rack.runner.lines("set") == ["npu-smi set -t reset -i 0 -m 1"]


def test_all_eight_of_a_910b_node_must_be_free(tmp_path: Path) -> None:
    rack = Rack(tmp_path, eight("910B3", n7=99))

    assert rack.declined() == "0000:07:00, reset with it: process 99 holds it"


def test_a_ring_of_first_910_has_four(tmp_path: Path) -> None:
    assert Rack(tmp_path, eight("910ProB", n4=99)).declined() == ""
    assert "process 99" in Rack(tmp_path, eight("910ProB", n3=99)).declined()


def test_both_chips_of_a_card_are_reset_together(tmp_path: Path) -> None:
    chips = [
        Npu(2, "0000:02:00", 1500, 0, "310P3"),
        Npu(2, "0000:03:00", 1500, 1, "310P3"),
        Npu(3, "0000:05:00", 1500, 0, "310P3"),
    ]
    system = Rack(tmp_path, chips).system
    view = look(system, ["0000:02:00"], {"0000:02:00": "ascend"})

    assert mates(system, view, "0000:02:00", 1.0) == ("0000:02:00", "0000:03:00/1")


def test_another_pcie_card_is_not_in_the_way(tmp_path: Path) -> None:
    chips = [
        Npu(2, "0000:02:00", 1500, 0, "310P3"),
        Npu(3, "0000:05:00", 9000, 0, "310P3", pids=[98]),
    ]

    assert Rack(tmp_path, chips).declined() == ""


@pytest.mark.parametrize(
    "said",
    ["Another user is resetting the card.\n", "        Status : Fail\n        Message : no\n", ""],
)
def test_a_refused_reset_of_an_npu_is_no_success(tmp_path: Path, said: str) -> None:
    rack = Rack(tmp_path, eight("910B3"), said)

    assert rack.run().startswith("reset, try 3: ")


def test_a_warning_that_stays_does_not_pass_the_check(tmp_path: Path) -> None:
    rack = Rack(tmp_path, eight("910B3"))
    rack.reset = lambda: (setattr(rack.chips[0], "health", "Warning"), WELL)[1]  # type: ignore[method-assign]
    rack.runner.script["npu-smi set -t reset -i 0 -c 0"] = rack.reset

    assert rack.run() == "check: timed out"


def test_a_third_gpu_is_asked_about_too(tmp_path: Path) -> None:
    machine = Node(tmp_path, [True])
    machine.runner.script[QUERY] = lambda: gpus([FIRST, SECOND, THIRD], {THIRD: [(5, "C")]})
    machine.topo = table({(0, 1): "NV4", (1, 2): "NV4"}, 3)

    assert machine.declined() == f"{THIRD}, reset with it: process 5 holds it"
