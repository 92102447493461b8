"""What our own metrics mean: help texts, and which type a name has on the page.

Names only; values come from the snapshot.
"""

from __future__ import annotations

OWN = (
    "accelerator_",
    "accelerators_",
    "ddr_",
    "host_",
    "l3_",
    "log_events_total",
    "log_requests_total",
    "memory_allocator_",
    "memory_fragmentation_",
    "numa_",
    "peer_",
    "process_",
    "schedule_",
    "service_",
    "vllm_orphan_processes",
    "watchdog_",
)
"""Beginnings of the names that this project gives; a foreign name's type is unknown here."""

HELP = {
    "accelerator_ecc_errors_total": "Memory errors of a card by kind: correctable, uncorrectable.",
    "accelerator_fault": "1 while a fault code is active on a card.",
    "accelerator_healthy": "1 if the card's own health report is good, 0 if it is not.",
    "accelerator_info": "1, with the card's uuid, bus address, model and driver as labels.",
    "accelerator_link_up": "1 if a link of the card is up, 0 if it is down.",
    "accelerator_memory_total_bytes": "Device memory of a card.",
    "accelerator_memory_used_bytes": "Device memory in use on a card.",
    "accelerator_power_watts": "Power drawn by a card.",
    "accelerator_present": "1 if an expected card is there, 0 if it is gone.",
    "accelerator_sm_utilization_ratio": "Share of time in which the multiprocessors were busy.",
    "accelerator_temperature_celsius": "Temperature of a card.",
    "accelerator_utilization_ratio": "Share of time in which the card computed.",
    "l3_cache_hit_ratio": "Share of L3 reads of a CPU die that hit.",
    "log_events_total": "Log records recognised, by service and kind.",
    "memory_fragmentation_ratio": "Reserved device memory that cannot be handed out.",
    "peer_reachable": "1 if a peer answers, 0 if it does not.",
    "peer_round_trip_seconds": "Round trip to a peer (a low quantile of one round of probes).",
    "process_cpu_seconds_total": "CPU time used.",
    "process_resident_memory_bytes": "Resident memory.",
    "schedule_active": "1 while a configured time window is open.",
    "service_canary_success": "1 if the canary answer was as expected, 0 if it was not.",
    "service_card": "1 for each card that a service uses.",
    "service_health": "1 if the server's health page says 200, 0 if it does not.",
    "service_mode": "1 for the mode that a service is in.",
    "service_probe_success": "1 if a real request was answered, 0 if it failed.",
    "service_probe_verdict": "1 for the verdict of the last probe.",
    "service_target": "A service's own target.",
    "service_up": "1 if the server's metrics page answers, 0 if it does not.",
    "watchdog_alerts": "Alerts by name and state.",
    "watchdog_build_info": "1, with the daemon's version as a label.",
    "watchdog_collector_duration_seconds": "Duration of a collector's last run.",
    "watchdog_collector_last_success_timestamp_seconds": (
        "When a collector last gave its samples: what its series still tell is of then."
    ),
    "watchdog_collector_stalled": "1 while a collector is past its deadline or its tool is stuck.",
    "watchdog_collector_success": "1 if a collector's last run gave its samples, 0 if not.",
    "watchdog_journal_bytes": "Size of the journal in use.",
    "watchdog_journal_errors_total": "Writes that the journal could not take.",
    "watchdog_journal_events_total": "Events written to the journal since the start.",
    "watchdog_outlet_errors_total": "Failed deliveries of an outlet.",
    "watchdog_outlet_lag_events": "Events or alerts that wait for an outlet.",
    "watchdog_outlet_lost_total": "Events or alerts that an outlet dropped unsent.",
    "watchdog_outlet_refused_total": "Events or alerts that the other side refused for good.",
    "watchdog_outlet_sent_total": "Events or alerts delivered by an outlet.",
    "watchdog_outlet_up": "1 if an outlet's last delivery succeeded, 0 if it failed.",
    "watchdog_remediation_attempts_total": "Acts that were let through, by act and service.",
    "watchdog_remediation_detection_seconds": (
        "From the first bad sample to the alert's firing, of the last act."
    ),
    "watchdog_remediation_healthy_seconds": (
        "From the first bad sample to the end of the last act that helped."
    ),
    "watchdog_remediation_moved_seconds": (
        "From the first bad sample until users no longer reached the sick instance."
    ),
    "watchdog_remediation_outcomes_total": "Ends of acts, by act and status.",
    "watchdog_remediation_refusals_total": "Acts that the guard refused, by its first reason.",
    "watchdog_rule_evaluation_failures_total": "Rule evaluations that failed.",
    "watchdog_rule_missed_total": "Rule group evaluations skipped because one was late.",
    "watchdog_tick_duration_seconds": "Duration of the last tick.",
    "watchdog_tick_timestamp_seconds": "Time of the last finished tick.",
    "watchdog_ticks_late_total": "Ticks that began late.",
    "watchdog_ticks_total": "Finished ticks.",
    "watchdog_window_points_dropped_total": "Points that did not fit into the window.",
    "watchdog_window_series": "Series in the window.",
}


def own(name: str) -> bool:
    """Whether the name is one that this project gives."""
    return name.startswith(OWN)


def help_text(name: str) -> str:
    """One sentence about a metric."""
    known = HELP.get(name)
    if known is not None:
        return known
    if own(name):
        words = name.removesuffix("_total").replace("_", " ")
        return f"{words[0].upper()}{words[1:]}."
    return "Passed through from a server's metrics page."
