"""Our series under the names, labels and units of two official exporters, for dashboards in use.

A pure translation: it adds no reading. What only profiling counters or the vendors' libraries know
is left out, and an unknown value is left out too, save where the exporter itself says -1 for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from .model import Labels, Sample, labelset

MIB = 1 / (1024.0 * 1024.0)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of an exporter's page. ``kind`` is gauge or counter."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Name:
    """``theirs`` = ``ours`` (with the labels ``where``) × ``factor``."""

    theirs: str
    ours: str
    factor: float = 1.0
    kind: str = "gauge"
    where: Labels = ()
    unit: str = ""


def _dcgm(
    theirs: str, ours: str, factor: float = 1.0, unit: str = "", counter: bool = False, **where: str
) -> Name:
    kind = "counter" if counter else "gauge"
    return Name(f"DCGM_FI_DEV_{theirs}", ours, factor, kind, labelset(where), unit)


def _npu(theirs: str, ours: str, factor: float = 1.0, unit: str = "", **where: str) -> Name:
    return Name(f"npu_chip_{theirs}", ours, factor, "gauge", labelset(where), unit)


_DCGM = (
    _dcgm("SM_CLOCK", "accelerator_clock_hertz", 1e-6, "MHz", domain="sm"),
    _dcgm("MEM_CLOCK", "accelerator_clock_hertz", 1e-6, "MHz", domain="memory"),
    _dcgm("MEMORY_TEMP", "accelerator_memory_temperature_celsius", 1.0, "C"),
    _dcgm("GPU_TEMP", "accelerator_temperature_celsius", 1.0, "C"),
    _dcgm("POWER_USAGE", "accelerator_power_watts", 1.0, "W"),
    _dcgm("PCIE_REPLAY_COUNTER", "accelerator_pcie_replays_total", counter=True),
    _dcgm("GPU_UTIL", "accelerator_utilization_ratio", 100.0, "%"),
    _dcgm("MEM_COPY_UTIL", "accelerator_memory_utilization_ratio", 100.0, "%"),
    _dcgm("ENC_UTIL", "accelerator_engine_utilization_ratio", 100.0, "%", engine="encoder"),
    _dcgm("DEC_UTIL", "accelerator_engine_utilization_ratio", 100.0, "%", engine="decoder"),
    _dcgm("FB_FREE", "accelerator_memory_free_bytes", MIB, "MiB"),
    _dcgm("FB_USED", "accelerator_memory_used_bytes", MIB, "MiB"),
    _dcgm("FB_RESERVED", "accelerator_memory_reserved_bytes", MIB, "MiB"),
    *(
        _dcgm(f"ECC_{short}_{scope}_TOTAL", ours, counter=True, kind=kind)
        for scope, ours in (
            ("VOL", "accelerator_ecc_errors_total"),
            ("AGG", "accelerator_ecc_lifetime_errors_total"),
        )
        for short, kind in (("SBE", "correctable"), ("DBE", "uncorrectable"))
    ),
    *(
        _dcgm(f"RETIRED_{short}", "accelerator_retired_pages_total", counter=True, kind=kind)
        for short, kind in (("SBE", "correctable"), ("DBE", "uncorrectable"))
    ),
    _dcgm("RETIRED_PENDING", "accelerator_retired_pages_pending", counter=True),
    *(
        _dcgm(
            f"{kind.upper()}_REMAPPED_ROWS",
            "accelerator_remapped_rows_total",
            counter=True,
            kind=kind,
        )
        for kind in ("correctable", "uncorrectable")
    ),
    _dcgm("ROW_REMAP_FAILURE", "accelerator_remapped_rows_failed"),
)
_NPU = (
    _npu("info_temperature", "accelerator_temperature_celsius", 1.0, "C"),
    _npu("info_power", "accelerator_power_watts", 1.0, "W"),
    _npu("info_voltage", "accelerator_supply_volts", 1.0, "V"),
    _npu("info_aicore_current_freq", "accelerator_clock_hertz", 1e-6, "MHz", domain="core"),
    _npu("info_utilization", "accelerator_utilization_ratio", 100.0, "%"),
    _npu("info_overall_utilization", "accelerator_overall_utilization_ratio", 100.0, "%"),
    *(
        _npu(
            f"info_{engine}_utilization",
            "accelerator_engine_utilization_ratio",
            100.0,
            "%",
            engine=engine,
        )
        for engine in ("vector", "cube")
    ),
    _npu("info_process_info_num", "accelerator_processes"),
    _npu("info_hbm_used_memory", "accelerator_memory_used_bytes", MIB, "MB"),
    _npu("info_hbm_total_memory", "accelerator_memory_total_bytes", MIB, "MB"),
    _npu("info_hbm_utilization", "accelerator_memory_used_ratio", 100.0, "%"),
    _npu("info_hbm_bandwidth_utilization", "accelerator_memory_utilization_ratio", 100.0, "%"),
    _npu("info_hbm_temperature", "accelerator_memory_temperature_celsius", 1.0, "C"),
    _npu("info_used_memory", "accelerator_ddr_used_bytes", MIB, "MB"),
    _npu("info_total_memory", "accelerator_ddr_total_bytes", MIB, "MB"),
    *(
        _npu(theirs, ours, memory="hbm", kind=kind)
        for bits, kind in (("single", "correctable"), ("double", "uncorrectable"))
        for theirs, ours in (
            (f"info_hbm_ecc_{bits}_bit_error_cnt", "accelerator_ecc_memory_errors_total"),
            (
                f"info_hbm_ecc_total_{bits}_bit_error_cnt",
                "accelerator_ecc_lifetime_memory_errors_total",
            ),
            (f"info_hbm_ecc_{bits}_bit_isolated_pages_cnt", "accelerator_retired_pages_total"),
        )
    ),
    _npu("info_network_status", "accelerator_network_healthy"),
    _npu("info_link_status", "accelerator_link_up", link="roce"),
    _npu("link_speed", "accelerator_link_speed_bytes_per_second", 1e-6, "MB/s"),
    _npu("link_up_num", "accelerator_link_changes_total", link="roce", direction="up"),
    _npu("info_bandwidth_tx", "accelerator_link_transmit_bytes_per_second", 1e-6, "MB/s"),
    _npu("info_bandwidth_rx", "accelerator_link_receive_bytes_per_second", 1e-6, "MB/s"),
    _npu("optical_state", "accelerator_optical_present"),
    _npu("optical_vcc", "accelerator_optical_supply_volts", 1e3, "mV"),
    _npu("optical_temp", "accelerator_optical_temperature_celsius", 1.0, "C"),
    *(
        _npu(
            f"optical_{way}_power_{lane}",
            "accelerator_optical_power_watts",
            1e3,
            "mW",
            direction=way,
            lane=str(lane),
        )
        for way in ("tx", "rx")
        for lane in range(4)
    ),
)


def families(
    samples: Iterable[Sample], exporters: Collection[str], host: str = ""
) -> tuple[Family, ...]:
    """Families of the exporters named (``npu-exporter``, ``dcgm-exporter``), those with samples.

    ``host`` becomes dcgm-exporter's label ``Hostname``.
    """
    series = _Series(samples)
    found: list[Family] = []
    if "dcgm-exporter" in exporters:
        found += _named(series, "nvidia", _DCGM, lambda labels: _gpu_labels(series, labels, host))
        found += _xids(series, host)
    if "npu-exporter" in exporters:
        found += _named(series, "ascend", _NPU, lambda labels: _npu_labels(series, labels))
        found += _npu_special(series)
    return tuple(family for family in found if family.samples)


class _Series:
    """Samples by vendor and name, and what is known of each card."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self.by_name: dict[tuple[str, str], list[tuple[dict[str, str], float]]] = {}
        self.info: dict[str, dict[str, str]] = {}
        for sample in samples:
            labels = dict(sample.labels)
            key = labels.get("vendor", ""), sample.name
            self.by_name.setdefault(key, []).append((labels, sample.value))
            if sample.name == "accelerator_info" and "card" in labels:
                self.info.setdefault(labels["card"], {}).update(labels)

    def get(self, vendor: str, name: str) -> list[tuple[dict[str, str], float]]:
        return self.by_name.get((vendor, name), [])


def _named(
    series: _Series,
    vendor: str,
    names: Iterable[Name],
    relabel: Callable[[Mapping[str, str]], Labels],
) -> Iterator[Family]:
    for name in names:
        where = dict(name.where)
        found = tuple(
            Sample(name.theirs, value * name.factor, relabel(labels))
            for labels, value in series.get(vendor, name.ours)
            if where.items() <= labels.items() and ("card" in labels or "device" in labels)
        )
        unit = f" in {name.unit}" if name.unit else ""
        yield Family(name.theirs, name.kind, f"{name.ours}{unit}", found)


def _gpu_labels(series: _Series, labels: Mapping[str, str], host: str) -> Labels:
    info = series.info.get(labels.get("card", ""), {})
    parent = series.info.get(info.get("parent", ""), info)
    minor = parent.get("minor", "")
    return labelset(
        {
            "gpu": parent.get("index", ""),
            "UUID": parent.get("uuid", ""),
            "pci_bus_id": parent.get("bus_id", ""),
            "device": f"nvidia{minor}" if minor else "",
            "modelName": parent.get("model", ""),
            "Hostname": host,
            "DCGM_FI_DRIVER_VERSION": parent.get("driver", ""),
            "GPU_I_PROFILE": info.get("profile", ""),
            "GPU_I_ID": info.get("gi", ""),
        }
    )


def _xids(series: _Series, host: str) -> Iterator[Family]:
    """The last code of each card; of several at once the first one told."""
    last: dict[Labels, float] = {}
    for labels, value in series.get("nvidia", "accelerator_fault"):
        if value and labels.get("code", "").isdecimal():
            last.setdefault(_gpu_labels(series, labels, host), float(labels["code"]))
    name = "DCGM_FI_DEV_XID_ERRORS"
    found = tuple(Sample(name, code, labels) for labels, code in last.items())
    yield Family(name, "gauge", "accelerator_fault: the Xid of the last fault", found)


def _npu_labels(series: _Series, labels: Mapping[str, str], **more: str) -> Labels:
    info = series.info.get(labels.get("card", ""), {})
    place = next(
        (text for key in ("phy_id", "device", "npu") if (text := info.get(key, ""))),
        labels.get("device", ""),
    )
    return labelset(
        {
            "id": place,
            "vdie_id": info.get("uuid", ""),
            "model_name": info.get("model", ""),
            "pcie_bus_info": info.get("bus_id", ""),
            **more,
        }
    )


def _npu_special(series: _Series) -> Iterator[Family]:
    present = [labels for labels, on in series.get("ascend", "accelerator_present") if on]
    told = {
        labels["card"]: value
        for labels, value in series.get("ascend", "accelerator_healthy")
        if "card" in labels
    }
    health = {labels.get("card", ""): told.get(labels.get("card", ""), -1.0) for labels in present}
    if present:
        yield from _counts(health)
    name = "npu_chip_info_health_status"
    states = tuple(Sample(name, health[x["card"]], _npu_labels(series, x)) for x in present)
    yield Family(name, "gauge", "1 healthy, 0 unhealthy, -1 unknown", states)
    yield from _models(series)
    yield from _process_memory(series)
    yield from _codes(series)
    yield from _counters(series)


def _counts(health: Mapping[str, float]) -> Iterator[Family]:
    values = list(health.values())
    for word, count in (
        ("", len(values)),
        ("healthy_", values.count(1.0)),
        ("unhealthy_", values.count(0.0)),
        ("unknown_", values.count(-1.0)),
    ):
        name = f"machine_{word}npu_nums"
        yield Family(name, "gauge", "number of chips present", (Sample(name, float(count)),))


def _models(series: _Series) -> Iterator[Family]:
    name = "npu_chip_info_name"
    found = {}
    for labels, _ in series.get("ascend", "accelerator_info"):
        model = series.info.get(labels.get("card", ""), {}).get("model", "")
        if model:
            pairs = dict(_npu_labels(series, labels, name=model))
            pairs.pop("model_name", None)
            found[labelset(pairs)] = Sample(name, 1.0, labelset(pairs))
    yield Family(name, "gauge", "1; the chip's name is a label", tuple(found.values()))


def _process_memory(series: _Series) -> Iterator[Family]:
    name = "npu_chip_info_process_info"
    found = tuple(
        Sample(name, value * MIB, _npu_labels(series, labels, process_id=labels.get("pid", "")))
        for labels, value in series.get("ascend", "accelerator_process_memory_bytes")
    )
    yield Family(name, "gauge", "accelerator_process_memory_bytes in MB", found)


def _codes(series: _Series) -> Iterator[Family]:
    """Active fault codes as numbers: the first without, the others with a number in the name."""
    by_card: dict[Labels, list[float]] = {}
    for labels, value in series.get("ascend", "accelerator_fault"):
        code = labels.get("code", "")
        if value and code.startswith("0x"):
            place = _npu_labels(series, labels)
            by_card.setdefault(place, []).append(float(int(code, 16)))
    most = max(map(len, by_card.values()), default=0)
    for at in range(most):
        name = "npu_chip_info_error_code" + (f"_{at}" if at else "")
        found = tuple(
            Sample(name, codes[at], place) for place, codes in by_card.items() if at < len(codes)
        )
        yield Family(name, "gauge", "code of an active fault as a decimal number", found)


def _counters(series: _Series) -> Iterator[Family]:
    found: dict[str, list[Sample]] = {}
    for labels, value in series.get("ascend", "accelerator_link_counter_total"):
        counter = labels.get("counter", "")
        if counter.startswith(("mac_", "roce_")) and ("card" in labels or "device" in labels):
            name = f"npu_chip_{counter}"
            found.setdefault(name, []).append(Sample(name, value, _npu_labels(series, labels)))
    for name, samples in found.items():
        yield Family(name, "gauge", "accelerator_link_counter_total", tuple(samples))
