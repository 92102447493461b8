"""Who holds a card, whether it is free, which cards may take over: never more than is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.remediations.actors import FIRST, SECOND, THIRD, Npu, gpus, npus, sees_all
from tests.support.system import fake_system
from vllm_watchdog.remediations.adapters.cards import Held, fit, holders, memory_free
from vllm_watchdog.remediations.adapters.cardview import vendor_of
from vllm_watchdog.watchdog.errors import CommandTimeout
from vllm_watchdog.watchdog.system import Finished, System

MIB = 1024 * 1024
QUERY = "nvidia-smi -q -x"
NVIDIA = dict.fromkeys((FIRST, SECOND, THIRD), "nvidia")
ONE, TWO = "0000:c1:00", "0000:81:00"
ASCEND = dict.fromkeys((ONE, TWO), "ascend")
NO_IDS = "NPU ID      Chip ID      Chip Logic ID      Chip Name\n"
LOST = Finished(
    15, f"Unable to determine the device handle for GPU{FIRST}.0: GPU is lost.\n".encode()
)


def node(answer: Any, **more: Any) -> System:
    return fake_system({QUERY: answer, **more})


def npu_node(*chips: Npu, root: Path | None = None, ids: str = NO_IDS, **more: Any) -> System:
    script = {"npu-smi info": npus(chips, **more), "npu-smi info -m": ids}
    for chip in chips:
        script[f"npu-smi info -t proc-mem -i {chip.npu} -c 0"] = f"NPU ID : {chip.npu}\n"
    return fake_system(script, root=root)


def test_an_idle_gpu_is_free() -> None:
    assert memory_free(node(gpus([FIRST, SECOND])), [FIRST, SECOND], NVIDIA) == "yes"


def test_a_process_holds_its_gpu_and_no_other() -> None:
    found = holders(node(gpus([FIRST, SECOND], {FIRST: [(4711, "C")]})), [FIRST, SECOND], NVIDIA)

    assert found[FIRST].pids == (4711,)
    assert found[SECOND].pids == ()


def test_memory_that_nobody_owns_up_to_is_not_free() -> None:
    system = node(gpus([FIRST], used={FIRST: 2048}))

    assert memory_free(system, [FIRST], NVIDIA) == "no"
    assert holders(system, [FIRST], NVIDIA)[FIRST] == Held(2048.0 * MIB, (), 1024.0 * MIB)


def test_a_desktop_that_draws_on_a_gpu_holds_nothing() -> None:
    drawing = gpus([FIRST], {FIRST: [(900, "G")]}, used={FIRST: 1100})

    assert memory_free(node(drawing), [FIRST], NVIDIA) == "yes"


@pytest.mark.parametrize(
    "answer",
    [
        CommandTimeout("nvidia-smi did not end within 10 s", stuck=True),
        Finished(
            9, b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
        ),
        gpus([FIRST, SECOND])[:900],
        "",
    ],
    ids=["hangs", "no driver", "cut", "says nothing"],
)
def test_a_tool_that_does_not_answer_makes_no_card_free(answer: Any) -> None:
    assert holders(node(answer), [FIRST], NVIDIA) == {FIRST: Held(None, None)}
    assert memory_free(node(answer), [FIRST], NVIDIA) == "unknown"
    assert fit(node(answer), [FIRST], NVIDIA)[FIRST].startswith("it cannot be seen: ")


def test_a_missing_tool_makes_no_card_free() -> None:
    assert memory_free(fake_system(), [FIRST], NVIDIA) == "unknown"
    assert "not on this node" in fit(fake_system(), [FIRST], NVIDIA)[FIRST]


def test_beside_a_lost_gpu_the_others_are_asked_one_by_one() -> None:
    single = f"nvidia-smi -q -x -i {SECOND}.0"
    system = node(LOST, **{single: gpus([SECOND])})

    assert fit(system, [FIRST, SECOND], NVIDIA) == {FIRST: "it is not there", SECOND: ""}
    assert memory_free(system, [FIRST], NVIDIA) == "unknown"


def test_a_gpu_that_hangs_alone_does_not_hide_its_neighbour() -> None:
    late = CommandTimeout("late")
    system = node(
        LOST,
        **{
            f"nvidia-smi -q -x -i {SECOND}.0": late,
            f"nvidia-smi -q -x -i {THIRD}.0": gpus([THIRD]),
        },
    )

    found = fit(system, [SECOND, THIRD], NVIDIA)
    assert found[THIRD] == ""
    assert found[SECOND] == "it is not in the tool's answer, which is not whole"


def test_a_card_that_wants_a_reset_is_no_spare() -> None:
    assert fit(node(gpus([FIRST], asks=[FIRST])), [FIRST], NVIDIA) == {FIRST: "it is sick"}


def test_a_held_card_is_no_spare() -> None:
    system = node(gpus([FIRST], {FIRST: [(4711, "C")]}))

    assert fit(system, [FIRST], NVIDIA) == {FIRST: "process 4711 holds it"}


def test_a_quarantined_card_is_no_spare() -> None:
    found = fit(node(gpus([FIRST])), [FIRST], NVIDIA, quarantined={FIRST})

    assert found == {FIRST: "it is in quarantine"}


def test_a_card_of_another_model_is_no_spare() -> None:
    mixed = gpus([FIRST, SECOND]).replace("NVIDIA Test 80GB", "NVIDIA Other 80GB", 1)

    found = fit(node(mixed), [FIRST], NVIDIA, like=[SECOND])
    assert found == {FIRST: "it is a NVIDIA Other 80GB, not a NVIDIA Test 80GB"}


def test_a_card_of_another_size_is_no_spare() -> None:
    chips = [Npu(0, ONE, total=32768), Npu(1, TWO)]

    found = fit(npu_node(*chips), [ONE], ASCEND, like=[TWO])
    assert found == {ONE: "its memory is of another size"}


def test_the_driver_keeps_gigabytes_of_an_idle_910b() -> None:
    assert memory_free(npu_node(Npu(0, ONE), Npu(1, TWO)), [ONE, TWO], ASCEND) == "yes"


def test_a_910b_with_an_engine_is_held() -> None:
    chips = (Npu(0, ONE, used=55000, pids=[321]), Npu(1, TWO))

    assert memory_free(npu_node(*chips), [ONE], ASCEND) == "no"
    assert holders(npu_node(*chips), [ONE], ASCEND)[ONE].pids == (321,)


def test_the_same_gigabytes_are_not_idle_on_a_first_910() -> None:
    assert memory_free(npu_node(Npu(0, ONE, model="910ProB")), [ONE], ASCEND) == "no"


def test_a_newer_driver_may_keep_more_as_idle_neighbours_show() -> None:
    chips = (Npu(0, ONE, used=5200), Npu(1, TWO, used=5100))

    assert memory_free(npu_node(*chips), [ONE], ASCEND) == "yes"


def test_cards_in_question_are_no_measure_for_one_another() -> None:
    chips = (Npu(0, ONE, used=5200), Npu(1, TWO, used=5100))

    assert memory_free(npu_node(*chips), [ONE, TWO], ASCEND) == "no"


def test_a_neighbour_full_of_memory_is_no_measure_of_idle() -> None:
    chips = (Npu(0, ONE, used=40000), Npu(1, TWO, used=60000))

    assert memory_free(npu_node(*chips), [ONE], ASCEND) == "no"


def test_a_model_that_nobody_knows_is_unknown() -> None:
    assert memory_free(npu_node(Npu(0, ONE, model="920X")), [ONE], ASCEND) == "unknown"


def test_a_table_without_processes_proves_no_card_free() -> None:
    assert memory_free(npu_node(Npu(0, ONE), section=False), [ONE], ASCEND) == "unknown"
    assert memory_free(npu_node(Npu(0, ONE, pids=None)), [ONE], ASCEND) == "unknown"


def test_the_query_of_processes_fills_in_for_the_table() -> None:
    system = npu_node(Npu(0, ONE), section=False)
    system.runner.script["npu-smi info -t proc-mem -i 0 -c 0"] = (  # type: ignore[attr-defined]
        "NPU ID : 0\nProcess id:555 Process name:python3 Process memory(MB):5118\n"
    )

    assert holders(system, [ONE], ASCEND)[ONE].pids == (555,)


IDS = f"{NO_IDS}0           0            0                  Ascend 910B3\n"


def test_the_kernel_says_that_nobody_has_a_card_open_where_the_tool_is_silent(
    tmp_path: Path,
) -> None:
    sees_all(tmp_path, {10: ["/dev/null"]})
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").touch()
    system = npu_node(Npu(0, ONE), section=False, root=tmp_path, ids=IDS)

    assert memory_free(system, [ONE], ASCEND) == "yes"


def test_who_has_the_device_file_open_holds_the_card(tmp_path: Path) -> None:
    sees_all(tmp_path, {10: ["/dev/davinci0"], 11: ["/dev/davinci_manager"]})
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").touch()
    system = npu_node(Npu(0, ONE), section=False, root=tmp_path, ids=IDS)

    assert holders(system, [ONE], ASCEND)[ONE].pids == (10,)


def test_an_npu_that_the_whole_table_lacks_is_not_there() -> None:
    found = fit(npu_node(Npu(0, ONE)), [ONE, TWO], ASCEND)

    assert found == {ONE: "", TWO: "it is not there"}


def test_an_alarm_makes_an_npu_no_spare() -> None:
    assert fit(npu_node(Npu(0, ONE, health="Alarm")), [ONE], ASCEND) == {ONE: "it is sick"}


def test_an_unknown_health_makes_an_npu_no_spare() -> None:
    found = fit(npu_node(Npu(0, ONE, health="UNKNOWN")), [ONE], ASCEND)

    assert found == {ONE: "its health is not known"}


def test_no_cards_are_free() -> None:
    assert memory_free(fake_system(), [], {}) == "yes"


@pytest.mark.parametrize(
    ("maker", "vendor"), [("0x10de\n", "nvidia"), ("0x19e5\n", "ascend"), ("0x8086\n", "")]
)
def test_pci_says_whose_card_an_address_is(tmp_path: Path, maker: str, vendor: str) -> None:
    folder = tmp_path / f"sys/bus/pci/devices/{FIRST}.0"
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(maker)

    assert vendor_of(fake_system(root=tmp_path).files, FIRST, {}) == vendor
