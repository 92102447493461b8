"""Where in the XML log each reading stands, for every driver: element path -> reading."""

from __future__ import annotations

from typing import Any

from .fields import REASONS

_ECC_OLD = {
    "total": "total",
    "device_memory": "device_memory",
}


def _ecc(counter: str) -> dict[str, Any]:
    right, wrong = f"ecc.errors.corrected.{counter}", f"ecc.errors.uncorrected.{counter}"
    return {
        "single_bit": {tag: f"{right}.{name}" for tag, name in _ECC_OLD.items()},
        "double_bit": {tag: f"{wrong}.{name}" for tag, name in _ECC_OLD.items()},
        "sram_correctable": f"{right}.sram",
        "dram_correctable": f"{right}.dram",
        "sram_uncorrectable": f"{wrong}.sram",
        "dram_uncorrectable": f"{wrong}.dram",
        "sram_uncorrectable_parity": f"{wrong}.sram.parity",
        "sram_uncorrectable_secded": f"{wrong}.sram.secded",
        "sram_threshold_exceeded": "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    }


_REASONS = {name: f"clocks_event_reasons.{name}" for name in REASONS}
_COUNTERS = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
}
_POWER = {
    "power_draw": "power.draw",
    "average_power_draw": "power.draw.average",
    "instant_power_draw": "power.draw.instant",
    "power_limit": "power.limit",
    "current_power_limit": "power.limit",
    "enforced_power_limit": "enforced.power.limit",
    "default_power_limit": "power.default_limit",
}
_CLOCKS = {"graphics_clock": "graphics", "sm_clock": "sm", "mem_clock": "memory"}
_MEMORY = {name: f"memory.{name}" for name in ("total", "used", "free", "reserved")}

TREE: dict[str, Any] = {
    "product_name": "name",
    "serial": "serial",
    "uuid": "uuid",
    "minor_number": "minor_number",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "gpu_recovery_action": "gpu_recovery_action",
    "fan_speed": "fan.speed",
    "performance_state": "pstate",
    "mig_mode": {"current_mig": "mig.mode.current"},
    "ecc_mode": {"current_ecc": "ecc.mode.current"},
    "gpu_reset_status": {
        "reset_required": "reset_required",
        "drain_and_reset_recommended": "drain_and_reset_recommended",
    },
    "pci": {
        "pci_bus_id": "pci.bus_id",
        "pci_domain": "pci.domain",
        "pci_bus": "pci.bus",
        "pci_device": "pci.device",
        "pci_gpu_link_info": {
            "pcie_gen": {
                "max_link_gen": "pcie.link.gen.max",
                "current_link_gen": "pcie.link.gen.current",
            },
            "link_widths": {
                "max_link_width": "pcie.link.width.max",
                "current_link_width": "pcie.link.width.current",
            },
        },
        "replay_counter": "pcie.replays",
        "tx_util": "pcie.tx",
        "rx_util": "pcie.rx",
    },
    "clocks_throttle_reasons": {f"clocks_throttle_reason_{k}": v for k, v in _REASONS.items()},
    "clocks_event_reasons": {f"clocks_event_reason_{k}": v for k, v in _REASONS.items()},
    "clocks_event_reasons_counters": {
        f"clocks_event_reasons_counters_{k}": f"clocks_event_reasons_counters.{v}"
        for k, v in _COUNTERS.items()
    },
    "fb_memory_usage": _MEMORY,
    "memory_usage": _MEMORY,  # before driver 340
    "utilization": {
        "gpu_util": "utilization.gpu",
        "memory_util": "utilization.memory",
        "encoder_util": "utilization.encoder",
        "decoder_util": "utilization.decoder",
        "jpeg_util": "utilization.jpeg",
        "ofa_util": "utilization.ofa",
    },
    "ecc_errors": {
        "volatile": _ecc("volatile"),
        "aggregate": _ecc("aggregate"),
        "channel_repair_pending": "ecc.channel_repair_pending",
        "tpc_repair_pending": "ecc.tpc_repair_pending",
        "unrepairable_memory": "ecc.unrepairable_memory",
    },
    "retired_pages": {
        "multiple_single_bit_retirement": {"retired_count": "retired_pages.single_bit_ecc.count"},
        "double_bit_retirement": {"retired_count": "retired_pages.double_bit.count"},
        "pending_retirement": "retired_pages.pending",
        "pending_blacklist": "retired_pages.pending",
    },
    "remapped_rows": {
        "remapped_row_corr": "remapped_rows.correctable",
        "remapped_row_unc": "remapped_rows.uncorrectable",
        "remapped_row_pending": "remapped_rows.pending",
        "remapped_row_failure": "remapped_rows.failure",
        "row_remapper_histogram": {
            f"row_remapper_histogram_{name}": f"remapped_rows.histogram.{name}"
            for name in ("low", "none")
        },
    },
    "temperature": {
        "gpu_temp": "temperature.gpu",
        "memory_temp": "temperature.memory",
        "gpu_temp_tlimit": "temperature.gpu.tlimit",
    },
    "power_readings": _POWER,
    "gpu_power_readings": _POWER,
    "gpu_memory_power_readings": {"average_power_draw": "memory.power.draw.average"},
    "module_power_readings": {
        "average_power_draw": "module.power.draw.average",
        "power_draw": "module.power.draw.average",
    },
    "clocks": {
        **{tag: f"clocks.current.{name}" for tag, name in _CLOCKS.items()},
        "video_clock": "clocks.current.video",
    },
    "max_clocks": {tag: f"clocks.max.{name}" for tag, name in _CLOCKS.items()},
    "fabric": {
        "state": "fabric.state",
        "status": "fabric.status",
        "cliqueId": "fabric.cliqueId",
        "clusterUuid": "fabric.clusterUuid",
        "health": {
            name: f"fabric.health.{name}"
            for name in (
                "summary",
                "bandwidth",
                "route_unhealthy",
                "access_timeout_recovery",
                "incorrect_configuration",
            )
        },
    },
}
"""Element path -> reading. One name may stand under several parents; never search without it."""

INSTANCE_TREE: dict[str, Any] = {
    "fb_memory_usage": _MEMORY,
    "ecc_error_count": {
        "volatile_count": {"sram_uncorrectable": "ecc.errors.uncorrected.volatile.sram"}
    },
}
