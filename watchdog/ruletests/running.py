"""Runs a test file: loads series step by step, evaluates the rules, compares.

As promtool does it: rules are evaluated at every multiple of the evaluation interval from the start
on, whatever their group says; alerts are looked at as of the last evaluation, expressions at their
own moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ..errors import Place
from ..model import Labels
from ..promql import Evaluator, PromqlError, Scalar, Vector, load
from ..rulepack import Group
from ..rulepack import load as load_rules
from ..rules import RuleEngine, Settings
from ..window import Window
from .finding import Finding, alerts_text, sample_text
from .reading import AlertTest, ExprTest, Test, TestFile

_INPUT = "input"
_EVER_MS = 1 << 60
_MOST_POINTS = 10_000_000
_MOST_SERIES = 1_000_000


def run_file(file: TestFile) -> list[Finding]:
    """Run every test of a file. Raises ConfigError when a rule file cannot be read."""
    groups: Sequence[Group] = ()
    if file.rule_files:
        groups = load_rules(file.rule_files, max_reach_ms=_EVER_MS).groups
    order = {name: number for number, name in enumerate(file.order)}
    groups = sorted(groups, key=lambda group: order.get(group.name, 0))
    findings: list[Finding] = []
    for number, test in enumerate(file.tests, start=1):
        findings += _Run(file, test, number, groups).findings()
    return findings


class _Run:
    """One test on a window and an engine of its own."""

    def __init__(self, file: TestFile, test: Test, number: int, groups: Sequence[Group]) -> None:
        self._file = file
        self._test = test
        self._name = test.name or f"test {number}"
        self._step = round(file.interval * 1000)
        self._start = round(test.start * 1000)
        self._window = Window(_EVER_MS, max_series=_MOST_SERIES, max_points=_MOST_POINTS)
        self._names = {group.name for group in groups}
        settings = Settings(
            file.interval,
            external_labels=test.external_labels,
            external_url=test.external_url,
        )
        self._engine = RuleEngine(groups, self._window, settings)
        self._found: list[Finding] = []

    def findings(self) -> list[Finding]:
        """Return what is not as expected."""
        until = round(self._test.until * 1000)
        waiting = sorted(self._test.alerts, key=lambda alert: alert.eval_time)
        samples = self._samples()
        late = next(samples, None)
        for at in range(0, until + 1, self._step):
            while late is not None and late[0] <= at:
                ms, key, value = late
                self._window.write(key, self._start + ms, value, _INPUT)
                late = next(samples, None)
            if not self._evaluate(at):
                return self._found
            while waiting and waiting[0].eval_time * 1000 < at + self._step:
                self._compare_alerts(waiting.pop(0))
        while late is not None and late[0] <= until:
            self._window.write(late[1], self._start + late[0], late[2], _INPUT)
            late = next(samples, None)
        for expr in self._test.exprs:
            self._compare_expr(expr)
        return self._found

    def _samples(self) -> Iterator[tuple[int, Labels, float]]:
        """All input samples in the order of their times (milliseconds after the start)."""
        step = round(self._test.interval * 1000)
        series = {each.labels: each.values for each in self._test.series}
        longest = max(map(len, series.values()), default=0)
        for i in range(longest):
            for key, values in series.items():
                value = values[i] if i < len(values) else None
                if value is not None:
                    yield i * step, key, value

    def _evaluate(self, at: int) -> bool:
        result = self._engine.evaluate(self._start + at, only_groups=self._names)
        for error in result.errors:
            message = f"rule {error.rule} of group {error.group!r} fails: {error.message}"
            self._tell(Place(self._file.file), at / 1000, message)
        return not result.errors

    def _tell(
        self, place: Place, seconds: float, message: str, expected: str = "", got: str = ""
    ) -> None:
        self._found.append(Finding(place, self._name, seconds, message, expected, got))

    def _compare_alerts(self, test: AlertTest) -> None:
        got = sorted(
            (alert.labels, alert.annotations)
            for alert in self._engine.rule_alerts(test.name)
            if alert.state == "firing"
        )
        expected = sorted(
            (tuple(sorted((*each.labels, ("alertname", test.name)))), each.annotations)
            for each in test.expected
        )
        if expected != got:
            self._tell(
                test.place,
                test.eval_time,
                f"alert {test.name}",
                alerts_text(expected),
                alerts_text(got),
            )

    def _compare_expr(self, test: ExprTest) -> None:
        try:
            got = self._query(test)
        except PromqlError as error:
            self._tell(test.place, test.eval_time, f"expression {test.expr!r}: {error}")
            return
        expected = sorted(test.expected, key=lambda sample: sample[0])
        if not self._same(expected, got):
            self._tell(
                test.place,
                test.eval_time,
                f"expression {test.expr!r}",
                "\n".join(map(sample_text, expected)),
                "\n".join(map(sample_text, got)),
            )

    def _query(self, test: ExprTest) -> list[tuple[Labels, float]]:
        ms = self._start + round(test.eval_time * 1000)
        evaluator = Evaluator(self._window, step_ms=self._step)
        value = evaluator.prepare(load(test.expr)).query(ms)
        if isinstance(value, Scalar):
            return [((), value.value)]
        if isinstance(value, Vector):
            return sorted(value.elements, key=lambda element: element[0])
        raise PromqlError("the result is no instant vector and no scalar")

    def _same(
        self, expected: Iterable[tuple[Labels, float]], got: Iterable[tuple[Labels, float]]
    ) -> bool:
        pairs = list(expected), list(got)
        return len(pairs[0]) == len(pairs[1]) and all(
            wanted[0] == found[0] and self._close(wanted[1], found[1])
            for wanted, found in zip(*pairs, strict=True)
        )

    def _close(self, wanted: float, found: float) -> bool:
        """Equal; with fuzzy_compare also the next float. NaN equals nothing, as in promtool."""
        if wanted == found:
            return True
        return self._file.fuzzy and found in (
            math.nextafter(wanted, math.inf),
            math.nextafter(wanted, -math.inf),
        )
