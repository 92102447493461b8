"""promtool's test files as values: which rules, which series, what is expected when.

Read strictly, every error with its place; nothing is evaluated here.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path as FilePath
from typing import Any

from .. import documents, seriesnotation
from ..documents import Path
from ..errors import ConfigError, Place
from ..model import Labels, labelset
from ..rulepack.strict import Strict

FILE_KEYS = (
    "rule_files", "evaluation_interval", "group_eval_order", "fuzzy_compare", "tests",
)  # fmt: skip
TEST_KEYS = (
    "name", "interval", "input_series", "alert_rule_test", "promql_expr_test", "external_labels",
    "external_url", "start_timestamp",
)  # fmt: skip
_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class InputSeries:
    """One series; ``values[i]`` stands at ``i * interval``, None for no sample there."""

    labels: Labels
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """A firing alert; ``labels`` without the alert's name."""

    labels: Labels = ()
    annotations: Labels = ()


@dataclass(frozen=True, slots=True)
class AlertTest:
    """Exactly these alerts of one name fire at ``eval_time`` (seconds after the start)."""

    eval_time: float
    name: str
    expected: tuple[ExpectedAlert, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class ExprTest:
    """Exactly these samples are the value of an expression at ``eval_time``."""

    eval_time: float
    expr: str
    expected: tuple[tuple[Labels, float], ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Test:
    """Series, and what follows from them. ``start`` in Unix seconds, ``interval`` in seconds."""

    name: str
    interval: float
    series: tuple[InputSeries, ...]
    alerts: tuple[AlertTest, ...]
    exprs: tuple[ExprTest, ...]
    external_labels: Labels = ()
    external_url: str = ""
    start: float = 0.0

    @property
    def until(self) -> float:
        """The latest moment that anything is expected at, in seconds after the start."""
        alerts = max((each.eval_time for each in self.alerts), default=0.0)
        return max(alerts, max((each.eval_time for each in self.exprs), default=0.0))


@dataclass(frozen=True, slots=True)
class TestFile:
    """One file. ``rule_files`` are found paths, ``order`` the groups that come in this order."""

    file: str
    rule_files: tuple[FilePath, ...]
    interval: float
    order: tuple[str, ...]
    fuzzy: bool
    tests: tuple[Test, ...]


def read(path: FilePath) -> TestFile:
    """Read a test file. Raises ConfigError with every error in it."""
    reading = _Reading.of(documents.read(path, "test file"), str(path))
    found = reading.file(path.parent)
    if reading.problems:
        raise ConfigError(reading.problems)
    return found


class _Reading(Strict):
    """One test file being read."""

    def file(self, folder: FilePath) -> TestFile:
        """Return what the file says; ``problems`` holds all that is wrong."""
        root = {} if self.raw in (None, "") else self.mapping((), self.raw, FILE_KEYS, "the file")
        entry = root or {}
        interval = self.duration(("evaluation_interval",), entry) or _MINUTE
        order = tuple(self._texts(("group_eval_order",), entry.get("group_eval_order")))
        for i, name in enumerate(order):
            if name in order[:i]:
                self.error(("group_eval_order", i), f"group {name!r} is repeated in the order")
        tests = self.items(("tests",), entry.get("tests"), "tests")
        read_tests = [self._test(("tests", i), test, interval) for i, test in enumerate(tests)]
        return TestFile(
            self.document.file,
            tuple(self._rule_files(entry.get("rule_files"), folder)),
            interval,
            order,
            self._flag(("fuzzy_compare",), entry.get("fuzzy_compare")),
            tuple(test for test in read_tests if test is not None),
        )

    def _texts(self, path: Path, value: Any) -> list[str]:
        items = self.items(path, value, str(path[-1]))
        return [self.text((*path, i), item) for i, item in enumerate(items)]

    def _flag(self, path: Path, value: Any) -> bool:
        text = self.text(path, value)
        if text not in ("", "true", "false", "True", "False"):
            self.error(path, f"{path[-1]} must be true or false")
        return text.lower() == "true"

    def _rule_files(self, value: Any, folder: FilePath) -> dict[FilePath, None]:
        found: dict[FilePath, None] = {}
        for i, pattern in enumerate(self._texts(("rule_files",), value)):
            matches = sorted(glob.glob(str(folder / pattern)))
            if not matches:
                self.error(("rule_files", i), f"no rule file matches {pattern!r}")
            found.update(dict.fromkeys(map(FilePath, matches)))
        return found

    def _test(self, path: Path, value: Any, interval: float) -> Test | None:
        self.where = f"test {int(path[-1]) + 1}: "
        entry = self.mapping(path, value, TEST_KEYS, "a test")
        if entry is None:
            return None
        name = self.text((*path, "name"), entry.get("name"))
        self.where = f"test {name!r}: " if name else self.where
        test = Test(
            name,
            self.duration((*path, "interval"), entry) or interval,
            tuple(self._each((*path, "input_series"), entry, self._series)),
            tuple(self._each((*path, "alert_rule_test"), entry, self._alert)),
            tuple(self._each((*path, "promql_expr_test"), entry, self._expr)),
            self._labels((*path, "external_labels"), entry.get("external_labels")),
            self.text((*path, "external_url"), entry.get("external_url")),
            self._start((*path, "start_timestamp"), entry.get("start_timestamp")),
        )
        self.where = ""
        return test

    def _each(self, path: Path, entry: Any, read_one: Callable[[Path, Any], Any]) -> list[Any]:
        items = self.items(path, entry.get(path[-1]), str(path[-1]))
        found = [read_one((*path, i), item) for i, item in enumerate(items)]
        return [item for item in found if item is not None]

    def _series(self, path: Path, value: Any) -> InputSeries | None:
        entry = self.mapping(path, value, ("series", "values"), "a series")
        if entry is None:
            return None
        labels = self._notation((*path, "series"), entry.get("series"), seriesnotation.series)
        values = self._notation((*path, "values"), entry.get("values"), seriesnotation.values)
        return None if labels is None or values is None else InputSeries(labels, tuple(values))

    def _notation(self, path: Path, value: Any, parse: Callable[[str], Any]) -> Any:
        text = self.text(path, value)
        try:
            return parse(text)
        except seriesnotation.NotationError as error:
            self.in_text(path, text, error.offset, f"{path[-1]}: {error}", "error")
            return None

    def _alert(self, path: Path, value: Any) -> AlertTest | None:
        entry = self.mapping(path, value, ("eval_time", "alertname", "exp_alerts"), "an alert test")
        if entry is None:
            return None
        name = self.text((*path, "alertname"), entry.get("alertname"))
        if not name:
            self.error(path, "an alert test must have an 'alertname'")
        expected = self._each((*path, "exp_alerts"), entry, self._expected_alert)
        time = self.duration((*path, "eval_time"), entry) or 0.0
        return AlertTest(time, name, tuple(expected), self.document.place(path))

    def _expected_alert(self, path: Path, value: Any) -> ExpectedAlert | None:
        entry = self.mapping(path, value, ("exp_labels", "exp_annotations"), "an expected alert")
        if entry is None:
            return None
        return ExpectedAlert(
            self._labels((*path, "exp_labels"), entry.get("exp_labels")),
            self._labels((*path, "exp_annotations"), entry.get("exp_annotations"), empty=True),
        )

    def _expr(self, path: Path, value: Any) -> ExprTest | None:
        keys = ("expr", "eval_time", "exp_samples")
        entry = self.mapping(path, value, keys, "an expression test")
        if entry is None:
            return None
        samples = self._each((*path, "exp_samples"), entry, self._sample)
        time = self.duration((*path, "eval_time"), entry) or 0.0
        expr = self.text((*path, "expr"), entry.get("expr"))
        return ExprTest(time, expr, tuple(samples), self.document.place(path))

    def _sample(self, path: Path, value: Any) -> tuple[Labels, float] | None:
        keys = ("labels", "value", "histogram")
        entry = self.mapping(path, value, keys, "an expected sample")
        if entry is None:
            return None
        if entry.get("histogram"):
            self.error((*path, "histogram"), "native histograms are not supported", key=True)
        text = self.text((*path, "labels"), entry.get("labels")).strip()
        labels: Labels | None = ()
        if text not in ("", "{}"):
            labels = self._notation((*path, "labels"), text, seriesnotation.series)
        number = self._number((*path, "value"), entry.get("value"))
        return None if labels is None else (labels, number)

    def _number(self, path: Path, value: Any) -> float:
        text = self.text(path, value).replace("_", "")
        special = text.lstrip("+-").lower()
        try:
            if special in (".nan", ".inf"):
                return float(text.replace(".", ""))
            if special[:2] in ("0x", "0o", "0b"):
                return float(int(text, 0))
            return float(text or "0") if special not in ("nan", "inf", "infinity") else _refused()
        except ValueError:
            self.error(path, f"{path[-1]}: {text!r} is no number", "write .nan, .inf or -.inf")
            return 0.0

    def _labels(self, path: Path, value: Any, *, empty: bool = False) -> Labels:
        """A mapping of texts; ``empty`` values count in annotations, not in labels."""
        if value in (None, ""):
            return ()
        if not isinstance(value, dict):
            self.error(path, f"{path[-1]} must be a mapping")
            return ()
        pairs = {name: self.text((*path, name), text) for name, text in value.items()}
        return tuple(sorted(pairs.items())) if empty else labelset(pairs)

    def _start(self, path: Path, value: Any) -> float:
        text = self.text(path, value)
        if not text:
            return 0.0
        try:
            return float(text)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
        except ValueError:
            self.error(path, f"{text!r} is neither Unix seconds nor RFC 3339")
            return 0.0
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


def _refused() -> float:
    raise ValueError("YAML has other words for these numbers")
