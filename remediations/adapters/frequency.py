"""Clocks that an act lowered, and how they were before: ``STATE/frequency.json``.

What was found is noted and synced before a change, so that it can be put back by the way back, at
the daemon's stop and after a crash. Only our own changes are taken back: what somebody else has
changed since is left alone and told. A reboot ends all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...watchdog import processes
from ...watchdog.acting import Done
from ...watchdog.ascend.queries import ask
from ...watchdog.ascend.readings import read_answer
from ...watchdog.errors import CommandTimeout, NotSupported, SourceError, WatchdogError
from ...watchdog.system import System
from . import clocks, cpuclocks, notes
from .cardview import PATIENCE, look

FILE = "frequency.json"
_CLOCK_WORDS = ("freq", "clock")


class Lowered:
    """The node's lowered clocks, as kept in the state folder."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE

    def _load(self, system: System) -> dict[str, Any]:
        """What is noted; of another boot only what no card supports is still true."""
        kept = notes.load(system, self._path)
        boot = processes.boot(system.files)
        if kept.get("boot") != boot:
            kept = {"unsupported": kept.get("unsupported", {})}
        return {"cards": {}, "cpus": {}, "idle": {}, "unsupported": {}, **kept, "boot": boot}

    def _save(self, system: System, document: dict[str, Any]) -> None:
        notes.save(system, self._path, document)

    def cards(self, system: System) -> tuple[str, ...]:
        """The cards that idle, or whose clock is lowered or was about to be."""
        document = self._load(system)
        return tuple(sorted({*document["cards"], *document["idle"]}))

    # ---- cards ----

    def card_lowered(self, system: System, card: str) -> Done:
        """Whether a card runs slower now; or idles, as far as is known, and does not support it."""
        document = self._load(system)
        entry = document["cards"].get(card)
        if card in document["unsupported"]:
            return "yes" if card in document["idle"] else "no"
        if entry is None or not entry["set"]:
            return "no"
        slow = clocks.within(system, card, entry["high"])
        return "unknown" if slow is None else "yes" if slow else "no"

    def lower_card(self, system: System, card: str, vendor: str) -> None:
        """Lower a card's clock. Raises NotSupported once where that cannot be: it is noted, and
        not tried again; SourceError, CommandTimeout, OSError."""
        document = self._load(system)
        if card in document["unsupported"]:
            document["idle"][card] = vendor
            self._save(system, document)
            return
        try:
            if vendor != "nvidia":
                raise NotSupported(_without_verb(system, card, vendor))
            entry = document["cards"].get(card)
            if entry is None:
                low, high = clocks.clock_range(system, card)
                entry = {"low": low, "high": high, "at": system.clock.wall()}
            document["cards"][card] = {**entry, "set": False}
            self._save(system, document)
            clocks.lock(system, card, entry["low"], entry["high"])
        except NotSupported as error:
            document["cards"].pop(card, None)
            document["unsupported"][card] = str(error)
            self._save(system, document)
            raise
        except SourceError:  # it was refused: there is nothing of ours to take back
            document["cards"].pop(card, None)
            self._save(system, document)
            raise
        document["cards"][card]["set"] = True
        document["idle"][card] = vendor
        self._save(system, document)

    def card_restored(self, system: System, card: str) -> Done:
        """Whether nothing of ours holds the card's clock down."""
        return "no" if card in self.cards(system) else "yes"

    def restore_card(self, system: System, card: str) -> None:
        """Give a card its clock back. Raises SourceError, with the clock left as it is, where
        somebody else has changed it since; and what the tool raises."""
        document = self._load(system)
        entry = document["cards"].get(card)
        foreign = False
        if entry is not None:
            foreign = entry["set"] and clocks.within(system, card, entry["high"]) is False
            if not foreign:
                clocks.unlock(system, card)
        document["cards"].pop(card, None)
        if document["idle"].pop(card, None) or entry is not None:
            self._save(system, document)
        if foreign:
            raise SourceError(f"{card}: somebody else has changed its clock; it is left alone")

    # ---- CPUs ----

    def cpus_lowered(
        self, system: System, idle: tuple[str, ...], vendors: Mapping[str, str]
    ) -> Done:
        """Whether the CPUs run slower now; also where a card of the node is not among the idle
        ones, and they shall not. A limit that somebody else set since stays as it is."""
        document = self._load(system)
        names = [n for n in cpuclocks.policies(system.files) if n not in document["cpus"]]
        left = any(cpuclocks.lower_limit(system.files, name) is not None for name in names)
        known = document["idle"]
        lower = left and _all_idle(system, {*idle, *known}, {**known, **vendors})
        return "no" if lower else "yes"

    def lower_cpus(self, system: System) -> None:
        """Lower the highest clock of all CPUs. Raises OSError."""
        document = self._load(system)
        for name in cpuclocks.policies(system.files):
            found = cpuclocks.limit(system.files, name)
            wanted = cpuclocks.lower_limit(system.files, name)
            if found is None or wanted is None or name in document["cpus"]:
                continue
            document["cpus"][name] = {"found": found, "ours": wanted}
            self._save(system, document)
            document["cpus"][name]["ours"] = cpuclocks.set_limit(system, name, wanted)
            self._save(system, document)

    def cpus_restored(self, system: System) -> Done:
        """Whether nothing of ours holds the CPUs' clock down."""
        return "no" if self._load(system)["cpus"] else "yes"

    def restore_cpus(self, system: System) -> None:
        """Put the limits back as found. Raises SourceError for those that somebody else has
        changed since, which are left alone; OSError."""
        document = self._load(system)
        foreign: list[str] = []
        for name, entry in sorted(document["cpus"].items()):
            now = cpuclocks.limit(system.files, name)
            if now in (entry["ours"], None):
                cpuclocks.set_limit(system, name, entry["found"])
            elif now != entry["found"]:
                foreign.append(name)
        document["cpus"] = {}
        self._save(system, document)
        if foreign:
            named = ", ".join(foreign)
            raise SourceError(f"CPUs ({named}): somebody else has changed the limit; left alone")


def restore_all(system: System, state: Path) -> list[str]:
    """Take back all that acts have lowered: at the daemon's stop, and at its start after a crash.

    Returns what was not, or not as expected, one line each. Raises nothing.
    """
    lowered = Lowered(state)
    try:
        cards = lowered.cards(system)
    except WatchdogError as error:
        return [str(error)]
    ways: list[Callable[[System], None]] = [lowered.restore_cpus]
    ways += [partial(lowered.restore_card, card=card) for card in cards]
    return [told for told in (_tried(way, system) for way in ways) if told]


def _tried(restore: Callable[[System], None], system: System) -> str:
    try:
        restore(system)
    except (WatchdogError, OSError) as error:
        return str(error)
    return ""


def _all_idle(system: System, idle: set[str], vendors: Mapping[str, str]) -> bool:
    """Whether every card of the node is among these; no where that cannot be told."""
    view = look(system, idle, vendors)
    return bool(view.cards) and not view.troubles and set(view.cards) <= idle


def _without_verb(system: System, card: str, vendor: str) -> str:
    """Why a card's clock cannot be set, in one line. Where the tool's help lists a verb for it,
    its form is not known here, and an unknown command is not tried on a card."""
    if vendor != "ascend":
        return f"{card}: it is not known how its clock is set"
    try:
        told = read_answer(ask(system, ("npu-smi", "set", "-h"), PATIENCE), "npu-smi set -h")
    except (NotSupported, SourceError, CommandTimeout):
        told = []
    verbs = sorted(dict(sample.labels).get("type", "") for sample in told)
    named = [verb for verb in verbs if any(word in verb for word in _CLOCK_WORDS)]
    if named:
        return f"{card}: npu-smi lists {', '.join(named)}, whose form is not known: not supported"
    return f"{card}: npu-smi has no verb that sets a clock: not supported"
