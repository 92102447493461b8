"""Which reading of a card becomes which metric. Names at the left are those of --query-gpu."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Labels


@dataclass(frozen=True, slots=True)
class Field:
    """``kind`` as in values.read; ``metric`` "" when the reading only serves others.

    ``vital`` readings, when damaged or failed, keep the card from being called healthy.
    """

    kind: str
    metric: str = ""
    labels: Labels = ()
    vital: bool = True


def _engine(name: str) -> Field:
    return Field("ratio", "accelerator_engine_utilization_ratio", (("engine", name),))


def _clock(domain: str, metric: str = "accelerator_clock_hertz") -> Field:
    return Field("hertz", metric, (("domain", domain),))


def _throttle(reason: str) -> Field:
    return Field("flag", "accelerator_throttle_active", (("reason", reason),), vital=False)


def _throttled(reason: str) -> Field:
    return Field("seconds", "accelerator_throttle_seconds_total", (("reason", reason),))


def _flag(metric: str, **labels: str) -> Field:
    return Field("flag", metric, tuple(sorted(labels.items())))


def _mode(metric: str) -> Field:
    return Field("flag", metric, vital=False)


def _count(metric: str = "", **labels: str) -> Field:
    return Field("count", metric, tuple(sorted(labels.items())))


def _ecc() -> dict[str, Field]:
    found = {}
    for printed, kind in (("corrected", "correctable"), ("uncorrected", "uncorrectable")):
        for counter, metric in (
            ("volatile", "accelerator_ecc_memory_errors_total"),
            ("aggregate", "accelerator_ecc_lifetime_memory_errors_total"),
        ):
            base = f"ecc.errors.{printed}.{counter}"
            found[f"{base}.total"] = _count()
            found[f"{base}.sram"] = _count(metric, kind=kind, memory="sram")
            found[f"{base}.dram"] = _count(metric, kind=kind, memory="dram")
            found[f"{base}.device_memory"] = _count()
            found[f"{base}.sram.parity"] = _count()
            found[f"{base}.sram.secded"] = _count()
    return found


REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
    "sync_boost",
    "display_clocks_setting",
    "unknown",
)
"""Why clocks are below their maximum, by nvidia-smi's own words."""

FIELDS: dict[str, Field] = {
    "utilization.gpu": Field("ratio", "accelerator_utilization_ratio"),
    "utilization.memory": Field("ratio", "accelerator_memory_utilization_ratio"),
    "utilization.encoder": _engine("encoder"),
    "utilization.decoder": _engine("decoder"),
    "utilization.jpeg": _engine("jpeg"),
    "utilization.ofa": _engine("ofa"),
    "memory.total": Field("bytes", "accelerator_memory_total_bytes"),
    "memory.used": Field("bytes", "accelerator_memory_used_bytes"),
    "memory.free": Field("bytes", "accelerator_memory_free_bytes"),
    "memory.reserved": Field("bytes", "accelerator_memory_reserved_bytes"),
    "temperature.gpu": Field("celsius", "accelerator_temperature_celsius"),
    "temperature.memory": Field("celsius", "accelerator_memory_temperature_celsius"),
    "temperature.gpu.tlimit": Field("celsius", "accelerator_temperature_margin_celsius"),
    "power.draw": Field("watts"),
    "power.draw.average": Field("watts", "accelerator_power_average_watts"),
    "power.draw.instant": Field("watts", "accelerator_power_instant_watts"),
    "power.limit": Field("watts", "accelerator_power_limit_watts"),
    "enforced.power.limit": Field("watts", "accelerator_power_enforced_limit_watts"),
    "power.default_limit": Field("watts", "accelerator_power_default_limit_watts", vital=False),
    "memory.power.draw.average": Field("watts", "accelerator_memory_power_watts", vital=False),
    "module.power.draw.average": Field("watts", "accelerator_module_power_watts", vital=False),
    "clocks.current.graphics": _clock("graphics"),
    "clocks.current.sm": _clock("sm"),
    "clocks.current.memory": _clock("memory"),
    "clocks.current.video": _clock("video"),
    "clocks.max.graphics": _clock("graphics", "accelerator_max_clock_hertz"),
    "clocks.max.sm": _clock("sm", "accelerator_max_clock_hertz"),
    "clocks.max.memory": _clock("memory", "accelerator_max_clock_hertz"),
    "fan.speed": Field("fan", "accelerator_fan_ratio"),
    "pstate": Field("state", "accelerator_performance_state"),
    "pcie.link.gen.current": Field("generation", "accelerator_pcie_link_generation", vital=False),
    "pcie.link.gen.max": Field("generation", "accelerator_pcie_link_max_generation", vital=False),
    "pcie.link.width.current": Field("lanes", "accelerator_pcie_link_lanes", vital=False),
    "pcie.link.width.max": Field("lanes", "accelerator_pcie_link_max_lanes", vital=False),
    "pcie.replays": Field("count", "accelerator_pcie_replays_total", vital=False),
    "pcie.tx": Field("rate", "accelerator_pcie_transmit_bytes_per_second", vital=False),
    "pcie.rx": Field("rate", "accelerator_pcie_receive_bytes_per_second", vital=False),
    "persistence_mode": _mode("accelerator_persistence_enabled"),
    "mig.mode.current": _mode("accelerator_mig_enabled"),
    "ecc.mode.current": _mode("accelerator_ecc_enabled"),
    "inforom.checksum_validation": _mode("accelerator_inforom_valid"),
    "remapped_rows.correctable": _count("accelerator_remapped_rows_total", kind="correctable"),
    "remapped_rows.uncorrectable": _count("accelerator_remapped_rows_total", kind="uncorrectable"),
    "remapped_rows.pending": _flag("accelerator_remapped_rows_pending"),
    "remapped_rows.failure": _flag("accelerator_remapped_rows_failed"),
    "retired_pages.single_bit_ecc.count": _count(
        "accelerator_retired_pages_total", kind="correctable"
    ),
    "retired_pages.double_bit.count": _count(
        "accelerator_retired_pages_total", kind="uncorrectable"
    ),
    "retired_pages.pending": _flag("accelerator_retired_pages_pending"),
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": _flag(
        "accelerator_ecc_sram_threshold_exceeded"
    ),
    "ecc.channel_repair_pending": _flag("accelerator_repair_pending", part="channel"),
    "ecc.tpc_repair_pending": _flag("accelerator_repair_pending", part="tpc"),
    "ecc.unrepairable_memory": _flag("accelerator_unrepairable_memory"),
    "reset_required": Field("flag"),
    "drain_and_reset_recommended": Field("flag"),
    **_ecc(),
    **{f"clocks_event_reasons.{reason}": _throttle(reason) for reason in REASONS},
    **{f"clocks_event_reasons_counters.{reason}": _throttled(reason) for reason in REASONS},
    **{
        f"remapped_rows.histogram.{spare}": _count("accelerator_row_banks", spare=spare)
        for spare in ("low", "none")
    },
}
"""All readings with a figure. Texts (uuid, name, fabric.*, gpu_recovery_action …) are not here."""

TEXTS = frozenset(
    {
        "uuid",
        "pci.bus_id",
        "pci.domain",
        "pci.bus",
        "pci.device",
        "name",
        "serial",
        "driver_version",
        "vbios_version",
        "minor_number",
        "index",
        "gpu_recovery_action",
        "fabric.state",
        "fabric.status",
        "fabric.cliqueId",
        "fabric.clusterUuid",
        "fabric.health.summary",
        "fabric.health.bandwidth",
        "fabric.health.route_unhealthy",
        "fabric.health.access_timeout_recovery",
        "fabric.health.incorrect_configuration",
    }
)
"""Readings that stay texts: identity, fabric, the recovery action."""
