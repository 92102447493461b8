"""The alert ``InputsUnknown``: a collector has failed for so long that rules are in the dark."""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Labels, labelset
from ..promql import load
from ..rulepack import Rule
from ..templates import parse_template
from ..window import Window
from .series import AlertSeries
from .states import Change, Found, Moment, RuleState

INPUTS_UNKNOWN = "InputsUnknown"
_GROUP = "watchdog"


class Failures:
    """One alert per failing collector: pending at first, firing after ``stale_after`` seconds."""

    def __init__(self, stale_after: float, labels: Labels = ()) -> None:
        """``labels`` (job, instance) tell this node's alerts from those of others."""
        self._labels = dict(labels)
        self.state = RuleState(_rule(stale_after))
        self._series = AlertSeries(_GROUP, INPUTS_UNKNOWN)

    @property
    def collectors(self) -> set[str]:
        """The collectors that there is an alert for, resolved ones included."""
        return {dict(labels)["collector"] for labels in self.state.active}

    def evaluate(self, failing: Iterable[str], window: Window, ms: int) -> list[Change]:
        """Take the collectors that fail at ``ms`` and return what changed."""
        found = {}
        for owner in failing:
            given = {**self._labels, "collector": owner}
            labels = labelset({**given, "alertname": INPUTS_UNKNOWN, "severity": "warning"})
            found[labels] = Found(labels, labelset(given), 1.0)
        if not found and not self.state.active:
            return []
        changes = self.state.evaluate(found, Moment(ms))
        self._series.write(self.state.active.values(), window, ms)
        return changes


def _rule(stale_after: float) -> Rule:
    text = "The collector {{ $labels.collector }} has failed for long: what it watches is unknown."
    template, _ = parse_template(text, INPUTS_UNKNOWN)
    return Rule(
        "alert",
        INPUTS_UNKNOWN,
        _GROUP,
        1,
        "",
        load("vector(1)"),
        for_=stale_after,
        annotations=(("summary", template),),
    )
