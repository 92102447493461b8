"""The moments of an incident that every plot shows: alerts that fired, acts, the end."""

from __future__ import annotations

from .model import Report
from .svg import Mark
from .words import clock

MOST = 12


def marks_of(report: Report) -> list[Mark]:
    """Uprights and bands for the plots, bounded."""
    marks = [
        Mark("alert", alert.fired, None, f"{clock(alert.fired)} {alert.name} fires")
        for alert in report.alerts[:MOST]
        if alert.fired is not None
    ]
    for act in report.acts[:MOST]:
        end = act.ended if act.ended is not None else report.end
        text = f"{clock(act.began)} to {clock(end)} {act.remediation}: {act.status}"
        marks.append(Mark("act", act.began, end, text))
    closed = report.incident.closed
    if closed is not None and report.incident.key:
        marks.append(Mark("over", closed, None, f"{clock(closed)} the case is over"))
    return marks
