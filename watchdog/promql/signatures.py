"""The table of functions and aggregations: argument types and result. What they compute stands
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from .nodes import ValueType


@dataclass(frozen=True, slots=True)
class Signature:
    """Types of a function's arguments and of its result.

    The last ``optional`` arguments may be left out; with ``repeats`` the last one may stand any
    number of times, also not at all.
    """

    arguments: tuple[ValueType, ...]
    result: ValueType = "vector"
    optional: int = 0
    repeats: bool = False

    @property
    def fewest(self) -> int:
        """The smallest number of arguments."""
        return len(self.arguments) - (1 if self.repeats else self.optional)

    @property
    def most(self) -> int | None:
        """The largest number of arguments; None when there is no limit."""
        return None if self.repeats else len(self.arguments)

    def argument(self, index: int) -> ValueType:
        """The type that argument ``index`` (from 0) must have."""
        return self.arguments[min(index, len(self.arguments) - 1)]


_OF_VECTOR = """
    abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor
    histogram_avg histogram_count histogram_stddev histogram_stdvar histogram_sum
    ln log10 log2 rad sgn sin sinh sort sort_desc sqrt tan tanh timestamp
""".split()  # noqa: SIM905 - a table reads better in lines

_OF_RANGE = """
    absent_over_time avg_over_time changes count_over_time delta deriv idelta increase irate
    last_over_time max_over_time min_over_time present_over_time rate resets
    stddev_over_time stdvar_over_time sum_over_time
""".split()  # noqa: SIM905 - a table reads better in lines

_OF_TIME = """
    day_of_month day_of_week day_of_year days_in_month hour minute month year
""".split()  # noqa: SIM905 - a table reads better in lines

FUNCTIONS: dict[str, Signature] = {
    **{name: Signature(("vector",)) for name in _OF_VECTOR},
    **{name: Signature(("matrix",)) for name in _OF_RANGE},
    **{name: Signature(("vector",), optional=1) for name in _OF_TIME},
    "clamp": Signature(("vector", "scalar", "scalar")),
    "clamp_max": Signature(("vector", "scalar")),
    "clamp_min": Signature(("vector", "scalar")),
    "histogram_fraction": Signature(("scalar", "scalar", "vector")),
    "histogram_quantile": Signature(("scalar", "vector")),
    "label_join": Signature(("vector", "string", "string", "string"), repeats=True),
    "label_replace": Signature(("vector", "string", "string", "string", "string")),
    "pi": Signature((), "scalar"),
    "predict_linear": Signature(("matrix", "scalar")),
    "quantile_over_time": Signature(("scalar", "matrix")),
    "round": Signature(("vector", "scalar"), optional=1),
    "scalar": Signature(("vector",), "scalar"),
    "time": Signature((), "scalar"),
    "vector": Signature(("scalar",)),
}

EXPERIMENTAL_FUNCTIONS = frozenset(
    """
    double_exponential_smoothing end first_over_time histogram_quantiles info integral
    mad_over_time range sort_by_label sort_by_label_desc start step ts_of_first_over_time
    ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time
    """.split()  # noqa: SIM905 - likewise
)
"""Functions that Prometheus has only behind a feature flag: refused by name."""

AGGREGATIONS: dict[str, ValueType | None] = {
    "avg": None,
    "bottomk": "scalar",
    "count": None,
    "count_values": "string",
    "group": None,
    "max": None,
    "min": None,
    "quantile": "scalar",
    "stddev": None,
    "stdvar": None,
    "sum": None,
    "topk": "scalar",
}
"""The aggregations, each with the type of its parameter (None: it takes none)."""

EXPERIMENTAL_AGGREGATIONS = frozenset({"limitk", "limit_ratio"})
