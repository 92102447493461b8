"""The series that alerts leave in the window: ALERTS and ALERTS_FOR_STATE."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import NAME, Batch, Labels, Page, labelset
from ..window import Window
from .states import Active

OWNER = "alerts/"
"""Begins the owner's name of every such series; no collector is called so."""


class AlertSeries:
    """Writes the series of the rules of one alert name in one group, and ends them with it."""

    def __init__(self, group: str, name: str) -> None:
        self.owner = f"{OWNER}{group}/{name}"
        self._signature: tuple[tuple[Labels, str], ...] = ()
        self._keys: tuple[Labels, ...] = ()

    def write(self, alerts: Iterable[Active], window: Window, ms: int) -> None:
        """Write one sample of each series for what is pending or firing at ``ms``."""
        live = {(alert.labels, alert.state): alert for alert in alerts if alert.live}
        if not live and not self._keys:
            return
        signature = tuple(live)
        if signature != self._signature:
            self._signature = signature
            self._keys = tuple(_keys(signature))
        values: list[float] = []
        for alert in live.values():
            values += (1.0, float(int(alert.active_at)))
        pages = (Page(self._keys, tuple(values)),) if live else ()
        window.append(Batch(self.owner, pages), ms)


def _keys(signature: Iterable[tuple[Labels, str]]) -> Iterable[Labels]:
    for labels, state in signature:
        yield labelset({**dict(labels), "alertstate": state, NAME: "ALERTS"})
        yield labelset({**dict(labels), NAME: "ALERTS_FOR_STATE"})
