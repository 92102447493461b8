"""The reset of a card: who may be on it, the command, what came of it, how often it was tried.

``STATE/resets.json`` keeps each try, written before the command: a try whose end is not known is
never made again, and a card that three tries did not mend stays out. It waits for nothing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ...watchdog.acting import ActCase, Done
from ...watchdog.ascend.readings import read_answer
from ...watchdog.errors import SourceError
from ...watchdog.nvidia import messages
from ...watchdog.system import System
from . import notes
from .cards import hold
from .cardview import PATIENCE, Seen, View, look
from .openers import openers
from .privileged import Privileged
from .resetgroups import mates

FILE = "resets.json"
TRIES = 3
COMMAND = 120.0  # seconds for one reset command
SETTLE = 10.0  # seconds after a reset before a check counts
PAUSE = 30.0  # seconds between two tries
LEAST = 60.0  # seconds of the act that a try needs
MAX_RUNS = 20  # of acts that are remembered
_QUIET = frozenset({"nvidia-persiste", "nv-fabricmanage"})  # not in a reset's way before it


class Resets:
    """The resets of one act on cards of one ``vendor``. No try begins in the last minute before
    the act's end (Unix seconds; none where it has no limit)."""

    def __init__(self, case: ActCase, cards: Sequence[str], vendor: str) -> None:
        self._path = case.state / FILE
        self._request, self.sick, self.vendor = case.request.id, tuple(cards), vendor
        self._until = case.began + case.request.limit if case.request.limit else math.inf
        self._vendors = dict.fromkeys(cards, vendor)

    # ---- who is on it ----

    def look(self, system: System) -> View:
        """All cards of the vendor, read now."""
        return look(system, self.sick, self._vendors)

    def group(self, system: System, view: View) -> tuple[str, ...]:
        """The sick cards and all that are reset with them."""
        found = {mate for card in self.sick for mate in mates(system, view, card, PATIENCE)}
        return tuple(sorted(found))

    def hindrance(self, system: System, *, final: bool = False) -> str:
        """Why nothing may be reset now; empty when the cards and their mates are there and free.

        ``final``: right before the command, when not even the driver's own helpers may be on it.
        """
        view = self.look(system)
        for card in self.sick:
            if view.there(card) is None:
                return f"{card}: {view.absence(card)}"
        if self.vendor not in view.whole:
            return "the tool's answer is not whole: not every card that is reset with it is seen"
        group = self.group(system, view)
        every = dict.fromkeys(group, self.vendor)
        missing = [card for card in group if card not in self.sick]
        full = look(system, group, every) if missing else view
        for card in group:
            if why := self._held(full, card, group):
                return f"{card}: {why}" if card in self.sick else f"{card}, reset with it: {why}"
        return self._open(system, [full.cards[card] for card in group], final)

    def free(self, system: System) -> Done:
        """Whether nobody is on the cards, or a try of this act was made already."""
        if self._run(notes.load(system, self._path)).get("try"):
            return "yes"
        return "no" if self.hindrance(system, final=True) else "yes"

    def _held(self, view: View, card: str, group: Collection[str]) -> str:
        seen = view.there(card)
        if seen is None:
            return view.absence(card)
        held = hold(view, card, group)
        if held.pids or seen.screens:
            return f"process {(*(held.pids or ()), *seen.screens)[0]} holds it"
        if held.free == "no":
            return "its memory is in use, by nobody whom the tool names"
        if held.pids is None:
            return "the tool does not tell who is on it"
        return ""

    def _open(self, system: System, group: Sequence[Seen], final: bool) -> str:
        """Who has a device file open: the tool's list may be cut, and misses who only watches."""
        devices = {seen.device: seen.card for seen in group if seen.device}
        found = openers(system, devices)
        for device, pids in (found or {}).items():
            for pid in pids:
                name = _name(system, pid)
                if final or name not in _QUIET:
                    return f"{devices[device]}: process {pid} ({name or '?'}) has it open"
        return ""

    # ---- what was done ----

    def _run(self, document: dict[str, Any]) -> dict[str, Any]:
        run = document.get("runs", {}).get(self._request, {})
        return run if isinstance(run, dict) else {}

    def _keep(self, system: System, document: dict[str, Any], run: dict[str, Any]) -> None:
        runs = {**document.get("runs", {}), self._request: run}
        newest = sorted(runs, key=lambda key: runs[key].get("begun", 0.0))[-MAX_RUNS:]
        kept = {key: runs[key] for key in {*newest, self._request}}
        notes.save(system, self._path, {**document, "runs": kept})

    def spent(self, system: System) -> str:
        """The card whose tries are used up, or nothing."""
        failed = notes.load(system, self._path).get("failed", {})
        return next((card for card in self.sick if failed.get(card, 0) >= TRIES), "")

    def done(self, system: System) -> Done:
        """Whether the cards came back by a try of the act; unknown where a crash hid its end."""
        run = self._run(notes.load(system, self._path))
        if not run.get("try"):
            return "no"
        if run.get("ended") is None:
            return "unknown"
        return "yes" if self.well(system, run) else "no"

    def paused(self, system: System) -> Done:
        """Whether the next try may begin, or none is needed."""
        run = self._run(notes.load(system, self._path))
        ended = run.get("ended")
        if ended is None:
            return "unknown" if run.get("try") else "no"
        over = system.clock.wall() - ended >= PAUSE
        return "yes" if over or self.well(system, run) else "no"

    def well(self, system: System, run: dict[str, Any], *, strictly: bool = False) -> bool:
        """Whether the sick cards are healthy and all their mates are there again."""
        group = tuple(run.get("group", self.sick))
        view = look(system, group, dict.fromkeys(group, self.vendor))
        seen = [view.there(card) for card in group]
        if None in seen or run.get("said"):
            return False
        mended = [one for one in seen if one is not None and one.card in self.sick]
        good = all(_healthy(one, strictly) for one in mended)
        return good and (not strictly or all(hold(view, c, group).free == "yes" for c in group))

    def check(self, system: System) -> Done:
        """Whether the check is passed: healthy without any fault, free, and a while after."""
        run = self._run(notes.load(system, self._path))
        ended = run.get("ended")
        if ended is None or system.clock.wall() - ended < SETTLE:
            return "no"
        return "yes" if self.well(system, run, strictly=True) else "no"

    def reset(self, system: System, number: int) -> None:
        """Make a try: noted first, counted whatever comes of it. Raises SourceError when it was
        made already, when somebody is on the cards, or when the tool says that it failed."""
        document = notes.load(system, self._path)
        run = self._run(document)
        if run.get("try", 0) >= number:
            raise SourceError(f"try {number} was made already")
        if run.get("try") and run.get("ended") is None:
            raise SourceError(f"nobody can tell how try {run['try']} ended: a person must look")
        if system.clock.wall() > self._until - LEAST:
            raise SourceError("the act's time is up: no further try")
        if card := self.spent(system):
            raise SourceError(f"{card}: {TRIES} tries failed")
        if why := self.hindrance(system, final=True):
            raise SourceError(why)
        view = self.look(system)
        group = self.group(system, view)
        failed = document.get("failed", {})
        counts = {card: failed.get(card, 0) + 1 for card in self.sick}
        now = system.clock.wall()
        run = {**run, "try": number, "begun": now, "ended": None, "group": list(group), "said": ""}
        self._keep(system, {**document, "failed": {**failed, **counts}}, run)
        try:
            self._command(system, view, group if number > 1 else self.sick)
        except Exception as error:
            self._ended(system, run, str(error)[:200] or type(error).__name__)
            raise
        self._ended(system, run, "")

    def _ended(self, system: System, run: dict[str, Any], said: str) -> None:
        ended = {**run, "ended": system.clock.wall(), "said": said}
        self._keep(system, notes.load(system, self._path), ended)

    def _command(self, system: System, view: View, cards: Sequence[str]) -> None:
        if self.vendor == "nvidia":
            _reset_nvidia(system, cards)
            return
        done: set[str] = set()
        for card in self.sick:
            if card not in done:
                _reset_ascend(system, view.cards[card])
                done.update(mates(system, view, card, PATIENCE))

    def passed(self, system: System) -> Done:
        """Whether no failed try of these cards is counted any more."""
        failed = notes.load(system, self._path).get("failed", {})
        return "no" if any(card in failed for card in self.sick) else "yes"

    def forgive(self, system: System) -> None:
        """Count the cards' tries from none again."""
        forgive(system, self._path.parent, self.sick)

    # ---- persistence mode, in which NVIDIA's driver refuses a reset ----

    def persistent(self, system: System) -> Done:
        """Whether persistence mode is off on all of the cards."""
        view = self.look(system)
        seen = [view.there(card) for card in self.sick]
        if None in seen:
            return "unknown"
        return "no" if any(one is not None and one.persistent for one in seen) else "yes"

    def drop_persistence(self, system: System) -> None:
        """Switch it off where it is on; which cards those were is noted first."""
        view = self.look(system)
        on = [card for card in self.sick if (seen := view.there(card)) and seen.persistent]
        document = notes.load(system, self._path)
        run = self._run(document)
        noted = sorted({*run.get("persistent", []), *on})
        self._keep(system, document, {**run, "persistent": noted})
        for card in on:
            _persistence(system, card, "0")

    def put_persistence_back(self, system: System) -> None:
        """Switch it on again where this act switched it off."""
        document = notes.load(system, self._path)
        run = self._run(document)
        for card in run.get("persistent", []):
            _persistence(system, card, "1")
        self._keep(system, document, {**run, "persistent": []})


def forgive(system: System, state: Path, cards: Collection[str]) -> None:
    """A person released these cards, or a reset mended them: their tries count from none."""
    document = notes.load(system, state / FILE)
    failed = document.get("failed", {})
    if any(card in failed for card in cards):
        left = {card: count for card, count in failed.items() if card not in cards}
        notes.save(system, state / FILE, {**document, "failed": left})


def _healthy(seen: Seen, strictly: bool) -> bool:
    good = seen.healthy is True and not seen.reset_required
    return good and not (strictly and (seen.fault or seen.level not in (None, 0)))


def _name(system: System, pid: int) -> str:
    with contextlib.suppress(OSError):
        return system.files.text(f"/proc/{pid}/comm", 64).strip()
    return ""


def _reset_nvidia(system: System, cards: Sequence[str]) -> None:
    named = ",".join(f"{card}.0" for card in cards)
    answer = Privileged.run(system, ("nvidia-smi", "--gpu-reset", "-i", named), COMMAND)
    if answer.code != 0 or not set(cards) <= set(messages.cards_reset(answer.text)):
        why = messages.failure(answer.text) or messages.exit_words(answer.code)
        raise SourceError(f"nvidia-smi --gpu-reset: {why}")


def _reset_ascend(system: System, seen: Seen) -> None:
    npu, _, chip = seen.number.partition("/")
    place = ("-m", "1") if "950" in seen.model else ("-c", chip or "0")
    command = ("npu-smi", "set", "-t", "reset", "-i", npu, *place)
    answer = Privileged.run(system, command, COMMAND, stdin=b"Y\n")
    said = answer.text or answer.stderr.decode("utf-8", "replace")
    told = read_answer(said, " ".join(command))
    good = any(one.name == "accelerator_reset_success" and one.value == 1.0 for one in told)
    if answer.code != 0 or not good:
        last = [line.strip() for line in said.splitlines() if line.strip()][-1:]
        raise SourceError(f"npu-smi set -t reset: {' '.join(last)[:150]}")


def _persistence(system: System, card: str, value: str) -> None:
    command = ("nvidia-smi", "-i", f"{card}.0", "-pm", value)
    answer = Privileged.run(system, command, PATIENCE)
    if answer.code != 0:
        why = messages.failure(answer.text) or messages.exit_words(answer.code)
        raise SourceError(f"nvidia-smi -pm {value}: {why}")
