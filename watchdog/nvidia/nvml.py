"""What ``nvml_child`` printed, as cards in the form of every other output. It asks nothing itself.

The child can hang, crash or print rubbish; an answer without its last line says nothing at all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SourceError
from ..system import Finished
from .card import Card, Instance, Process
from .fields import FIELDS, TEXTS
from .values import LOST, card_name, trouble

COMMAND = (sys.executable, "-m", f"{__package__}.nvml_child")
MAX_TEXT = 512
_READINGS = TEXTS | FIELDS.keys()


@dataclass(frozen=True, slots=True)
class Answer:
    """All cards that could be read; how many the driver counts, how many it calls lost.

    ``absent`` says why there is no such source here, "" where there is one.
    """

    cards: tuple[Card, ...] = ()
    attached: int = 0
    lost: int = 0
    absent: str = ""


def parse(answer: Finished) -> Answer:
    """Read the child's lines. Raises SourceError, in one line, when they are not whole."""
    rows = [_row(line) for line in answer.stdout.splitlines() if line.strip()]
    first, last = (rows[0], rows[-1]) if rows else ({}, {})
    if "absent" in first:
        return Answer(absent=_text(first["absent"]))
    if "failed" in first:
        raise SourceError(f"NVML: {_text(first['failed'])}")
    count = first.get("cards")
    if answer.truncated or not isinstance(count, int) or last.get("end") != count:
        raise SourceError(f"NVML: its process ended before its answer did ({_how(answer)})")
    if len(rows) != count + 2:
        raise SourceError("NVML: the answer does not hold as many cards as it says")
    driver = _text(first.get("driver"))
    cards = [_card(row, driver) for row in rows[1:-1] if "trouble" not in row]
    if len({card.name for card in cards}) < len(cards):
        raise SourceError("NVML: the same card stands twice in the answer")
    lost = sum(trouble(_text(row.get("trouble"))) == LOST for row in rows[1:-1])
    return Answer(tuple(cards), count, lost)


def _how(answer: Finished) -> str:
    if answer.truncated:
        return "it printed without end"
    if answer.code < 0:
        return f"signal {-answer.code}"
    said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"exit status {answer.code}" + (f": {said[-1][:200]}" if said else "")


def _row(line: bytes) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise SourceError("NVML: its process printed something else than its answer")
    return row


def _text(value: Any) -> str:
    return " ".join(value.split())[:MAX_TEXT] if isinstance(value, str) else ""


def _texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, dict) else ()
    return {name: _text(said) for name, said in items if name in _READINGS}


def _card(row: Mapping[str, Any], driver: str) -> Card:
    name = card_name(_text(row.get("bus_id")))
    if not name:
        raise SourceError("NVML: a card has no PCI address")
    told, parts = row.get("processes"), row.get("instances")
    return Card(
        name,
        {
            **_texts(row.get("fields")),
            "pci.bus_id": _text(row.get("bus_id")),
            "driver_version": driver,
            "index": str(row.get("index", "")),
        },
        processes=tuple(map(_process, _objects(told))) if isinstance(told, list) else None,
        instances=tuple(map(_instance, _objects(parts))),
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _process(row: Mapping[str, Any]) -> Process:
    texts = {key: _text(row.get(key)) for key in ("pid", "name", "kind", "memory", "gi", "ci")}
    return Process(**texts)


def _instance(row: Mapping[str, Any]) -> Instance:
    texts = {key: _text(row.get(key)) for key in ("index", "gi", "ci", "uuid")}
    return Instance(**texts, fields=_texts(row.get("fields")))
