"""Names, labels and units of the official exporters, compared with the lists of what they emit."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.compat import Family, families
from vllm_watchdog.watchdog.model import Sample, labelset

DATA = Path(__file__).parents[1] / ".." / "shared" / "data"
DCGM_LIST = DATA / "nvidia-smi" / "dcgm-exporter-metrics.tsv"
NPU_LIST = DATA / "npu-smi" / "npu_exporter_metrics.tsv"
listed = pytest.mark.skipif(not DCGM_LIST.exists(), reason="shared/data is not here")

MIB = 1024.0 * 1024.0
GPU = {"vendor": "nvidia", "card": "0000:53:00"}
NPU = {"vendor": "ascend", "card": "0000:c1:00"}


def s(name: str, value: float, base: dict[str, str], **more: str) -> Sample:
    return Sample(name, value, labelset({**base, **more}))


GPU_SAMPLES = [
    s(
        "accelerator_info",
        1.0,
        GPU,
        uuid="GPU-1",
        bus_id="00000000:53:00.0",
        model="NVIDIA Test",
        driver="580.1",
        minor="3",
        index="2",
    ),
    s("accelerator_clock_hertz", 1.41e9, GPU, domain="sm"),
    s("accelerator_clock_hertz", 2.6e9, GPU, domain="memory"),
    s("accelerator_temperature_celsius", 41.0, GPU),
    s("accelerator_memory_temperature_celsius", 49.0, GPU),
    s("accelerator_power_watts", 250.5, GPU),
    s("accelerator_pcie_replays_total", 3.0, GPU),
    s("accelerator_utilization_ratio", 0.8, GPU),
    s("accelerator_memory_utilization_ratio", 0.1, GPU),
    s("accelerator_engine_utilization_ratio", 0.0, GPU, engine="encoder"),
    s("accelerator_engine_utilization_ratio", 0.05, GPU, engine="decoder"),
    s("accelerator_memory_free_bytes", 100 * MIB, GPU),
    s("accelerator_memory_used_bytes", 200 * MIB, GPU),
    s("accelerator_memory_reserved_bytes", 5 * MIB, GPU),
    *(
        s(f"accelerator_{name}", value, GPU, kind=kind)
        for name in (
            "ecc_errors_total",
            "ecc_lifetime_errors_total",
            "retired_pages_total",
            "remapped_rows_total",
        )
        for kind, value in (("correctable", 7.0), ("uncorrectable", 2.0))
    ),
    s("accelerator_retired_pages_pending", 0.0, GPU),
    s("accelerator_remapped_rows_failed", 1.0, GPU),
    s("accelerator_fault", 1.0, GPU, code="79", kind="card_lost", severity="critical"),
]
NPU_SAMPLES = [
    s(
        "accelerator_info",
        1.0,
        NPU,
        bus_id="0000:c1:00.0",
        model="910B4",
        npu="4",
        phy_id="6",
    ),
    s("accelerator_present", 1.0, NPU),
    s("accelerator_healthy", 1.0, NPU),
    s("accelerator_present", 1.0, {**NPU, "card": "0000:c2:00"}),
    s("accelerator_temperature_celsius", 38.0, NPU),
    s("accelerator_power_watts", 88.2, NPU),
    s("accelerator_supply_volts", 0.9, NPU),
    s("accelerator_clock_hertz", 1.65e9, NPU, domain="core"),
    s("accelerator_utilization_ratio", 0.75, NPU),
    s("accelerator_overall_utilization_ratio", 0.5, NPU),
    s("accelerator_engine_utilization_ratio", 0.25, NPU, engine="vector"),
    s("accelerator_engine_utilization_ratio", 0.125, NPU, engine="cube"),
    s("accelerator_processes", 1.0, NPU),
    s("accelerator_process_memory_bytes", 300 * MIB, NPU, pid="77", process="python"),
    s("accelerator_memory_used_bytes", 200 * MIB, NPU),
    s("accelerator_memory_total_bytes", 400 * MIB, NPU),
    s("accelerator_memory_used_ratio", 0.5, NPU),
    s("accelerator_memory_utilization_ratio", 0.2, NPU),
    s("accelerator_memory_temperature_celsius", 44.0, NPU),
    s("accelerator_ddr_used_bytes", 20 * MIB, NPU),
    s("accelerator_ddr_total_bytes", 40 * MIB, NPU),
    *(
        s(f"accelerator_{name}", value, NPU, kind=kind, memory="hbm")
        for name in (
            "ecc_memory_errors_total",
            "ecc_lifetime_memory_errors_total",
            "retired_pages_total",
        )
        for kind, value in (("correctable", 7.0), ("uncorrectable", 2.0))
    ),
    s("accelerator_network_healthy", 1.0, NPU, device="6"),
    s("accelerator_link_up", 1.0, NPU, device="6", link="roce"),
    s("accelerator_link_speed_bytes_per_second", 25e9, NPU),
    s("accelerator_link_changes_total", 2.0, NPU, link="roce", direction="up"),
    s("accelerator_link_transmit_bytes_per_second", 5e6, NPU),
    s("accelerator_link_receive_bytes_per_second", 4e6, NPU),
    s("accelerator_link_counter_total", 9.0, NPU, counter="roce_rx_err_pkt_num"),
    s("accelerator_optical_present", 1.0, NPU),
    s("accelerator_optical_supply_volts", 3.25, NPU),
    s("accelerator_optical_temperature_celsius", 47.0, NPU),
    *(
        s("accelerator_optical_power_watts", 0.001, NPU, direction=way, lane=str(lane))
        for way in ("tx", "rx")
        for lane in range(4)
    ),
    s("accelerator_fault", 1.0, NPU, code="0x80e01801", kind="npu_error", severity="critical"),
    s("accelerator_fault", 1.0, NPU, code="0x81078603", kind="npu_event", severity="warning"),
]


def dcgm(samples: list[Sample] | None = None) -> dict[str, Family]:
    found = families(GPU_SAMPLES if samples is None else samples, ["dcgm-exporter"], "node-1")
    return {family.name: family for family in found}


def npu() -> dict[str, Family]:
    return {family.name: family for family in families(NPU_SAMPLES, ["npu-exporter"])}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 1410.0),
        ("DCGM_FI_DEV_GPU_UTIL", 80.0),
        ("DCGM_FI_DEV_FB_USED", 200.0),
        ("DCGM_FI_DEV_POWER_USAGE", 250.5),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2.0),
        ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", 7.0),
        ("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1.0),
        ("DCGM_FI_DEV_XID_ERRORS", 79.0),
    ],
)
def test_a_gpu_reading_has_dcgms_unit(name: str, value: float) -> None:
    assert [pytest.approx(value)] == [sample.value for sample in dcgm()[name].samples]


def test_a_gpu_series_has_dcgms_labels() -> None:
    (sample,) = dcgm()["DCGM_FI_DEV_GPU_TEMP"].samples

    assert dict(sample.labels) == {
        "gpu": "2",
        "UUID": "GPU-1",
        "pci_bus_id": "00000000:53:00.0",
        "device": "nvidia3",
        "modelName": "NVIDIA Test",
        "Hostname": "node-1",
        "DCGM_FI_DRIVER_VERSION": "580.1",
    }


def test_a_mig_instance_bears_its_parents_labels_and_its_own_number() -> None:
    mig = {"vendor": "nvidia", "card": "MIG-1"}
    instance = [
        s("accelerator_info", 1.0, mig, parent="0000:53:00", gi="3", profile="3g.40gb"),
        s("accelerator_memory_used_bytes", 12 * MIB, mig),
    ]
    labels = dict(dcgm([*GPU_SAMPLES, *instance])["DCGM_FI_DEV_FB_USED"].samples[1].labels)

    assert (labels["UUID"], labels["GPU_I_ID"], labels["GPU_I_PROFILE"]) == (
        "GPU-1",
        "3",
        "3g.40gb",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("npu_chip_info_hbm_used_memory", 200.0),
        ("npu_chip_info_utilization", 75.0),
        ("npu_chip_info_aicore_current_freq", 1650.0),
        ("npu_chip_link_speed", 25000.0),
        ("npu_chip_optical_tx_power_0", 1.0),
        ("npu_chip_optical_vcc", 3250.0),
        ("npu_chip_info_process_info", 300.0),
        ("npu_chip_info_error_code", 2162169857.0),
        ("npu_chip_info_error_code_1", 2164754947.0),
        ("npu_chip_roce_rx_err_pkt_num", 9.0),
    ],
)
def test_an_npu_reading_has_the_npu_exporters_unit(name: str, value: float) -> None:
    assert [pytest.approx(value)] == [sample.value for sample in npu()[name].samples]


def test_an_npu_series_is_numbered_by_the_physical_id() -> None:
    (sample,) = npu()["npu_chip_info_temperature"].samples

    assert dict(sample.labels) == {
        "id": "6",
        "model_name": "910B4",
        "pcie_bus_info": "0000:c1:00.0",
    }


def test_a_chip_of_unknown_health_is_minus_one() -> None:
    states = [sample.value for sample in npu()["npu_chip_info_health_status"].samples]

    assert states == [1.0, -1.0]
    assert npu()["machine_unknown_npu_nums"].samples[0].value == 1.0


def test_nothing_is_translated_unless_asked_for() -> None:
    assert families([*GPU_SAMPLES, *NPU_SAMPLES], []) == ()


def rows(path: Path) -> dict[str, dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        table = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["metric"]: row for row in table}


BEYOND = {  # of dcgm-exporter's default counters: profiling, NVML's energy, licence and traffic
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
}


@listed
def test_every_default_counter_of_dcgm_exporter_is_there_or_named_as_beyond_us() -> None:
    table = rows(DCGM_LIST)
    default = {
        name for name, row in table.items() if row["default"] == "on" and row["type"] != "label"
    }

    assert default - BEYOND <= set(dcgm())
    assert set(dcgm()) <= set(table)


@listed
def test_types_and_units_are_those_of_dcgm_exporters_list() -> None:
    table = rows(DCGM_LIST)
    words = {"MHz": "MHz", "celsius": "C", "W": "W", "MiB": "MiB", "percent 0-100": "%"}

    for name, family in dcgm().items():
        assert family.kind == table[name]["type"], name
        unit = words.get(table[name]["unit"])
        assert unit is None or family.help.endswith(f" in {unit}"), name


@listed
def test_names_and_units_are_those_of_the_npu_exporters_list() -> None:
    table = rows(NPU_LIST)
    words = {"MB": "MB", "%": "%", "MHz": "MHz", "MB/s": "MB/s", "mW": "mW", "mV": "mV"}

    for name, family in npu().items():
        plain = re.sub(r"_power_[0-3]$", "_power_X", re.sub(r"code_\d+$", "code_X", name))
        row = table.get(name) or table[plain]
        assert family.kind == row["type"], name
        unit = words.get(row["unit_or_values"])
        assert unit is None or family.help.endswith(f" in {unit}"), name


@listed
def test_no_name_of_the_official_page_that_the_tools_can_give_is_missing() -> None:
    page = (DATA / "npu-smi" / "npu_exporter_metric_help.txt").read_text(encoding="utf-8")
    names = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))

    assert names - set(npu()) == {"npu_exporter_version_info"}
