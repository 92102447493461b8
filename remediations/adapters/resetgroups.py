"""Which chips are reset together with one. Where it is not known, all of the vendor's are."""

from __future__ import annotations

import re

from ...watchdog.system import System
from .cardpaths import joined
from .cardview import Seen, View

_FIRST_910 = re.compile(r"910(?:A|ProA|ProB|PremiumA)$")  # two rings of four chips a server
_ALONE = re.compile(r"310P|310$")  # PCIe cards: all chips of the card, and no other
_RING = 4


def mates(system: System, view: View, card: str, timeout: float) -> tuple[str, ...]:
    """The cards that a reset of ``card`` takes with it, itself among them, by name.

    ``view`` must hold every card of its vendor.
    """
    seen = view.cards[card]
    every = [one for one in view.cards.values() if one.vendor == seen.vendor]
    every = [one for one in every if not one.card.startswith("MIG-")]
    found = (
        _ascend(seen, every) if seen.vendor == "ascend" else _linked(system, seen, every, timeout)
    )
    return tuple(sorted({card, *found}))


def _ascend(seen: Seen, every: list[Seen]) -> list[str]:
    numbers = {one.card: _npu(one) for one in every}
    own = numbers[seen.card]
    if own is None or None in numbers.values():
        return list(numbers)
    if _ALONE.match(seen.model):
        return [card for card, number in numbers.items() if number == own]
    if _FIRST_910.match(seen.model) and all((n or 0) < 2 * _RING for n in numbers.values()):
        return [card for card, n in numbers.items() if (n or 0) // _RING == own // _RING]
    return list(numbers)


def _npu(seen: Seen) -> int | None:
    number = seen.number.partition("/")[0]
    return int(number) if number.isdigit() else None


def _linked(system: System, seen: Seen, every: list[Seen], timeout: float) -> list[str]:
    """All GPUs that NVLinks join to this one, also through others."""
    names = [one.card for one in every]
    words = joined(system, every, timeout) if len(names) > 1 else {}
    if words is None or any((a, b) not in words for a in names for b in names if a != b):
        return names
    found, waiting = {seen.card}, [seen.card]
    while waiting:
        one = waiting.pop()
        near = {b for b in names if re.match(r"NV\d", words.get((one, b), ""))} - found
        found |= near
        waiting += near
    return sorted(found)
