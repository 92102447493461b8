"""All groups over one window: evaluates what is due, keeps the alerts, tells what changed.

Pure: time and failing collectors come in as arguments; the only thing written is the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model import Alert, Labels, Transition
from ..promql import Evaluator, Expr, PromqlError, load
from ..rulepack import Group, Rule
from ..templates import CallError, Context
from ..window import Window
from .evaluation import Query
from .failures import Failures
from .group import GroupRun, RuleError, Turn
from .saving import restored, saved
from .states import Active, Moment, RuleState, snapshot
from .unknown import Owners, base_names, darkness, inputs_of
from .warmth import Warmth


@dataclass(frozen=True, slots=True)
class Settings:
    """``interval`` and ``stale_after`` in seconds. What templates see of the outside."""

    interval: float = 5.0
    stale_after: float = 300.0
    external_labels: Labels = ()
    external_url: str = ""
    labels: Labels = ()  # job and instance, for the one alert that no series gives its labels


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the start, per group: evaluations, failed rule evaluations, missed turns."""

    evaluations: Mapping[str, int]
    failures: Mapping[str, int]
    missed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What one call of ``evaluate`` brought: changes of state, and rules that failed."""

    transitions: tuple[Transition, ...] = ()
    errors: tuple[RuleError, ...] = ()
    evaluated: tuple[str, ...] = ()


@dataclass(slots=True)
class _Run:
    """What holds during one call."""

    ms: int
    failing: Mapping[str, Mapping[str, str]]
    context: Context


class RuleEngine:
    """The rules at work. Make one per set of loaded groups; ``replace`` takes a new set."""

    def __init__(
        self, groups: Sequence[Group], window: Window, settings: Settings | None = None
    ) -> None:
        self._window = window
        self.settings = settings or Settings()
        self._owners = Owners()
        self._warmth = Warmth()
        self._restored = False  # whether alerts of an earlier run may still wait for their series
        self._loaded: dict[str, Expr] = {}
        self._failures = Failures(self.settings.stale_after, self.settings.labels)
        self._last_ms: int | None = None
        self._contexts: dict[int, Context] = {}
        self._install(groups)

    def _install(self, groups: Sequence[Group]) -> None:
        step = round(self.settings.interval * 1000)
        self._query = Query(Evaluator(self._window, step_ms=step))
        self.groups = tuple(groups)
        self._runs = [GroupRun(group, self._query, self.settings.interval) for group in groups]
        bases = base_names(groups)
        self._inputs = {
            rule.key: inputs_of(rule, bases) for group in groups for rule in group.rules
        }
        self._names = frozenset().union(*self._inputs.values()) if self._inputs else frozenset()
        self._keep()

    def _keep(self) -> None:
        """Ask the window to keep what the rules look back to."""
        for group in self.groups:
            offset = round(group.query_offset * 1000)
            for rule in group.rules:
                for name, ms in rule.reach.items():
                    if ms + offset > self._window.retention_ms:
                        self._window.keep(name, ms + offset)

    # Evaluating

    def evaluate(
        self,
        ms: int,
        failing: Mapping[str, Mapping[str, str] | Labels] | None = None,
        only_groups: Iterable[str] | None = None,
    ) -> EvaluationResult:
        """Evaluate the groups that are due at ``ms`` (with ``only_groups``: those, due or not).

        ``failing`` names the collectors that fail just now, with the labels that all their series
        carry. Nothing raises: a rule that fails is in ``errors``.
        """
        self._warmth.start(ms)
        scopes = {owner: dict(scope) for owner, scope in (failing or {}).items()}
        new = scopes.keys() - self._failures.collectors
        self._owners.refresh(self._window, self._names, ms, now=bool(new))
        turn = _Run(ms, scopes, self._context(ms))
        chosen = None if only_groups is None else set(only_groups)
        transitions: list[Transition] = []
        errors: list[RuleError] = []
        evaluated: list[str] = []
        for run in self._runs:
            if run.last_ms != ms and (run.due(ms) if chosen is None else run.group.name in chosen):
                done = self._evaluate(run, turn)
                transitions += done.transitions
                errors += done.errors
                evaluated.append(run.group.name)
        transitions += self._tell_unknown(turn)
        self._last_ms = ms
        return EvaluationResult(tuple(transitions), tuple(errors), tuple(evaluated))

    def _evaluate(self, run: GroupRun, now: _Run) -> Turn:
        ms = now.ms - round(run.group.query_offset * 1000)
        elapsed = 0.0 if run.last_ms is None else max(0.0, (now.ms - run.last_ms) / 1000)

        def moment(rule: Rule) -> Moment:
            unknown = None
            if now.failing:
                unknown = darkness(self._inputs[rule.key], self._owners, now.failing)
            warm = not self._restored or self.warm(rule, now.ms)
            return Moment(ms, elapsed, unknown, warm)

        turn = Turn(ms, self._window, now.context, moment, self._annotations)
        run.evaluate(turn)
        run.last_ms = now.ms
        return turn

    def _tell_unknown(self, now: _Run) -> list[Transition]:
        """The alert that a collector has failed for long."""
        state = self._failures.state
        return [
            Transition(self._snapshot(state, alert), was, alert.state)
            for alert, was in self._failures.evaluate(now.failing, self._window, now.ms)
        ]

    def _snapshot(self, state: RuleState, alert: Active) -> Alert:
        return snapshot(alert, state.rule, self._annotations(state.rule, alert))

    # What templates see

    def _context(self, ms: int) -> Context:
        """What templates see as of ``ms``; the last one is kept."""
        if self._contexts.get(ms) is None:
            self._contexts = {ms: self._new_context(ms)}
        return self._contexts[ms]

    def _new_context(self, ms: int) -> Context:
        def query(text: str) -> list[tuple[Mapping[str, str], float]]:
            return self._rows(text, ms)

        settings = self.settings
        return Context(query, dict(settings.external_labels), settings.external_url)

    def _rows(self, text: str, ms: int) -> list[tuple[Mapping[str, str], float]]:
        expr = self._loaded.get(text)
        if expr is None:
            try:
                expr = load(text)
            except PromqlError as error:
                raise CallError(str(error)) from None
            if len(self._loaded) < 1000:
                self._loaded[text] = expr
        return self._query.rows(text, expr, ms)

    def _annotations(self, rule: Rule, alert: Active) -> Labels:
        """The annotations as of the evaluation that last saw the alert; expanded when read."""
        if alert.annotations is None:
            given, context = dict(alert.metric), self._context(alert.seen_ms)
            alert.annotations = tuple(
                (name, template.expand(given, alert.value, context))
                for name, template in rule.annotations
            )
        return alert.annotations

    # Reading

    def alerts(self) -> tuple[Alert, ...]:
        """Every alert that is pending, firing or resolved less than 15 min ago."""
        found = [alert for run in self._runs for alert in run.alerts(self._annotations)]
        state = self._failures.state
        found += [self._snapshot(state, alert) for alert in state.active.values()]
        return tuple(found)

    def rule_alerts(self, name: str) -> tuple[Alert, ...]:
        """The alerts of every rule of one alert name, each rule's for itself."""
        return tuple(
            self._snapshot(state, alert)
            for state in self._states()
            if state.rule.name == name
            for alert in state.active.values()
        )

    def warm(self, rule: Rule, ms: int) -> bool:
        """Whether the window covers at ``ms`` what the rule looks back to; once warm, it stays."""
        return self._warmth.covers(rule, self._window, ms)

    @property
    def counters(self) -> Counters:
        """Totals per group since the start."""
        return Counters(
            {run.group.name: run.evaluations for run in self._runs},
            {run.group.name: run.failures for run in self._runs},
            {run.group.name: run.missed for run in self._runs},
        )

    # Reloading and restarting

    def replace(self, groups: Sequence[Group], ms: int) -> tuple[Transition, ...]:
        """Take new groups. Alerts of rules that did not change stay, the others become inactive.

        Series that no rule writes any more end at ``ms``.
        """
        before_alerts = self.alerts()
        doc = self.dump()
        before = {owner for run in self._runs for owner in run.owners}
        timing = {run.group.id: run for run in self._runs}
        self._install(groups)
        for owner in before - {owner for run in self._runs for owner in run.owners}:
            self._window.mark_stale(owner, ms)
        for run in self._runs:
            old = timing.get(run.group.id)
            if old is not None:
                run.last_ms = old.last_ms
                run.evaluations, run.failures, run.missed = (
                    old.evaluations,
                    old.failures,
                    old.missed,
                )
        restored(doc, self._states(), gone=0.0, mark=False)
        kept = {(alert.rule, alert.labels) for alert in self.alerts()}
        return tuple(
            Transition(replace(alert, state="inactive"), alert.state, "inactive")
            for alert in before_alerts
            if (alert.rule, alert.labels) not in kept
        )

    def dump(self) -> dict[str, Any]:
        """Return the state as a JSON document, for ``restore``."""
        return {
            "version": 1,
            "saved_ms": self._last_ms or 0,
            "alerts": saved(self._states()),
            "owners": self._owners.known,
        }

    def restore(self, doc: Mapping[str, Any], ms: int) -> int:
        """Take up the state of an earlier run; return how many alerts live on.

        Only alerts whose rule is unchanged; the time in between does not count for ``for``. They
        are held until their rule is warm again. Raises ValueError for a document not ours.
        """
        try:
            if doc["version"] != 1:
                raise ValueError("saved alerts of another version")
            gone = max(0.0, (ms - int(doc["saved_ms"])) / 1000)
            count = restored(doc, self._states(), gone=gone, mark=True)
            self._restored = count > 0
            for name, owners in doc["owners"].items():
                self._owners.known.setdefault(name, {}).update(
                    {owner: dict(shared) for owner, shared in owners.items()}
                )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not saved alerts: {error!r}") from error
        return count

    def _states(self) -> Iterator[RuleState]:
        for run in self._runs:
            for rule in run.alerting:
                yield rule.state
        yield self._failures.state
