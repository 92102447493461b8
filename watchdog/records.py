"""An event as it is kept for good: bounded, valid UTF-8, plain JSON, whatever the source wrote.

Shapes only, and how one is asked for; where it is kept is for the journal.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from .model import Event, StoredEvent, Tick

MESSAGE = 8192  # characters kept of a message
LABEL = 1024  # characters kept of a label's value
FIELDS = 65536  # characters kept of an event's fields as JSON
SHORTEST = 64  # characters below which nothing more is kept of a field
YEAR_9999 = 253_370_764_800.0  # Unix seconds; no calendar goes further
DEPTH = 8  # levels kept of an event's fields

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def stored(event: Event, seq: int, name: str, tick: Tick) -> StoredEvent:
    """The event as it is kept, under its place ``seq`` and its id ``name``."""
    return StoredEvent(
        seq,
        name,
        _time(event.time, tick.wall),
        tick.wall,
        _text(event.kind),
        _text(event.severity),
        _text(event.message[:MESSAGE]),
        compact({_text(name): _text(value[:LABEL]) for name, value in event.labels}),
        _fields(event.fields),
    )


def _fields(fields: Mapping[str, Any]) -> str:
    """The fields as JSON. What is too large for it is shortened, the largest first and marked by
    ``cut``; the small ones, which say what it is about, stay whole."""
    text = compact(_plain(fields, DEPTH))
    if len(text) <= FIELDS:
        return text
    whole = {name: compact(value) for name, value in json.loads(text).items()}
    kept, room = {"cut": "true"}, FIELDS - 16
    for name, text in sorted(whole.items(), key=lambda item: len(item[1])):
        room -= len(compact(name)) + 2
        if room < SHORTEST:
            break
        kept[name] = text if len(text) <= room else _shortened(text, room)
        room -= len(kept[name])
    return _joined(kept)


def _joined(texts: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{compact(name)}:{text}' for name, text in texts.items())}}}"


def _shortened(text: str, room: int) -> str:
    """A list's first items, or the beginning of anything else as text, within ``room``."""
    value = json.loads(text)
    if not isinstance(value, list):
        return compact(_text(text[: room // 2 - 1]))
    items: list[str] = []
    left = room - 2
    for item in map(compact, value):
        left -= len(item) + 1
        if left < 0:
            break
        items.append(item)
    return f"[{','.join(items)}]"


def _time(given: float | None, recorded: float) -> float:
    """The source's own time where it has one that a calendar holds."""
    return given if given is not None and 0 <= given < YEAR_9999 else recorded


def row(event: StoredEvent) -> tuple[Any, ...]:
    """The stored event as the columns of a table, in the order of its fields."""
    return (
        event.seq,
        event.id,
        event.time,
        event.recorded,
        event.kind,
        event.severity,
        event.message,
        event.labels_json,
        event.fields_json,
    )


def condition(
    after: int,
    kinds: Iterable[str],
    severities: Iterable[str],
    labels: Mapping[str, str],
    since: float | None,
    until: float | None,
    text: str,
) -> tuple[str, list[Any]]:
    """Which events are wanted, as a condition in SQL with its values; empty filters take all."""
    wanted: list[tuple[str, list[Any]]] = [("seq > ?", [after])]
    for column, words in (("kind", list(kinds)), ("severity", list(severities))):
        if words:
            wanted.append((f"{column} IN ({', '.join('?' * len(words))})", words))
    # In compact JSON a pair's text cannot occur inside a string: its quotes are escaped there.
    wanted += [
        ("instr(labels, ?) > 0", [compact({name: value})[1:-1]]) for name, value in labels.items()
    ]
    wanted += [("time >= ?", [since])] if since is not None else []
    wanted += [("time < ?", [until])] if until is not None else []
    wanted += [("instr(message, ?) > 0", [text])] if text else []
    values = [value for _, given in wanted for value in given]
    return " AND ".join(part for part, _ in wanted), values


def compact(value: object) -> str:
    """JSON without blanks. Raises ValueError for what is not plain."""
    return _ENCODER.encode(value)


def _text(text: str) -> str:
    """Text that every reader takes: valid UTF-8, no NUL."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _plain(value: object, depth: int) -> object:
    """The value as JSON can hold it, no deeper than ``depth``; what JSON lacks becomes text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping) and depth:
        return {
            _text(str(name)[:256]) or "_": _plain(item, depth - 1) for name, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_plain(item, depth - 1) for item in value]
    return _text(str(value)[:MESSAGE])
