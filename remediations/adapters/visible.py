"""The variables that show a server just these cards, in the numbers that its runtime counts by.

NVIDIA: indices in bus order (many vLLM versions read nothing but numbers there), uuids where the
server is configured by uuids, a MIG instance by its own. Ascend: logic ids. A card that its tool
does not name now gets no guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...watchdog.ascend.identities import id_map
from ...watchdog.ascend.queries import ask
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from . import cards_nvidia
from .cardview import PATIENCE, look, vendor_of

NVIDIA = "CUDA_VISIBLE_DEVICES"
ASCEND = "ASCEND_RT_VISIBLE_DEVICES"
_BUS_ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def visible(
    system: System,
    cards: Sequence[str],
    vendors: Mapping[str, str],
    before: Mapping[str, str] | None = None,
) -> Mapping[str, str]:
    """The environment for ``cards``, in their order; empty for none. ``before``: the one that the
    server has; uuids in it are answered by uuids.

    Raises SourceError where a card cannot be named (its tool fails or lacks it, vendors are mixed),
    NotSupported, CommandTimeout.
    """
    if not cards:
        return {}
    makers = {vendor_of(system.files, card, vendors) for card in cards}
    if makers == {"ascend"}:
        return {ASCEND: ",".join(_logic_ids(system, cards, vendors))}
    if makers != {"nvidia"}:
        raise SourceError(f"no variable shows a server {', '.join(cards)} together")
    if all(card.startswith("MIG-") for card in cards):
        return {NVIDIA: ",".join(cards)}
    if (before or {}).get(NVIDIA, "").startswith("GPU-"):
        return {NVIDIA: ",".join(_uuids(system, cards))}
    return {**_BUS_ORDER, NVIDIA: ",".join(_indices(system, cards))}


def allocator(vendors: Mapping[str, str], cards: Sequence[str]) -> Mapping[str, str]:
    """The variable that lets the allocator grow its segments in place of new ones."""
    ascend = any(vendors.get(card) == "ascend" or card.startswith("npu") for card in cards)
    name = "PYTORCH_NPU_ALLOC_CONF" if ascend else "PYTORCH_CUDA_ALLOC_CONF"
    return {name: "expandable_segments:True"}


def _uuids(system: System, cards: Sequence[str]) -> Iterator[str]:
    known, _ = _told(system, cards)
    for card in cards:
        if not known.get(card, {}).get("uuid"):
            raise SourceError(f"nvidia-smi does not tell the uuid of {card}")
        yield known[card]["uuid"]


def _indices(system: System, cards: Sequence[str]) -> Iterator[str]:
    """Places in a whole list are indices; else the driver is asked for each card's own."""
    known, whole = _told(system, cards)
    for card in cards:
        index = known.get(card, {}).get("index", "") if whole else _index(system, card)
        if not index.isdigit():
            raise SourceError(f"nvidia-smi does not tell the index of {card}")
        yield index


def _told(system: System, cards: Sequence[str]) -> tuple[dict[str, dict[str, str]], bool]:
    samples, whole = cards_nvidia.read(system, cards, PATIENCE)
    infos = [dict(sample.labels) for sample in samples if sample.name == "accelerator_info"]
    return {labels["card"]: labels for labels in infos}, whole


def _index(system: System, card: str) -> str:
    query = ("nvidia-smi", "--query-gpu=index", "--format=csv,noheader", "-i", f"{card}.0")
    ended = system.runner.run(query, timeout=PATIENCE)
    return ended.text.strip() if ended.code == 0 else ""


def _logic_ids(system: System, cards: Sequence[str], vendors: Mapping[str, str]) -> Iterator[str]:
    """Where the map has no logic ids (new boards) the physical ones are the same numbers."""
    view = look(system, cards, vendors, PATIENCE)
    rows = id_map(ask(system, ("npu-smi", "info", "-m"), PATIENCE))
    told = {(row["npu"], row["chip"]): row.get("device") or row.get("phy_id", "") for row in rows}
    for card in cards:
        seen = view.there(card)
        if seen is None:
            raise SourceError(f"card {card}: {view.absence(card)}")
        npu, _, chip = seen.number.partition("/")
        number = told.get((npu, chip or "0"), "")
        if not number:
            raise SourceError(f"card {card}: npu-smi info -m does not tell its logic id")
        yield number
