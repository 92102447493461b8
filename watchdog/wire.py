"""How values of the model are written as JSON and read again: recordings, replays, answers.

Every function here is pure and total on what the model can hold; numbers that JSON lacks are
strings (``NaN``, ``+Inf``, ``-Inf``) as in Prometheus' own answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from .model import (
    Alert,
    Batch,
    Checkpoint,
    Command,
    Decisions,
    Event,
    Inputs,
    Labels,
    Outcome,
    Page,
    Request,
    Tick,
    Transition,
    Verdict,
    labelset,
)

JsonDoc = dict[str, Any]


def number(value: float) -> float | int | str:
    """A sample's value as JSON: whole numbers without a fraction, specials as strings."""
    if value != value:  # noqa: PLR0124 (the test for NaN that needs no call)
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == int(value) and abs(value) < 1e15 and not (value == 0 and _negative(value)):
        return int(value)
    return value


def _negative(value: float) -> bool:
    return math.copysign(1.0, value) < 0


def moment(seconds: float | None) -> str | None:
    """Unix seconds as RFC 3339 in UTC with milliseconds; None stays None."""
    if seconds is None:
        return None
    ms = round(seconds * 1000)
    at = datetime.fromtimestamp(ms // 1000, timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def dumps(doc: Any, *, indent: int | None = None) -> str:
    """JSON with sorted keys, the same text for equal values on every run.

    It can be encoded: halves of characters (from file names that are no UTF-8) stand as escapes.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(
        doc,
        sort_keys=True,
        ensure_ascii=False,
        allow_nan=False,
        separators=separators,
        indent=indent,
    )
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def event_doc(event: Event) -> JsonDoc:
    """An event as JSON."""
    doc: JsonDoc = {
        "kind": event.kind,
        "message": event.message,
        "labels": dict(event.labels),
        "fields": plain(event.fields),
        "severity": event.severity,
    }
    if event.urgent:
        doc["urgent"] = True
    if event.time is not None:
        doc["time"] = event.time
    return doc


def event_of(doc: Mapping[str, Any]) -> Event:
    """The event of a JSON object. Raises ValueError or KeyError for another form."""
    return Event(
        _text(doc["kind"]),
        _text(doc.get("message", "")),
        labels_of(doc.get("labels", {})),
        _mapping(doc.get("fields", {})),
        _text(doc.get("severity", "info")),
        _flag(doc.get("urgent", False)),
        None if doc.get("time") is None else finite(doc["time"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"no text: {str(value)[:40]!r}")  # noqa: TRY004 (input, not a call)
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"neither true nor false: {str(value)[:40]!r}")  # noqa: TRY004
    return value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"no object: {str(value)[:40]!r}")  # noqa: TRY004
    return value


def finite(value: Any) -> float:
    """A number within 1e11 of zero (seconds of the next 3,000 years). Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e11:
        raise ValueError(f"no number of seconds: {str(value)[:40]!r}")
    return float(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts. Raises ValueError for another form."""
    if not isinstance(value, list):
        raise ValueError(f"no list: {str(value)[:40]!r}")  # noqa: TRY004
    return tuple(_text(item) for item in value)


def labels_of(value: Any) -> Labels:
    """The label set of a JSON object. Raises ValueError for another form."""
    return labelset({name: _text(text) for name, text in _mapping(value).items()})


def plain(value: Any) -> Any:
    """A JSON value without numbers that JSON lacks; tuples become lists, keys strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return number(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def alert_doc(alert: Alert) -> JsonDoc:
    """An alert as ``alerts --json`` shows it."""
    labels = dict(alert.labels)
    annotations = dict(alert.annotations)
    unknown_since = moment(alert.unknown_since)
    if unknown_since is not None:
        annotations["unknown_since"] = unknown_since
    return {
        "alert": alert.name,
        "labels": labels,
        "annotations": annotations,
        "state": alert.state,
        "active_at": moment(alert.active_at),
        "fired_at": moment(alert.fired_at),
        "value": number(alert.value),
        "service": labels.get("service"),
    }


def transition_doc(tick: Tick, change: Transition) -> JsonDoc:
    """A change of an alert's state as ``replay --json`` shows it."""
    return {
        "tick": tick.number,
        "time": moment(tick.wall),
        "alert": change.alert.name,
        "labels": dict(change.alert.labels),
        "before": change.before,
        "after": change.after,
        "value": number(change.alert.value),
    }


def request_doc(tick: Tick, request: Request) -> JsonDoc:
    """A request as JSON."""
    return {
        "tick": tick.number,
        "time": moment(tick.wall),
        "remediation": request.remediation,
        "service": request.service,
        "alert": request.alert.name,
        "attempt": request.attempt,
        "id": request.id,
        "cause": request.cause,
        "cards": list(request.cards),
        "spares": list(request.spares),
        "standby": request.standby,
        "limit": request.limit,
        "back": request.back,
    }


def refusal_doc(tick: Tick, verdict: Verdict) -> JsonDoc:
    """A refusal as JSON, with every check that was evaluated."""
    return {
        **request_doc(tick, verdict.request),
        "reason": verdict.reason,
        "checks": dict(verdict.checks),
    }


def decisions_doc(tick: Tick, decisions: Decisions) -> JsonDoc:
    """One tick's decisions: what decisions.jsonl holds a line of."""
    return {
        "tick": tick.number,
        "time": moment(tick.wall),
        "transitions": [transition_doc(tick, change) for change in decisions.transitions],
        "requests": [request_doc(tick, request) for request in decisions.requests],
        "refusals": [refusal_doc(tick, verdict) for verdict in decisions.refusals],
        "events": [
            {"tick": tick.number, "time": moment(tick.wall), **event_doc(event)}
            for event in decisions.events
        ],
    }


class InputsWriter:
    """Writes inputs a line a tick; a page's keys stand only where they differ from the last."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[Labels, ...]] = {}

    def line(self, tick: Tick, inputs: Inputs) -> str:
        """The JSON text of one tick's inputs, without the newline."""
        return dumps(
            {
                "tick": tick.number,
                "mono": tick.mono,
                "wall": tick.wall,
                **({"urgent": True} if tick.urgent else {}),
                "batches": [self._batch(batch) for batch in inputs.batches],
                "outcomes": [outcome_doc(outcome) for outcome in inputs.outcomes],
                "commands": [
                    {"verb": c.verb, "args": plain(c.args), "who": c.who} for c in inputs.commands
                ],
            }
        )

    def _batch(self, batch: Batch) -> JsonDoc:
        doc: JsonDoc = {"collector": batch.collector, "duration": round(batch.duration, 6)}
        if batch.scope:
            doc["scope"] = dict(batch.scope)
        if batch.pages:
            doc["pages"] = [self._page(batch.collector, i, p) for i, p in enumerate(batch.pages)]
        if batch.events:
            doc["events"] = [event_doc(event) for event in batch.events]
        if batch.error is not None:
            doc["error"] = batch.error
        if batch.stalled:
            doc["stalled"] = True
        if batch.absent:
            doc["absent"] = True
        if batch.resting:
            doc["resting"] = True
        if batch.checkpoint is not None:
            doc["checkpoint"] = plain(batch.checkpoint.doc)
        return doc

    def _page(self, collector: str, position: int, page: Page) -> JsonDoc:
        doc: JsonDoc = {"values": [number(value) for value in page.values]}
        last = self._last.get((collector, position))
        if last is not page.keys and last != page.keys:
            doc["keys"] = [dict(key) for key in page.keys]
            self._last[(collector, position)] = page.keys
        return doc


class InputsReader:
    """Reads what InputsWriter wrote, line by line from the first."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], tuple[Labels, ...]] = {}

    def read(self, line: str | bytes) -> tuple[Tick, Inputs]:
        """One tick and its inputs. Raises ValueError, KeyError or TypeError on a foreign line."""
        try:
            doc = json.loads(line)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        tick = Tick(
            int(finite(doc["tick"])),
            finite(doc["mono"]),
            finite(doc["wall"]),
            _flag(doc.get("urgent", False)),
        )
        batches = tuple(self._batch(item) for item in doc["batches"])
        commands = tuple(Command(c["verb"], c["args"], c["who"]) for c in doc["commands"])
        outcomes = tuple(outcome_of(item) for item in doc["outcomes"])
        return tick, Inputs(batches, outcomes, commands)

    def _batch(self, doc: Mapping[str, Any]) -> Batch:
        name = _text(doc["collector"])
        checkpoint = doc.get("checkpoint")
        error = doc.get("error")
        return Batch(
            name,
            tuple(self._page(name, i, page) for i, page in enumerate(doc.get("pages", ()))),
            tuple(event_of(event) for event in doc.get("events", ())),
            finite(doc["duration"]),
            None if error is None else _text(error),
            _flag(doc.get("stalled", False)),
            _flag(doc.get("absent", False)),
            labels_of(doc.get("scope", {})),
            None if checkpoint is None else Checkpoint(_mapping(checkpoint)),
            _flag(doc.get("resting", False)),
        )

    def _page(self, collector: str, position: int, doc: Mapping[str, Any]) -> Page:
        if "keys" in doc:
            self._last[(collector, position)] = tuple(labels_of(key) for key in doc["keys"])
        keys = self._last[(collector, position)]
        values = tuple(float(value) for value in doc["values"])
        if len(keys) != len(values):
            raise ValueError(f"{len(values)} values of {len(keys)} series")
        return Page(keys, values)


def outcome_doc(outcome: Outcome) -> JsonDoc:
    """An outcome as JSON, to be read back by ``outcome_of``."""
    return {
        "request": request_state(outcome.request),
        "status": outcome.status,
        "detail": outcome.detail,
        "duration": outcome.duration,
        **({"again": outcome.again} if outcome.again else {}),
    }


def outcome_of(doc: Mapping[str, Any]) -> Outcome:
    """The outcome of a JSON object. Raises KeyError, TypeError, ValueError."""
    again = finite(doc.get("again", 0.0))
    request = request_of(doc["request"])
    return Outcome(request, doc["status"], doc["detail"], doc["duration"], again)


def request_state(request: Request) -> JsonDoc:
    """A request as JSON with all that it holds, to be read back by ``request_of``."""
    return {
        "remediation": request.remediation,
        "alert": alert_state(request.alert),
        "attempt": request.attempt,
        "service": request.service,
        "id": request.id,
        "cause": request.cause,
        "cards": list(request.cards),
        "spares": list(request.spares),
        "standby": request.standby,
        "limit": request.limit,
        "back": request.back,
    }


def request_of(doc: Mapping[str, Any]) -> Request:
    """The request of a JSON object. Raises KeyError, TypeError, ValueError."""
    return Request(
        _text(doc["remediation"]),
        alert_of(doc["alert"]),
        int(doc["attempt"]),
        _text(doc["service"]),
        _text(doc["id"]),
        _text(doc["cause"]),
        texts(doc["cards"]),
        texts(doc["spares"]),
        _flag(doc["standby"]),
        float(doc["limit"]),
        _flag(doc["back"]),
    )


def alert_state(alert: Alert) -> JsonDoc:
    """An alert as JSON with all that it holds, to be read back by ``alert_of``."""
    return {
        "rule": alert.rule,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.state,
        "value": repr(alert.value),
        "active_at": alert.active_at,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
        "unknown_since": alert.unknown_since,
        "ends_at": alert.ends_at,
    }


def alert_of(doc: Mapping[str, Any]) -> Alert:
    """The alert of a JSON object. Raises KeyError, TypeError, ValueError."""
    return Alert(
        doc["rule"],
        labelset(doc["labels"]),
        doc["state"],
        float(doc["active_at"]),
        float(doc["value"]),
        labelset(doc["annotations"]),
        doc["fired_at"],
        doc["resolved_at"],
        None,
        doc["unknown_since"],
        doc.get("ends_at"),
    )
