"""The alerts of one rule from evaluation to evaluation: inactive, pending, firing, resolved.

The life cycle is Prometheus'; beyond it, an alert whose inputs are unknown is held as it is. Time
comes in as an argument and nothing is read or written here. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Literal

from ..errors import WatchdogError
from ..model import Alert, AlertState, Labels
from ..rulepack import Rule

RESOLVED_RETENTION = 15 * 60.0
"""How long a resolved alert is remembered, so that outlets can tell it again and again."""

Live = Literal["pending", "firing"]


class RuleFailed(WatchdogError):
    """A rule could not be evaluated; its alerts stay as they are unless it says otherwise."""


@dataclass(slots=True)
class Active:
    """One label set of a rule. ``metric`` are the result's own labels (what ``$labels`` shows);
    ``seen_ms`` is the evaluation that last found it in the result."""

    labels: Labels
    metric: Labels
    value: float
    active_at: float
    seen_ms: int
    state: AlertState = "pending"
    fired_at: float | None = None
    resolved_at: float | None = None
    keep_since: float | None = None
    unknown_since: float | None = None
    restored: bool = False
    annotations: Labels | None = None  # None: to be expanded when somebody reads it

    @property
    def live(self) -> bool:
        """Whether it is pending or firing."""
        return self.state in ("pending", "firing")


@dataclass(frozen=True, slots=True)
class Found:
    """One element of a rule's result: the alert's labels, the result's, and the value."""

    labels: Labels
    metric: Labels
    value: float


Change = tuple[Active, AlertState]
"""An alert that changed, and the state that it had before."""


@dataclass(slots=True)
class Moment:
    """One evaluation of a rule.

    ``unknown`` tells for a result's labels whether the inputs behind them are unknown now;
    ``warm`` whether the window covers what the rule looks back to; ``elapsed`` are the seconds
    since the evaluation before.
    """

    ms: int
    elapsed: float = 0.0
    unknown: Callable[[Labels], bool] | None = None
    warm: bool = True

    @property
    def now(self) -> float:
        """The moment in Unix seconds."""
        return self.ms / 1000


@dataclass(slots=True)
class RuleState:
    """A rule and its alerts by label set."""

    rule: Rule
    active: dict[Labels, Active] = field(default_factory=dict)
    asks: bool = field(init=False)

    def __post_init__(self) -> None:
        self.asks = any(template.asks for _, template in self.rule.annotations)

    def evaluate(self, found: Mapping[Labels, Found], moment: Moment) -> list[Change]:
        """Take one result and return what changed."""
        changes: list[Change] = []
        for labels, element in found.items():
            self._found(labels, element, moment, changes)
        for labels, alert in list(self.active.items()):
            if labels not in found:
                self._missing(labels, alert, moment, changes)
        self._fire(moment, changes)
        return changes

    def over(self, limit: int) -> str:
        """Say that there are more alerts than ``limit`` (0: none), else nothing."""
        if not limit:
            return ""
        count = sum(alert.live for alert in self.active.values())
        return f"exceeded limit of {limit} with {count} alerts" if count > limit else ""

    def clear(self, changes: Iterable[Change]) -> list[Change]:
        """Drop every alert; ``changes`` of this evaluation are told from the state before them."""
        before = {alert.labels: was for alert, was in changes}
        cleared: list[Change] = []
        for labels, alert in self.active.items():
            was = before.get(labels, alert.state)
            alert.state = "inactive"
            cleared.append((alert, was))
        self.active.clear()
        return cleared

    def _found(self, labels: Labels, element: Found, moment: Moment, changes: list[Change]) -> None:
        alert = self.active.get(labels)
        held = moment.unknown is not None and moment.unknown(element.metric)
        if alert is not None and alert.live:
            alert.restored = False
            if held:
                _hold(alert, moment)
                return
            alert.unknown_since = alert.keep_since = None
            if self.asks or alert.value != element.value or alert.metric != element.metric:
                alert.annotations = None
            alert.value, alert.metric, alert.seen_ms = element.value, element.metric, moment.ms
        elif not held:
            before = alert.state if alert else "inactive"
            fresh = Active(labels, element.metric, element.value, moment.now, moment.ms)
            self.active[labels] = fresh
            changes.append((fresh, before))

    def _missing(
        self, labels: Labels, alert: Active, moment: Moment, changes: list[Change]
    ) -> None:
        if alert.state == "resolved":
            if moment.now - (alert.resolved_at or 0.0) > RESOLVED_RETENTION:
                self._drop(labels, alert, changes)
            return
        waiting = alert.restored and not moment.warm
        if waiting or (moment.unknown is not None and moment.unknown(alert.metric)):
            _hold(alert, moment)
            return
        alert.unknown_since = None
        alert.restored = False
        if alert.state == "pending":
            self._drop(labels, alert, changes)
        elif not self._keeps(alert, moment):
            alert.state, alert.resolved_at = "resolved", moment.now
            changes.append((alert, "firing"))

    def _drop(self, labels: Labels, alert: Active, changes: list[Change]) -> None:
        before = alert.state
        del self.active[labels]
        alert.state = "inactive"
        changes.append((alert, before))

    def _keeps(self, alert: Active, moment: Moment) -> bool:
        if not self.rule.keep_firing_for:
            return False
        if alert.keep_since is None:
            alert.keep_since = moment.now
        return moment.now - alert.keep_since < self.rule.keep_firing_for

    def _fire(self, moment: Moment, changes: list[Change]) -> None:
        changed = {id(alert) for alert, _ in changes}
        for alert in self.active.values():
            if alert.state != "pending" or alert.unknown_since is not None:
                continue
            if moment.now - alert.active_at >= self.rule.for_:
                alert.state, alert.fired_at = "firing", moment.now
                if id(alert) not in changed:
                    changes.append((alert, "pending"))


def _hold(alert: Active, moment: Moment) -> None:
    """Freeze an alert whose inputs are unknown: its clocks stand still."""
    if alert.unknown_since is None:
        alert.unknown_since = moment.now
    if alert.state == "pending":
        alert.active_at += moment.elapsed
    if alert.keep_since is not None:
        alert.keep_since += moment.elapsed


def snapshot(alert: Active, rule: Rule, annotations: Labels) -> Alert:
    """Return the alert as a value that may leave this room."""
    if alert.unknown_since is not None:
        told = ("unknown_since", rfc3339(alert.unknown_since))
        annotations = tuple(sorted((*annotations, told)))
    return Alert(
        rule.id,
        alert.labels,
        alert.state,
        alert.active_at,
        alert.value,
        annotations,
        alert.fired_at,
        alert.resolved_at,
        alert.keep_since,
        alert.unknown_since,
    )


_RANK = {"firing": 3, "pending": 2, "resolved": 1, "inactive": 0}


def united(alerts: Iterable[Alert]) -> Alert:
    """Make one alert of those that several rules of one name have for one label set.

    The strongest state counts, and in it the one that is longest there.
    """
    return min(alerts, key=lambda a: (-_RANK[a.state], a.fired_at or a.active_at, a.active_at))


def strongest(states: Iterable[AlertState]) -> AlertState:
    """The state that counts among those of several rules."""
    return max(states, key=_RANK.__getitem__, default="inactive")


def rfc3339(seconds: float) -> str:
    """Write Unix seconds as RFC 3339 in UTC, milliseconds where there are any."""
    moment = datetime.fromtimestamp(round(seconds, 3), tz=timezone.utc)
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
