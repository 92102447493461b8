"""What NVIDIA's management library is asked of a card, told in the words of nvidia-smi.

Runs in the child process (``nvml_child``) with the library handed in; it imports nothing of the
daemon, keeps nothing and judges nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

SAID = {
    3: "N/A",  # not supported
    4: "Insufficient Permissions",
    6: "N/A",  # not found
    13: "N/A",  # the driver's library lacks the function
    15: "GPU is lost",
    16: "GPU requires reset",
    25: "N/A",  # the library knows another version of the structure
    26: "N/A",  # deprecated
    999: "Unknown Error",
}
"""NVML's error numbers in the words of nvidia-smi; any other is ERR!."""

REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
RECOVERIES = (
    "None",
    "GPU Reset",
    "Node Reboot",
    "Drain P2P",
    "Drain and Reset",
    "Recover IMEX Domain",
    "Bus Reset",
    "System Reboot",
)
FABRIC_STATES = ("N/A", "Not Started", "In Progress", "Completed")
SUMMARIES = ("N/A", "Healthy", "Unhealthy", "Limited Capacity")
MEMORY_TEMPERATURE, RECOVERY_ACTION = 82, 230  # field numbers

Texts = dict[str, str]
Ask = Callable[[Any, Any], tuple[str, ...]]


def said(error: Exception) -> str:
    """What nvidia-smi prints in place of a value after this error of the library."""
    if isinstance(error, AttributeError):  # an older nvidia-ml-py lacks the function
        return "N/A"
    return SAID.get(int(getattr(error, "value", -1)), "ERR!")


def text(value: Any) -> str:
    """A name or an identifier; older nvidia-ml-py give bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def percent(value: int) -> str:
    return f"{value} %"


def kib(value: int) -> str:
    return f"{value // 1024} KiB"


def watts(milliwatts: int) -> str:
    return f"{milliwatts / 1000:.3f} W"


def switch(value: int) -> str:
    return "Enabled" if value else "Disabled"


def yes(value: int) -> str:
    return "Yes" if value else "No"


def memory(lib: Any, card: Any) -> tuple[str, ...]:
    """Total, used, free, reserved; older drivers count what is reserved as used."""
    try:
        found = lib.nvmlDeviceGetMemoryInfo(card, version=lib.nvmlMemory_v2)
    except (AttributeError, TypeError, lib.NVMLError) as error:
        if said(error) != "N/A":
            raise
        found = lib.nvmlDeviceGetMemoryInfo(card)
        return kib(found.total), kib(found.used), kib(found.free), "N/A"
    return kib(found.total), kib(found.used), kib(found.free), kib(found.reserved)


def reasons(lib: Any, card: Any) -> tuple[str, ...]:
    """Each reason for lower clocks: active or not."""
    newer = getattr(lib, "nvmlDeviceGetCurrentClocksEventReasons", None)
    mask = (newer or lib.nvmlDeviceGetCurrentClocksThrottleReasons)(card)
    return tuple("Active" if mask & bit else "Not Active" for bit in REASONS.values())


def field_value(lib: Any, card: Any, number: int) -> int:
    """One of the driver's numbered values. Raises the library's error."""
    value = lib.nvmlDeviceGetFieldValues(card, [number])[0]
    if value.nvmlReturn != 0:
        raise lib.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def recovery(lib: Any, card: Any) -> tuple[str, ...]:
    number = field_value(lib, card, RECOVERY_ACTION)
    return (RECOVERIES[number] if number < len(RECOVERIES) else f"unknown {number}",)


def sram_threshold(lib: Any, card: Any) -> tuple[str, ...]:
    status = lib.c_nvmlEccSramErrorStatus_v1_t()
    lib.nvmlDeviceGetSramEccErrorStatus(card, ctypes.byref(status))
    return (yes(status.bThresholdExceeded),)


def remapped(lib: Any, card: Any) -> tuple[str, ...]:
    right, wrong, pending, failed = lib.nvmlDeviceGetRemappedRows(card)
    return str(right), str(wrong), yes(pending), yes(failed)


def spare_rows(lib: Any, card: Any) -> tuple[str, ...]:
    banks = lib.nvmlDeviceGetRowRemapperHistogram(card)
    return str(banks.low), str(banks.none)


def fabric(lib: Any, card: Any) -> tuple[str, ...]:
    """State, status, clique and, of drivers that tell it, what the fabric says of its health."""
    info = lib.c_nvmlGpuFabricInfo_v3_t()
    try:
        lib.nvmlDeviceGetGpuFabricInfoV(card, ctypes.byref(info))
        summary = SUMMARIES[info.healthSummary] if info.healthSummary < 4 else "unknown"
    except lib.NVMLError as error:
        if said(error) != "N/A":
            raise
        info = lib.c_nvmlGpuFabricInfo_v2_t()
        lib.nvmlDeviceGetGpuFabricInfoV(card, ctypes.byref(info))
        summary = "N/A"
    state = FABRIC_STATES[info.state] if info.state < len(FABRIC_STATES) else "unknown"
    ended = state == "Completed"
    status = ("Success" if info.status == 0 else "Failure") if ended else "N/A"
    mask = int(info.healthMask) if ended else 0
    states, configured = ("N/A", "True", "False", "unknown"), mask >> 8 & 0xF
    return (
        state,
        status,
        str(info.cliqueId) if ended else "N/A",
        summary if ended else "N/A",
        ("N/A", "Degraded", "Full", "unknown")[mask & 3],
        states[mask >> 4 & 3],
        states[mask >> 6 & 3],
        ("N/A", "None")[configured] if configured < 2 else "Incorrect",
    )


def one(name: str, show: Callable[[Any], str] = text, part: int | None = None) -> Ask:
    """The question for one value of a function (``part`` of what it gives), as it is printed."""

    def ask(lib: Any, card: Any) -> tuple[str, ...]:
        value = getattr(lib, name)(card)
        return (show(value if part is None else value[part]),)

    return ask


def with_argument(name: str, argument: int, show: Callable[[Any], str]) -> Ask:
    """The question for the value that a function gives for an argument."""
    return lambda lib, card: (show(getattr(lib, name)(card, argument)),)


def loads(lib: Any, card: Any) -> tuple[str, ...]:
    found = lib.nvmlDeviceGetUtilizationRates(card)
    return percent(found.gpu), percent(found.memory)


def ecc() -> Iterator[tuple[tuple[str, ...], Ask]]:
    """Error counts: of the whole card, and of each kind of memory."""
    for kind, word in enumerate(("corrected", "uncorrected")):
        for counter, since in enumerate(("volatile", "aggregate")):
            base = f"ecc.errors.{word}.{since}"
            yield (f"{base}.total",), _errors("nvmlDeviceGetTotalEccErrors", kind, counter)
            for place, name in ((7, "sram"), (2, "dram")):
                ask = _errors("nvmlDeviceGetMemoryErrorCounter", kind, counter, place)
                yield (f"{base}.{name}",), ask


def _errors(name: str, *where: int) -> Ask:
    return lambda lib, card: (str(getattr(lib, name)(card, *where)),)


def _clock(value: int) -> str:
    return f"{value} MHz"


def _celsius(value: int) -> str:
    return f"{value} C"


def _rate(value: int) -> str:
    return f"{value} KB/s"


CLOCKS = (("graphics", 0), ("sm", 1), ("memory", 2), ("video", 3))
QUESTIONS: tuple[tuple[tuple[str, ...], Ask], ...] = (
    (("name",), one("nvmlDeviceGetName")),
    (("uuid",), one("nvmlDeviceGetUUID")),
    (("minor_number",), one("nvmlDeviceGetMinorNumber")),
    (("vbios_version",), one("nvmlDeviceGetVbiosVersion")),
    (("utilization.gpu", "utilization.memory"), loads),
    (("utilization.encoder",), one("nvmlDeviceGetEncoderUtilization", percent, 0)),
    (("utilization.decoder",), one("nvmlDeviceGetDecoderUtilization", percent, 0)),
    (("utilization.jpeg",), one("nvmlDeviceGetJpgUtilization", percent, 0)),
    (("utilization.ofa",), one("nvmlDeviceGetOfaUtilization", percent, 0)),
    (tuple(f"memory.{part}" for part in ("total", "used", "free", "reserved")), memory),
    (("temperature.gpu",), with_argument("nvmlDeviceGetTemperature", 0, _celsius)),
    (
        ("temperature.memory",),
        lambda lib, card: (_celsius(field_value(lib, card, MEMORY_TEMPERATURE)),),
    ),
    (("temperature.gpu.tlimit",), one("nvmlDeviceGetMarginTemperature", _celsius)),
    (("power.draw",), one("nvmlDeviceGetPowerUsage", watts)),
    (("power.limit",), one("nvmlDeviceGetPowerManagementLimit", watts)),
    (("enforced.power.limit",), one("nvmlDeviceGetEnforcedPowerLimit", watts)),
    (("power.default_limit",), one("nvmlDeviceGetPowerManagementDefaultLimit", watts)),
    *(
        ((f"clocks.current.{name}",), with_argument("nvmlDeviceGetClockInfo", number, _clock))
        for name, number in CLOCKS
    ),
    *(
        ((f"clocks.max.{name}",), with_argument("nvmlDeviceGetMaxClockInfo", number, _clock))
        for name, number in CLOCKS[:3]
    ),
    (("fan.speed",), one("nvmlDeviceGetFanSpeed", percent)),
    (("pstate",), one("nvmlDeviceGetPerformanceState", lambda state: f"P{state}")),
    (("pcie.link.gen.current",), one("nvmlDeviceGetCurrPcieLinkGeneration")),
    (("pcie.link.gen.max",), one("nvmlDeviceGetMaxPcieLinkGeneration")),
    (("pcie.link.width.current",), one("nvmlDeviceGetCurrPcieLinkWidth")),
    (("pcie.link.width.max",), one("nvmlDeviceGetMaxPcieLinkWidth")),
    (("pcie.replays",), one("nvmlDeviceGetPcieReplayCounter")),
    (("pcie.tx",), with_argument("nvmlDeviceGetPcieThroughput", 0, _rate)),
    (("pcie.rx",), with_argument("nvmlDeviceGetPcieThroughput", 1, _rate)),
    (("persistence_mode",), one("nvmlDeviceGetPersistenceMode", switch)),
    (("mig.mode.current",), one("nvmlDeviceGetMigMode", switch, 0)),
    (("ecc.mode.current",), one("nvmlDeviceGetEccMode", switch, 0)),
    *ecc(),
    (("ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",), sram_threshold),
    (("ecc.channel_repair_pending",), one("nvmlDeviceGetRepairStatus", yes, 0)),
    (("ecc.tpc_repair_pending",), one("nvmlDeviceGetRepairStatus", yes, 1)),
    (("ecc.unrepairable_memory",), one("nvmlDeviceGetUnrepairableMemoryFlag_v1", yes)),
    (
        tuple(
            f"remapped_rows.{part}"
            for part in ("correctable", "uncorrectable", "pending", "failure")
        ),
        remapped,
    ),
    (("remapped_rows.histogram.low", "remapped_rows.histogram.none"), spare_rows),
    (
        ("retired_pages.single_bit_ecc.count",),
        with_argument("nvmlDeviceGetRetiredPages", 0, lambda pages: str(len(pages))),
    ),
    (
        ("retired_pages.double_bit.count",),
        with_argument("nvmlDeviceGetRetiredPages", 1, lambda pages: str(len(pages))),
    ),
    (("retired_pages.pending",), one("nvmlDeviceGetRetiredPagesPendingStatus", yes)),
    (tuple(f"clocks_event_reasons.{name}" for name in REASONS), reasons),
    (("gpu_recovery_action",), recovery),
    (
        (
            "fabric.state",
            "fabric.status",
            "fabric.cliqueId",
            "fabric.health.summary",
            "fabric.health.bandwidth",
            "fabric.health.route_unhealthy",
            "fabric.health.access_timeout_recovery",
            "fabric.health.incorrect_configuration",
        ),
        fabric,
    ),
)
"""Readings by their names, and the question that gives them."""


def answers(lib: Any, card: Any) -> Texts:
    """All readings of a card; one that fails holds the word for it and spoils no other."""
    found: Texts = {}
    for names, ask in QUESTIONS:
        try:
            told = ask(lib, card)
        except (lib.NVMLError, AttributeError) as error:
            told = (said(error),) * len(names)
        found.update(zip(names, told, strict=True))
    return found
