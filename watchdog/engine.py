"""The one place where state changes: ``step(tick, inputs)`` gives the decisions of that tick.

Pure in the sense that matters: no I/O, no clock, no randomness; equal inputs from an equal start
give equal decisions, which is what recording and replaying rest on. It must not raise for anything
that an input can hold.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .cases import Healer, Healing, Sight
from .diagnosis import Readings
from .labeller import Labeller
from .model import (
    Alert,
    Batch,
    Decisions,
    Event,
    Inputs,
    Labels,
    Sample,
    Tick,
    Transition,
    labelset,
)
from .rulepack import Group, Rule
from .rules import RuleEngine, RuleError, Settings
from .rules.unknown import base_names, inputs_of
from .window import Window
from .wire import moment, number


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the engine needs of the configuration; times in seconds."""

    interval: float = 5.0
    stale_after: float = 300.0
    urgent: tuple[str, ...] = ("hardware", "serving")
    labels: Mapping[str, str] = field(default_factory=dict)
    external_labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CollectorState:
    """How a collector instance stands; times in Unix seconds, ``duration`` in seconds.

    ``since`` is when it began to succeed or fail, ``ran`` its last run, ``succeeded`` its last
    good one.
    """

    success: bool
    since: float
    error: str | None = None
    stalled: bool = False
    absent: bool = False
    duration: float = 0.0
    ran: float = 0.0
    succeeded: float | None = None


class Engine:
    """Window, alert states, collector states and cases of one node.

    ``ms`` is the time of the last step; ``warm`` says whether there is state worth keeping.
    """

    def __init__(
        self,
        settings: EngineSettings,
        groups: Sequence[Group],
        window: Window | None = None,
        healing: Healing | None = None,
    ) -> None:
        self.settings = settings
        self.window = window if window is not None else Window()
        self.collectors: dict[str, CollectorState] = {}
        self.rules = self._rule_engine(groups)
        self._bases = base_names(groups)
        self.ticks = 0
        self.ms = 0
        self.healer = Healer(healing or Healing(), settings.labels)
        self.readings = Readings(self.window)
        self._own = Labeller(settings.labels)
        self._failing: dict[str, Labels] = {}

    @property
    def warm(self) -> bool:
        """Whether anything was taken in or restored."""
        return len(self.window) > 0 or self.healer.restored

    def step(self, tick: Tick, inputs: Inputs) -> Decisions:
        """Take in what came since the last tick, evaluate the rules that are due, decide."""
        self.ms = tick.ms
        self.ticks += 1
        events: list[Event] = []
        for batch in inputs.batches:
            events.extend(self._take(tick, batch))
        word = self.healer.hear(inputs, tick.wall)
        self.window.append(self._own_batch(), tick.ms)
        only = self._urgent_groups() if tick.urgent else None
        result = self.rules.evaluate(tick.ms, self._failing, only)
        events.extend(_rule_event(problem) for problem in result.errors)
        events.extend(_transition_event(change) for change in result.transitions)
        self.healer.step(self.sight(tick), word)
        return Decisions(
            tuple(result.transitions),
            tuple(word.requests),
            tuple(word.refusals),
            (*events, *word.events),
        )

    def alerts(self) -> Sequence[Alert]:
        """All alerts that are pending, firing or recently resolved, as of the last tick."""
        return (*self.rules.alerts(), *self.healer.notices.current(self.ms / 1000))

    def sight(self, tick: Tick) -> Sight:
        """The node as of the last step, as deciding sees it."""
        firing = [alert for alert in self.rules.alerts() if alert.state == "firing"]
        return Sight(
            tick,
            firing,
            self.readings,
            self.collectors,
            lambda alert: any(self.rules.warm(rule, tick.ms) for rule in self._rules_of(alert)),
            self._owners_of,
            self.healer.healing,
        )

    def _rules_of(self, alert: Alert) -> list[Rule]:
        """The rules that may have raised an alert; rules of one name are told apart by labels."""
        named = [
            rule
            for group in self.rules.groups
            for rule in group.rules
            if rule.kind == "alert" and rule.id == alert.rule
        ]
        labels = dict(alert.labels)
        own = [
            rule
            for rule in named
            if all(labels.get(key) == text.text for key, text in rule.labels if text.constant)
        ]
        return own or named

    def _owners_of(self, alert: Alert) -> frozenset[str]:
        """The collectors that own what an alert's rules read, for the alert's service."""
        service = dict(alert.labels).get("service", "")
        found: set[str] = set()
        for rule in self._rules_of(alert):
            for name in inputs_of(rule, self._bases):
                found |= self.window.owners(name)
        return frozenset(
            owner for owner in found if not service or owner.partition("/")[2] in ("", service)
        )

    def to_prove(self, transitions: Sequence[Transition]) -> frozenset[str]:
        """The collectors of which a second reading is wanted at once: those of urgent alerts that
        have just begun to fire."""
        urgent = self._urgent_groups()
        fired = [each.alert for each in transitions if each.after == "firing"]
        names = [self._owners_of(each) for each in fired if each.rule.partition("/")[0] in urgent]
        return frozenset().union(*names)

    def replace_rules(self, groups: Sequence[Group]) -> None:
        """Judge by other rules from now on; the state of rules that did not change is kept."""
        self.rules.replace(groups, self.ms)
        self._bases = base_names(groups)

    def replace_healing(self, healing: Healing) -> None:
        """Decide by other services, policies and limits from now on; open cases go on."""
        self.healer.configure(healing)

    def replace_healer(self, healing: Healing) -> None:
        """Forget all cases and counts: what was kept of them cannot be read."""
        self.healer = Healer(healing, self.settings.labels)

    def dump(self) -> dict[str, Any]:
        """State that outlives the process, as JSON: window, alert states, failing collectors."""
        return {
            "window": self.window.dump(),
            "alerts": self.rules.dump(),
            "failing": {name: dict(scope) for name, scope in self._failing.items()},
            "healing": self.healer.dump(),
        }

    def restore(self, doc: Mapping[str, Any], now: float) -> None:
        """Take up saved state; what is older than the window's age limit is not used.

        ``now`` is Unix seconds. Raises ValueError or KeyError for a document that is not ours.
        """
        ms = round(now * 1000)
        self.window.restore(doc["window"], ms)
        self.rules.restore(doc["alerts"], ms)
        self._failing = {name: labelset(scope) for name, scope in doc["failing"].items()}
        if "healing" in doc:
            self.healer.restore(doc["healing"])

    def _rule_engine(self, groups: Sequence[Group]) -> RuleEngine:
        settings = self.settings
        return RuleEngine(
            groups,
            self.window,
            Settings(
                settings.interval,
                settings.stale_after,
                labelset(settings.external_labels),
                labels=labelset(settings.labels),
            ),
        )

    def _take(self, tick: Tick, batch: Batch) -> Iterable[Event]:
        """A batch into window and collector state; yields its events and a change of its state."""
        before = self.collectors.get(batch.collector)
        failed = batch.error is not None and not batch.absent
        if batch.error is None:
            self.window.append(batch, tick.ms)
            self._failing.pop(batch.collector, None)
        else:
            self.window.mark_stale(batch.collector, tick.ms)
            if failed:
                self._failing[batch.collector] = batch.scope
            else:
                self._failing.pop(batch.collector, None)
        state = CollectorState(
            success=batch.error is None,
            since=tick.wall,
            error=batch.error,
            stalled=batch.stalled,
            absent=batch.absent,
            duration=batch.duration,
            ran=before.ran if batch.resting and before is not None else tick.wall,
            succeeded=tick.wall if batch.error is None else _succeeded(before),
        )
        if before is not None and before.success == state.success:
            state.since = before.since
        self.collectors[batch.collector] = state
        yield from batch.events
        yield from _collector_events(batch, before, state)

    def _own_batch(self) -> Batch:
        """``up`` as the central scrape would give it, and each collector's success."""
        samples = [Sample("up", 1.0)]
        samples += [
            Sample("watchdog_collector_success", float(state.success), (("collector", name),))
            for name, state in self.collectors.items()
            if not state.absent
        ]
        samples += self.healer.tally.samples()
        if self.healer.people.current and self.window.owners("service_phase") <= {"watchdog"}:
            samples += [
                Sample("service_phase", 1.0, (("phase", phase), ("service", service)))
                for service, phase in self.healer.people.phases()
            ]
        return Batch("watchdog", (self._own.samples(samples),))

    def _urgent_groups(self) -> frozenset[str]:
        """Names of the groups that an urgent event has evaluated at once."""
        return frozenset(
            group.name
            for group in self.rules.groups
            if any(fnmatch.fnmatchcase(group.name, pattern) for pattern in self.settings.urgent)
        )


def _collector_events(
    batch: Batch, before: CollectorState | None, state: CollectorState
) -> Iterable[Event]:
    """A change, not a state: one event when a collector breaks, one when it works again."""
    labels = labelset({**dict(batch.scope), "collector": batch.collector})
    broke = not state.success and not state.absent
    if broke and (before is None or before.success or before.absent):
        kind = "collector_stalled" if batch.stalled else "collector_failed"
        if batch.resting:
            yield Event("collector_rests", f"{batch.collector}: {batch.error}", labels)
            return
        yield Event(kind, f"{batch.collector}: {batch.error}", labels, severity="warning")
    elif state.success and before is not None and not before.success and not before.absent:
        yield Event("collector_recovered", f"{batch.collector} works again", labels)


def _rule_event(problem: RuleError) -> Event:
    return Event("rule_failed", str(problem), severity="warning")


def _transition_event(change: Transition) -> Event:
    """An alert's change of state as an event of the journal."""
    alert = change.alert
    severity = dict(alert.labels).get("severity", "")
    summary = dict(alert.annotations).get("summary", "")
    return Event(
        f"alert_{change.after}",
        f"{alert.name} {change.after}" + (f": {summary}" if summary else ""),
        alert.labels,
        {
            "before": change.before,
            "after": change.after,
            "rule": alert.rule,
            "value": number(alert.value),
            "active_at": moment(alert.active_at),
            "fired_at": moment(alert.fired_at),
            "annotations": dict(alert.annotations),
        },
        severity=severity
        if severity in ("warning", "critical") and change.after == "firing"
        else "info",
    )


def _succeeded(state: CollectorState | None) -> float | None:
    return None if state is None else state.succeeded
