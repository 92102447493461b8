"""Alert states as JSON, and back: what must outlive a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..model import Labels, labelset
from .states import Active, RuleState

_TIMES = ("active_at", "fired_at", "resolved_at", "keep_since", "unknown_since")
_STATES = ("pending", "firing", "resolved")
TOLERANCE = 3600.0
"""A pending alert is not taken up again after a longer outage (as in Prometheus)."""


def saved(states: Iterable[RuleState]) -> list[dict[str, Any]]:
    """Return every alert as a JSON object."""
    return [
        {
            "rule": state.rule.id,
            "fingerprint": state.rule.fingerprint,
            "labels": dict(alert.labels),
            "metric": dict(alert.metric),
            "state": alert.state,
            "value": repr(alert.value),
            "annotations": None if alert.annotations is None else dict(alert.annotations),
            "seen_ms": alert.seen_ms,
            **{name: getattr(alert, name) for name in _TIMES},
        }
        for state in states
        for alert in state.active.values()
    ]


def restored(
    doc: Mapping[str, Any], states: Iterable[RuleState], *, gone: float, mark: bool
) -> int:
    """Give the states back their alerts; return how many.

    ``gone`` seconds do not count for the clocks; with ``mark`` the alerts wait for fresh samples.
    """
    by_rule: dict[tuple[str, str], RuleState] = {}
    for state in states:
        by_rule.setdefault((state.rule.id, state.rule.fingerprint), state)
    count = 0
    for entry in doc["alerts"]:
        found = by_rule.get((entry["rule"], entry["fingerprint"]))
        if found is None or entry["state"] not in _STATES:
            continue
        if entry["state"] == "pending" and gone > TOLERANCE:
            continue
        alert = _alert(entry, gone)
        alert.restored = mark and alert.live
        found.active.setdefault(alert.labels, alert)
        count += 1
    return count


def _alert(entry: Mapping[str, Any], gone: float) -> Active:
    times = {name: _time(entry[name]) for name in _TIMES}
    notes = entry["annotations"]
    alert = Active(
        _labels(entry["labels"]),
        _labels(entry["metric"]),
        float(entry["value"]),
        times["active_at"] or 0.0,
        int(entry["seen_ms"]),
        entry["state"],
        times["fired_at"],
        times["resolved_at"],
        times["keep_since"],
        times["unknown_since"],
        annotations=None if notes is None else _labels(notes),
    )
    if alert.state == "pending":
        alert.active_at += gone
    if alert.keep_since is not None:
        alert.keep_since += gone
    return alert


def _time(value: Any) -> float | None:
    return None if value is None else float(value)


def _labels(value: Mapping[str, Any]) -> Labels:
    return labelset({str(key): str(text) for key, text in value.items()})
