"""Whom an output of ``hccn_tool`` speaks of, and the shapes that several outputs share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..model import Labels, labelset
from .cards import VENDOR
from .words import numbered

MAX_LINE = 2000  # characters

_DEVICE = re.compile(r"^\s*\[(?:devid|device) (\d{1,5})\]\s?")


@dataclass(frozen=True, slots=True)
class Place:
    """A physical id with its port and die, as far as told; ``cards`` are names by physical id."""

    device: str = ""
    udie: str = ""
    port: str = ""
    cards: Mapping[str, str] = field(default_factory=dict)

    def labels(self, **more: str) -> Labels:
        """Vendor, card, device, udie, port and further labels, those that are not empty."""
        card = self.cards.get(self.device) or (numbered(int(self.device)) if self.device else "")
        own = {"device": self.device, "udie": self.udie, "port": self.port}
        return labelset({"vendor": VENDOR, "card": card, **own, **more})


def lines(text: str, place: Place) -> Iterator[tuple[str, Place]]:
    """Each line without its ``[devid 3]``, and whom it speaks of."""
    for line in text.splitlines():
        row = line[:MAX_LINE]
        if found := _DEVICE.match(row):
            yield row[found.end() :], replace(place, device=found[1])
        else:
            yield row, place


def told(text: str, place: Place) -> Iterator[tuple[str, str, Place]]:
    """Keys in lower case and values of lines such as ``key: value``."""
    for line, here in lines(text, place):
        key, colon, value = line.partition(":")
        if colon:
            yield re.sub(r"\s+", " ", key.strip().lower()), value.strip(), here


def rows(text: str, place: Place) -> Iterator[tuple[dict[str, str], Place]]:
    """Rows of the tables in a text: lower-case column -> cell, and whom the row speaks of."""
    columns: list[str] = []
    for line in text.splitlines():
        row = line.strip()[:MAX_LINE]
        if not (row.startswith("|") and row.endswith("|")):
            continue
        cells = [cell.strip() for cell in row[1:-1].split("|")]
        if any(re.fullmatch(r"NPU|UDie ?ID|Interface Name", cell) for cell in cells):
            columns = [re.sub(r"\W+", "", cell.lower().replace("_", "")) for cell in cells]
        elif len(cells) == len(columns):
            found = dict(zip(columns, cells, strict=True))
            yield found, _home(found, place)


def _home(row: Mapping[str, str], place: Place) -> Place:
    return replace(
        place,
        device=_id(row.get("npu", "")) or place.device,
        udie=_id(row.get("udie", row.get("udieid", ""))) or place.udie,
        port=_id(row.get("port", row.get("portid", ""))) or place.port,
    )


def _id(word: str) -> str:
    return word if re.fullmatch(r"\d{1,5}", word) else ""
