"""Counters in outputs of ``hccn_tool``: packets, errors, pauses, RDMA objects. They count since the
device started and begin again at a reset; the difference is what matters."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace

from ..model import Sample
from .hccn_place import MAX_LINE, Place, told

COUNTER = "accelerator_link_counter_total"

_NAME = re.compile(r"[a-z][a-z0-9_]*(?:\(\d{1,3}\))?")
_VALUE = re.compile(r"\d{1,20}|0x[0-9a-f]{1,16}")
_IDS = {"timestamp", "npu_index", "report_time", "host_ip"}


def counters(text: str, place: Place) -> Iterator[Sample]:
    """``-stat``, ``-hw_stats``, ``-bit_err``: name and number, decimal or hexadecimal."""
    for key, value, here in told(text, place):
        if not _NAME.fullmatch(key) or not _VALUE.fullmatch(value.lower()):
            continue
        number = float(int(value, 16 if value.lower().startswith("0x") else 10))
        if key == "port_id":
            place = replace(place, port=str(int(number)))
        elif key.endswith("_active"):
            labels = here.labels(object=key.removesuffix("_active"))
            yield Sample("accelerator_rdma_objects", number, labels)
        elif key == "is_uboe_port":
            continue
        else:
            home = replace(place, device=here.device)
            yield Sample(COUNTER, number, home.labels(counter=key))


def series(text: str, place: Place) -> Iterator[Sample]:
    """A table of readings in comma-separated form: the last one of each device, and the mean rate
    between its first and its last."""
    seen: dict[str, list[dict[str, str]]] = {}
    lines = [line for line in text.splitlines() if len(line) < MAX_LINE and "\x00" not in line]
    for row in csv.DictReader(lines, quoting=csv.QUOTE_NONE):
        device = row.get("npu_index") or ""
        if None not in row and re.fullmatch(r"\d{1,5}", device):
            seen.setdefault(device, []).append(row)
    for device, rows in seen.items():
        home = replace(place, device=device)
        span = (_number(rows[-1]["timestamp"]) or 0) - (_number(rows[0]["timestamp"]) or 0)
        for name in sorted(rows[-1].keys() - _IDS):
            first, last = _number(rows[0][name]), _number(rows[-1][name])
            if last is not None:
                yield Sample(COUNTER, last, home.labels(counter=name))
            if last is not None and first is not None and span > 0 and last >= first:
                rate = (last - first) / span
                yield Sample("accelerator_link_counter_rate", rate, home.labels(counter=name))


def _number(word: str | None) -> float | None:
    found = re.fullmatch(r"\d{1,20}(\.\d{1,9})?(E\+?\d{1,2})?", word or "", re.IGNORECASE)
    return float(found[0]) if found else None
