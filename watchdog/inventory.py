"""Which cards a name means: ``npu 7``, ``gpu 0``, an index or uuid of a visible-devices variable.

Resolves names against ``accelerator_info`` label sets; reads nothing itself. A name is resolved
once and pinned by the caller: if it later means another address, acts on it are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

Info = Mapping[str, str]
"""The labels of one ``accelerator_info`` series."""

_TOOL_NUMBER = re.compile(r"^(npu|gpu) (\d+)(?:/(\d+))?$")


def infos(keys: Iterable[tuple[tuple[str, str], ...]]) -> list[Info]:
    """The label sets of all ``accelerator_info`` series among ``keys``, in the tools' own order."""
    found = [dict(key) for key in keys]
    cards = [labels for labels in found if labels.get("__name__") == "accelerator_info"]
    return sorted(cards, key=_order)


def _order(info: Info) -> tuple[str, int, int, str]:
    first = info.get("npu") or info.get("index") or ""
    chip = info.get("chip", "")
    return (
        info.get("vendor", ""),
        int(first) if first.isdigit() else 1 << 30,
        int(chip) if chip.isdigit() else 0,
        info.get("card", ""),
    )


def resolve(name: str, cards: Sequence[Info]) -> str | None:
    """The card's own name for a configured one; None when no such card was seen.

    A PCI address, a MIG uuid or ``npu0`` is its own name, whether or not the card is there.
    """
    match = _TOOL_NUMBER.match(name)
    if not match:
        return name
    vendor = "ascend" if match[1] == "npu" else "nvidia"
    field = "npu" if match[1] == "npu" else "index"
    for info in cards:
        same = info.get("vendor") == vendor and info.get(field) == match[2]
        if same and (match[3] is None or info.get("chip") == match[3]):
            return info.get("card")
    return None


def devices(cards: Sequence[Info]) -> dict[str, str]:
    """Ascend cards by the number of their device file (``/dev/davinciN``), which drivers name."""
    return {
        number: info["card"]
        for info in cards
        if info.get("vendor") == "ascend" and info.get("card")
        if (number := info.get("phy_id") or info.get("device") or "").isdigit()
    }


class Pins:
    """Names that were resolved once and hold from then on, across restarts and renumbering.

    ``kept`` is what to save; ``changed`` says whether it was added to since the last save;
    ``moved`` holds names that now mean another card than the pinned one.
    """

    def __init__(self, kept: Mapping[str, str] | None = None) -> None:
        self.kept = dict(kept or {})
        self.changed = False
        self.moved: dict[str, str] = {}

    def card(self, name: str, cards: Sequence[Info]) -> str | None:
        """The card that ``name`` was first resolved to; None while no such card was seen."""
        now = resolve(name, cards)
        if now == name or now is None:
            return self.kept.get(name, now)
        self.changed = self.changed or name not in self.kept
        pinned = self.kept.setdefault(name, now)
        if pinned == now:
            self.moved.pop(name, None)
        else:
            self.moved[name] = now
        return pinned


def visible(devices: Sequence[str], vendor: str, cards: Sequence[Info]) -> list[str]:
    """The cards that entries of a visible-devices variable mean, in its order.

    An index counts the vendor's cards in the tool's order (the bus order); CUDA's default order can
    differ, so this holds for CUDA_DEVICE_ORDER=PCI_BUS_ID and for uniform nodes. Unknown entries
    are left out.
    """
    own = [info for info in cards if info.get("vendor") == vendor]
    found: list[str] = []
    for entry in devices:
        card = _visible(entry, own)
        if card:
            found.append(card)
    return found


def _visible(entry: str, own: Sequence[Info]) -> str | None:
    if entry.isdigit():
        number = int(entry)
        return own[number].get("card") if number < len(own) else None
    for info in own:
        if info.get("uuid", "").startswith(entry) and entry:
            return info.get("card")
    return None
