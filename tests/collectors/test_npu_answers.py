"""Key and value answers of npu-smi: recognised by themselves, in base units, with the right ids."""

from __future__ import annotations

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.npu_smi import NpuSmi, capture
from vllm_watchdog.watchdog.errors import CommandTimeout, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.system import System

MIB = 1024 * 1024

COMMON = """\
\tNPU ID                         : 3
\tChip Count                     : 2

\tChip ID                        : 0
\tMemory Usage Rate(%)           : 0
\tHBM Usage Rate(%)              : 55
\tAicore Usage Rate(%)           : 12
\tAicore Freq(MHZ)               : 1800
\tAicore curFreq(MHZ)            : 800
\tAicore Count                   : 24
\tTemperature(C)                 : 47
\tNPU Real-time Power(W)         : 188.2

\tChip ID                        : 1
\tHBM Usage Rate(%)              : 7
\tAicore Usage Rate(%)           : NA
\tTemperature(C)                 : 49
\tNPU Real-time Power(W)         : -

\tChip Name                      : mcu
\tTemperature(C)                 : 38
"""
USAGES = """\
        NPU ID                         : 3
        Chip Count                     : 2

        DDR Capacity(MB)               : 0
        DDR Usage Rate(%)              : 0
        HBM Capacity(MB)               : 65536
        HBM Usage Rate(%)              : 60
        Aicore Usage Rate(%)           : 31
        Aivector Usage Rate(%)         : 9
        HBM Bandwidth Usage Rate(%)    : 5
        Chip ID                        : 0

        HBM Capacity(MB)               : 65536
        HBM Usage Rate(%)              : 61
        Aicore Usage Rate(%)           : 32
        Chip ID                        : 1
"""
ECC = """\
NPU ID                                   : 4
Chip Count                               : 1

DDR Single Bit Error Count               : 2
DDR Double Bit Error Count               : 0
HBM Single Bit Error Count               : 5
HBM Double Bit Error Count               : 1
HBM Double Bit Aggregate Total Err Cnt   : 9
HBM Double Bit Isolated Pages Count      : 3
HBM Double Bit Next-Isolated Pages Count : 4
Chip ID                                  : 0
"""
HEALTH = """\
\tHealth Status                  : Alarm
\tError Code                     : 80E01801 8c084e00 12345678
\tError Information              : one text

\t                               : a second text
"""


def read(text: str, command: str | None = None) -> list:
    return capture(text.encode(), command)


def value(samples: list, name: str, **labels: str) -> float | None:
    found = [s.value for s in samples if s.name == name and set(labels.items()) <= set(s.labels)]
    assert len(found) < 2
    return found[0] if found else None


def test_common_opens_a_block_with_the_chip_id() -> None:
    found = read(COMMON)

    assert value(found, "accelerator_temperature_celsius", card="npu3") == 47
    assert value(found, "accelerator_temperature_celsius", card="npu3/1") == 49
    assert value(found, "accelerator_board_temperature_celsius", card="npu3") == 38
    assert value(found, "accelerator_memory_used_ratio", card="npu3") == 0.55
    assert value(found, "accelerator_clock_hertz", card="npu3", domain="core") == 800e6
    assert value(found, "accelerator_utilization_ratio", card="npu3/1") is None
    assert value(found, "accelerator_power_watts", card="npu3/1") is None


def test_usages_close_a_block_with_the_chip_id() -> None:
    found = read(USAGES)

    assert value(found, "accelerator_utilization_ratio", card="npu3") == 0.31
    assert value(found, "accelerator_utilization_ratio", card="npu3/1") == 0.32
    assert value(found, "accelerator_engine_utilization_ratio", engine="vector") == 0.09
    assert value(found, "accelerator_memory_total_bytes", card="npu3/1") == 65536 * MIB
    assert value(found, "accelerator_ddr_used_ratio", card="npu3") is None  # it has no DDR


def test_a_310p_calls_its_only_memory_ddr() -> None:
    found = read("DDR Capacity(MB) : 21534\nDDR Usage Rate(%) : 4\nAicore Usage Rate(%) : 0\n")

    assert value(found, "accelerator_memory_total_bytes") == 21534 * MIB
    assert value(found, "accelerator_memory_used_ratio") == 0.04


def test_memory_errors_are_summed_and_told_by_memory() -> None:
    found = read(ECC)

    assert value(found, "accelerator_ecc_errors_total", card="npu4", kind="correctable") == 7
    assert value(found, "accelerator_ecc_errors_total", card="npu4", kind="uncorrectable") == 1
    assert (
        value(found, "accelerator_ecc_memory_errors_total", kind="correctable", memory="ddr") == 2
    )
    assert value(found, "accelerator_ecc_lifetime_errors_total", kind="uncorrectable") == 9
    assert value(found, "accelerator_retired_pages_total", kind="uncorrectable") == 3
    assert value(found, "accelerator_retired_pages_pending", kind="uncorrectable") == 4


def test_health_codes_become_faults_with_kind_and_severity() -> None:
    found = read(HEALTH, "npu-smi info -t health -i 2 -c 1")
    faults = {
        (dict(s.labels)["code"], dict(s.labels)["kind"], dict(s.labels)["severity"])
        for s in found
        if s.name == "accelerator_fault"
    }

    assert value(found, "accelerator_healthy", card="npu2/1") == 0
    assert faults == {
        ("0x80e01801", "device_ecc", "critical"),
        ("0x8c084e00", "npu_event", "warning"),
        ("0x12345678", "npu_event", "warning"),
    }


@pytest.mark.parametrize(
    ("answer", "healthy"),
    [
        ("NPU ID : 0\nHealth : OK\nError Code : NA\n", 1),
        ("Health Status : Warning\nError Code : 81078603\n", 1),
        ("Health Status : Critical\nError Code : NA\n", 0),
        ("Health Status : Critical\n", 0),
    ],
)
def test_a_health_word_is_read_under_both_its_keys(answer: str, healthy: int) -> None:
    assert value(read(answer), "accelerator_healthy") == healthy


@pytest.mark.parametrize(
    "answer",
    [
        "Health Status : OK\n",  # cut before the codes
        "Health Status : O\nError Code : NA\n",
        "Health Status : UNKNOWN\nError Code : NA\n",
        "Health Status : OK\nHealth Status : Alarm\nError Code : NA\n",
    ],
)
def test_a_doubtful_health_answer_is_not_healthy(answer: str) -> None:
    with pytest.raises(SourceError, match="nothing can be read"):
        read(answer)


def test_active_faults_have_the_severity_that_the_tool_gives() -> None:
    found = read(
        "Fault Event Count       : 2\n"
        "Fault Event Information : event id=0x81AF8000, severity=2, node id=0\n"
        "                        : event id=0x90000001, severity=1, node id=0\n",
        "npu-smi info -t current-fault-event -i 6",
    )

    assert value(found, "accelerator_faults", card="npu6") == 2
    assert value(found, "accelerator_fault", code="0x81af8000", severity="critical") == 1
    assert value(found, "accelerator_fault", code="0x90000001", severity="warning") == 1


def test_the_id_map_leaves_out_the_controller() -> None:
    found = read(
        "\tNPU ID          Chip ID         Chip Logic ID     Chip Phy-ID     Chip Name\n"
        "\t2               0               4                 6               Ascend 910B9\n"
        "\t2               1               -                 -               Mcu\n"
    )

    assert [dict(s.labels) for s in found] == [
        {
            "vendor": "ascend",
            "card": "npu2",
            "npu": "2",
            "chip": "0",
            "device": "4",
            "phy_id": "6",
            "model": "Ascend 910B9",
        }
    ]


def test_the_last_refresh_of_a_watch_counts() -> None:
    found = read(
        "NpuID(Idx)  Pwr(W)      Temp(C)     AI Core(%)  Ctrl Cpu(%) Memory(%)   NPU Util(%)\n"
        "1           200.5       50          10          3           20          11\n"
        "NpuID(Idx)  Pwr(W)      Temp(C)     AI Core(%)  Ctrl Cpu(%) Memory(%)   NPU Util(%)\n"
        "1           201.5       51          90          3           21          NA\n"
        "1           999\n"
    )

    assert value(found, "accelerator_power_watts", card="npu1") == 201.5
    assert value(found, "accelerator_utilization_ratio", card="npu1") == 0.9
    assert value(found, "accelerator_memory_used_ratio", card="npu1") == 0.21
    assert value(found, "accelerator_overall_utilization_ratio", card="npu1") == 0.11


def test_a_topology_gives_paths_and_cpus() -> None:
    found = read(
        "           NPU0       NPU2       CPU Affinity\n"
        "NPU0       X          PHB        0-31\n"
        "NPU2       PHB        X          32-63\n"
        "\nLegend:\n  X    = Self\n  HCCS = Connection traversing HCCS.\n"
    )

    assert value(found, "accelerator_topology", card="npu0", peer="npu2", path="PHB") == 1
    assert value(found, "accelerator_cpu_affinity", card="npu2", cpus="32-63") == 1


def test_a_board_answer_names_the_card_by_its_address() -> None:
    found = read(
        "\tNPU ID : 1\n\tSoftware Version : 25.3.1\n\tFirmware Version : 7.1\n"
        "\tCompatibility : OK\n\tPCIe Bus Info : 0000:B1:00.0\n\tChip Count : 1\n"
    )

    assert value(found, "accelerator_info", card="0000:b1:00", driver="25.3.1", npu="1") == 1
    assert value(found, "accelerator_board_compatible", card="0000:b1:00") == 1


def test_process_memory_is_read_from_its_one_line_records() -> None:
    found = read(
        "NPU ID  : 5\nProcess id:77  Process name:VLLMWorkerTP  Process memory(MB):512\n"
        "Process id:78  Process name:   Process memory(MB):3\n"
    )

    assert value(found, "accelerator_process_memory_bytes", card="npu5", pid="77") == 512 * MIB
    assert value(found, "accelerator_process_memory_bytes", card="npu5", pid="78") == 3 * MIB


@pytest.mark.parametrize(("word", "expected"), [("54", 54), ("32767", None), ("0x7fff", None)])
def test_a_temperature_may_be_no_value(word: str, expected: int | None) -> None:
    found = read(f"NPU ID : 0\nTemperature (C) : {word}\nNPU Real-time Power(W) : 1.5\n")

    assert value(found, "accelerator_temperature_celsius") == expected


@pytest.mark.parametrize(
    ("message", "success"),
    [("Reset card successfully.", 1), ("Please reboot OS to reset card.", 0)],
)
def test_a_reset_tells_how_it_ended(message: str, success: int) -> None:
    status = "OK" if success else "Fail"

    found = read(f"Continue?(Y/N)\ny\n  Status  : {status}\n  Message : {message}\n")

    assert value(found, "accelerator_reset_success") == success


def test_the_help_lists_what_can_be_asked() -> None:
    found = read(
        "Usage: npu-smi set <-h|-t type> [Options...]\n\nCommands:\n"
        "       -t type        The set type for device\n"
        "                      type: reset, aicore-freq,\n"
        "                            clear-ecc-info.\nOptions:\n       -i %d   NPU ID\n"
    )

    assert {dict(s.labels)["type"] for s in found} == {"reset", "aicore-freq", "clear-ecc-info"}


TABLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.1                   Version: 25.3.1                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B9               | OK            | 111.5       41                0    / 0             |
| 0                         | 0000:A1:00.0  | 37          0    / 0          40960/ 65536         |
+===========================+===============+====================================================+
| 1     910B9               | {word:<8}      | 93.0        66                0    / 0             |
| 0                         | 0000:A2:00.0  | 0           0    / 0          3072 / 65536         |
+===========================+===============+====================================================+
"""
OK = "Health Status : OK\nError Code : NA\n"
SICK = "Health Status : Alarm\nError Code : 80E01801\n"
EMPTY_MAP = "NPU ID      Chip ID      Chip Logic ID      Chip Name\n"


def node(word: str = "OK") -> System:
    script = {
        "npu-smi info": TABLE.format(word=word),
        "npu-smi info -m": EMPTY_MAP,
        "npu-smi info -t health -i 0": OK,
        "npu-smi info -t health -i 1": OK,
        "npu-smi info -t ecc -i 0": ECC.replace(": 4\n", ": 0\n", 1),
        "npu-smi info -t ecc -i 1": ECC.replace(": 4\n", ": 1\n", 1),
    }
    return fake_system(script)


def run(system: System, times: int = 1) -> list[Sample]:
    collector = NpuSmi(calls=2, interval=5)
    found: list = []
    for _ in range(times):
        found = list(collector.collect(system))
        for item in found:
            if isinstance(item, Checkpoint):
                system.checkpoints.put("npu_smi", item.doc)
        assert isinstance(system.clock, VirtualClock)
        system.clock.advance(5)
    return [item for item in found if isinstance(item, Sample)]


def asked(system: System) -> list[str]:
    return [" ".join(call[2:]) for call in system.runner.calls if len(call) > 2]  # type: ignore[attr-defined]


def test_a_run_asks_no_more_than_its_share() -> None:
    system = node()
    run(system)
    before = len(asked(system))
    run(system)

    assert len(asked(system)) - before == 2


def test_after_a_round_every_card_has_its_answers() -> None:
    found = run(node(), times=2)

    for card in ("0000:a1:00", "0000:a2:00"):
        assert value(found, "accelerator_ecc_errors_total", card=card, kind="correctable") == 7
        assert value(found, "accelerator_healthy", card=card) == 1


def test_the_worse_of_table_and_health_query_counts() -> None:
    system = node()
    system.runner.script["npu-smi info -t health -i 1"] = SICK  # type: ignore[attr-defined]

    found = run(system, times=2)

    assert value(found, "accelerator_healthy", card="0000:a2:00") == 0
    assert value(found, "accelerator_health_level", card="0000:a2:00") == 2
    assert value(found, "accelerator_fault", card="0000:a2:00", code="0x80e01801") == 1


def test_a_sick_card_stays_sick_though_its_query_says_ok() -> None:
    assert value(run(node("Critical"), times=2), "accelerator_healthy", card="0000:a2:00") == 0


def test_the_health_of_a_sick_card_is_asked_in_every_run() -> None:
    system = node("Alarm")
    run(system, times=3)

    assert asked(system).count("-t health -i 1") == 3


def test_an_unknown_word_is_not_made_healthy_by_the_query() -> None:
    found = run(node("UNKNOWN"), times=3)

    assert value(found, "accelerator_healthy", card="0000:a2:00") is None


def test_what_the_device_does_not_support_is_not_asked_again() -> None:
    system = node()
    refusal = "This device does not support querying ecc.\n"
    for number in (0, 1):
        system.runner.script[f"npu-smi info -t ecc -i {number}"] = refusal  # type: ignore[attr-defined]
    run(system, times=6)

    assert sum("ecc" in call for call in asked(system)) == 1


def test_a_failing_query_forgets_the_last_answer() -> None:
    system = node()
    system.runner.script["npu-smi info -t health -i 1"] = [SICK, "Invalid card id.\n"]  # type: ignore[attr-defined]
    run(system, times=2)

    found = run(system, times=2)

    assert value(found, "accelerator_fault", card="0000:a2:00") is None
    assert value(found, "accelerator_healthy", card="0000:a2:00") == 1


def test_a_slow_query_costs_no_sample_of_the_table() -> None:
    system = node()
    late = CommandTimeout("npu-smi did not end")
    system.runner.script["npu-smi info -t health -i 0"] = late  # type: ignore[attr-defined]
    system.runner.script["npu-smi info -t health -i 1"] = late  # type: ignore[attr-defined]

    assert value(run(system), "accelerator_present", card="0000:a1:00") == 1


def test_a_query_that_cannot_be_killed_is_told() -> None:
    system = node()
    stuck = CommandTimeout("npu-smi cannot be killed", stuck=True)
    system.runner.script["npu-smi info -m"] = stuck  # type: ignore[attr-defined]

    with pytest.raises(CommandTimeout, match="cannot be killed"):
        run(system)


def test_old_answers_of_a_former_run_are_not_shown() -> None:
    system = node()
    run(system, times=2)
    system.clock.advance(1000)  # type: ignore[attr-defined]
    system.runner.script |= {  # type: ignore[attr-defined]
        f"npu-smi info -t {query} -i {number}": "Command or option is not found.\n"
        for query in ("health", "ecc")
        for number in (0, 1)
    }

    assert value(run(system), "accelerator_ecc_errors_total", kind="correctable") is None


def test_without_any_card_the_expected_ones_are_absent() -> None:
    system = node()
    run(system)
    system.runner.script["npu-smi info"] = "There is no NPU card on this server.\n"  # type: ignore[attr-defined]

    assert [s.value for s in run(system) if s.name == "accelerator_present"] == [0, 0]
