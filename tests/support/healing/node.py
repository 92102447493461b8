"""A node in virtual time: one unit of a scripted systemd, its processes, cards, page and front.

It behaves as systemd and a vLLM server do; a test breaks what it wants. Every command and signal is
noted in ``log`` in its order, so that a test can say what happened before what.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.healing.nvidia_tool import CARD, HEAD, PROCESS
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.config import Service
from vllm_watchdog.watchdog.errors import HttpError, WatchdogError
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import Files, Finished, Process, Response, System

STATE = Path("/var/lib/w")
ENV = f"{STATE}/services/chat.env"
UNIT = "vllm@chat.service"
INCLUDE = "/etc/nginx/chat.conf"
FRONT = "http://127.0.0.1:80/"
URL = "http://127.0.0.1:8000"
STANDBY = "http://127.0.0.1:8001"
OWN, SPARE = "0000:53:00", "0000:64:00"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TimedFiles(Files):
    """Files whose times are the virtual clock's."""

    clock: VirtualClock = field(default_factory=VirtualClock)

    def write(self, path: str | Path, data: bytes, mode: int = 0o600) -> None:
        Files.write(self, path, data, mode)
        os.utime(self.path(path), (self.clock.wall(), self.clock.wall()))


@dataclass
class Unit:
    """The unit as systemd keeps it."""

    active: str = "active"
    sub: str = "running"
    main: int = 0
    started: float = 0.0  # on the monotonic clock
    restarts: int = 0
    result: str = "success"
    restart: str = "no"
    environment_files: tuple[str, ...] = ("/etc/default/vllm", ENV)


@dataclass
class Node:
    """``deaf``: SIGTERM does not end it; ``stuck``: SIGKILL neither. ``loading``: seconds from its
    start to its first answer; ``dies``: it ends after so many seconds instead. ``sticky``: memory
    stays taken on its cards. ``extra``: pids on cards beside the unit's own."""

    root: Path
    clock: VirtualClock = field(default_factory=VirtualClock)
    unit: Unit = field(default_factory=Unit)
    table: dict[int, Process] = field(default_factory=dict)
    group: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    cards: dict[str, list[int]] = field(default_factory=lambda: {OWN: [], SPARE: []})
    lost: set[str] = field(default_factory=set)
    sick: set[str] = field(default_factory=set)
    deaf: bool = False
    stuck: bool = False
    sticky: bool = False
    loading: float = 5.0
    dies: float | None = None
    hung: bool = False
    running: float = 0.0
    answer: str = "4"
    standby_answers: bool = True
    nginx_fails: bool = False
    refuses: bool = False
    _pid: int = 100
    _ends: float | None = None

    def __post_init__(self) -> None:
        for folder in ("/etc/nginx", str(STATE)):
            (self.root / folder.lstrip("/")).mkdir(parents=True)
        self.files = TimedFiles(self.root, self.clock)
        self.write(INCLUDE, "")
        self.boot()

    @property
    def system(self) -> System:
        return System(
            clock=self.clock,
            runner=self,
            files=self.files,
            http=self,
            host=self,
        )

    def write(self, path: str, text: str) -> None:
        target = self.files.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.files.write(path, text.encode())

    # Its processes

    def boot(self) -> None:
        """The server's processes come up, with the environment that the unit reads now."""
        self._pid += 10
        api, core = self._pid, self._pid + 1
        self.unit.main, self.unit.started = api, self.clock.mono()
        self.unit.active, self.unit.sub, self.unit.result = "active", "running", "success"
        words = ("/usr/bin/vllm", "serve", "/models/fp16", "--port", "8000")
        self.table[api] = Process(api, 1, "vllm", words, self.clock.wall())
        self.table[core] = Process(
            core, api, "VLLM::EngineCor", ("VLLM::EngineCore",), self.clock.wall()
        )
        self.group = {api, core}
        environment = self._environment()
        for pid in (api, core):
            self._proc(pid, environment)
        shown = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")
        for number in shown:
            self.cards[list(self.cards)[int(number)]].append(core)
        self._ends = None if self.dies is None else self.clock.mono() + self.dies
        self._note_group()

    def _environment(self) -> dict[str, str]:
        try:
            text = self.files.text(ENV)
        except FileNotFoundError:
            return {}
        pairs = [line.partition("=") for line in text.splitlines() if line[:1] != "#"]
        return {key: value.strip('"') for key, _, value in pairs}

    def _proc(self, pid: int, environment: Mapping[str, str]) -> None:
        process = self.table[pid]
        told = "\0".join(f"{key}={value}" for key, value in environment.items())
        self.write(f"/proc/{pid}/environ", told)
        self.write(f"/proc/{pid}/cmdline", "\0".join(process.cmdline))
        tail = " ".join(["0"] * 10)
        start = round(process.started)
        fields = f"S {process.ppid} {self.unit.main} {self.unit.main} 0 -1 0 {tail} 20 0"
        self.write(f"/proc/{pid}/stat", f"{pid} ({process.name}) {fields} {start} 0 1000 " + tail)

    def _note_group(self) -> None:
        text = "".join(f"{pid}\n" for pid in sorted(self.group))
        self.write(f"/sys/fs/cgroup/system.slice/{UNIT}/cgroup.procs", text)

    def end(self, pids: Sequence[int], result: str = "success") -> None:
        """Processes end; with the last of its group the unit does."""
        for pid in pids:
            self.table.pop(pid, None)
            self.group.discard(pid)
            for name in ("stat", "environ", "cmdline"):
                (self.files.path(f"/proc/{pid}") / name).unlink(missing_ok=True)
            if not self.sticky:
                for held in self.cards.values():
                    held[:] = [each for each in held if each != pid]
        self._note_group()
        if not self.group and self.unit.main:
            self.unit.active, self.unit.sub = "inactive", "dead"
            if result != "success":
                self.unit.active, self.unit.sub = "failed", "failed"
            self.unit.main, self.unit.result = 0, result

    def crash(self) -> None:
        """The engine dies and the server with it, exit status 0."""
        self.end(sorted(self.group))

    @property
    def serves(self) -> bool:
        ready = self.clock.mono() - self.unit.started >= self.loading
        return self.unit.active == "active" and ready and not self.hung

    def _tick(self) -> None:
        if self._ends is not None and self.clock.mono() >= self._ends and self.group:
            self.end(sorted(self.group), "exit-code")

    # The doors

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}"

    def start(self, argv: Sequence[str], **_: Any) -> int:
        raise AssertionError(f"unexpected start: {argv}")

    def run(self, argv: Sequence[str], **_: Any) -> Finished:
        self._tick()
        program, verb = argv[0], argv[1]
        if (program, verb) == ("systemctl", "show"):
            return Finished(0, self._show().encode())
        if program == "systemctl":
            assert argv[-1] == UNIT, argv
            self.log.append(f"systemctl {verb}")
            return self._told(verb)
        if program == "nginx":
            self.log.append(" ".join(argv))
            bad = self.nginx_fails and "-t" in argv
            return Finished(int(bad), b"", b"nginx: [emerg] broken" if bad else b"")
        if program == "nvidia-smi" and verb == "--query-gpu=index":
            return Finished(0, b"%d\n" % list(self.cards).index(argv[-1].removesuffix(".0")))
        if program == "nvidia-smi":
            return Finished(0, self._tool().encode())
        return Finished(1, b"", f"{program}: not here".encode())  # what evidence asks for

    def _told(self, verb: str) -> Finished:
        if self.refuses:
            return Finished(1, b"", b"Failed: Interactive authentication required.\nSee logs.")
        if verb == "stop" and not self.deaf and self.group:
            self.end(sorted(self.group))
        elif verb == "stop" and self.group:
            self.unit.active, self.unit.sub = "deactivating", "stop-sigterm"
        elif verb == "start" and not self.group:
            self.unit.restarts = 0
            self.boot()
        return Finished(0, b"")

    def _show(self) -> str:
        unit = self.unit
        lines = [
            "LoadState=loaded",
            f"ActiveState={unit.active}",
            f"SubState={unit.sub}",
            f"MainPID={unit.main}",
            f"ExecMainStartTimestampMonotonic={round(unit.started * 1e6)}",
            f"NRestarts={unit.restarts}",
            f"Result={unit.result}",
            f"Restart={unit.restart}",
            f"ControlGroup=/system.slice/{UNIT}",
            *(f"EnvironmentFiles={path} (ignore_errors=yes)" for path in unit.environment_files),
        ]
        return "\n".join(lines) + "\n"

    def _tool(self) -> str:
        parts = []
        for number, (card, pids) in enumerate(self.cards.items()):
            if card in self.lost:
                continue
            used = 500 + 70000 * bool(pids)
            shown = "".join(PROCESS.format(pid=pid) for pid in pids)
            text = CARD.format(
                card=card, uuid=f"GPU-{number:08x}-1111-2222-3333-444455556666", number=number, load=0, used=used,
                free=81059 - used, processes=shown,
            )  # fmt: skip
            if card in self.sick:
                text = text.replace("<dram_uncorrectable>0", "<dram_uncorrectable>3")
            parts.append(text)
        return HEAD.format(count=len(self.cards)) + "".join(parts) + "</nvidia_smi_log>\n"

    def processes(self) -> list[Process]:
        return [self.table[pid] for pid in sorted(self.table)]

    def details(self, process: Process) -> Process:
        return process

    def figures(self) -> Mapping[str, float]:
        return {}

    def kill(self, process: Process, number: int) -> bool:
        self.log.append(f"kill -{number} {process.name}")
        if not self.stuck:
            self.end([process.pid], "signal")
        return True

    def request(self, method: str, url: str, **_: Any) -> Response:
        self._tick()
        parts = urlsplit(url)
        if url.startswith(FRONT):  # to whom the include leads
            behind = re.search(r"server 127\.0\.0\.1:(\d+);", self.files.text(INCLUDE))
            if behind is None:
                return Response(503, b"{}")
            url = f"http://127.0.0.1:{behind[1]}{parts.path}"
        standby = url.startswith(STANDBY)
        if not (self.standby_answers if standby else self.serves):
            slow = not standby and self.hung and self.unit.active == "active"
            raise HttpError(f"{url}: no", "timeout" if slow else "refused")
        if parts.path == "/metrics":
            page = f"vllm:num_requests_running {self.running}\nvllm:num_requests_waiting 0\n"
            return Response(200, page.encode())
        if parts.path == "/v1/models":
            return Response(200, b'{"data": [{"id": "m"}]}')
        text = f'{{"choices": [{{"text": "{self.answer}", "finish_reason": "length"}}]}}'
        return Response(200, text.encode())


def service(**more: Any) -> Service:
    """The service that the node serves; keys of the configuration beside the usual ones."""
    front = {"nginx": INCLUDE, "url": "http://127.0.0.1:80"}
    document: dict[str, Any] = {
        "url": URL,
        "manager": {"systemd": UNIT},
        "cards": [OWN],
        "spares": [SPARE],
        "front": front,
        "probe": {"kind": "completion", "model": "m"},
        **more,
    }
    return Service.model_validate({k: v for k, v in document.items() if v is not None})


def case_of(node: Node, settings: Service, cause: str = "engine_dead", **more: Any) -> ActCase:
    """The case of an act that begins now. ``more``: fields of Request and of ActCase."""
    labels = (("alertname", "EngineDead"), ("service", "chat"))
    alert = Alert("serving/EngineDead", labels, "firing", node.clock.wall() - 5, 1.0)
    own = {key: more.pop(key) for key in ("mode", "sick", "began") if key in more}
    spares = tuple(more.pop("spares", ()))
    request = Request(
        "restart",
        alert,
        service="chat",
        id=more.pop("id", "act-1"),
        cause=cause,
        spares=spares,
        **more,
    )
    return ActCase(
        request, "chat", settings, own.get("mode", ServiceMode()), (OWN,), own.get("sick", ()),
        spares, own.get("began", node.clock.wall()), STATE, dict.fromkeys((OWN, SPARE), "nvidia"),
    )  # fmt: skip


@dataclass
class Walk:
    """How a plan went: ``steps`` name -> found, done or failed; ``why`` it ended early."""

    steps: dict[str, str] = field(default_factory=dict)
    why: str = ""
    ours: list[Step] = field(default_factory=list)
    sets: dict[str, Any] = field(default_factory=dict)


def walk(node: Node, steps: Sequence[Step], stop_after: str = "") -> Walk:
    """Carry steps out as the worker does, until the end, a failure, or a crash after a step's
    ``do`` (``stop_after``)."""
    system, went = node.system, Walk()
    for step in steps:
        state = _asked(system, step)
        if state == "yes":
            went.steps[step.name] = "found"
            went.sets.update(step.sets)
            continue
        try:
            if step.do is not None:
                step.do(system)
            went.ours.append(step)
            if step.name == stop_after:
                return went
            _wait(node, step)
        except (WatchdogError, OSError) as error:
            went.steps[step.name] = "failed"
            if step.must:
                went.why = f"{step.name}: {error}"
                return went
        else:
            went.steps[step.name] = "done"
            went.sets.update(step.sets)
    return went


def take_back(node: Node, went: Walk, *, all_steps: bool) -> None:
    """Undo in reverse what was done by us (or what is temporary only)."""
    for step in reversed(went.ours):
        reached = went.steps.get(step.name) == "done"
        if step.undo is not None and (step.temporary or (all_steps and reached)):
            step.undo(node.system)


def _asked(system: System, step: Step) -> str:
    try:
        return step.done(system)
    except WatchdogError:
        return "unknown"


def _wait(node: Node, step: Step) -> None:
    end = node.clock.mono() + step.deadline
    while step.done(node.system) != "yes":
        if node.clock.mono() >= end:
            raise WatchdogError("its time is up")
        node.clock.sleep(step.poll)
