"""Further outputs of nvidia-smi, each recognised by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vllm_watchdog.collectors.nvidia_smi import capture
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.model import Event, Sample

FIXTURES = Path(__file__).parent / "fixtures" / "nvidia_smi" / "normal"
A = "0000:1a:00"
MIB = 1024 * 1024
UUID = "GPU-00000000-aaaa-bbbb-cccc-000000000000"


def values(found: Any, name: str, **labels: str) -> list[float]:
    wanted = labels.items()
    return [
        item.value
        for item in found
        if isinstance(item, Sample) and item.name == name and wanted <= dict(item.labels).items()
    ]


def read(text: str, command: str | None = None) -> list[Any]:
    return list(capture(text.encode(), command))


@pytest.mark.parametrize("name", ["two-cards.xml", "query-gpu.csv", "table.txt", "q.txt"])
def test_all_forms_of_one_reading_give_the_same_figures(name: str) -> None:
    found = read((FIXTURES / name).read_text())

    assert values(found, "accelerator_utilization_ratio", card=A) == [0.8]
    assert values(found, "accelerator_memory_used_bytes", card=A) == [30000 * MIB]
    assert values(found, "accelerator_temperature_celsius", card=A) == [41.0]
    assert values(found, "accelerator_power_limit_watts", card=A) == [400.0]
    assert values(found, "accelerator_info", card=A, driver="580.11.22") == [1.0]


def test_an_alias_in_the_request_is_the_field_it_stands_for() -> None:
    found = read((FIXTURES / "query-gpu.csv").read_text())

    assert values(found, "accelerator_throttle_active", card=A, reason="sw_power_cap") == [1.0]


def test_rows_without_a_header_are_read_by_the_fields_of_the_command() -> None:
    command = (
        "nvidia-smi --query-gpu=index,temperature.gpu,memory.used --format=csv,noheader,nounits"
    )
    found = read("0, 41, 300\n1, 52, [N/A]\n", command)

    assert values(found, "accelerator_memory_used_bytes", card="gpu0") == [300 * MIB]
    assert values(found, "accelerator_temperature_celsius", card="gpu1") == [52.0]


def test_rows_without_header_and_command_are_refused() -> None:
    with pytest.raises(SourceError):
        read("0, 41, 300\n")


def test_a_row_of_another_width_is_left_out() -> None:
    header = "index, temperature.gpu, memory.used [MiB]\n"
    found = read(header + "0, 41, 300 MiB\n1, 52\n")

    assert values(found, "accelerator_temperature_celsius") == [41.0]


def test_a_process_name_may_hold_commas() -> None:
    header = "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
    found = read(header + f"{UUID}, 77, run, fast, 300 MiB\n")

    assert values(found, "accelerator_process_memory_bytes", process="run, fast") == [300 * MIB]


def test_a_retired_page_is_told_with_its_address_and_cause() -> None:
    header = "gpu_uuid, retired_pages.address, retired_pages.cause\n"
    found = read(header + f"{UUID}, 0x0000000000022028, Double Bit ECC\n")

    labels = {"address": "0x0000000000022028", "cause": "Double Bit ECC"}
    assert values(found, "accelerator_retired_page_info", **labels) == [1.0]


DMON = """# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk
# Idx      W      C      C      %      %    MHz    MHz
    0     69     41      -     10      2   2619    345
    0     71     42      -     20      4   2619    345
"""


def test_the_first_line_of_a_monitor_is_the_reading_and_later_ones_are_numbered() -> None:
    found = read(DMON)

    assert values(found, "accelerator_power_watts", card="gpu0") == [69.0, 71.0]
    assert values(found, "accelerator_power_watts", card="gpu0", row="2") == [71.0]
    assert values(found, "accelerator_memory_temperature_celsius") == []


def test_a_monitor_with_date_columns_or_commas_is_read_alike() -> None:
    dated = "#Date Time gpu pwr sm\n#YYYYMMDD HH:MM:SS Idx W %\n 20260102 03:04:05 1 69 10\n"
    commas = "#gpu, pwr, sm\n#Idx, W, %\n1, 69, 10\n"

    for text in (dated, commas):
        assert values(read(text), "accelerator_power_watts", card="gpu1") == [69.0]


def test_a_process_monitor_gives_memory_and_share_per_process() -> None:
    text = (
        "# gpu    pid   type     fb     sm    mem    command\n"
        "# Idx      #    C/G     MB      %      %    name\n"
        "    0   4000      C    300     99      -    VLLM::Worker TP0\n"
        "    1      -      -      -      -      -    -\n"
    )
    found = read(text)

    who = {"card": "gpu0", "pid": "4000", "process": "VLLM::Worker TP0"}
    assert values(found, "accelerator_process_memory_bytes", **who) == [300 * MIB]
    assert values(found, "accelerator_process_utilization_ratio", **who) == [0.99]
    assert values(found, "accelerator_process_info", card="gpu1") == []


def test_link_errors_are_counted_by_kind() -> None:
    text = f"GPU 0: NVIDIA Test (UUID: {UUID})\n\t Link 0: Replay Errors: 3\n\t Link 0: CRC Errors: 1\n"

    assert values(read(text), "accelerator_link_errors_total", link="0", kind="replay") == [3.0]


def test_a_peer_matrix_tells_whether_cards_reach_each_other() -> None:
    text = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n"
    found = read(text)

    assert values(found, "accelerator_peer_access", card="gpu0", peer="gpu1", status="OK") == [1.0]


def test_a_finished_reset_is_an_event() -> None:
    (event,) = read("GPU 00000000:1A:00.0 was successfully reset.\n")

    assert isinstance(event, Event)
    assert (event.kind, dict(event.labels)["card"]) == ("gpu_reset", A)


def test_a_table_full_of_errors_calls_no_card_healthy() -> None:
    text = (
        "|   1  ERR!                ERR!  | 00000000:1A:00.0 ERR! |                 ERR! |\n"
        "|ERR!  ERR! ERR!    ERR! / ERR!  |   ERR! /  ERR!        |     ERR!     ERR!    |\n"
        "+--------------------------------+-----------------------+----------------------+\n"
    )
    found = read(text)

    assert values(found, "accelerator_info", card=A) == [1.0]
    assert values(found, "accelerator_healthy") == []


def test_a_page_retirement_section_alone_is_no_proof_of_health() -> None:
    text = (
        "==============NVSMI LOG==============\n\nAttached GPUs                : 1\n"
        "GPU 00000000:1A:00.0\n    Retired Pages\n        Single Bit ECC       : 3\n"
        "        Double Bit ECC       : 1\n        Pending Page Blacklist : Yes\n"
    )
    found = read(text)

    assert values(found, "accelerator_retired_pages_total", card=A, kind="uncorrectable") == [1.0]
    assert values(found, "accelerator_retired_pages_pending", card=A) == [1.0]
    assert values(found, "accelerator_healthy") == []
