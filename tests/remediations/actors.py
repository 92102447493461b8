"""What the tests of acts on cards share: a case, tools that play cards, a walk through the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.gpus import answer
from tests.support.system import ScriptedRunner, VirtualClock
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.errors import NotSupported, WatchdogError
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import Finished, Process, System

FIRST, SECOND, THIRD = "0000:53:00", "0000:64:00", "0000:75:00"
_RULE = "+" + "=" * 27 + "+" + "=" * 15 + "+" + "=" * 52 + "+"
_HEAD = """\
+------------------------------------------------------------------------------------------------+
| npu-smi {version}                   Version: {version}                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
"""
_PROCESSES = "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |"


def case(
    remediation: str, state: Path, sick: Sequence[str], vendor: str = "nvidia", **more: Any
) -> ActCase:
    """An act of the node that names these cards."""
    alert = Alert("hardware/Test", (("alertname", "Test"),), "firing", 0.0, 1.0)
    back, limit = more.pop("back", False), more.pop("limit", 0.0)
    request = Request(remediation, alert, id="req-1", cards=tuple(sick), back=back, limit=limit)
    vendors = dict.fromkeys(more.pop("known", sick), vendor)
    cards = tuple(sick)
    return ActCase(
        request, "", None, ServiceMode(), cards, cards, (), 1_700_000_000.0, state, vendors, **more
    )


def gpus(
    cards: Sequence[str],
    held: Mapping[str, Sequence[tuple[int, str]]] | None = None,
    *,
    used: Mapping[str, int] | None = None,
    persistent: Sequence[str] = (),
    asks: Sequence[str] = (),
) -> str:
    """``nvidia-smi -q -x``: cards that idle with 1,000 MiB but for ``used`` MiB; ``held``: (pid,
    type) of the processes on each; ``asks``: cards that want a reset."""
    text = answer(dict.fromkeys(cards, 0))
    parts = text.split("\t<gpu id=")
    for at, card in enumerate(cards, start=1):
        part = parts[at]
        rows = "".join(
            f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>python</process_name>"
            "<used_memory>100 MiB</used_memory></process_info>"
            for pid, kind in (held or {}).get(card, ())
        )
        part = part.replace("<processes>\n", f"<processes>{rows}\n")
        mode = "Enabled" if card in persistent else "Disabled"
        part = part.replace(
            "<minor_number>", f"<persistence_mode>{mode}</persistence_mode><minor_number>"
        )
        if card in asks:
            part = part.replace("_action>None<", "_action>GPU Reset<")
        if card in (used or {}):
            now = (used or {})[card]
            part = part.replace("<used>1000 MiB", f"<used>{now} MiB")
            part = part.replace("<free>80059 MiB", f"<free>{81059 - now} MiB")
        parts[at] = part
    return "\t<gpu id=".join(parts)


@dataclass
class Npu:
    """One chip of a table; ``pids`` None: the process section has no word on its NPU."""

    npu: int
    bus: str
    used: int = 3300
    chip: int = 0
    model: str = "910B3"
    health: str = "OK"
    total: int = 65536
    pids: Sequence[int] | None = ()


def npus(chips: Sequence[Npu], *, section: bool = True, version: str = "24.1.0") -> str:
    """``npu-smi info`` of these chips, in the layout of 23.0 to 25.x."""
    lines = [_HEAD.format(version=version) + _RULE]
    for chip in chips:
        memory = f"0    / 0          {chip.used:<5}/ {chip.total}"
        lines.append(
            f"| {chip.npu:<5} {chip.model:<19} | {chip.health:<13} | 98.2        44                0    / 0             |"
        )
        lines.append(f"| {chip.chip:<25} | {chip.bus.upper()}.0  | 0           {memory:<38} |")
        lines.append(_RULE)
    if section:
        lines += [_RULE, _PROCESSES, _RULE]
        for number in sorted({chip.npu for chip in chips}):
            own = [chip for chip in chips if chip.npu == number]
            rows = [(chip, pid) for chip in own for pid in chip.pids or ()]
            lines += [
                f"| {number:<7} {chip.chip:<17} | {pid:<13} | python{' ' * 18} | 100{' ' * 20} |"
                for chip, pid in rows
            ]
            if not rows and all(chip.pids is not None for chip in own):
                lines.append(f"| No running processes found in NPU {number}{' ' * 60}|")
            lines.append(_RULE)
    return "\n".join(lines) + "\n"


def table(paths: Mapping[tuple[int, int], str], count: int) -> str:
    """``nvidia-smi topo -m`` of ``count`` GPUs; SYS where ``paths`` says nothing."""
    lines = ["\t".join(["", *(f"GPU{n}" for n in range(count)), "CPU Affinity"])]
    for row in range(count):
        cells = [
            "X" if row == n else paths.get((row, n)) or paths.get((n, row)) or "SYS"
            for n in range(count)
        ]
        lines.append("\t".join([f"GPU{row}", *cells, "0-15"]))
    return "\n".join(lines) + "\n"


class Killed(BaseException):
    """The daemon is killed here."""


class PlayedRunner(ScriptedRunner):
    """A scripted runner whose answers may be functions of nothing, and which keeps what went in."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        super().__init__(script)
        self.fed: list[bytes] = []
        self._left, self._after = -1, False

    def run(self, argv: Sequence[str], **more: Any) -> Finished:
        """See ScriptedRunner.run. Raises Killed where the test wants the daemon killed."""
        hit = self._left == 0
        self._left -= 1
        if hit and not self._after:
            raise Killed
        ended = self._run(argv, **more)
        if hit:
            raise Killed
        return ended

    def _run(self, argv: Sequence[str], **more: Any) -> Finished:
        self.fed.append(more.get("stdin", b""))
        played = self.script.get(" ".join(argv))
        if callable(played):
            self.calls.append(list(argv))
            said = played()
            return said if isinstance(said, Finished) else Finished(0, str(said).encode())
        return super().run(argv, **more)

    def crash_at(self, number: int, *, after: bool) -> None:
        """From now on the daemon is killed at the command of this number (from 0)."""
        self._left, self._after = number, after

    def lines(self, word: str = "") -> list[str]:
        """The command lines that hold a word, in order."""
        return [" ".join(call) for call in self.calls if word in " ".join(call)]


@dataclass
class Walk:
    """Goes through steps as a worker does, in virtual time; notes what came of each. ``begun``:
    the names of those that this act, or a run of it before a crash, has begun."""

    system: System
    clock: VirtualClock
    begun: set[str] = field(default_factory=set)
    ends: dict[str, str] = field(default_factory=dict)
    undone: list[str] = field(default_factory=list)

    def through(self, steps: Sequence[Step]) -> str:
        """``done``, or why it ended; temporary steps are taken back."""
        made: list[Step] = []
        verdict = "done"
        for step in steps:
            end = self._one(step, made)
            self.ends[step.name] = end
            if end != "done" and step.must:
                verdict = f"{step.name}: {end}"
                break
        for step in reversed(made):
            reached = self.ends[step.name] == "done"
            if step.undo and (step.temporary or (verdict != "done" and reached)):
                step.undo(self.system)
                self.undone.append(step.name)
        return verdict

    def _one(self, step: Step, made: list[Step]) -> str:
        said = self._ask(step)
        made += [step] if step.name in self.begun else []
        if said == "yes" or (said == "unknown" and step.name in self.begun):
            return "done" if said == "yes" else said
        until = self.clock.mono() + step.deadline
        if step.do is not None:
            self.begun.add(step.name)
            made += [step] if step not in made else []
            try:
                step.do(self.system)
            except (WatchdogError, NotSupported, OSError) as error:
                return str(error)
        while (said := self._ask(step)) != "yes":
            if self.clock.mono() >= until:
                return "timed out" if said == "no" else said
            self.clock.advance(step.poll)
        return "done"

    def _ask(self, step: Step) -> str:
        try:
            return step.done(self.system)
        except (WatchdogError, OSError):
            return "unknown"


def sees_all(root: Path, processes: Mapping[int, Sequence[str]] | None = None) -> None:
    """A /proc in which every process is seen: the files that each has open, by pid."""
    (root / "proc/self/ns").mkdir(parents=True)
    (root / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    for pid, opened in (processes or {}).items():
        folder = root / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text("monitor\n")
        for number, path in enumerate(opened):
            (folder / str(number)).symlink_to(path)


def reader(name: str, pid: int = 77) -> Process:
    """A running tool."""
    return Process(pid, 1, name, (f"/usr/bin/{name}", "-q", "-x"), 1_700_000_000.0)
