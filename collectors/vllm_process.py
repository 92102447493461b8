"""The processes of a vLLM server: is it there, since when, how large, and what it left behind.

A server is found by who listens on the service's port, else by its command line. Once found it is
only looked at (one small file a process); the whole table is read again when it is gone. A port
that answers need not be this server, and a server that is gone may leave its engine running: both
are told. What the engine does is not asked here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

from ..watchdog.contracts import Yield
from ..watchdog.errors import HttpError, NoData, Temporary
from ..watchdog.model import Checkpoint, Event, Sample
from ..watchdog.processes import (
    Stat,
    boot,
    elsewhere,
    family,
    holds,
    listening,
    own_addresses,
    same,
    start_time,
    table,
)
from ..watchdog.serversearch import find_server
from ..watchdog.system import Files, System

RESCAN = 30.0  # seconds after which the server's children are looked for again
MISSED = 120.0  # seconds after its end for which a server is looked for in every run ...
SELDOM = 8.0  # ... and then, as before it was ever seen, after so many (a start is seen in 10)
SETTLE = 5.0  # seconds that a dead server's children may take to end by themselves
ASIDE = 1.0  # seconds for /is_sleeping and /is_paused
MAX_PAGE = 8 * 1024 * 1024  # bytes of a metrics page
REAPERS = ("systemd", "init", "tini", "dumb-init", "docker-init", "containerd-shim", "conmon")
"""Names (cut to 15 characters by the kernel) of those that take in orphans."""

_AWAKE = re.compile(
    rb'^[\w:]*engine_sleep_state\{[^\n]*sleep_state="awake"[^\n]*\} 1(?:\.0)?$', re.M
)

Member = list[int]
"""Pid and start in ticks, as JSON keeps it."""


@dataclass(frozen=True)
class VllmProcess:
    """Watches the server process of one service.

    Series, each with ``service``: ``service_process_up`` 1, or 0 when a server was seen since the
    node booted and is gone; ``service_process_start_time_seconds``, ``service_processes`` and
    ``service_process_memory_bytes`` (resident, shared pages counted in each) of the server and its
    descendants; ``service_orphan_processes``: processes of an earlier server that outlived it;
    ``service_phase{phase} 1``: starting (there, not listening), serving, sleeping, paused (as far
    as the server tells), stopped. With ``whole_node`` also ``vllm_orphan_processes`` of the node.
    Events: server_exit, orphan_processes, port_held_by_other. ``unit`` names the systemd unit
    whose leftovers are this service's, even where the daemon never saw their server.
    """

    name: ClassVar[str] = "vllm_process"

    service: str
    url: str
    unit: str | None = None
    whole_node: bool = False
    interval: float = 5.0
    timeout: float = 10.0

    @property
    def instance(self) -> str:
        """``vllm_process/SERVICE``."""
        return f"{self.name}/{self.service}"

    @property
    def scope(self) -> Mapping[str, str]:
        """The service."""
        return {"service": self.service}

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield what is known. Raises NoData for a server that runs on another node."""
        look = _Look(self, system, system.checkpoints.get(self.instance) or {})
        if not look.seen and not look.here():
            raise NoData(f"the server of {self.service} is on another node")
        server = look.server()
        yield from look.events
        if server is not None or look.seen:
            yield self._sample("service_process_up", float(server is not None))
        if server is not None:
            members = look.members(server)
            yield self._sample("service_processes", len(members))
            resident = sum(member.resident for member in members)
            yield self._sample("service_process_memory_bytes", resident)
            if look.doc.get("since") is not None:
                yield self._sample("service_process_start_time_seconds", look.doc["since"])
        orphans = look.orphans(server)
        yield self._sample("service_orphan_processes", len(orphans))
        if "node_orphans" in look.doc:
            yield Sample("vllm_orphan_processes", float(look.doc["node_orphans"]))
        phase = look.phase(server)
        yield Sample("service_phase", 1.0, (("phase", phase), ("service", self.service)))
        yield from look.late_events(orphans)
        if look.doc != look.before:
            yield Checkpoint(look.doc)

    def _sample(self, name: str, value: float) -> Sample:
        return Sample(name, float(value), (("service", self.service),))


@dataclass
class _Look:
    """One run. ``before`` is what the last one kept, ``doc`` what this one keeps."""

    settings: VllmProcess
    system: System
    before: Mapping[str, Any]
    doc: dict[str, Any] = field(init=False)
    events: list[Event] = field(default_factory=list)
    known: dict[int, Stat] | None = None

    def __post_init__(self) -> None:
        now = boot(self.files)
        kept = dict(self.before) if self.before.get("boot") == now else {}
        self.doc = {**kept, "boot": now}

    @property
    def files(self) -> Files:
        return self.system.files

    @property
    def seen(self) -> bool:
        """Whether there was a server since the node booted."""
        return "pid" in self.doc

    def all(self) -> dict[int, Stat]:
        """The whole process table, read at most once a run."""
        if self.known is None:
            self.known = table(self.files)
        return self.known

    def server(self) -> Stat | None:
        """The server's process: the one known, else the one found now."""
        if self.seen:
            kept = same(self.files, self.doc["pid"], self.doc["started"])
            if kept is not None:
                return kept
            self._lost()
        found = self._find() if self._due() else None
        if found is not None:
            self.doc.update(
                pid=found.pid,
                started=found.started,
                session=found.session,
                since=start_time(self.files, found.started),
                gone=False,
                members=[],
            )
        return found

    def _due(self) -> bool:
        """Whether to look for a server now: reading the whole table is what costs."""
        now = self.system.clock.mono()
        missed = 0 <= now - self.doc.get("lost", -MISSED) < MISSED
        if not missed and 0 <= now - self.doc.get("sought", -SELDOM) < SELDOM:
            return False
        self.doc["sought"] = now
        return True

    def _lost(self) -> None:
        """The known server is gone: what is left of its family are orphans from now on."""
        if self.doc.get("gone"):
            return
        left = [list(member) for member in self.doc.get("members", ())]
        session = self.doc["session"]
        left += [
            [entry.pid, entry.started]
            for entry in self.all().values()
            if entry.session == session and self._lost_engine(entry)
        ]
        orphans = {tuple(member) for member in (*self.doc.get("orphans", ()), *left)}
        alive = [m for m in sorted(orphans) if same(self.files, *m) and m[0] != self.doc["pid"]]
        self.doc.update(
            gone=True,
            lost=self.system.clock.mono(),
            orphans=[list(member) for member in alive],
            told=False,
            listening=False,
            dev=None,
        )
        pid, service = self.doc["pid"], self.settings.service
        text = f"the server process of {service} (pid {pid}) has ended"
        self.events.append(self._event("server_exit", text, {"pid": pid}, urgent=True))

    def _event(
        self, kind: str, message: str, fields: dict[str, Any], urgent: bool = False
    ) -> Event:
        labels = (("service", self.settings.service),)
        return Event(kind, message, labels, fields, "warning", urgent)

    # ---- finding ----

    def here(self) -> bool:
        """Whether the service's address is one of this node's. A name that cannot be resolved
        counts as one that is not."""
        host = urlsplit(self.settings.url).hostname or ""
        try:
            found = self.system.sockets.addresses(host, ASIDE)
        except Temporary:
            return host == "localhost"
        return bool(own_addresses(self.files) & set(found))

    @property
    def port(self) -> int:
        parts = urlsplit(self.settings.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def _find(self) -> Stat | None:
        """The server, looked for anew; a stranger on its port is told once."""
        found = find_server(self.files, self.port, self.all(), self.doc.get("foreign") or ())
        stranger = found.stranger
        if stranger is not None:
            text = f"port {self.port} of {self.settings.service} is held by {stranger.name}"
            fields = {"pid": stranger.pid, "name": stranger.name, "port": self.port}
            text = f"{text} (pid {stranger.pid}), by its command line no vLLM server"
            self.events.append(self._event("port_held_by_other", text, fields))
        self.doc["foreign"] = list(found.foreign)
        return found.server

    # ---- what belongs to it ----

    def members(self, server: Stat) -> list[Stat]:
        """The server and its descendants, looked for anew when one is gone or time has passed."""
        kept = [same(self.files, *member) for member in self.doc.get("members", ())]
        alive = [member for member in kept if member is not None]
        now = self.system.clock.mono()
        young = 0 <= now - self.doc.get("scanned", -RESCAN) < RESCAN
        if alive and len(alive) == len(kept) and young:
            return alive
        found = family(self.all(), server.pid) or [server]
        self.doc.update(members=[[m.pid, m.started] for m in found], scanned=now)
        self._leftovers()
        return found

    def _leftovers(self) -> None:
        """Engines and workers of the whole node that lost their server."""
        lost = [entry for entry in self.all().values() if self._lost_engine(entry)]
        if self.settings.whole_node:
            self.doc["node_orphans"] = len(lost)
        if self.settings.unit:
            own = [[e.pid, e.started] for e in lost if self._of_unit(e.pid)]
            kept = self.doc.get("orphans", [])
            self.doc["orphans"] = kept + [member for member in own if member not in kept]

    def _lost_engine(self, entry: Stat) -> bool:
        if not entry.name.startswith("VLLM::"):
            return False
        parent = self.all().get(entry.parent)
        return parent is None or parent.pid == 1 or parent.name.startswith(REAPERS)

    def _of_unit(self, pid: int) -> bool:
        try:
            text = self.files.text(f"/proc/{pid}/cgroup", 65536)
        except OSError:
            return False
        return any(f"/{self.settings.unit}" in f"{line}/" for line in text.splitlines())

    def orphans(self, server: Stat | None) -> list[Stat]:
        """What outlived an earlier server of this service."""
        if server is None:
            now = self.system.clock.mono()
            if not 0 <= now - self.doc.get("scanned", -RESCAN) < RESCAN:
                self.doc["scanned"] = now
                self._leftovers()
        members = [list(member) for member in self.doc.get("orphans", ())]
        alive = [entry for m in members if (entry := same(self.files, *m)) is not None]
        self.doc["orphans"] = [[entry.pid, entry.started] for entry in alive]
        return alive

    def late_events(self, orphans: list[Stat]) -> Iterator[Event]:
        """Orphans are told once they had their time to end."""
        if not orphans or self.doc.get("told"):
            return
        if self.system.clock.mono() - self.doc.get("lost", 0.0) < SETTLE:
            return
        self.doc["told"] = True
        names = ", ".join(sorted({entry.name for entry in orphans}))
        text = f"{len(orphans)} processes of {self.settings.service} outlived their server: {names}"
        fields = {"pids": [entry.pid for entry in orphans]}
        yield self._event("orphan_processes", text, fields)

    # ---- phase ----

    def phase(self, server: Stat | None) -> str:
        """starting, serving, sleeping, paused or stopped."""
        if server is None:
            return "stopped"
        if not self.doc.get("listening"):
            self.doc["listening"] = self._listens(server)
        if not self.doc["listening"]:
            return "starting"
        sleeping = self._says("/is_sleeping", "is_sleeping")
        paused = self._says("/is_paused", "is_paused")
        if sleeping and not (paused and self._awake()):
            return "sleeping"
        if paused:
            return "paused"
        return "serving"

    def _listens(self, server: Stat) -> bool:
        """Whether the port is listened on; a container's network is not looked into."""
        if elsewhere(self.files, server.pid):
            return self._answers()
        inodes = listening(self.files, [self.port])[self.port]
        if not inodes:
            return False
        known = family(self.all(), server.pid)
        return any(holds(self.files, entry.pid, inodes) is not False for entry in known)

    def _answers(self) -> bool:
        try:
            self._get("/health")
        except HttpError as error:
            return error.reason != "refused"
        return True

    def _says(self, path: str, key: str) -> bool:
        """A yes of a development route. A server without these routes is not asked again."""
        if self.doc.get("dev") is False:
            return False
        try:
            status, body = self._get(path)
        except HttpError:
            return False  # the probe judges that
        if status != 200:
            self.doc["dev"] = not (path == "/is_sleeping" and 400 <= status < 500)
            return False
        self.doc["dev"] = True
        try:
            answer = json.loads(body)
        except ValueError:
            return False
        return isinstance(answer, dict) and answer.get(key) is True

    def _awake(self) -> bool:
        """Whether the engine's gauge says so: each of vLLM's two routes answers yes for both."""
        try:
            status, page = self._get("/metrics", MAX_PAGE)
        except HttpError:
            return False
        return status == 200 and _AWAKE.search(page) is not None

    def _get(self, path: str, limit: int = 65536) -> tuple[int, bytes]:
        url = self.settings.url.rstrip("/") + path
        answer = self.system.http.request("GET", url, timeout=ASIDE, limit=limit)
        return answer.status, answer.body
