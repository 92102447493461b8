"""What makes a card sick, and what lets it be called healthy.

Sick is a fact that the tool states; healthy needs the key readings there and intact and no such
fact. Between the two lies unknown, which is no value at all.
"""

from __future__ import annotations

from collections.abc import Mapping

from .card import Card
from .readings import Readings, ecc_total, recovery, word
from .values import ABSENT, trouble

_FATAL_FLAGS = (
    "remapped_rows.failure",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    "ecc.unrepairable_memory",
)
_RESET_FLAGS = ("reset_required", "drain_and_reset_recommended")


def reset_required(card: Card, readings: Readings) -> float | None:
    """1 when the tool asks for a reset or a reboot, 0 when it says that none is needed."""
    if readings.reset:
        return 1.0
    known = [readings.values[name] for name in _RESET_FLAGS if name in readings.values]
    action = recovery(card.fields.get("gpu_recovery_action", ""))
    if action:
        known.append(1.0 if "reset" in action or "reboot" in action else 0.0)
    return max(known) if known else None


def health(card: Card, readings: Readings) -> float | None:
    """0 sick, 1 healthy, None unknown."""
    if _sick(card, readings):
        return 0.0
    action = card.fields.get("gpu_recovery_action", "")
    unsure = trouble(action) != ABSENT and not recovery(action)
    if readings.broken or unsure or not _intact(readings.values):
        return None
    return 1.0


def _sick(card: Card, readings: Readings) -> bool:
    values = readings.values
    if readings.lost or readings.reset:
        return True
    if recovery(card.fields.get("gpu_recovery_action", "")) not in ("", "none"):
        return True
    if any(values.get(name) == 1.0 for name in (*_FATAL_FLAGS, *_RESET_FLAGS)):
        return True
    uncorrectable = ecc_total(readings, "ecc.errors.uncorrected.volatile")
    return bool(uncorrectable) or fabric_failed(card.fields)


def _intact(values: Mapping[str, float]) -> bool:
    """Whether the readings are there without which nobody may call a card healthy."""
    busy = "utilization.gpu" in values or values.get("mig.mode.current") == 1.0
    return busy and all(
        name in values for name in ("temperature.gpu", "memory.used", "memory.total")
    )


def fabric_failed(fields: Mapping[str, str]) -> bool:
    """Registration with the fabric ended, and not well; or the fabric calls itself unhealthy."""
    ended = word(fields, "fabric.state") == "completed"
    status = word(fields, "fabric.status")
    return (ended and status not in ("", "success")) or (
        word(fields, "fabric.health.summary") == "unhealthy"
    )


def fabric_healthy(fields: Mapping[str, str]) -> float | None:
    """1 when registration with the fabric has ended well and nothing in it is degraded."""
    if fabric_failed(fields):
        return 0.0
    good = {
        "summary": ("healthy",),
        "bandwidth": ("full",),
        "route_unhealthy": ("false",),
        "access_timeout_recovery": ("false",),
        "incorrect_configuration": ("none", "false"),
    }
    for name, words in good.items():
        said = word(fields, f"fabric.health.{name}")
        if said and said not in words:
            return 0.0
    done = word(fields, "fabric.state") == "completed"
    return 1.0 if done and word(fields, "fabric.status") == "success" else None
