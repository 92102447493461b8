"""The words for causes, their order, and which alert speaks of which.

Tables and look-ups only.
"""

from __future__ import annotations

from collections.abc import Mapping

LAYERS: Mapping[str, tuple[str, ...]] = {
    "card": ("card_lost", "card_uncorrectable", "card_reset_required", "driver_fault"),
    "link": ("network_outage", "link_down"),
    "host": ("host_memory",),
    "memory": ("foreign_memory", "fragmentation", "device_memory"),
    "engine": ("engine_start_failed", "engine_dead", "engine_stalled", "output_corrupt"),
    "person": ("planned",),
    "sensor": ("sensor",),
    "requests": ("saturated", "client_errors", "latency"),
    "none": ("none",),
}
"""Causes by layer, in the order in which one explains the next."""

CAUSES = tuple(cause for causes in LAYERS.values() for cause in causes)

CARD_ALERTS: Mapping[str, str] = {
    "CardLost": "card_lost",
    "CardUncorrectable": "card_uncorrectable",
    "CardResetRequired": "card_reset_required",
    "DriverFault": "driver_fault",
}
LINK_ALERTS = frozenset(
    {
        "CardLinkDown", "CardLinkFault", "CardLinkErrors", "CardNetworkUnhealthy", "LinkDown",
        "LinkFlapping", "NvlinkDown", "NvlinkFault", "NvswitchFault", "CollectiveFailed",
    }
)  # fmt: skip
GONE, STALLED, CORRUPT = "EngineDead", "EngineStalled", "OutputCorrupt"
START_FAILED = "EngineStartFailed"
HELD, OVERFLOW, FRAGMENTED = "MemoryHeldByOther", "MemoryOverflow", "MemoryFragmented"
OUTAGE = "NetworkOutage"
LATENCY_ALERTS = frozenset({"ResponseSlow", "LatencySwingHigh", "PeerLatencyHigh", "QueueGrowing"})

OOM_KINDS = frozenset(
    {"oom_device", "device_memory", "kv_cache_unavailable", "oom_foreign_process"}
)
LINK_KINDS = frozenset({"hccl_link", "nvlink_fault", "nvswitch_fault"})

_ALERT_LAYERS: Mapping[str, str] = {
    **dict.fromkeys(CARD_ALERTS, "card"),
    **dict.fromkeys(LINK_ALERTS, "link"),
    OUTAGE: "link",
    **dict.fromkeys((HELD, OVERFLOW, FRAGMENTED), "memory"),
    **dict.fromkeys((GONE, STALLED, CORRUPT, START_FAILED), "engine"),
}
_UNEXPLAINED = frozenset(
    {"AcceleratorBusy", "GpuSmOutOfRange", "L3HitRatioLow", "LowLoadNight", "InputsUnknown"}
)


def layer_of(alertname: str) -> str:
    """The layer that an alert speaks of; ``none`` for those that no fault explains."""
    if alertname in _UNEXPLAINED:
        return "none"
    return _ALERT_LAYERS.get(alertname, "requests")


def rank(cause: str) -> int:
    """Where a cause stands in the order; smaller explains larger."""
    return CAUSES.index(cause) if cause in CAUSES else len(CAUSES)


def layer_rank(layer: str) -> int:
    """Where a layer stands in the order."""
    return list(LAYERS).index(layer)
