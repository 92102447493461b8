"""From events to what they tell of: alerts from sign to end, acts with their steps, refusals.

Looks at events only, whatever somebody wrote into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from ..model import StoredEvent
from ..records import YEAR_9999
from .model import Act, AlertSpan, Refusal, StepTaken

MOST_STEPS = 40  # of an act; the newest are told
STEP = "remediation_step"


def alerts(events: Iterable[StoredEvent]) -> list[AlertSpan]:
    """The alerts that changed, each from its first sign to its end."""
    spans: dict[tuple[Any, ...], AlertSpan] = {}
    for event in events:
        if not event.kind.startswith("alert_") or "after" not in event.fields:
            continue
        labels = dict(event.labels)
        fields = event.fields
        key = (event.labels, str(fields.get("active_at")))
        before = spans.get(key)
        annotations = fields.get("annotations")
        summary = annotations.get("summary", "") if isinstance(annotations, dict) else ""
        over = event.time if fields["after"] in ("resolved", "inactive") else None
        spans[key] = AlertSpan(
            labels.get("alertname", ""),
            {name: value for name, value in labels.items() if name != "alertname"},
            labels.get("severity", ""),
            moment(fields.get("active_at")),
            moment(fields.get("fired_at")) or (before.fired if before else None),
            over,
            str(summary) or (before.summary if before else ""),
        )
    return [span for span in spans.values() if span.fired is not None]


def acts(events: Sequence[StoredEvent]) -> list[Act]:
    """The acts that were let through, with their steps."""
    acts: list[Act] = []
    by_request: dict[str, list[StoredEvent]] = {}
    for event in events:
        by_request.setdefault(str(event.fields.get("request") or ""), []).append(event)
    for event in events:
        if event.kind != "remediation_requested":
            continue
        name = str(event.fields.get("request") or "")
        own = by_request[name] if name else []
        end = next((each for each in own if each.kind == "remediation_ended"), None)
        status = str(end.fields.get("status") or "") if end is not None else "under way"
        detail = ""
        if end is not None:
            detail = end.message.partition(f": {status}")[2].lstrip(", ")
        steps = [_step(each) for each in own if each.kind.startswith(STEP)][-MOST_STEPS:]
        attempt = event.fields.get("attempt")
        healthy = end.fields.get("seconds_to_healthy") if end is not None else None
        acts.append(
            Act(
                str(event.fields.get("remediation") or ""), name,
                attempt if isinstance(attempt, int) else 1, event.time,
                end.time if end is not None else None, status, detail, tuple(steps),
                _duration(healthy),
            )
        )  # fmt: skip
    return acts


def _step(event: StoredEvent) -> StepTaken:
    fields = event.fields
    seconds = fields.get("duration", fields.get("seconds"))
    return StepTaken(
        event.time,
        str(fields.get("step") or event.message),
        str(fields.get("status") or fields.get("state") or ""),
        _duration(seconds),
        str(fields.get("detail") or ""),
    )


def refusals(events: Iterable[StoredEvent]) -> Iterable[Refusal]:
    """What was not done, and what would have been."""
    for event in events:
        if event.kind not in ("remediation_refused", "remediation_would"):
            continue
        checks = event.fields.get("checks")
        against = {
            str(name): str(text)
            for name, text in (checks.items() if isinstance(checks, dict) else ())
            if text
        }
        yield Refusal(
            event.time,
            str(event.fields.get("remediation") or ""),
            str(event.fields.get("reason") or ""),
            event.message,
            against,
            event.kind == "remediation_would",
        )


def moment(text: Any) -> float | None:
    """An event's RFC 3339 text as Unix seconds; None where it is none."""
    try:
        seconds = datetime.fromisoformat(str(text).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < YEAR_9999 else None


def _duration(value: Any) -> float | None:
    """Seconds as an event has them; None for what lasts longer than anything here can."""
    return float(value) if isinstance(value, int | float) and 0 <= value < YEAR_9999 else None
