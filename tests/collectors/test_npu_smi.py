"""The ``npu-smi info`` table in every layout, what is left out when it is damaged, lost cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system import fake_system
from vllm_watchdog.collectors.npu_smi import NpuSmi, capture
from vllm_watchdog.watchdog.errors import CommandTimeout, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.system import Finished, System

FIXTURES = Path(__file__).parent / "fixtures" / "npu_smi"
MIB = 1024 * 1024
MAP = "NPU ID      Chip ID      Chip Logic ID      Chip Name\n"
UNKNOWN = "Error parameter of -t\n"
QUIET = {
    "npu-smi info -m": MAP,
    **{f"npu-smi info -t {q} -i {n}": UNKNOWN for q in ("health", "ecc") for n in (2, 5, 9)},
}


def text(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def values(samples: list, card: str, vendor: str = "ascend") -> dict[str, float]:
    """Series name -> value of one card, without its info and process series."""
    mine = [s for s in samples if ("card", card) in s.labels and ("vendor", vendor) in s.labels]
    return {s.name: s.value for s in mine if not s.name.endswith(("_info", "process_memory_bytes"))}


def labels(samples: list, name: str, card: str) -> list[dict[str, str]]:
    return [dict(s.labels) for s in samples if s.name == name and ("card", card) in s.labels]


def read(name: str) -> list:
    return capture(text(name).encode())


def table_system(*answers: object) -> System:
    return fake_system({"npu-smi info": list(answers), **QUIET})


def run(system: System, collector: NpuSmi | None = None) -> list[Sample]:
    """Samples of one run; a checkpoint is kept for the next, as the host does."""
    collector = collector or NpuSmi()
    yielded = list(collector.collect(system))
    for item in yielded:
        if isinstance(item, Checkpoint):
            system.checkpoints.put(collector.instance, item.doc)
    return [item for item in yielded if isinstance(item, Sample)]


def test_a_910b_card_gives_all_its_values_in_base_units() -> None:
    assert values(read("normal/910b.txt"), "0000:a1:00") == {
        "accelerator_present": 1,
        "accelerator_healthy": 1,
        "accelerator_health_level": 0,
        "accelerator_power_watts": 111.5,
        "accelerator_temperature_celsius": 41,
        "accelerator_hugepages_used": 4,
        "accelerator_hugepages_configured": 16,
        "accelerator_utilization_ratio": 0.37,
        "accelerator_memory_used_bytes": 40960 * MIB,
        "accelerator_memory_total_bytes": 65536 * MIB,
        "accelerator_processes": 2,
    }


def test_a_card_is_described_by_its_info_series() -> None:
    assert labels(read("normal/a3.txt"), "accelerator_info", "0000:d3:00") == [
        {
            "vendor": "ascend",
            "card": "0000:d3:00",
            "bus_id": "0000:d3:00.0",
            "model": "Ascend910",
            "driver": "25.3.2",
            "tool": "25.3.1",
            "npu": "3",
            "chip": "1",
            "phy_id": "7",
        }
    ]


@pytest.mark.parametrize(
    ("file", "card", "healthy", "level"),
    [
        ("normal/910b.txt", "0000:a1:00", 1, 0),
        ("normal/a3.txt", "0000:d3:00", 1, 1),
        ("normal/910b.txt", "0000:a2:00", 0, 2),
        ("normal/950.txt", "0000:e1:00", 0, 3),
        ("normal/duo.txt", "0000:31:00/1", None, None),
    ],
)
def test_health_words_become_healthy_and_level(
    file: str, card: str, healthy: int | None, level: int | None
) -> None:
    found = values(read(file), card)

    assert healthy == found.get("accelerator_healthy")
    assert level == found.get("accelerator_health_level")


def test_the_second_die_has_no_power_of_its_own() -> None:
    found = read("normal/a3.txt")

    assert values(found, "0000:d1:00")["accelerator_power_watts"] == 201.4
    assert "accelerator_power_watts" not in values(found, "0000:d3:00")


def test_words_that_mean_no_value_give_no_sample() -> None:
    assert {
        "accelerator_present",
        "accelerator_memory_used_bytes",
        "accelerator_memory_total_bytes",
        "accelerator_hugepages_used",
        "accelerator_hugepages_configured",
    } == set(values(read("normal/duo.txt"), "0000:31:00/1"))


def test_two_chips_at_one_address_have_two_names() -> None:
    found = read("normal/duo.txt")

    assert values(found, "0000:31:00")["accelerator_memory_used_bytes"] == 2048 * MIB
    assert values(found, "0000:31:00/1")["accelerator_memory_used_bytes"] == 1024 * MIB


def test_a_second_chip_keeps_its_name_when_the_first_is_unreadable() -> None:
    cut = [line for line in text("normal/duo.txt").splitlines() if " 8      " not in line]

    found = capture("\n".join(cut).encode())

    assert values(found, "0000:31:00") == {}
    assert values(found, "0000:31:00/1")["accelerator_present"] == 1


def test_a_card_without_an_address_is_named_by_its_number() -> None:
    found = values(read("normal/soc.txt"), "npu0")

    assert found["accelerator_memory_used_bytes"] == 4000 * MIB
    assert "accelerator_power_watts" not in found  # 0.0 on a SoC board is no reading


def test_both_memories_of_a_910a_are_told_apart() -> None:
    found = values(read("normal/910a_old.txt"), "0000:5b:00")

    assert (
        found["accelerator_memory_used_bytes"],
        found["accelerator_memory_total_bytes"],
    ) == (512 * MIB, 32768 * MIB)
    assert (
        found["accelerator_ddr_used_bytes"],
        found["accelerator_ddr_total_bytes"],
    ) == (2000 * MIB, 15000 * MIB)


def test_four_chips_of_a_310_are_four_cards() -> None:
    found = read("normal/310_four_chips.txt")

    assert [
        values(found, f"0000:0{place}:00")["accelerator_temperature_celsius"] for place in "abcd"
    ] == [50, 51, 52, 53]


def test_a_950_card_is_read_from_its_four_cells() -> None:
    found = values(read("normal/950.txt"), "npu0")

    assert found["accelerator_utilization_ratio"] == 0.64
    assert found["accelerator_memory_used_bytes"] == 51200 * MIB
    assert found["accelerator_power_watts"] == 310.7


def test_processes_are_listed_with_memory_and_names() -> None:
    found = read("normal/910b.txt")
    memory = {
        (dict(s.labels)["pid"], dict(s.labels).get("process", "")): s.value
        for s in found
        if s.name == "accelerator_process_memory_bytes"
    }

    assert memory == {("4711", "VLLM::Worker_TP"): 37888 * MIB, ("4712", ""): 128 * MIB}
    assert values(found, "0000:a2:00")["accelerator_processes"] == 0


def test_the_process_id_inside_a_container_is_told() -> None:
    found = labels(read("normal/950.txt"), "accelerator_process_memory_bytes", "npu0")

    assert [(one["pid"], one["container_pid"]) for one in found] == [("9001", "17")]


def test_without_a_process_section_nothing_is_said_about_processes() -> None:
    assert "accelerator_processes" not in values(read("normal/duo.txt"), "0000:31:00")


def edited(old: str, new: str, name: str = "normal/910b.txt") -> list:
    source = text(name)
    assert old in source
    return capture(source.replace(old, new).encode())


UPPER = "| 2     910B9               | OK            | 111.5       41                4    / 16            |\n"
LOWER = "| 0                         | 0000:A1:00.0  | 37          0    / 0          40960/ 65536         |\n"


def test_a_card_without_its_upper_row_is_present_with_unknown_health() -> None:
    found = values(edited(UPPER, ""), "0000:a1:00")

    assert found["accelerator_present"] == 1
    assert found["accelerator_utilization_ratio"] == 0.37
    assert "accelerator_healthy" not in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LOWER, ""),
        (UPPER, UPPER * 2),
        (LOWER, LOWER * 2),
        (UPPER + LOWER, LOWER + UPPER),
        (LOWER, LOWER + "a line of another program\n"),
        ("OK            |", "0K            |"),
        ("OK            |", "              |"),
        ("OK            | 111.5", "111.5 | OK           "),
        ("111.5       41", "111.5         "),
        ("111.5       41", "111.5       4x"),
        ("111.5       41", "111.5       9999"),
        ("37          0    / 0 ", "370         0    / 0 "),
        ("40960/ 65536", "40960- 65536"),
        ("40960/ 65536", "65537/ 65536"),
        ("| 2     910B9", "| x     910B9"),
        ("0000:A1:00.0", "0000:G1:00.0"),
        ("37          0    / 0          40960/ 65536         |", "37          0    / 0   "),
    ],
)
def test_a_card_with_damaged_rows_has_no_series(old: str, new: str) -> None:
    assert values(edited(old, new), "0000:a1:00") == {}


def test_two_cards_at_one_address_are_both_in_doubt() -> None:
    with pytest.raises(SourceError, match="without a readable card"):
        edited("0000:A1:00.0", "0000:A2:00.0")


def test_a_pair_made_of_two_cards_rows_is_not_believed() -> None:
    upper_of_5 = "| 5     910B9               | Alarm         | 93.0        66                0    / 0             |\n"
    ruler = "+===========================+===============+====================================================+\n"

    found = values(edited(LOWER + ruler + upper_of_5, ""), "0000:a2:00")

    assert "accelerator_healthy" not in found


@pytest.mark.parametrize("cut", range(0, 1900, 53))
def test_a_cut_table_never_makes_a_sick_card_healthy(cut: int) -> None:
    try:
        found = capture(text("normal/910b.txt").encode()[:cut])
    except SourceError:
        return

    assert values(found, "0000:a2:00").get("accelerator_healthy") != 1


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("There is no NPU card on this server.\n", NotSupported, "no NPU card"),
        ("bash: npu-smi: command not found\n", NotSupported, "not on this node"),
        ("dcmi model initialized failed, because ... ret is -8020\n", SourceError, "occupied"),
        ("dcmi module initialize failed. ret is -8005\n", SourceError, "inner error"),
        ("Command or option is not found.\n", SourceError, "option"),
        ("", SourceError, "empty"),
        ("\x00\xff\x17" * 100, SourceError, "not a readable output"),
    ],
)
def test_a_refusal_is_told_in_one_line(answer: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        capture(answer.encode("utf-8"))

    assert "\n" not in str(caught.value)


def test_an_unknown_card_id_means_that_the_card_asked_for_is_lost() -> None:
    answer = (
        b"Invalid card id.\nError parameter of -i\nUsage: npu-smi info <watch|...> [Options...]\n"
    )

    with pytest.raises(SourceError, match="invalid card id"):
        capture(answer)
    assert values(capture(answer, "npu-smi info -t health -i 3"), "npu3") == {
        "accelerator_present": 0
    }


WHOLE = text("normal/910b.txt")
WITHOUT_5 = "\n".join(
    line for number, line in enumerate(WHOLE.splitlines(), 1) if number not in {9, 10, 11, 18, 19}
)


def test_a_card_that_a_complete_table_lacks_is_absent_and_stays_so() -> None:
    system = table_system(WHOLE, WITHOUT_5)
    run(system)

    assert values(run(system), "0000:a2:00")["accelerator_present"] == 0
    assert values(run(system), "0000:a2:00")["accelerator_present"] == 0
    assert values(run(system), "0000:a1:00")["accelerator_present"] == 1


def test_a_configured_card_is_missed_from_the_first_table_on() -> None:
    found = run(table_system(WHOLE), NpuSmi(expected=("0000:a3:00",)))

    assert values(found, "0000:a3:00") == {"accelerator_present": 0}


def test_a_returning_card_is_present_again() -> None:
    system = table_system(WHOLE, WITHOUT_5, WHOLE)
    run(system)
    run(system)

    assert values(run(system), "0000:a2:00")["accelerator_present"] == 1


@pytest.mark.parametrize(
    "partial",
    [
        "\n".join(WHOLE.splitlines()[:8]),
        "\n".join(WHOLE.splitlines()[:9]),
        "\n".join(WHOLE.splitlines()[:10]),
        WITHOUT_5.replace(LOWER, LOWER + "...\n"),
        WITHOUT_5.replace("No running", "garbage").replace("910B9 ", "      "),
        WHOLE.replace("0000:A2:00.0 ", "0000:A?:00.0 "),
        WHOLE.replace("| 5     910B9               | Alarm ", "...\n| 9    910B9   | OK "),
    ],
)
def test_a_partial_table_proves_nothing_about_missing_cards(partial: str) -> None:
    system = table_system(WHOLE, partial)
    run(system)

    try:
        found = run(system)
    except SourceError:
        found = []
    assert values(found, "0000:a2:00").get("accelerator_present") != 0


def test_the_known_cards_are_written_only_when_they_change() -> None:
    system = table_system(WHOLE)
    for _ in range(4):
        run(system)

    assert [one for one in NpuSmi().collect(system) if isinstance(one, Checkpoint)] == []


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Finished(-9, WHOLE.encode()), SourceError),
        (Finished(0, WHOLE.encode(), truncated=True), SourceError),
        (Finished(127, b"", b"sh: npu-smi: not found"), NotSupported),
        (Finished(1, b"", b"dcmi module initialize failed. ret is -8005"), SourceError),
        (CommandTimeout("npu-smi did not end within 10 s"), CommandTimeout),
        (b"\x00" * 5_000_000, SourceError),
    ],
)
def test_a_failing_tool_gives_an_error_and_no_samples(answer: object, error: type) -> None:
    with pytest.raises(error):
        list(NpuSmi().collect(table_system(answer)))


def test_a_node_without_the_tool_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="not on this node"):
        list(NpuSmi().collect(fake_system()))
