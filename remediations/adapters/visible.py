"""The variables that show a server just these cards, in the numbers that its runtime counts by.

NVIDIA: indices in bus order (many vLLM versions read nothing but numbers there), a MIG instance by
its uuid. Ascend: logic ids. A card that its tool does not name now gets no guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...watchdog.ascend.identities import id_map
from ...watchdog.ascend.queries import ask
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from .cardview import PATIENCE, Seen, look, vendor_of

NVIDIA = "CUDA_VISIBLE_DEVICES"
ASCEND = "ASCEND_RT_VISIBLE_DEVICES"


def visible(system: System, cards: Sequence[str], vendors: Mapping[str, str]) -> Mapping[str, str]:
    """The environment for ``cards``, in their order; empty for none.

    Raises SourceError where one cannot be named (its tool fails or lacks it, vendors are mixed),
    NotSupported, CommandTimeout.
    """
    if not cards:
        return {}
    makers = {vendor_of(system.files, card, vendors) for card in cards}
    if makers not in ({"nvidia"}, {"ascend"}):
        raise SourceError(f"no variable shows a server {', '.join(cards)} together")
    if all(card.startswith("MIG-") for card in cards):
        return {NVIDIA: ",".join(cards)}
    view = look(system, cards, vendors, PATIENCE)
    seen: list[Seen] = []
    for card in cards:
        there = view.there(card)
        if there is None or not there.number:
            raise SourceError(f"card {card}: {view.absence(card)}")
        seen.append(there)
    if makers == {"nvidia"}:
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", NVIDIA: ",".join(one.number for one in seen)}
    return {ASCEND: ",".join(_logic_ids(system, seen))}


def allocator(vendors: Mapping[str, str], cards: Sequence[str]) -> Mapping[str, str]:
    """The variable that lets the allocator grow its segments in place of new ones."""
    ascend = any(vendors.get(card) == "ascend" or card.startswith("npu") for card in cards)
    name = "PYTORCH_NPU_ALLOC_CONF" if ascend else "PYTORCH_CUDA_ALLOC_CONF"
    return {name: "expandable_segments:True"}


def _logic_ids(system: System, seen: Sequence[Seen]) -> Iterator[str]:
    """Where the map has no logic ids (new boards) the physical ones are the same numbers."""
    rows = id_map(ask(system, ("npu-smi", "info", "-m"), PATIENCE))
    told = {(row["npu"], row["chip"]): row.get("device") or row.get("phy_id", "") for row in rows}
    for one in seen:
        npu, _, chip = one.number.partition("/")
        number = told.get((npu, chip or "0"), "")
        if not number:
            raise SourceError(f"card {one.card}: npu-smi info -m does not tell its logic id")
        yield number
