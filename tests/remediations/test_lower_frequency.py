"""Clocks are lowered from what was found, noted first, and only our own change is taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.remediations.actors import (
    FIRST,
    SECOND,
    Killed,
    Npu,
    PlayedRunner,
    Walk,
    case,
    gpus,
    npus,
)
from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.remediations.adapters.frequency import Lowered, restore_all
from vllm_watchdog.remediations.lower_frequency import LowerFrequency
from vllm_watchdog.watchdog.errors import CommandTimeout
from vllm_watchdog.watchdog.system import Files, Finished, System

STATE = Path("/state")
NPU, OTHER = "0000:c1:00", "0000:81:00"
CLOCKS = "1980\n1965\n1005\n990\n975\n210\n"
HELP = "Usage: npu-smi set <-h|-t type> [Options...]\n\nCommands:\n  type: reset, {more}clear-ecc-info.\nOptions:\n"


class Node:
    """Two GPUs and two groups of CPUs; the GPUs' clocks follow what is locked."""

    def __init__(self, root: Path, cards: tuple[str, ...] = (FIRST, SECOND)) -> None:
        self.root, self.clock, self.cards = root, VirtualClock(), cards
        self.mhz = dict.fromkeys(cards, 1980)
        self.noted: list[dict[str, Any]] = []
        script: dict[str, Any] = {"nvidia-smi -q -x": self.query}
        for card in cards:
            base = f"nvidia-smi -i {card}.0"
            asked = "--query-supported-clocks=graphics --format=csv,noheader,nounits"
            script[f"{base} {asked}"] = CLOCKS
            script[f"{base} -lgc 210,990"] = lambda card=card: self.lock(card, 990)
            script[f"{base} -rgc"] = lambda card=card: self.lock(card, 1980)
        self.runner = PlayedRunner(script)
        self.boot("1111")
        for number in (0, 1):
            self.policy(number, scaling_max_freq="3000000")

    def boot(self, number: str) -> None:
        self.write("proc/sys/kernel/random/boot_id", f"{number}\n")

    def policy(self, number: int, **values: str) -> None:
        told = {"cpuinfo_min_freq": "200000", "cpuinfo_max_freq": "3000000"}
        for name, value in {**told, "scaling_min_freq": "200000", **values}.items():
            self.write(f"sys/devices/system/cpu/cpufreq/policy{number}/{name}", f"{value}\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpus(self) -> list[str]:
        folder = self.root / "sys/devices/system/cpu/cpufreq"
        return [(folder / f"policy{n}/scaling_max_freq").read_text().strip() for n in (0, 1)]

    def query(self) -> str:
        parts = gpus(self.cards).split("<graphics_clock>1980 MHz")
        clocks = [f"<graphics_clock>{self.mhz[card]} MHz" for card in self.cards]
        return parts[0] + "".join(a + b for a, b in zip(clocks, parts[1:], strict=True))

    def lock(self, card: str, mhz: int) -> str:
        self.noted.append(self.notes())
        self.mhz[card] = mhz
        return "All done.\n"

    def ascend(self, *cards: str, help_text: str) -> None:
        chips = [Npu(number, card) for number, card in enumerate(cards)]
        ids = "NPU ID      Chip ID      Chip Logic ID      Chip Name\n"
        self.runner.script.update(
            {"npu-smi set -h": help_text, "npu-smi info": npus(chips), "npu-smi info -m": ids}
        )

    def notes(self) -> dict[str, Any]:
        path = self.root / "state/frequency.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def system(self) -> System:
        base = fake_system(root=self.root, clock=self.clock)
        return System(base.clock, self.runner, Files(self.root), base.http, host=base.host)

    def run(self, *cards: str, vendor: str = "nvidia", back: bool = False) -> tuple[str, Walk]:
        act = case("lower_frequency", STATE, cards, vendor, back=back)
        assert LowerFrequency().precheck(self.system, act) == ""
        walk = Walk(self.system, self.clock)
        return walk.through(LowerFrequency().plan(self.system, act)), walk

    def changes(self) -> list[str]:
        return self.runner.lines("-lgc") + self.runner.lines("-rgc")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_card_is_kept_below_half_of_its_best_clock(node: Node) -> None:
    assert node.run(FIRST)[0] == "done"
    assert node.changes() == [f"nvidia-smi -i {FIRST}.0 -lgc 210,990"]


def test_what_is_done_is_noted_before_it_is_done(node: Node) -> None:
    node.run(FIRST)

    assert node.noted[0]["cards"][FIRST]["set"] is False
    assert node.notes()["cards"][FIRST]["set"] is True


def test_a_card_that_is_lowered_already_is_left_so(node: Node) -> None:
    node.run(FIRST)

    assert node.run(FIRST)[0] == "done"
    assert len(node.changes()) == 1


def test_the_way_back_gives_the_card_its_clock(node: Node) -> None:
    node.run(FIRST)

    assert node.run(FIRST, back=True)[0] == "done"
    assert node.changes()[-1] == f"nvidia-smi -i {FIRST}.0 -rgc"
    assert node.notes()["cards"] == {}


def test_a_clock_that_somebody_else_changed_is_left_alone_and_told(node: Node) -> None:
    node.run(FIRST)
    node.mhz[FIRST] = 1500

    _, walk = node.run(FIRST, back=True)
    assert walk.ends[f"restore {FIRST}"] == (
        f"{FIRST}: somebody else has changed its clock; it is left alone"
    )
    assert node.runner.lines("-rgc") == []
    assert node.notes()["cards"] == {}


def test_nothing_is_taken_back_that_was_not_done(node: Node) -> None:
    assert node.run(FIRST, back=True)[0] == "done"
    assert node.changes() == []


def test_a_card_that_cannot_be_set_is_told_once(node: Node) -> None:
    said = (
        f"Setting locked GPU clocks is not supported for GPU 0000{FIRST}.0.\nTreating as warning.\n"
    )
    node.runner.script[f"nvidia-smi -i {FIRST}.0 -lgc 210,990"] = said

    assert node.run(FIRST)[0].endswith("the driver cannot set its clocks")
    assert node.run(FIRST)[0] == "done"
    assert len(node.runner.lines("-lgc")) == 1


def test_a_driver_that_lists_no_clocks_is_told_once(node: Node) -> None:
    asked = "--query-supported-clocks=graphics --format=csv,noheader,nounits"
    node.runner.script[f"nvidia-smi -i {FIRST}.0 {asked}"] = "[N/A]\n"

    assert node.run(FIRST)[0].endswith("the driver lists no clocks that can be set")
    assert node.run(FIRST)[0] == "done"


def test_a_refused_command_fails_the_act_and_leaves_nothing_to_take_back(node: Node) -> None:
    node.runner.script[f"nvidia-smi -i {FIRST}.0 -lgc 210,990"] = Finished(4, b"")

    assert node.run(FIRST)[0] == f"lower {FIRST}: nvidia-smi -lgc: no permission"
    assert node.notes()["cards"] == {}


def test_a_command_that_hung_is_taken_back_at_the_stop(node: Node) -> None:
    node.runner.script[f"nvidia-smi -i {FIRST}.0 -lgc 210,990"] = CommandTimeout("it hangs")

    assert node.run(FIRST)[0] == f"lower {FIRST}: it hangs"
    assert restore_all(node.system, STATE) == []
    assert node.runner.lines("-rgc") == [f"nvidia-smi -i {FIRST}.0 -rgc"]


def test_a_card_lowered_before_another_failed_is_taken_back(node: Node) -> None:
    node.runner.script[f"nvidia-smi -i {SECOND}.0 -lgc 210,990"] = Finished(4, b"")

    _, walk = node.run(FIRST, SECOND)
    assert walk.undone == [f"lower {FIRST}"]
    assert node.notes()["cards"] == {}


def test_cpus_stay_while_a_card_is_busy(node: Node) -> None:
    node.run(FIRST)

    assert node.cpus() == ["3000000", "3000000"]


def test_cpus_are_lowered_once_all_cards_idle(node: Node) -> None:
    node.run(FIRST)
    node.run(SECOND)

    assert node.cpus() == ["1500000", "1500000"]


def test_cpus_have_their_limit_back_with_the_first_card(node: Node) -> None:
    node.policy(1, scaling_max_freq="2800000")
    node.run(FIRST, SECOND)

    node.run(FIRST, back=True)
    assert node.cpus() == ["3000000", "2800000"]


def test_a_step_of_the_cpus_is_taken_from_their_list(node: Node) -> None:
    node.policy(
        0, scaling_max_freq="3000000", scaling_available_frequencies="3000000 1400000 900000"
    )
    node.run(FIRST, SECOND)

    assert node.cpus() == ["1400000", "1500000"]


def test_a_limit_that_is_low_already_is_not_ours(node: Node) -> None:
    node.policy(0, scaling_max_freq="1000000")
    node.run(FIRST, SECOND)

    assert node.cpus()[0] == "1000000"
    assert list(node.notes()["cpus"]) == ["policy1"]


def test_a_limit_that_somebody_else_changed_is_left_alone_and_told(node: Node) -> None:
    node.run(FIRST, SECOND)
    node.policy(0, scaling_max_freq="2000000")

    _, walk = node.run(FIRST, back=True)
    assert node.cpus() == ["2000000", "3000000"]
    assert "policy0" in walk.ends["restore the CPUs"]


def test_all_is_restored_after_a_crash_in_the_middle(node: Node) -> None:
    node.run(FIRST, SECOND)
    document = node.notes()
    document["cards"][SECOND]["set"] = False
    node.write("state/frequency.json", json.dumps(document))

    assert restore_all(node.system, STATE) == []
    assert node.runner.lines("-rgc") == [
        f"nvidia-smi -i {FIRST}.0 -rgc",
        f"nvidia-smi -i {SECOND}.0 -rgc",
    ]
    assert node.cpus() == ["3000000", "3000000"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_command_all_is_as_found_after_the_restore(
    tmp_path: Path, after: bool
) -> None:
    number, finished = 0, False
    while not finished:
        node = Node(tmp_path / str(number))
        node.runner.crash_at(number, after=after)
        try:
            node.run(FIRST, SECOND)
            finished = True
        except Killed:
            pass
        node.runner.crash_at(-1, after=False)
        assert restore_all(node.system, STATE) == []
        assert (node.mhz, node.cpus()) == ({FIRST: 1980, SECOND: 1980}, ["3000000"] * 2)
        number += 1
    assert number > 5


def test_what_cannot_be_restored_is_told_and_kept(node: Node) -> None:
    node.run(FIRST)
    node.runner.script[f"nvidia-smi -i {FIRST}.0 -rgc"] = CommandTimeout("nvidia-smi hangs")

    assert restore_all(node.system, STATE) == ["nvidia-smi hangs"]
    assert Lowered(STATE).cards(node.system) == (FIRST,)


def test_a_reboot_ends_what_was_lowered(node: Node) -> None:
    node.run(FIRST, SECOND)
    node.boot("2222")

    assert Lowered(STATE).cards(node.system) == ()
    assert restore_all(node.system, STATE) == []
    assert node.runner.lines("-rgc") == []


def test_damaged_notes_are_told_and_change_nothing(node: Node) -> None:
    node.write("state/frequency.json", "{")

    assert "is damaged" in restore_all(node.system, STATE)[0]
    assert node.changes() == []


@pytest.mark.parametrize(
    ("more", "words"),
    [("", "has no verb that sets a clock"), ("aicore-freq, ", "lists aicore-freq, whose form")],
)
def test_ascend_says_once_that_it_is_not_supported(node: Node, more: str, words: str) -> None:
    node.ascend(NPU, OTHER, help_text=HELP.format(more=more))

    assert words in node.run(NPU, vendor="ascend")[0]
    assert node.run(NPU, vendor="ascend")[0] == "done"
    assert len(node.runner.lines("npu-smi set")) == 1


def test_the_cpus_of_an_idle_ascend_node_are_lowered(node: Node) -> None:
    node.ascend(NPU, OTHER, help_text=HELP.format(more=""))
    for card in (NPU, NPU, OTHER):
        node.run(card, vendor="ascend")
    assert node.cpus() == ["3000000", "3000000"]

    node.run(OTHER, vendor="ascend")
    assert node.cpus() == ["1500000", "1500000"]


def test_load_on_one_card_of_an_ascend_node_gives_the_cpus_their_clock(node: Node) -> None:
    node.ascend(NPU, help_text=HELP.format(more=""))
    node.run(NPU, vendor="ascend")
    node.run(NPU, vendor="ascend")
    assert node.cpus() == ["1500000", "1500000"]

    assert node.run(NPU, vendor="ascend", back=True)[0] == "done"
    assert node.cpus() == ["3000000", "3000000"]


def test_an_act_without_a_card_is_declined(node: Node) -> None:
    act = case("lower_frequency", STATE, [])

    assert LowerFrequency().precheck(node.system, act) == "no card is named"
