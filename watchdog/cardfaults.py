"""Which faults of cards a log has told lately, as series that a rule can read.

A line happens once, a rule reads what holds: a fault is held for a while after its last line, or
until the log says that it is over. Pure: records in, samples out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .logrecords import LogRecord
from .model import Sample, labelset

HOLD = 900.0  # seconds
MAX_FAULTS = 1000


def card_of(record: LogRecord, cards: Mapping[str, str]) -> tuple[str, str] | None:
    """Vendor and card that a record speaks of. ``cards`` maps an Ascend device number to a card."""
    fields = record.fields
    if "xid" in fields or (record.kind in ("device_lost", "driver_fault") and "bus_id" in fields):
        return "nvidia", str(fields["bus_id"])
    device = fields.get("device")
    if isinstance(device, int) and str(fields.get("code", "")).startswith("0x"):
        return "ascend", cards.get(str(device), f"npu{device}")
    return None


def code_of(record: LogRecord) -> str:
    """The code under which a card's fault is told; a lost card without Xid is told as 79."""
    fields = record.fields
    if "xid" in fields:
        return str(fields["xid"])
    if "code" in fields:
        return str(fields["code"])
    return "79" if record.kind == "device_lost" else str(fields.get("error", record.kind))


def _severity(record: LogRecord) -> str:
    """The record's; a fault about which the vendor itself advises nothing asks for no act."""
    if record.severity == "critical" and record.fields.get("action") == "none":
        return "warning"
    return record.severity


@dataclass
class CardFaults:
    """Faults by (vendor, card, code). ``cards`` maps Ascend device numbers to cards."""

    cards: Mapping[str, str] = field(default_factory=dict)
    hold: float = HOLD
    _held: dict[tuple[str, str, str], tuple[str, str, float]] = field(default_factory=dict)

    def note(self, record: LogRecord, wall: float) -> dict[str, str]:
        """Take a record into account; return the labels of its card, if it speaks of one."""
        found = card_of(record, self.cards)
        if found is None:
            return {}
        vendor, card = found
        key = (vendor, card, code_of(record))
        if record.fields.get("state") == "recover":
            self._held.pop(key, None)
        elif record.fields.get("xid") == 154 and record.severity == "info":
            self._held.pop(key, None)  # the driver asks for nothing any more
        elif len(self._held) < MAX_FAULTS or key in self._held:
            until = (record.time if record.time is not None else wall) + self.hold
            if until > wall:
                self._held[key] = (record.kind, _severity(record), until)
        return {"vendor": vendor, "card": card}

    def samples(self, wall: float) -> Iterator[Sample]:
        """``accelerator_fault{vendor,card,code,kind,severity} 1`` for each fault that is held."""
        for key, (kind, severity, until) in sorted(self._held.items()):
            if until <= wall:
                del self._held[key]
                continue
            vendor, card, code = key
            pairs = {"vendor": vendor, "card": card, "code": code}
            labels = labelset({**pairs, "kind": kind, "severity": severity})
            yield Sample("accelerator_fault", 1.0, labels)

    def document(self) -> list[Any]:
        """The held faults as JSON."""
        return [[*key, *held] for key, held in sorted(self._held.items())]

    def restore(self, rows: Any) -> None:
        """Take over the faults of an earlier start."""
        for vendor, card, code, kind, severity, until in rows or []:
            self._held[(vendor, card, code)] = (kind, severity, float(until))
