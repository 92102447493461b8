"""Our own readers of the cards, kept still while a card is reset.

A file in the state folder says which vendors' tools rest, for whom and until when; whoever starts
collectors looks there first. It ends by itself: a daemon that was killed does not stay blind.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ...watchdog.acting import Done
from ...watchdog.errors import SourceError
from ...watchdog.system import Process, System
from . import notes

FILE = "readers.json"
COLLECTORS = {
    "nvidia": frozenset({"nvidia_smi", "nvidia_links"}),
    "ascend": frozenset({"npu_smi", "hccn_tool"}),
}
_TOOLS = {"nvidia": ("nvidia-smi", "nvml_child"), "ascend": ("npu-smi", "hccn_tool")}


def rest(system: System, state: Path, vendors: Collection[str], until: float, by: str) -> None:
    """Ask our readers of these vendors' cards to rest until then (Unix seconds)."""
    notes.save(system, state / FILE, {"vendors": sorted(vendors), "until": until, "by": by})


def wake(system: System, state: Path, by: str) -> None:
    """End the rest that this request asked for; another's goes on."""
    if notes.load(system, state / FILE).get("by") == by:
        system.files.remove(state / FILE)


def resting(system: System, state: Path, now: float) -> frozenset[str]:
    """The names of the collectors that must not start now. A damaged file keeps nobody still."""
    try:
        told = notes.load(system, state / FILE)
    except SourceError:
        return frozenset()
    until, vendors = told.get("until"), told.get("vendors")
    if not isinstance(until, (int, float)) or until <= now or not isinstance(vendors, list):
        return frozenset()
    return frozenset().union(*(COLLECTORS.get(str(vendor), frozenset()) for vendor in vendors))


def at_rest(system: System, state: Path, vendors: Collection[str], now: float, by: str) -> Done:
    """Whether the rest is asked for by this request and no reader runs any more, ours or not."""
    told = notes.load(system, state / FILE)
    if told.get("by") != by or told.get("until", 0.0) <= now:
        return "no"
    tools = [tool for vendor in vendors for tool in _TOOLS.get(vendor, ())]
    running = any(_is(process, tool) for process in system.host.processes() for tool in tools)
    return "no" if running else "yes"


def _is(process: Process, tool: str) -> bool:
    return process.name == tool or any(tool in word for word in process.cmdline[:4])
