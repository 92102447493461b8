"""A group of rules: evaluates them in order at one timestamp and says when it is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ..model import Alert, AlertState, Batch, Labels, Page, Transition
from ..promql import Prepared, PromqlError
from ..rulepack import Group, Rule
from ..templates import Context
from ..window import Window
from .evaluation import Labeller, Query, Recorder, elements, findings
from .series import AlertSeries
from .states import Active, Change, Moment, RuleFailed, RuleState, snapshot, strongest, united

RECORDER = "rules/"
"""Begins the owner's name of every recorded series; no collector is called so."""


@dataclass(frozen=True, slots=True)
class RuleError:
    """Why a rule gave no result at this evaluation."""

    group: str
    rule: str
    number: int
    message: str


@dataclass(slots=True)
class Recording:
    """A recording rule at work."""

    rule: Rule
    prepared: Prepared
    recorder: Recorder

    @property
    def owner(self) -> str:
        """The owner of its series."""
        return f"{RECORDER}{self.rule.group}/{self.rule.number}"


@dataclass(slots=True)
class Alerting:
    """An alerting rule at work. ``series`` is set on the last rule of its name in the group."""

    rule: Rule
    prepared: Prepared
    labeller: Labeller
    state: RuleState
    series: AlertSeries | None = None


Told = Callable[[Rule, Active], Labels]
"""Gives the annotations of an alert as of its last evaluation."""


@dataclass(slots=True)
class Turn:
    """One evaluation of a group, with what comes out of it."""

    ms: int
    window: Window
    context: Context
    moment: Callable[[Rule], Moment]
    annotations: Told
    transitions: list[Transition] = field(default_factory=list)
    errors: list[RuleError] = field(default_factory=list)


class GroupRun:
    """The rules of a group with their states."""

    def __init__(self, group: Group, query: Query, interval: float) -> None:
        self.group = group
        self.interval = group.interval or interval
        self.frequent = self.interval <= interval
        self.last_ms: int | None = None
        self.evaluations = self.failures = self.missed = 0
        self.rules = [_at_work(rule, query) for rule in group.rules]
        self._names: dict[str, list[Alerting]] = {}
        for rule in self.rules:
            if isinstance(rule, Alerting):
                self._names.setdefault(rule.rule.name, []).append(rule)
        for name, same in self._names.items():
            same[-1].series = AlertSeries(group.name, name)

    @property
    def alerting(self) -> Iterable[Alerting]:
        """The alerting rules, in order."""
        return [rule for rule in self.rules if isinstance(rule, Alerting)]

    @property
    def owners(self) -> set[str]:
        """The owners of all series that the group writes."""
        found = {rule.owner for rule in self.rules if isinstance(rule, Recording)}
        return found | {rule.series.owner for rule in self.alerting if rule.series}

    def due(self, ms: int) -> bool:
        """Whether the group's next turn has come; missed turns are counted, never made up for."""
        if self.last_ms is None:
            return True
        step = round(self.interval * 1000)
        if self.frequent:
            self.missed += max(0, round((ms - self.last_ms) / step) - 1)
            return True
        turns = ms // step - self.last_ms // step
        self.missed += max(0, turns - 1)
        return turns > 0

    def evaluate(self, turn: Turn) -> None:
        """Evaluate all rules at ``turn.ms``; a rule's failure leaves the others alone."""
        self.evaluations += 1
        for rule in self.rules:
            self._attempt(rule, turn)

    def _attempt(self, rule: Recording | Alerting, turn: Turn) -> None:
        try:
            if isinstance(rule, Recording):
                self._record(rule, turn)
            else:
                self._alert(rule, turn)
        except (PromqlError, RuleFailed) as error:
            self.failures += 1
            source = rule.rule
            turn.errors.append(RuleError(source.group, source.name, source.number, str(error)))

    def _record(self, rule: Recording, turn: Turn) -> None:
        found = elements(rule.prepared, turn.ms)
        keys, values = rule.recorder.page(found)
        if self.group.limit and len(keys) > self.group.limit:
            raise RuleFailed(f"exceeded limit of {self.group.limit} with {len(keys)} series")
        pages = (Page(keys, values),) if keys else ()
        turn.window.append(Batch(rule.owner, pages), turn.ms)

    def _alert(self, rule: Alerting, turn: Turn) -> None:
        found = elements(rule.prepared, turn.ms)
        state = rule.state
        if found or state.active:
            results = findings(rule.labeller, found, turn.context)
            before = self._before(rule)
            changes = state.evaluate(results, turn.moment(rule.rule))
            over = state.over(self.group.limit)
            if over:
                changes = state.clear(changes)
            self._tell(rule, changes, before, turn)
            if over:
                raise RuleFailed(over)
        if rule.series:
            same = self._names[rule.rule.name]
            alerts = (alert for each in same for alert in each.state.active.values())
            rule.series.write(alerts, turn.window, turn.ms)

    def _before(self, rule: Alerting) -> Mapping[Labels, AlertState]:
        """What rules of one name together say of each label set, where there are several."""
        same = self._names[rule.rule.name]
        if len(same) == 1:
            return {}
        labels = {key for each in same for key in each.state.active}
        return {key: self._together(same, key) for key in labels}

    @staticmethod
    def _together(same: Iterable[Alerting], labels: Labels) -> AlertState:
        return strongest(
            each.state.active[labels].state for each in same if labels in each.state.active
        )

    def _tell(
        self,
        rule: Alerting,
        changes: Iterable[Change],
        before: Mapping[Labels, AlertState],
        turn: Turn,
    ) -> None:
        same = self._names[rule.rule.name]
        for active, was in changes:
            if active.state == was:
                continue
            alert = snapshot(active, rule.rule, turn.annotations(rule.rule, active))
            if len(same) == 1:
                turn.transitions.append(Transition(alert, was, active.state))
                continue
            earlier = before.get(active.labels, "inactive")
            after = self._together(same, active.labels)
            if earlier != after:
                strong = self._united(same, active.labels, turn.annotations) or alert
                turn.transitions.append(Transition(strong, earlier, after))

    def _united(self, same: Iterable[Alerting], labels: Labels, told: Told) -> Alert | None:
        found = [
            snapshot(
                each.state.active[labels], each.rule, told(each.rule, each.state.active[labels])
            )
            for each in same
            if labels in each.state.active
        ]
        return united(found) if found else None

    def alerts(self, told: Told) -> Iterable[Alert]:
        """Every alert that is pending, firing or not long resolved, those of one name united."""
        for same in self._names.values():
            for labels in dict.fromkeys(key for each in same for key in each.state.active):
                alert = self._united(same, labels, told)
                if alert is not None:
                    yield alert


def _at_work(rule: Rule, query: Query) -> Recording | Alerting:
    prepared = query.prepare(rule.expr)
    if rule.kind == "record":
        return Recording(rule, prepared, Recorder(rule))
    return Alerting(rule, prepared, Labeller(rule), RuleState(rule))


__all__ = ["RECORDER", "GroupRun", "RuleError", "Told", "Turn"]
