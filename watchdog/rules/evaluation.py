"""One rule, ready to be evaluated again and again: its query, its labels, its outputs.

Everything that repeats is kept: a result whose label sets are the very objects of last time is
labelled without a look at them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_

from ..model import NAME, Labels, labelset
from ..promql import Evaluator, Expr, Prepared, PromqlError, Scalar, Vector
from ..rulepack import Rule
from ..templates import CallError, Context
from .states import Found, RuleFailed

_KEPT = 5000  # label sets remembered per rule


class Query:
    """Answers queries over one window, each text prepared once; what a template asks, too."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._prepared: dict[str, Prepared] = {}

    def prepare(self, expr: Expr) -> Prepared:
        """Prepare a rule's expression. Raises EvaluationError."""
        return self._evaluator.prepare(expr)

    def rows(self, text: str, expr: Expr, ms: int) -> list[tuple[Mapping[str, str], float]]:
        """Answer a template's query as of ``ms``. Raises CallError."""
        try:
            prepared = self._prepared.get(text)
            if prepared is None:
                prepared = self._prepared[text] = self._evaluator.prepare(expr)
            return [(dict(labels), value) for labels, value in elements(prepared, ms)]
        except (PromqlError, RuleFailed) as error:
            raise CallError(str(error)) from None


def elements(prepared: Prepared, ms: int) -> Sequence[tuple[Labels, float]]:
    """The elements of a vector; a scalar is one element without labels. Raises PromqlError."""
    value = prepared.query(ms)
    if isinstance(value, Vector):
        return value.elements
    if isinstance(value, Scalar):
        return [((), value.value)]
    raise RuleFailed("rule result is not a vector or scalar")


class Labeller:
    """Gives each result of a rule its label set; equal inputs give the same tuple object."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._fixed = {name: template.text for name, template in rule.labels}
        self._varies = [item for item in rule.labels if not item[1].constant]
        if rule.kind == "alert":
            self._fixed["alertname"] = rule.name
        else:
            self._fixed[NAME] = rule.name
        self._known: dict[Labels, Labels] = {}

    def label(self, metric: Labels, value: float, context: Context) -> Labels:
        """Return the label set of one result: the rule's labels over the result's own."""
        if self._varies:
            return self._expand(metric, value, context)
        labels = self._known.get(metric)
        if labels is None:
            if len(self._known) > _KEPT:
                self._known.clear()
            labels = self._known[metric] = self._merge(metric, self._fixed)
        return labels

    def _expand(self, metric: Labels, value: float, context: Context) -> Labels:
        given = dict(metric)
        own = {name: template.expand(given, value, context) for name, template in self._varies}
        return self._merge(
            metric, {**own, **{k: v for k, v in self._fixed.items() if k not in own}}
        )

    @staticmethod
    def _merge(metric: Labels, own: Mapping[str, str]) -> Labels:
        return labelset({**{k: v for k, v in metric if k != NAME}, **own})


class Recorder:
    """The recorded series of one rule: keys kept while the result's label sets stay the same."""

    def __init__(self, rule: Rule) -> None:
        self._labeller = Labeller(rule)
        self._metrics: list[Labels] = []
        self._keys: tuple[Labels, ...] = ()

    def page(
        self, found: Sequence[tuple[Labels, float]]
    ) -> tuple[tuple[Labels, ...], tuple[float, ...]]:
        """Return keys and values to write. RuleFailed: two results with one label set."""
        metrics = [labels for labels, _ in found]
        if len(metrics) != len(self._metrics) or not all(map(is_, metrics, self._metrics)):
            context = Context()
            keys = tuple(self._labeller.label(labels, 0.0, context) for labels in metrics)
            if len(set(keys)) != len(keys):
                raise RuleFailed(
                    "vector contains metrics with the same labelset after applying rule labels"
                )
            if keys != self._keys:
                self._keys = keys
            self._metrics = metrics
        return self._keys, tuple([value for _, value in found])


def findings(
    labeller: Labeller, found: Sequence[tuple[Labels, float]], context: Context
) -> dict[Labels, Found]:
    """Return the results of an alerting rule by label set. RuleFailed: two with one label set."""
    results: dict[Labels, Found] = {}
    for metric, value in found:
        labels = labeller.label(metric, value, context)
        if labels in results:
            raise RuleFailed(
                "vector contains metrics with the same labelset after applying alert labels"
            )
        results[labels] = Found(labels, metric, value)
    return results
