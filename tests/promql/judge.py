"""Compares our answer to an expression with a real Prometheus' answer.

Prometheus 3.5 and the newest releases differ in a few points, all of them repairs of 3.5; we follow
the newest. ``newer`` recognises exactly these, so that they do not count as differences.
"""

from __future__ import annotations

import http.client
import json
import math
import urllib.parse
from dataclasses import dataclass
from typing import Any

from vllm_watchdog.watchdog.promql import (
    Matrix,
    PromqlError,
    Scalar,
    String,
    Vector,
    load,
    query,
    query_range,
)
from vllm_watchdog.watchdog.window import Window

RELATIVE = 1e-12


@dataclass(frozen=True)
class Question:
    """An expression at a moment, or over a range."""

    expr: str
    start: int
    end: int
    step: int

    @property
    def instant(self) -> bool:
        return self.step == 0


@dataclass(frozen=True)
class Answer:
    """``error``, or series of label set and (ms, value) points, in the order given."""

    error: str = ""
    kind: str = ""
    series: tuple[tuple[Any, tuple[tuple[int, float], ...]], ...] = ()


class Judge:
    """A connection to a Prometheus, kept open."""

    def __init__(self, url: str) -> None:
        host = urllib.parse.urlparse(url).netloc
        self._connection = http.client.HTTPConnection(host, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def ask(self, question: Question) -> Answer:
        form = {"query": question.expr}
        if question.instant:
            path = "/api/v1/query"
            form["time"] = f"{question.start / 1000:.3f}"
        else:
            path = "/api/v1/query_range"
            form["start"] = f"{question.start / 1000:.3f}"
            form["end"] = f"{question.end / 1000:.3f}"
            form["step"] = f"{question.step / 1000:.3f}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", path, urllib.parse.urlencode(form), headers)
        doc = json.loads(self._connection.getresponse().read())
        if doc["status"] != "success":
            return Answer(error=doc["error"])
        data = doc["data"]
        kind, result = data["resultType"], data["result"]
        if kind in ("scalar", "string"):
            value = float(result[1]) if kind == "scalar" else result[1]
            return Answer(kind=kind, series=(((), ((question.start, value),)),))
        return Answer(
            kind=kind,
            series=tuple(
                (
                    tuple(sorted(each["metric"].items())),
                    tuple(
                        (round(float(at) * 1000), float(value))
                        for at, value in each.get("values", [each.get("value")])
                    ),
                )
                for each in result
            ),
        )


def ours(question: Question, window: Window) -> Answer:
    """Our answer to the same question."""
    try:
        expr = load(question.expr)
        result: Any
        if question.instant:
            result = query(expr, window, question.start)
        else:
            result = query_range(expr, window, question.start, question.end, question.step)
    except PromqlError as error:
        return Answer(error=str(error))
    if isinstance(result, Scalar | String):
        kind = "scalar" if isinstance(result, Scalar) else "string"
        return Answer(kind=kind, series=(((), ((question.start, result.value),)),))  # type: ignore[arg-type]
    if isinstance(result, Vector):
        elements = [(labels, ((question.start, value),)) for labels, value in result.elements]
        return Answer(kind="vector", series=tuple(elements))
    assert isinstance(result, Matrix)
    return Answer(
        kind="matrix", series=tuple((key, tuple(points)) for key, points in result.series)
    )


def difference(mine: Answer, theirs: Answer, *, ordered: bool) -> str:
    """What differs, or "". With ``ordered`` values must come in the same order."""
    if bool(mine.error) != bool(theirs.error):
        return f"we: {mine.error or 'fine'} / Prometheus: {theirs.error or 'fine'}"
    if mine.error:
        return ""
    if mine.kind != theirs.kind:
        return f"type {mine.kind} / {theirs.kind}"
    a, b = dict(mine.series), dict(theirs.series)
    if len(a) != len(mine.series) or a.keys() != b.keys():
        return f"only we: {sorted(a.keys() - b.keys())} / only Prometheus: {sorted(b.keys() - a.keys())}"
    for key, points in a.items():
        if [at for at, _ in points] != [at for at, _ in b[key]]:
            return f"{key}: times {points} / {b[key]}"
        for (at, x), (_, y) in zip(points, b[key], strict=True):
            if not same(x, y):
                return f"{key} at {at}: {x!r} / {y!r}"
    if ordered:
        first = [points[0][1] for _, points in mine.series]
        second = [points[0][1] for _, points in theirs.series]
        if not all(map(same, first, second)):
            return f"order {first} / {second}"
    return ""


def same(x: Any, y: Any) -> bool:
    """Equal, both NaN, or equal but for rounding."""
    if x == y or (x != x and y != y):
        return True
    return isinstance(x, float) and math.isclose(x, y, rel_tol=RELATIVE, abs_tol=0.0)


def newer(question: Question, mine: Answer, theirs: Answer) -> bool:
    """Is this one of the points that Prometheus repaired after 3.5?"""
    over_time = not question.instant or ":" in question.expr
    if theirs.error.endswith("vector cannot contain metrics with the same labelset"):
        return over_time and not mine.error  # series that never overlap are merged
    if "multiple matches for labels" in mine.error:
        return not theirs.error  # also where a comparison hides all but one of the matches
    if "the first argument of topk" in mine.error:
        return not theirs.error  # also where there is no series
    return "histogram_fraction" in question.expr and not theirs.error
