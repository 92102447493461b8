"""What the page is made from: the daemon's documents of one moment, fetched together."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...model import Json
from .. import Views
from .words import figure, seconds_of

ACTS = "remediation_requested,remediation_step,remediation_ended,remediation_withdrawn"
REFUSALS = "remediation_refused,remediation_would,page_sent"
ACT_EVENTS = 400  # looked through for the acts shown
SHOWN = 10  # acts, refusals, incidents
INCIDENTS_KEPT = 15.0  # seconds for which a list of incidents serves everybody


@dataclass(frozen=True, slots=True)
class Docs:
    """``now``: the last tick in Unix seconds, None before the first; ``acts``, ``refusals``:
    events, oldest first."""

    version: str
    status: Json
    healing: Json
    alerts: Sequence[Json]
    acts: Sequence[Json]
    refusals: Sequence[Json]
    incidents: Sequence[Json]
    failures: Mapping[str, float]

    @property
    def now(self) -> float | None:
        """The moment of all this."""
        return seconds_of(self.status.get("time"))

    def services(self) -> list[dict[str, Any]]:
        """A service each: what is read of it, and what was done to it."""
        healing = {each["service"]: each for each in self.healing.get("services", ())}
        return [
            {**healing.get(each["service"], {}), **each} for each in self.status.get("services", ())
        ]


class Reader:
    """Fetches the documents. May be called from many threads."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self._lock = threading.Lock()
        self._incidents: Sequence[Json] = ()
        self._until = float("-inf")

    def read(self) -> Docs:
        """All of it as of now."""
        views = self._views
        status = views.status()
        return Docs(
            str(status.get("version") or ""),
            status,
            views.healing(),
            views.alerts(),
            views.events(0, ACT_EVENTS, {"kind": ACTS}),
            views.events(0, SHOWN, {"kind": REFUSALS}),
            self._newest_incidents(seconds_of(status.get("time"))),
            _failures(views.figures()),
        )

    def _newest_incidents(self, now: float | None) -> Sequence[Json]:
        """They are looked for in the whole journal, so not for each who looks."""
        with self._lock:
            if now is None or not self._until - INCIDENTS_KEPT <= now < self._until:
                self._incidents = list(self._views.incidents())[:SHOWN]
                self._until = (now or 0.0) + INCIDENTS_KEPT
            return self._incidents


def _failures(figures: Json) -> dict[str, float]:
    """The newest share of failed requests by service."""
    lines = [
        line
        for plot in figures.get("plots", ())
        if plot["name"] == "failures"
        for line in plot["lines"]
    ]
    newest = {line["name"]: figure(line["values"][-1]) for line in lines if line["values"]}
    return {name: value for name, value in newest.items() if value is not None}
