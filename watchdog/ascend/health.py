"""Health words, fault codes and memory errors in answers. A code is told, never judged here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..faults import vocabulary
from ..model import Sample
from .answers import Asked, blocks, pairs
from .cards import Cards, Home, labels_of
from .words import reading

LEVELS = {"OK": 0, "WARNING": 1, "ALARM": 2, "CRITICAL": 3}


_COUNTERS = {
    "error count": "accelerator_ecc{}_errors_total",
    "aggregate total err cnt": "accelerator_ecc_lifetime{}_errors_total",
}
_PAGES = {
    "isolated pages count": "accelerator_retired_pages_total",
    "next-isolated pages count": "accelerator_retired_pages_pending",
}
_KINDS = {"single": "correctable", "double": "uncorrectable"}
_ECC = re.compile(r"(hbm|ddr) (single|double) bit (.+)")


def fault(code: str, severity: str = "warning") -> dict[str, str]:
    """Labels of ``accelerator_fault`` for a code in hexadecimal: code (lower-case 0x…), kind,
    severity; that of the tool where the vocabulary does not know the code."""
    known = vocabulary().ascend(code)
    return {
        "code": known.code,
        "kind": known.kind,
        "severity": known.severity if known.known else severity,
    }


def health_of(words: list[str]) -> int | None:
    """The level of the worst of several health words; None when one of them is unknown and none
    of the others says that the card is sick."""
    levels = [LEVELS.get(word.upper()) for word in words]
    known = [level for level in levels if level is not None]
    worst = max(known, default=None)
    return worst if len(known) == len(words) or (worst or 0) > 1 else None


def health(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    for block in blocks("health", text):
        card = home.card(block.npu, block.chip)
        word = block.fields.get("health status") or block.fields.get("health") or ""
        told = block.fields.get("error code")
        level = health_of([word]) if word else None
        # Without its codes the answer was cut: it can still say sick, but not healthy.
        if level is not None and (told or level > 1):
            yield Sample("accelerator_healthy", float(level < 2), labels_of(card))
            yield Sample("accelerator_health_level", float(level), labels_of(card))
        for code in re.findall(r"\b(?:0[xX])?([0-9A-Fa-f]{8})\b", told or ""):
            yield Sample("accelerator_fault", 1.0, labels_of(card, **fault(code)))


def faults(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    card = Home(ask, cards).card(None)
    told = dict(pairs(text)).get("fault event count", "")
    count = reading(told, 0, 1000)
    if count is not None:
        yield Sample("accelerator_faults", count, labels_of(card))
    for code, grade in re.findall(r"event id=0x([0-9A-Fa-f]{8})\b(?:, *severity=(\d))?", text):
        severity = {"0": "info", "1": "warning", "": "warning"}.get(grade, "critical")
        yield Sample("accelerator_fault", 1.0, labels_of(card, **fault(code, severity)))


def memory_errors(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    for block in blocks("ecc", text):
        card = home.card(block.npu, block.chip)
        sums: dict[tuple[str, str], float] = {}
        for key, value in block.fields.items():
            found = _ECC.fullmatch(key)
            count = reading(value, 0, 1e12)
            if not found or count is None:
                continue
            memory, kind, what = found[1], _KINDS[found[2]], found[3]
            if what in _COUNTERS:
                whole = (_COUNTERS[what].format(""), kind)
                sums[whole] = sums.get(whole, 0) + count
                labels = labels_of(card, kind=kind, memory=memory)
                yield Sample(_COUNTERS[what].format("_memory"), count, labels)
            elif what in _PAGES:
                yield Sample(_PAGES[what], count, labels_of(card, kind=kind, memory=memory))
        for (name, kind), count in sums.items():
            yield Sample(name, count, labels_of(card, kind=kind))
