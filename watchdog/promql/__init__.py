"""PromQL as Prometheus 3.x means it: read, check and evaluate expressions over the node's window.

``load`` reads an expression, ``query`` and ``query_range`` answer it, an ``Evaluator`` prepares
expressions for repeated evaluation, ``needs`` says what an expression reads. Native histograms,
experimental functions and delayed name removal are not part of it.
"""

from __future__ import annotations

from .errors import EvaluationError, ParseError, PromqlError
from .evaluator import Evaluator, Expr, Prepared, load, query, query_range
from .needs import EVER, Need, needs
from .values import Matrix, Scalar, String, Value, Vector

__all__ = [
    "EVER",
    "EvaluationError",
    "Evaluator",
    "Expr",
    "Matrix",
    "Need",
    "ParseError",
    "Prepared",
    "PromqlError",
    "Scalar",
    "String",
    "Value",
    "Vector",
    "load",
    "needs",
    "query",
    "query_range",
]
