"""Random series and well-typed expressions over them, from a seed.

One ``Dataset`` has metrics of its own (their names carry its number), so that many data sets can
lie in one server. Times and values are chosen to be awkward: gaps, staleness markers, counter
resets, NaN and infinities, series that come and go.
"""

from __future__ import annotations

import math
import random

from vllm_watchdog.watchdog.model import Labels, labelset
from vllm_watchdog.watchdog.series import STALE

START = 1_700_000_000_000
SPAN = 30 * 60_000

Series = tuple[Labels, list[tuple[int, float]]]

_BOUNDS = ("0.1", "0.5", "1.0", "2.5", "10", "+Inf")
_DURATIONS = ("20s", "1m", "2m", "5m", "10m", "90s500ms", "7m")
_STEPS = ("", "15s", "1m", "2m", "37s")
_BY_VALUE = [
    "abs",
    "ceil",
    "floor",
    "exp",
    "sqrt",
    "ln",
    "log2",
    "log10",
    "sgn",
    "deg",
    "rad",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
]
_PERIODIC = ("sin", "cos", "tan")
_RANGE = [
    "avg_over_time",
    "min_over_time",
    "max_over_time",
    "sum_over_time",
    "count_over_time",
    "stddev_over_time",
    "stdvar_over_time",
    "last_over_time",
    "present_over_time",
    "absent_over_time",
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "deriv",
    "changes",
    "resets",
]
_DATES = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "year",
]
_PLAIN = ["sum", "avg", "min", "max", "count", "group", "stddev", "stdvar"]
_ARITHMETIC = ("+", "-", "*", "/", "%", "^", "atan2")
_COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
_LABELS = ("a", "b", "c", "le")


class Dataset:
    """Random series, and a generator of expressions that read them."""

    def __init__(self, seed: int, number: int) -> None:
        self.random = random.Random(seed * 1_000_003 + number)
        self.prefix = f"d{number}_"
        self.moments = False
        self.series = self._make_series()

    # Series

    def _make_series(self) -> list[Series]:
        pick = self.random
        series: list[Series] = []
        for name in ("m1", "m2", "m3"):
            for a in "xyz":
                for b in pick.sample(["0", "1", "2", ""], pick.randint(1, 3)):
                    extra = {"c": pick.choice(["p", "q"])} if pick.random() < 0.4 else {}
                    key = labelset({"a": a, "b": b, **extra}, self.prefix + name)
                    series.append((key, self._gauge()))
        for a in "xy":
            for b in "01":
                key = labelset({"a": a, "b": b}, self.prefix + "count_total")
                series.append((key, self._counter()))
        for a in "xy":
            series += self._histogram(a)
        series.append((labelset({}, self.prefix + "alone"), self._gauge()))
        series.append((labelset({"a": "x"}, self.prefix + "epoch"), self._epoch()))
        unique = {key: samples for key, samples in series if samples}
        return list(unique.items())

    def _times(self) -> list[int]:
        pick = self.random
        step = pick.choice([5_000, 15_000, 15_000, 30_000, 60_000])
        begin = START + pick.choice([0, 0, pick.randrange(SPAN // 2)])
        end = START + pick.choice([SPAN, SPAN, pick.randrange(SPAN // 2, SPAN)])
        jitter = pick.choice([0, 0, step // 3])
        times = {at + pick.randint(0, jitter) for at in range(begin, end, step)}
        if pick.random() < 0.3:
            gap = pick.randrange(START, START + SPAN)
            times = {at for at in times if not gap < at < gap + pick.choice([120_000, 400_000])}
        return sorted(times)

    def _gauge(self) -> list[tuple[int, float]]:
        pick = self.random
        kind = pick.choice(["whole", "real", "huge", "odd", "flat"])
        value = pick.choice([0.0, 1.0, -3.5, pick.uniform(-100, 100)])
        samples = []
        for at in self._times():
            if kind == "whole":
                value = float(pick.randint(-5, 20))
            elif kind == "real":
                value += pick.uniform(-1, 1)
            elif kind == "huge":
                value = pick.choice([1e17, -1e17, 1.5, 2e-9, 1e300])
            elif kind == "odd":
                value = pick.choice([math.nan, math.inf, -math.inf, 0.0, 1.0, 2.0, 3.0, -0.0])
            samples.append((at, STALE if pick.random() < 0.02 else value))
        return samples

    def _counter(self) -> list[tuple[int, float]]:
        pick = self.random
        value, samples = pick.choice([0.0, 1000.0]), []
        step = pick.choice([1.0, 0.25, 17.3])
        for at in self._times():
            value = 0.0 if pick.random() < 0.02 else value + step * pick.randint(0, 5)
            samples.append((at, STALE if pick.random() < 0.01 else value))
        return samples

    def _histogram(self, a: str) -> list[Series]:
        pick = self.random
        times = self._times()
        counts = [0.0] * len(_BOUNDS)
        columns: list[list[tuple[int, float]]] = [[] for _ in _BOUNDS]
        for at in times:
            new = pick.randint(0, 4)
            for _ in range(new):
                lowest = pick.randrange(len(_BOUNDS))
                for index in range(lowest, len(_BOUNDS)):
                    counts[index] += 1.0
            for column, count in zip(columns, counts, strict=True):
                column.append((at, count))
        name = self.prefix + "h_bucket"
        return [
            (labelset({"a": a, "le": le}, name), column)
            for le, column in zip(_BOUNDS, columns, strict=True)
        ]

    def _epoch(self) -> list[tuple[int, float]]:
        pick = self.random
        return [(at, float(pick.randint(-(10**9), 4 * 10**9))) for at in self._times()]

    # Expressions

    def moment(self) -> int:
        """A time to evaluate at, often on a sample or on a whole minute."""
        pick = self.random
        at = pick.randrange(START + SPAN // 6, START + SPAN + 200_000)
        return pick.choice([at, at // 60_000 * 60_000, at // 5_000 * 5_000])

    def expression(self, *, moments: bool) -> str:
        """An expression of any type but string, for one moment or for many.

        Over many moments Prometheus leaves the order of computed series to chance, and with it
        which of equal elements ``topk`` takes and how ``stddev`` rounds: there they are only asked
        of selectors. The last bit of a sine is the processor's: labels are made of rounded values,
        and no sine is taken of what is so large that its last bit decides.
        """
        self.moments = moments
        roll = self.random.random()
        if roll < 0.04:
            return self.scalar(2)
        return self.vector(self.random.choice([1, 2, 2, 3, 3]))

    def selector(self) -> str:
        pick = self.random
        name = self.prefix + pick.choice(
            ["m1", "m1", "m2", "m2", "m3", "count_total", "h_bucket", "alone", "epoch", "none"]
        )
        matchers = []
        if pick.random() < 0.4:
            label = pick.choice(["a", "b", "c"])
            value = pick.choice(["x", "y", "0", "1", "", "p"])
            op = pick.choice(["=", "!=", "=~", "!~"])
            if op in ("=~", "!~"):
                value = pick.choice(["x|y", "[01]", ".*", ".+", "(?i:X)", "p?"])
            matchers.append(f'{label}{op}"{value}"')
        if pick.random() < 0.06:
            matchers.append(f'__name__=~"{self.prefix}m[12]"')
            name = ""
        return name + ("{" + ", ".join(matchers) + "}" if matchers else "")

    def modifiers(self) -> str:
        pick = self.random
        text = ""
        if pick.random() < 0.12:
            text += f" offset {pick.choice(['1m', '30s', '5m', '-1m', '-10s'])}"
        if pick.random() < 0.06:
            at = pick.choice([f"{(START + pick.randrange(SPAN)) / 1000:.3f}", "start()", "end()"])
            text += f" @ {at}"
        return text

    def vector(self, depth: int) -> str:
        pick = self.random
        if depth <= 0 or pick.random() < 0.08:
            return self.selector() + self.modifiers()
        kinds = [
            (self._binary, 20),
            (self._set, 5),
            (self._aggregate, 18),
            (self._ranged, 22),
            (self._value_function, 6),
            (self._date, 2),
            (self._small, 9),
            (self._quantile, 5),
            (self._label, 4),
        ]
        make = pick.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        return str(make(depth - 1))

    def scalar(self, depth: int) -> str:
        pick = self.random
        roll = pick.random()
        if depth <= 0 or roll < 0.6:
            return pick.choice(
                ["0", "1", "2", "0.5", "-1", "3.7", "1e3", "NaN", "Inf", "pi()", "5"]
            )
        if roll < 0.7:
            return "time()"
        if roll < 0.85:
            return f"scalar({self.vector(depth - 1)})"
        return f"({self.scalar(depth - 1)} {pick.choice(_ARITHMETIC)} {self.scalar(depth - 1)})"

    def _range_of(self, depth: int) -> str:
        pick = self.random
        if depth > 0 and pick.random() < 0.25:
            step = pick.choice(_STEPS)
            outer, self.moments = self.moments, True
            text = f"({self.vector(depth - 1)})[{pick.choice(_DURATIONS)}:{step}]"
            self.moments = outer
            if pick.random() < 0.15:
                text += f" offset {pick.choice(['1m', '90s'])}"
            return text
        return f"{self.selector()}[{pick.choice(_DURATIONS)}]{self.modifiers()}"

    def _ranged(self, depth: int) -> str:
        pick = self.random
        roll = pick.random()
        if roll < 0.08:
            q = pick.choice(["0.5", "0.9", "0", "1", "-1", "2", self.scalar(1)])
            return f"quantile_over_time({q}, {self._range_of(depth)})"
        if roll < 0.14:
            return f"predict_linear({self._range_of(depth)}, {pick.choice(['60', '3600', '0'])})"
        return f"{pick.choice(_RANGE)}({self._range_of(depth)})"

    def _binary(self, depth: int) -> str:
        pick = self.random
        comparison = pick.random() < 0.4
        op = pick.choice(_COMPARISONS if comparison else _ARITHMETIC)
        bool_ = " bool" if comparison and pick.random() < 0.4 else ""
        roll = pick.random()
        if roll < 0.25:
            return f"({self.vector(depth)} {op}{bool_} {self.scalar(1)})"
        if roll < 0.4:
            return f"({self.scalar(1)} {op}{bool_} {self.vector(depth)})"
        return f"({self.vector(depth)} {op}{bool_}{self._matching(True)} {self.vector(depth)})"

    def _matching(self, groups: bool) -> str:
        pick = self.random
        roll = pick.random()
        if roll < 0.4:
            return ""
        labels = ", ".join(pick.sample(_LABELS, pick.randint(0, 3)))
        text = f" {pick.choice(['on', 'ignoring'])}({labels})"
        if groups and pick.random() < 0.4:
            side = pick.choice(["group_left", "group_right"])
            rest = [label for label in _LABELS if label not in labels]
            include = pick.choice(["", "()", f"({pick.choice(rest)})"]) if rest else ""
            text += f" {side}{include}"
        return text

    def _set(self, depth: int) -> str:
        op = self.random.choice(["and", "or", "unless"])
        return f"({self.vector(depth)} {op}{self._matching(False)} {self.vector(depth)})"

    def _grouping(self) -> str:
        pick = self.random
        if pick.random() < 0.3:
            return ""
        labels = ", ".join(pick.sample(_LABELS, pick.randint(0, 3)))
        return f" {pick.choice(['by', 'without'])} ({labels})"

    def _aggregate(self, depth: int) -> str:
        pick = self.random
        roll = pick.random()
        inner, grouping = self.vector(depth), self._grouping()
        if roll < 0.12:
            k = pick.choice(["1", "2", "3", "0", "100", "1.9"])
            by_chance = self.moments or "count_values" in inner or "histogram_" in inner
            inner = self.selector() if by_chance else inner
            return f"{pick.choice(['topk', 'bottomk'])}{grouping} ({k}, {inner})"
        if roll < 0.2:
            q = pick.choice(["0.5", "0.99", "0", "1", "-0.1", "1.1"])
            return f"quantile{grouping} ({q}, {inner})"
        if roll < 0.26:
            label = pick.choice(["value", "a", "le"])
            inner = pick.choice([self.selector(), f"round({inner}, 0.001)"])
            return f'count_values{grouping} ("{label}", {inner})'
        name = pick.choice(_PLAIN)
        inner = self.selector() if self.moments and name.startswith("std") else inner
        return f"{name}{grouping} ({inner})"

    def _value_function(self, depth: int) -> str:
        name = self.random.choice(_BY_VALUE)
        inner = self.vector(depth)
        return f"{name}(clamp({inner}, -50, 50))" if name in _PERIODIC else f"{name}({inner})"

    def _date(self, depth: int) -> str:
        pick = self.random
        name = pick.choice(_DATES)
        if pick.random() < 0.2:
            return f"{name}()"
        inner = pick.choice([f"{self.prefix}epoch", self.vector(depth)])
        return f"{name}({inner})"

    def _small(self, depth: int) -> str:
        pick = self.random
        inner = self.vector(depth)
        return pick.choice(
            [
                f"-{inner}",
                f"+({inner})",
                f"absent({inner})",
                f"absent({self.selector()})",
                f"sort({inner})",
                f"sort_desc({inner})",
                f"timestamp(abs({inner}))",
                f"timestamp({self.selector()}{pick.choice(['', ' offset 1m', ' @ end()'])})",
                f"vector({self.scalar(1)})",
                f"clamp({inner}, {self.scalar(0)}, {self.scalar(0)})",
                f"clamp_min({inner}, {self.scalar(0)})",
                f"clamp_max({inner}, {self.scalar(0)})",
                f"round({inner})",
                f"round({inner}, {pick.choice(['0.1', '5', '0', '-2', '1e-3'])})",
            ]
        )

    def _quantile(self, depth: int) -> str:
        pick = self.random
        h = f"{self.prefix}h_bucket"
        source = pick.choice(
            [
                h,
                f"rate({h}[{pick.choice(_DURATIONS)}])",
                f"sum by (le) (rate({h}[5m]))",
                f"sum by (le, a) (increase({h}[2m]))",
                self.vector(depth),
            ]
        )
        if pick.random() < 0.2:
            low, high = pick.choice([("0.1", "1"), ("0.5", "2"), ("1", "1"), ("0.7", "Inf")])
            return f"histogram_fraction({low}, {high}, {source})"
        q = pick.choice(["0.5", "0.9", "0.99", "0", "1", "-1", "2", "NaN"])
        return f"histogram_quantile({q}, {source})"

    def _label(self, depth: int) -> str:
        pick = self.random
        inner = self.vector(depth)
        if pick.random() < 0.3:
            target = pick.choice(["new", "a", "__name__"])
            return f'label_join({inner}, "{target}", "-", "a", "b")'
        pattern, template = pick.choice(
            [
                ("(.*)", "v-$1"),
                ("(?P<x>[xy])", "${x}z"),
                ("x|0", ""),
                ("(.)(.*)", "$2$1$$$9"),
                ("", "e"),
            ]
        )
        target = pick.choice(["new", "a", "b", "__name__"])
        return (
            f'label_replace({inner}, "{target}", "{template}", "{pick.choice("abc")}", "{pattern}")'
        )
