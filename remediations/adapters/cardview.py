"""One look at the node's cards through their vendors' tools, as values to decide by.

What a tool does not tell stays None: unknown is never free, never healthy. A tool that is missing,
fails or hangs tells nothing of its cards. Nothing is remembered and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...watchdog.errors import CommandTimeout, NotSupported, SourceError
from ...watchdog.model import Sample
from ...watchdog.system import Files, System
from . import cards_ascend, cards_nvidia

PATIENCE = 10.0  # seconds for a tool's answers; nvidia-smi of eight cards takes about one
_MAKERS = {"0x10de": "nvidia", "0x19e5": "ascend"}
_READERS = {"nvidia": cards_nvidia.read, "ascend": cards_ascend.read}


@dataclass(frozen=True, slots=True)
class Seen:
    """A card as its tool shows it. Bytes; None: not told.

    ``pids`` hold memory on it; ``screens`` only draw on it (NVIDIA type G), with ``drawn`` bytes.
    ``number``: what the tool calls it (``0``; Ascend: NPU id, ``3/1`` for a further chip);
    ``device``: its device file. ``fault``: a fault code that is active on it; ``level``: Ascend's
    grade of health, 0 (OK) to 3. Clocks in hertz, of the graphics (SM) domain.
    """

    card: str
    vendor: str
    model: str = ""
    number: str = ""
    device: str = ""
    total: float | None = None
    used: float | None = None
    pids: tuple[int, ...] | None = None
    screens: tuple[int, ...] = ()
    drawn: float = 0.0
    present: bool = True
    healthy: bool | None = None
    reset_required: bool | None = None
    persistent: bool | None = None
    fault: str = ""
    level: int | None = None
    clock: float | None = None
    top_clock: float | None = None


@dataclass(frozen=True, slots=True)
class View:
    """What was seen. ``whole``: vendors whose reading proves that a card it lacks is not there;
    ``troubles``: by vendor, why there is no reading, in one line; ``vendors``: of the cards asked
    for."""

    cards: Mapping[str, Seen] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    troubles: Mapping[str, str] = field(default_factory=dict)
    vendors: Mapping[str, str] = field(default_factory=dict)

    def there(self, card: str) -> Seen | None:
        """The card, if it is seen and not said to be lost."""
        seen = self.cards.get(card)
        return seen if seen is not None and seen.present else None

    def absence(self, card: str) -> str:
        """Why a card is not seen, in one line."""
        vendor = self.vendors.get(card, "")
        if vendor in self.troubles:
            return f"it cannot be seen: {self.troubles[vendor]}"
        if card in self.cards or vendor in self.whole:
            return "it is not there"
        return "it is not in the tool's answer, which is not whole"


def vendor_of(files: Files, card: str, vendors: Mapping[str, str]) -> str:
    """Whose card it is: as given, else by its name or PCI's own word; empty when unknown."""
    if card in vendors:
        return vendors[card]
    if card.startswith("MIG-"):
        return "nvidia"
    if card.startswith("npu"):
        return "ascend"
    try:
        maker = files.text(f"/sys/bus/pci/devices/{card.partition('/')[0]}.0/vendor", 16).strip()
    except (OSError, ValueError):
        return ""
    return _MAKERS.get(maker, "")


def look(
    system: System, cards: Iterable[str], vendors: Mapping[str, str], timeout: float = PATIENCE
) -> View:
    """All cards of the vendors of ``cards``, read now; ``timeout`` seconds for each vendor."""
    wanted = tuple(cards)
    by_card = {card: vendor_of(system.files, card, vendors) for card in wanted}
    seen: dict[str, Seen] = {}
    whole: set[str] = set()
    troubles: dict[str, str] = {}
    for vendor in sorted(set(by_card.values())):
        own = [card for card in wanted if by_card[card] == vendor]
        reader = _READERS.get(vendor)
        if reader is None:
            troubles[vendor] = "no tool is known for it"
            continue
        try:
            samples, complete = reader(system, own, timeout)
        except (NotSupported, CommandTimeout, SourceError) as error:
            troubles[vendor] = str(error)
        except OSError as error:
            troubles[vendor] = f"{vendor}: the tool cannot be run ({error.strerror})"
        else:
            seen.update(_seen(samples, vendor))
            whole |= {vendor} if complete else set()
    return View(seen, frozenset(whole), troubles, by_card)


def _seen(samples: Iterable[Sample], vendor: str) -> dict[str, Seen]:
    """The samples of one reading, card by card."""
    rows: dict[str, list[tuple[str, Mapping[str, str], float]]] = {}
    for sample in samples:
        labels = dict(sample.labels)
        if "card" in labels:
            rows.setdefault(labels["card"], []).append((sample.name, labels, sample.value))
    found = {card: _one(Seen(card, vendor), own) for card, own in rows.items()}
    return {
        card: _in_parent(one, rows[card], found) if card.startswith("MIG-") else one
        for card, one in found.items()
    }


_FIGURES = {
    "accelerator_memory_total_bytes": "total",
    "accelerator_memory_used_bytes": "used",
}
_FLAGS = {
    "accelerator_present": "present",
    "accelerator_healthy": "healthy",
    "accelerator_reset_required": "reset_required",
    "accelerator_persistence_enabled": "persistent",
}
_CLOCKS = {"accelerator_clock_hertz": "clock", "accelerator_max_clock_hertz": "top_clock"}


def _one(seen: Seen, rows: list[tuple[str, Mapping[str, str], float]]) -> Seen:
    told: dict[str, object] = {}
    counted: float | None = None
    drawing, held = set[int](), dict[int, float]()
    for name, labels, value in rows:
        if name in _FIGURES:
            told[_FIGURES[name]] = value
        elif name in _FLAGS:
            told[_FLAGS[name]] = bool(value)
        elif name in _CLOCKS and labels.get("domain") in ("graphics", "core"):
            told[_CLOCKS[name]] = value
        elif name == "accelerator_health_level":
            told["level"] = int(value)
        elif name == "accelerator_fault":
            told["fault"] = labels.get("code", "unknown")
        elif name == "accelerator_processes":
            counted = value
        elif name.startswith("accelerator_process_") and labels.get("pid", "").isdigit():
            pid = int(labels["pid"])
            held[pid] = max(held.get(pid, 0.0), value if name.endswith("_bytes") else 0.0)
            drawing |= {pid} if labels.get("type") == "G" else set()
        elif name == "accelerator_info":
            told.update(_identity(seen.vendor, labels))
    pids = tuple(sorted(held.keys() - drawing))
    if counted is None or (counted and not held):
        return replace(seen, **told, pids=pids or None)  # type: ignore[arg-type]
    drawn = sum(held[pid] for pid in drawing)
    more = {"pids": pids, "screens": tuple(sorted(drawing)), "drawn": drawn}
    return replace(seen, **told, **more)  # type: ignore[arg-type]


def _identity(vendor: str, labels: Mapping[str, str]) -> dict[str, object]:
    told: dict[str, object] = {"model": labels["model"]} if labels.get("model") else {}
    if vendor == "nvidia":
        number, file = labels.get("index", ""), labels.get("minor", "")
        device = f"/dev/nvidia{file}" if file.isdigit() else ""
    else:
        chip = labels.get("chip", "0")
        number = labels.get("npu", "") + (f"/{chip}" if chip not in ("", "0") else "")
        file = labels.get("phy_id", "")
        device = f"/dev/davinci{file}" if file.isdigit() else ""
    return {**told, "number": number, "device": device}


def _in_parent(
    one: Seen, rows: list[tuple[str, Mapping[str, str], float]], all_: Mapping[str, Seen]
) -> Seen:
    """A MIG instance: what only its GPU is asked about holds for it too."""
    parent = next((labels["parent"] for _, labels, _ in rows if labels.get("parent")), "")
    home = all_.get(parent)
    if home is None:
        return one
    pids = one.pids if one.pids is not None else (() if home.pids is not None else None)
    return replace(one, pids=pids, reset_required=home.reset_required, device=home.device)
