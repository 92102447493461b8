"""Parameters of a request as people and Prometheus' clients write them. Parsing only."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl

from ..errors import WatchdogError

MAX_FIELDS = 100
MAX_POINTS = 11_000  # as Prometheus: more a series is refused
_PARTS = re.compile(r"(\d+)(ms|[smhdwy])")
_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS |= {"w": 7 * _UNITS["d"], "y": 365 * _UNITS["d"]}


class BadRequest(WatchdogError):
    """A parameter that cannot be read; one line says which and why."""


def form(text: str) -> dict[str, str]:
    """A query string or form body; of a repeated name the last counts. Raises BadRequest."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError as error:
        raise BadRequest(f"bad form: {error}") from error


def milliseconds(name: str, text: str) -> int:
    """A time as Unix seconds or RFC 3339. Raises BadRequest."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
        except ValueError:
            when = None
        if when is None or when.tzinfo is None:
            raise BadRequest(
                f"{name}: {text!r} is no time: write Unix seconds or 2026-01-31T12:00:00Z"
            ) from None
        seconds = when.timestamp()
    if not math.isfinite(seconds) or abs(seconds) > 1e11:
        raise BadRequest(f"{name}: {text!r} is out of range")
    return round(seconds * 1000)


def duration(name: str, text: str) -> int:
    """A duration above zero as seconds or ``1m30s``, in milliseconds. Raises BadRequest."""
    try:
        found = float(text) * 1000
    except ValueError:
        parts = _PARTS.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise BadRequest(f"{name}: {text!r} is no duration: write 15s or 1m30s") from None
        found = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if not 1 <= found < 1e14:
        raise BadRequest(f"{name}: {text!r} is out of range")
    return round(found)


def whole(name: str, text: str, most: int) -> int:
    """A whole number from 0 to ``most``. Raises BadRequest."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > most:
        raise BadRequest(f"{name}: {text!r} is no whole number from 0 to {most}")
    return int(text)


def span(given: dict[str, str]) -> tuple[int, int, int]:
    """``start``, ``end`` and ``step`` of a range query in milliseconds. Raises BadRequest."""
    for name in ("start", "end", "step"):
        if not given.get(name):
            raise BadRequest(f"{name}: is missing")
    start, end = milliseconds("start", given["start"]), milliseconds("end", given["end"])
    step = duration("step", given["step"])
    if end < start:
        raise BadRequest("end: is before start")
    if (end - start) // step + 1 > MAX_POINTS:
        raise BadRequest(f"step: gives more than {MAX_POINTS} points a series; choose a larger one")
    return start, end, step


def dumps(value: object) -> bytes:
    """JSON of an answer. Numbers that JSON lacks become the strings NaN, +Inf, -Inf."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
