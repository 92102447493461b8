"""NVIDIA GPUs by -q -x: each reading, each way to be sick, missing, lost or not to be believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.nvidia_links import NvidiaLinks
from vllm_watchdog.collectors.nvidia_smi import NvidiaSmi, capture
from vllm_watchdog.watchdog.errors import CommandTimeout, NoData, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.system import Finished, System

FIXTURES = Path(__file__).parent / "fixtures" / "nvidia_smi"
TWO = (FIXTURES / "normal" / "two-cards.xml").read_text()
ONE = (FIXTURES / "missing" / "one-of-two-cards.xml").read_text()
OLD = (FIXTURES / "normal" / "old-driver-inline-dtd.xml").read_text()
CUT = (FIXTURES / "garbled" / "cut-in-second-card.xml").read_text()

A, C = "0000:1a:00", "0000:c1:00"
QUERY = "nvidia-smi -q -x"
MIB = 1024 * 1024


def values(found: Any, name: str, card: str = A, **labels: str) -> list[float]:
    """Values of the samples of one name and card that carry these labels."""
    wanted = {"card": card, "vendor": "nvidia", **labels}.items()
    return [
        item.value
        for item in found
        if isinstance(item, Sample) and item.name == name and wanted <= dict(item.labels).items()
    ]


def changed(*swaps: tuple[str, str]) -> list[Any]:
    """What is read of the two cards after replacing texts of the first card."""
    text = TWO
    for old, new in swaps:
        assert old in text
        text = text.replace(old, new, 1)
    return capture(text.encode())


def system_of(
    answer: Any, seen: tuple[str, ...] = (), root: Path | None = None, **more: Any
) -> System:
    system = fake_system({QUERY: answer, **more}, root=root)
    if seen:
        system.checkpoints.put("nvidia_smi", {"cards": {name: {} for name in seen}})
    return system


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("accelerator_present", {}, 1.0),
        ("accelerator_healthy", {}, 1.0),
        ("accelerator_utilization_ratio", {}, 0.8),
        ("accelerator_sm_utilization_ratio", {}, 0.8),
        ("accelerator_memory_utilization_ratio", {}, 0.1),
        ("accelerator_engine_utilization_ratio", {"engine": "encoder"}, 0.0),
        ("accelerator_memory_used_bytes", {}, 30000 * MIB),
        ("accelerator_memory_total_bytes", {}, 40960 * MIB),
        ("accelerator_memory_reserved_bytes", {}, 512 * MIB),
        ("accelerator_temperature_celsius", {}, 41.0),
        ("accelerator_memory_temperature_celsius", {}, 49.0),
        ("accelerator_temperature_margin_celsius", {}, 40.0),
        ("accelerator_power_watts", {}, 250.5),
        ("accelerator_power_instant_watts", {}, 250.75),
        ("accelerator_memory_power_watts", {}, 20.0),
        ("accelerator_power_limit_watts", {}, 400.0),
        ("accelerator_clock_hertz", {"domain": "sm"}, 1.41e9),
        ("accelerator_max_clock_hertz", {"domain": "sm"}, 1.98e9),
        ("accelerator_performance_state", {}, 0.0),
        ("accelerator_ecc_errors_total", {"kind": "correctable"}, 3.0),
        ("accelerator_ecc_errors_total", {"kind": "uncorrectable"}, 0.0),
        ("accelerator_ecc_lifetime_errors_total", {"kind": "correctable"}, 12.0),
        ("accelerator_ecc_lifetime_errors_total", {"kind": "uncorrectable"}, 6.0),
        ("accelerator_ecc_memory_errors_total", {"kind": "correctable", "memory": "dram"}, 2.0),
        ("accelerator_remapped_rows_total", {"kind": "correctable"}, 1.0),
        ("accelerator_remapped_rows_pending", {}, 0.0),
        ("accelerator_remapped_rows_failed", {}, 0.0),
        ("accelerator_throttle_active", {"reason": "sw_power_cap"}, 1.0),
        ("accelerator_throttle_seconds_total", {"reason": "sw_power_cap"}, 2.5),
        ("accelerator_fabric_healthy", {}, 1.0),
        ("accelerator_reset_required", {}, 0.0),
        ("accelerator_recovery_action", {"action": "none"}, 1.0),
        ("accelerator_mig_enabled", {}, 0.0),
        ("accelerator_pcie_link_lanes", {}, 8.0),
        ("accelerator_pcie_receive_bytes_per_second", {}, 100_000.0),
        ("accelerator_processes", {}, 1.0),
    ],
)
def test_each_reading_becomes_one_sample_in_base_units(
    name: str, labels: dict[str, str], value: float
) -> None:
    assert values(capture(TWO.encode()), name, A, **labels) == [value]


def test_identity_is_in_the_labels_of_the_info_sample() -> None:
    labels = {
        "uuid": "GPU-00000001-aaaa-bbbb-cccc-000000000001",
        "bus_id": "00000000:C1:00.0",
        "model": "NVIDIA Test 40GB",
        "driver": "580.11.22",
        "minor": "1",
        "index": "1",
    }

    assert values(capture(TWO.encode()), "accelerator_info", C, **labels) == [1.0]


def test_a_process_is_named_without_its_arguments() -> None:
    found = capture(TWO.encode())

    assert values(
        found, "accelerator_process_memory_bytes", A, pid="4000", process="VLLM::Worker_TP0"
    ) == [30000 * MIB]
    assert "sesame" not in str(found)


def test_a_reading_without_value_gives_no_sample() -> None:
    assert values(capture(TWO.encode()), "accelerator_fan_ratio") == []


def test_an_old_driver_with_an_inline_dtd_is_read_by_its_elements() -> None:
    found = capture(OLD.encode())

    card = "0000:06:00"
    assert values(found, "accelerator_power_watts", card) == [61.25]
    assert values(found, "accelerator_fan_ratio", card) == [0.4]
    assert values(found, "accelerator_throttle_active", card, reason="hw_slowdown") == [1.0]
    assert values(found, "accelerator_ecc_errors_total", card, kind="correctable") == [9.0]
    assert values(found, "accelerator_healthy", card) == [1.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<gpu_recovery_action>None", "<gpu_recovery_action>GPU Reset"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Drain P2P"),
        ("<remapped_row_failure>No", "<remapped_row_failure>Yes"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2"),
        ("<sram_threshold_exceeded>No", "<sram_threshold_exceeded>Yes"),
        ("<status>Success", "<status>Insufficient Resources"),
        ("<gpu_util>80 %", "<gpu_util>GPU requires reset"),
        ("<remapped_row_pending>No", "<remapped_row_pending>GPU is lost"),
        ("<gpu_util>80 %", "<gpu_util>GPU is lost"),
    ],
)
def test_a_stated_fault_makes_the_card_unhealthy(old: str, new: str) -> None:
    found = changed((old, new))

    assert values(found, "accelerator_healthy", A) == [0.0]
    assert values(found, "accelerator_healthy", C) == [1.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<gpu_util>80 %", "<gpu_util>Unknown Error"),
        ("<gpu_util>80 %", "<gpu_util>N/A"),
        ("<gpu_util>80 %", "<gpu_util>180 %"),
        ("<gpu_util>80 %", "<gpu_util>80 C"),
        ("<gpu_temp>41 C</gpu_temp>", ""),
        ("<gpu_temp>41 C</gpu_temp>", "<gpu_temp>41 C</gpu_temp><gpu_temp>41 C</gpu_temp>"),
        ("<used>30000 MiB", "<used>300000 MiB"),
        ("<used>30000 MiB", "<used>ERR!"),
        ("<average_power_draw>250.50 W", "<average_power_draw>ERR!"),
        ("<fan_speed>N/A", "<fan_speed>ERR!"),
        ("<uuid>GPU-00000000", "<uuid>GPU-0000"),
        ("<pci_bus>1A", "<pci_bus>1B"),
        ("<pci_bus_id>00000000:1A", "<pci_bus_id>00000000:1C"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Nome"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>x"),
    ],
)
def test_a_damaged_card_is_neither_healthy_nor_sick(old: str, new: str) -> None:
    found = changed((old, new))

    assert values(found, "accelerator_healthy", A) == []
    assert values(found, "accelerator_healthy", C) == [1.0]


def test_one_bad_reading_does_not_lose_the_others() -> None:
    found = changed(("<gpu_util>80 %", "<gpu_util>[Unknown Error]"))

    assert values(found, "accelerator_utilization_ratio", A) == []
    assert values(found, "accelerator_temperature_celsius", A) == [41.0]
    assert values(found, "accelerator_utilization_ratio", C) == [0.0]


def test_a_card_that_the_tool_calls_lost_is_not_present() -> None:
    found = changed(("<gpu_temp>41 C", "<gpu_temp>GPU is lost"))

    assert values(found, "accelerator_present", A) == [0.0]
    assert values(found, "accelerator_memory_temperature_celsius", A) == [49.0]


def test_a_section_replaced_by_the_word_lost_counts_as_lost() -> None:
    start, end = TWO.index("<remapped_rows>"), TWO.index("</remapped_rows>")
    text = TWO[:start] + "<remapped_rows>GPU is lost" + TWO[end:]

    assert values(capture(text.encode()), "accelerator_present", A) == [0.0]


@pytest.mark.parametrize(
    "action", ["Reset", "GPU Reset", "Reboot", "Node Reboot", "Drain and Reset"]
)
def test_a_recovery_action_asks_for_a_reset(action: str) -> None:
    found = changed(("<gpu_recovery_action>None", f"<gpu_recovery_action>{action}"))

    assert values(found, "accelerator_reset_required", A) == [1.0]


def test_the_deprecated_reset_flag_says_nothing() -> None:
    flag = (
        "<gpu_reset_status><reset_required>Requested functionality has been deprecated"
        "</reset_required></gpu_reset_status><gpu_recovery_action>N/A"
    )
    found = changed(("<gpu_recovery_action>None", flag))

    assert values(found, "accelerator_reset_required", A) == []
    assert values(found, "accelerator_healthy", A) == [1.0]


def test_a_fabric_still_registering_is_unknown() -> None:
    found = changed(("<state>Completed", "<state>In Progress"), ("<status>Success", "<status>N/A"))

    assert values(found, "accelerator_fabric_healthy", A) == []


def test_an_average_draw_of_the_module_is_not_taken_for_the_card() -> None:
    found = changed(
        ("<average_power_draw>250.50 W", "<average_power_draw>N/A"),
        ("<instant_power_draw>250.75 W", "<instant_power_draw>N/A"),
    )

    assert values(found, "accelerator_power_watts", A) == []


def test_a_failed_part_leaves_no_error_sum() -> None:
    found = changed(("<dram_uncorrectable>0", "<dram_uncorrectable>Unknown Error"))

    assert values(found, "accelerator_ecc_errors_total", A, kind="uncorrectable") == []


def test_instances_bear_the_memory_and_the_parent_bears_none_of_the_doubt() -> None:
    mig = (
        "<mig_devices><mig_device><index>0</index><gpu_instance_id>3</gpu_instance_id>"
        "<compute_instance_id>0</compute_instance_id><ecc_error_count><volatile_count>"
        "<sram_uncorrectable>0</sram_uncorrectable></volatile_count></ecc_error_count>"
        "<fb_memory_usage><total>19968 MiB</total><used>12 MiB</used></fb_memory_usage>"
        "</mig_device></mig_devices>"
    )
    start, end = TWO.index("<mig_devices>"), TWO.index("</mig_devices>") + len("</mig_devices>")
    text = (TWO[:start] + mig + TWO[end:]).replace(
        "<current_mig>Disabled", "<current_mig>Enabled", 1
    )
    found = capture(text.replace("<gpu_util>80 %", "<gpu_util>N/A", 1).encode())

    name = "MIG-GPU-00000000-aaaa-bbbb-cccc-000000000000/3/0"
    assert values(found, "accelerator_memory_used_bytes", name) == [12 * MIB]
    assert values(found, "accelerator_healthy", name) == [1.0]
    assert values(found, "accelerator_healthy", A) == [1.0]
    assert values(found, "accelerator_info", name, parent=A, gi="3", ci="0") == [1.0]


@pytest.mark.parametrize(
    "text",
    [
        CUT,
        TWO[: len(TWO) // 3],
        TWO + TWO,
        "",
        "\x00\x01\x02" * 50,
        TWO.replace("<gpu_temp>", "<gpu_temp", 1),
        TWO.replace('SYSTEM "nvsmi_device_v13.dtd"', '[<!ENTITY a "aaaa">]'),
    ],
)
def test_what_is_not_a_whole_log_is_refused(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        capture(text.encode())

    assert "\n" not in str(caught.value)


def test_process_names_with_foreign_bytes_and_markup_do_not_lose_the_log() -> None:
    data = TWO.encode().replace(b"VLLM::Worker_TP0", b"caf\xe9 <&>", 1)

    assert values(capture(data), "accelerator_process_info", A, process="caf? ???") == [1.0]


def test_a_card_listed_twice_is_in_doubt() -> None:
    start = TWO.index("\t<gpu id")
    end = TWO.index("</gpu>") + len("</gpu>\n")
    found = capture((TWO[:end] + TWO[start:end] + TWO[end:]).encode())

    assert values(found, "accelerator_healthy", A) == []
    assert values(found, "accelerator_present", A) == [1.0]


def test_cards_seen_are_remembered_by_a_checkpoint() -> None:
    found = list(NvidiaSmi().collect(system_of(TWO)))

    marks = [item for item in found if isinstance(item, Checkpoint)]
    assert [{A, C}] == [set(mark.doc["cards"]) for mark in marks]


def test_nothing_new_makes_no_checkpoint() -> None:
    system = system_of(TWO)
    first = [item for item in NvidiaSmi().collect(system) if isinstance(item, Checkpoint)]
    system.checkpoints.put("nvidia_smi", first[0].doc)

    again = list(NvidiaSmi().collect(system))

    assert [item for item in again if isinstance(item, Checkpoint)] == []


def test_a_card_seen_before_and_absent_from_a_whole_log_is_gone() -> None:
    found = list(NvidiaSmi().collect(system_of(ONE, seen=(A, C))))

    assert values(found, "accelerator_present", C) == [0.0]
    assert values(found, "accelerator_present", A) == [1.0]


def test_a_configured_card_absent_from_the_first_log_is_gone() -> None:
    found = list(NvidiaSmi(expected=(C,)).collect(system_of(ONE)))

    assert values(found, "accelerator_present", C) == [0.0]


def test_a_cut_log_says_nothing_about_the_cards_it_lacks() -> None:
    with pytest.raises(SourceError):
        list(NvidiaSmi().collect(system_of(CUT, seen=(A, C))))


def test_a_log_with_fewer_cards_than_attached_asks_for_the_missing_one() -> None:
    short = ONE.replace("<attached_gpus>1", "<attached_gpus>2")
    lost = Finished(
        15, b"Unable to determine the device handle for GPU0000:C1:00.0: GPU is lost.\n"
    )
    system = system_of(short, seen=(A, C), **{f"{QUERY} -i {C}.0": lost})

    found = list(NvidiaSmi().collect(system))

    assert values(found, "accelerator_present", C) == [0.0]


def test_a_missing_card_that_gives_no_clear_answer_stays_unknown() -> None:
    short = ONE.replace("<attached_gpus>1", "<attached_gpus>2")
    system = system_of(
        short, seen=(A, C), **{f"{QUERY} -i {C}.0": Finished(255, b"Unknown Error\n")}
    )

    found = list(NvidiaSmi().collect(system))

    assert values(found, "accelerator_present", C) == []
    assert [s.value for s in found if getattr(s, "name", "") == "accelerators_attached"] == [2.0]


HANDLE = "Unable to determine the device handle for GPU 0000:C1:00.0: Unknown Error\n"


def test_after_one_card_stops_the_query_the_others_are_asked_singly() -> None:
    system = system_of(
        Finished(255, HANDLE.encode()),
        seen=(A, C),
        **{f"{QUERY} -i {A}.0": Finished(0, ONE.encode())},
    )

    found = list(NvidiaSmi().collect(system))

    assert values(found, "accelerator_present", C) == [0.0]
    assert values(found, "accelerator_healthy", A) == [1.0]
    assert system.runner.calls[-1] == ["nvidia-smi", "-q", "-x", "-i", f"{A}.0"]  # type: ignore[attr-defined]


def test_single_queries_end_with_the_time_of_the_run() -> None:
    clock = VirtualClock()
    system = fake_system({QUERY: Finished(255, HANDLE.encode())}, clock=clock)
    system.checkpoints.put("nvidia_smi", {"cards": {A: {}, C: {}}})
    real = system.runner.run

    def slow(*words: Any, **more: Any) -> Finished:
        clock.advance(10.0)
        return real(*words, **more)

    system.runner.run = slow  # type: ignore[method-assign]

    found = list(NvidiaSmi(timeout=10.0).collect(system))

    assert values(found, "accelerator_present", A) == []


def test_no_devices_means_that_all_expected_cards_are_gone() -> None:
    system = system_of(Finished(6, b"No devices were found\n"), seen=(A,))

    found = list(NvidiaSmi(expected=(C,)).collect(system))

    assert values(found, "accelerator_present", A) == [0.0]
    assert values(found, "accelerator_present", C) == [0.0]


def test_no_devices_where_none_is_expected_is_quiet() -> None:
    with pytest.raises(NoData):
        list(NvidiaSmi().collect(system_of(Finished(6, b"No devices were found\n"))))


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n", "status 9"),
        (18, "Failed to initialize NVML: Driver/library version mismatch\n", "mismatch"),
        (4, "Failed to initialize NVML: Insufficient Permissions\n", "Permissions"),
        (255, "Failed to initialize NVML: Unknown Error\n", "Unknown Error"),
        (12, "", "library"),
        (-11, "", "signal 11"),
    ],
)
def test_a_failing_tool_is_an_error_in_one_line(code: int, text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said) as caught:
        list(NvidiaSmi().collect(system_of(Finished(code, text.encode()), seen=(A,))))

    assert "\n" not in str(caught.value)


def test_a_corrupt_inforom_leaves_the_data_usable() -> None:
    text = TWO + "WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n"

    found = list(NvidiaSmi().collect(system_of(Finished(14, text.encode()))))

    assert values(found, "accelerator_inforom_valid", A) == [0.0]
    assert values(found, "accelerator_temperature_celsius", A) == [41.0]


def test_an_answer_that_never_ends_is_refused() -> None:
    with pytest.raises(SourceError, match="does not end"):
        list(NvidiaSmi().collect(system_of(Finished(-9, TWO.encode(), truncated=True))))


def test_a_node_without_the_tool_is_not_supported() -> None:
    with pytest.raises(NotSupported):
        list(NvidiaSmi().collect(fake_system()))


def test_a_hanging_tool_passes_as_it_is() -> None:
    stuck = CommandTimeout("nvidia-smi did not end", stuck=True)

    with pytest.raises(CommandTimeout):
        list(NvidiaSmi().collect(system_of(stuck)))


def pci(root: Path, address: str, driver: str = "nvidia", kind: str = "0x030200") -> None:
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text(kind + "\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_a_gpu_that_pci_shows_and_the_tool_does_not_is_gone(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0")
    pci(tmp_path, "0000:c1:00.0")
    pci(tmp_path, "0000:c1:00.1", "snd_hda_intel", "0x040300")

    found = list(NvidiaSmi().collect(system_of(ONE, root=tmp_path)))

    assert values(found, "accelerator_present", C) == [0.0]


def test_a_gpu_handed_to_a_virtual_machine_is_nobodys_loss(tmp_path: Path) -> None:
    pci(tmp_path, "0000:1a:00.0")
    pci(tmp_path, "0000:c1:00.0", "vfio-pci")

    found = list(NvidiaSmi().collect(system_of(ONE, seen=(A, C), root=tmp_path)))

    assert values(found, "accelerator_present", C) == []


def test_a_gpu_without_driver_counts_only_if_it_was_seen(tmp_path: Path) -> None:
    pci(tmp_path, "0000:c1:00.0", "")

    fresh = list(NvidiaSmi().collect(system_of(ONE, root=tmp_path)))
    known = list(NvidiaSmi().collect(system_of(ONE, seen=(A, C), root=tmp_path)))

    assert values(fresh, "accelerator_present", C) == []
    assert values(known, "accelerator_present", C) == [0.0]


MIG = TWO.replace("<current_mig>Disabled", "<current_mig>Enabled", 1).replace(
    "\t\t\tNone\n",
    "<mig_device><index>0</index><gpu_instance_id>3</gpu_instance_id><compute_instance_id>0"
    "</compute_instance_id><fb_memory_usage><total>19968 MiB</total><used>12 MiB</used>"
    "</fb_memory_usage></mig_device>",
    1,
)
MIG_LIST = """GPU 0: NVIDIA Test 40GB (UUID: GPU-00000000-aaaa-bbbb-cccc-000000000000)
  MIG 3g.20gb     Device  0: (UUID: MIG-12345678-aaaa-bbbb-cccc-000000000009)
"""


def test_a_mig_instance_bears_its_own_uuid() -> None:
    found = list(NvidiaSmi().collect(system_of(MIG, **{"nvidia-smi -L": MIG_LIST})))

    name = "MIG-12345678-aaaa-bbbb-cccc-000000000009"
    assert values(found, "accelerator_memory_used_bytes", name) == [12 * MIB]
    assert values(found, "accelerator_info", name, parent=A) == [1.0]


def test_an_instance_whose_uuid_cannot_be_had_is_left_out() -> None:
    found = list(NvidiaSmi().collect(system_of(MIG, **{"nvidia-smi -L": Finished(255, b"")})))

    assert values(found, "accelerator_memory_used_bytes", A) == [30000 * MIB]
    assert "MIG-" not in str(found)


NVLINKS = """GPU 0: NVIDIA Test 40GB (UUID: GPU-00000000-aaaa-bbbb-cccc-000000000000)
\t Link 0: 26.5 GB/s
\t Link 1: <inactive>
"""
TOPOLOGY = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV18\tPIX\t0-31,64-95\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tSYS\t\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\t X \t\t\t\n\nNIC Legend:\n\n  NIC0: mlx5_2\n"
)


def links_of(**answers: Any) -> System:
    commands = {"nvidia-smi nvlink -s": NVLINKS, "nvidia-smi topo -m": TOPOLOGY, **answers}
    system = fake_system(commands)
    uuid = "GPU-00000000-aaaa-bbbb-cccc-000000000000"
    seen = {A: {"uuid": uuid, "index": "0"}, C: {"uuid": "", "index": "1"}}
    system.checkpoints.put("nvidia_smi", {"cards": seen})
    return system


def test_links_and_topology_bear_the_names_of_the_cards_seen() -> None:
    found = list(NvidiaLinks().collect(links_of()))

    assert values(found, "accelerator_link_up", A, link="0") == [1.0]
    assert values(found, "accelerator_link_up", A, link="1") == [0.0]
    assert values(found, "accelerator_links_active", A) == [1.0]
    assert values(found, "accelerator_topology", A, peer=C, path="NV18") == [1.0]
    assert values(found, "accelerator_topology", C, peer="mlx5_2", path="SYS") == [1.0]
    assert values(found, "accelerator_numa_node", C) == [1.0]
    assert values(found, "accelerator_cpu_affinity", C) == []
    assert values(found, "accelerator_present", A) == []


def test_a_node_that_tells_neither_links_nor_topology_has_no_data() -> None:
    refused = Finished(255, b"ERROR: Option -m is missing its value.\n")
    system = links_of(**{"nvidia-smi nvlink -s": refused, "nvidia-smi topo -m": refused})

    with pytest.raises(NoData):
        list(NvidiaLinks().collect(system))


def test_a_garbled_link_speed_is_no_link() -> None:
    text = NVLINKS.replace("26.5 GB/s", "26.5.1 GB/s")

    assert values(capture(text.encode()), "accelerator_link_up", "gpu0", link="0") == []


def test_one_hanging_card_does_not_silence_the_others() -> None:
    late = CommandTimeout("nvidia-smi did not end")
    other = "0000:05:00"
    system = system_of(
        Finished(255, HANDLE.encode()),
        seen=(other, A, C),
        **{f"{QUERY} -i {other}.0": late, f"{QUERY} -i {A}.0": Finished(0, ONE.encode())},
    )

    found = list(NvidiaSmi().collect(system))

    assert values(found, "accelerator_present", other) == []
    assert values(found, "accelerator_healthy", A) == [1.0]


def test_a_query_that_cannot_be_killed_is_told_at_once() -> None:
    stuck = CommandTimeout("nvidia-smi did not end", stuck=True)
    system = system_of(Finished(255, HANDLE.encode()), seen=(A, C), **{f"{QUERY} -i {A}.0": stuck})

    with pytest.raises(CommandTimeout):
        list(NvidiaSmi().collect(system))


def test_a_gone_card_loses_its_number_to_the_next() -> None:
    system = system_of(ONE)
    system.checkpoints.put("nvidia_smi", {"cards": {C: {"uuid": "x", "index": "0"}}})

    (mark,) = [item for item in NvidiaSmi().collect(system) if isinstance(item, Checkpoint)]

    assert mark.doc["cards"][C]["index"] == ""
    assert mark.doc["cards"][A]["index"] == "0"


def test_an_expected_card_may_be_written_as_the_tool_prints_it() -> None:
    found = list(NvidiaSmi(expected=("00000000:C1:00.0",)).collect(system_of(ONE)))

    assert values(found, "accelerator_present", C) == [0.0]


def test_a_whole_log_beside_the_name_of_a_lost_card_tells_both() -> None:
    text = ONE + "Unable to determine the device handle for GPU0000:C1:00.0: GPU is lost.\n"

    found = list(NvidiaSmi().collect(system_of(Finished(15, text.encode()))))

    assert values(found, "accelerator_healthy", A) == [1.0]
    assert values(found, "accelerator_present", C) == [0.0]


def test_a_log_cut_by_a_lost_card_is_asked_for_card_by_card() -> None:
    answer = Finished(255, CUT.encode() + b"\n" + HANDLE.encode())
    system = system_of(answer, seen=(A, C), **{f"{QUERY} -i {A}.0": Finished(0, ONE.encode())})

    found = list(NvidiaSmi().collect(system))

    assert values(found, "accelerator_present", C) == [0.0]
    assert values(found, "accelerator_healthy", A) == [1.0]
