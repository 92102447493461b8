"""What the plug-in in a vLLM worker publishes of its memory allocator, and of which card.

Anyone on the node may have written such a file, so nothing in it is taken for granted. Which
process and which service it belongs to is for those who read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import SourceError
from .system import Files

GPUS = "/proc/driver/nvidia/gpus"
FIGURES = ("allocated", "reserved", "inactive_split", "ooms", "alloc_retries")
"""The figures of a document: bytes, and counts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One worker's figures of one device, as the plug-in wrote them."""

    pid: int
    started: int
    vendor: str
    device: int
    figures: Mapping[str, float]
    facts: Mapping[str, Any]


def parse(data: bytes) -> Reading:
    """One file of the plug-in. Raises SourceError."""
    try:
        document = json.loads(data)
    except ValueError:
        raise SourceError("is no JSON") from None
    if not isinstance(document, dict) or document.get("version") != 1:
        raise SourceError("is no allocator's document of version 1")
    whole = [document.get(key) for key in ("pid", "started", "device")]
    vendor, moment = document.get("vendor"), document.get("time")
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in whole):
        raise SourceError("lacks pid, started or device")
    if vendor not in ("nvidia", "ascend") or not isinstance(moment, (int, float)):
        raise SourceError("lacks vendor or time")
    figures = {
        word: float(document[word])
        for word in FIGURES
        if isinstance(document.get(word), (int, float)) and 0 <= document[word] < 1 << 60
    }
    pid, started, device = (int(number) for number in whole if number is not None)
    return Reading(pid, started, vendor, device, figures, document)


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards' names for the devices that workers count from 0."""

    files: Files
    npus: Mapping[str, str]

    def name(self, reading: Reading) -> str | None:
        """The card that a worker's device is; None where that cannot be told."""
        if reading.vendor == "ascend":
            number = _visible(reading)
            return None if number is None else self.npus.get(number, f"npu{number}")
        bus = reading.facts.get("bus_id")
        if isinstance(bus, str) and re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}", bus):
            return bus
        uuid = reading.facts.get("uuid")
        wanted = uuid if isinstance(uuid, str) and uuid else _visible(reading)
        return self._gpu(wanted or "", by_number=not uuid)

    def _gpu(self, wanted: str, by_number: bool) -> str | None:
        """A GPU by (the beginning of) its uuid, or by its number in the order of the bus."""
        if not wanted:
            return None
        if wanted.startswith("MIG-"):
            return wanted
        addresses = self.files.names(GPUS)
        if by_number and wanted.isdigit():
            place = int(wanted)
            return _card(addresses[place]) if place < len(addresses) else None
        for address in addresses:
            try:
                text = self.files.text(f"{GPUS}/{address}/information", 16_384)
            except OSError:
                continue
            match = re.search(r"^GPU UUID:\s*GPU-(\S+)$", text, re.M)
            if match and match[1].startswith(wanted.removeprefix("GPU-")):
                return _card(address)
        return None


def _card(address: str) -> str:
    """``0000:C1:00.0`` → ``0000:c1:00``."""
    return address.lower().partition(".")[0]


def _visible(reading: Reading) -> str | None:
    """The entry of the worker's visible-devices variable that its device is."""
    listed = reading.facts.get("visible")
    if not isinstance(listed, str) or not listed.strip():
        return str(reading.device)
    entries = [entry.strip() for entry in listed.split(",")]
    return entries[reading.device] if reading.device < len(entries) else None
