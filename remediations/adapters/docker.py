"""Containers: the engine's API over its Unix socket. (Podman's service answers the same calls.)

Other settings need another container: it is created from those of the old one under our label, and
the old one is kept, stopped, under a name of its own until it is wanted back. Only calls that are
documented for all present engines are used, without a version in their path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from ...watchdog.errors import HttpError, NotSupported, Permanent, SourceError
from ...watchdog.system import Process, System
from ...watchdog.web import unix_url
from . import recreation
from .managers import Settings, State, Status, members

SOCKET = Path("/var/run/docker.sock")
TIMEOUT = 15.0  # seconds for one call
MAX_ANSWER = 4 * 1024 * 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
_STATES: dict[str, State] = {
    "running": "running", "paused": "running", "restarting": "starting", "created": "stopped",
    "removing": "stopped", "dead": "failed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Docker:
    """One container by its name."""

    container: str
    socket: Path = SOCKET
    name: str = "docker"

    def status(self, system: System) -> Status:
        """See Manager.status."""
        found = self._inspect(system)
        told: Mapping[str, Any] = found.get("State") or {}
        word = str(told.get("Status", ""))
        code = told.get("ExitCode")
        state = _STATES.get(word, "unknown")
        if word == "exited":
            state = "failed" if code else "stopped"
        policy = (found.get("HostConfig") or {}).get("RestartPolicy") or {}
        result = "out of memory" if told.get("OOMKilled") else f"exit status {code}"
        return Status(
            state,
            int(told.get("Pid") or 0) or None,
            _moment(told.get("StartedAt")),
            int(found.get("RestartCount") or 0),
            bool(told.get("Restarting")),
            result if state in ("stopped", "failed") else "",
            policy.get("Name") in ("always", "unless-stopped"),
        )

    def start(self, system: System) -> None:
        """See Manager.start."""
        self._call(system, "POST", "start", good=(204, 304))

    def stop(self, system: System) -> None:
        """See Manager.stop. The engine's own ``stop`` would wait; its signal does not, and ends the
        restart policy as well."""
        wanted = (self._inspect(system).get("Config") or {}).get("StopSignal") or "SIGTERM"
        self._call(system, "POST", "kill", {"signal": str(wanted)}, good=(204, 404, 409))

    def kill(self, system: System) -> None:
        """See Manager.kill."""
        self._call(system, "POST", "kill", {"signal": "SIGKILL"}, good=(204, 404, 409))

    def processes(self, system: System) -> tuple[Process, ...]:
        """See Manager.processes: as the engine lists them, by the node's own pids."""
        query = {"ps_args": "-eo pid,comm"}
        listed = self._call(system, "GET", "top", query, good=(200, 404, 409, 500))
        titles = [str(title) for title in listed.get("Titles") or []]
        if "PID" not in titles:
            return ()  # it does not run
        column = titles.index("PID")
        pids = [row[column] for row in listed.get("Processes") or [] if len(row) > column]
        return members(system, (int(pid) for pid in pids if str(pid).isdigit()))

    def startable(self, system: System) -> str:
        """See Manager.startable: a container that is gone raises."""
        self.status(system)
        return ""

    def takes_profile(self, system: System) -> str:
        """See Manager.takes_profile: a container of its own is made."""
        found = self._inspect(system)
        if (found.get("HostConfig") or {}).get("AutoRemove"):
            return f"{self.container} is removed when it stops (--rm)"
        return ""

    def takes_cards(self, system: System) -> str:
        """See Manager.takes_cards: it must be given all cards of the node already."""
        why = self.takes_profile(system)
        if why or recreation.sees_all_cards(self._inspect(system)):
            return why
        return f"{self.container} is given certain cards only: it cannot move to others"

    def settings(self, system: System) -> Settings:
        """See Manager.settings: they stand in the container's labels and environment."""
        return recreation.settings_of(self._inspect(system))

    def configure(self, system: System, settings: Settings) -> None:
        """See Manager.configure."""
        kept = self._kept_name(settings.mark)
        there = self._found(system, self.container)
        if there is not None and recreation.settings_of(there).mark == settings.mark:
            return
        if there is not None and self._found(system, kept) is None:
            self._call(system, "POST", "rename", {"name": kept}, good=(204,))
        old = self._found(system, kept)
        if old is None:
            raise SourceError(f"{self.container} is gone")
        body = json.dumps(recreation.body_of(old, settings)).encode()
        self._ask(system, "POST", "/containers/create", {"name": self.container}, body, (201,))

    def restore(self, system: System, mark: str) -> None:
        """See Manager.restore: the new container goes, the old one takes its name again."""
        kept = self._kept_name(mark)
        if self._found(system, kept) is None:
            return
        there = self._found(system, self.container)
        if there is not None:
            if recreation.settings_of(there).mark != mark:
                raise SourceError(f"{self.container} is not what this act made; {kept} is kept")
            query = {"force": "true"}
            path = f"/containers/{quote(self.container)}"
            self._ask(system, "DELETE", path, query, None, (204, 404))
        path = f"/containers/{quote(kept)}/rename"
        self._ask(system, "POST", path, {"name": self.container}, None, (204,))

    def configured_at(self, system: System) -> float:
        """See Manager.configured_at: when the container was created."""
        return _moment(self._inspect(system).get("Created")) or 0.0

    @property
    def _own(self) -> str:
        if not NAME.fullmatch(self.container):
            raise Permanent(f"{self.container!r} is no name of a container")
        return self.container

    def _kept_name(self, mark: str) -> str:
        return f"{self._own}-before-{re.sub(r'[^A-Za-z0-9_.-]', '-', mark)}"[:200]

    def _inspect(self, system: System) -> dict[str, Any]:
        """The container; where it was put aside for a successor that is not there yet, that one."""
        found = self._found(system, self._own)
        if found is None:
            found = self._found(system, self._last_kept(system))
        if found is None:
            raise SourceError(f"there is no container {self.container}")
        return found

    def _last_kept(self, system: System) -> str:
        """The id of the container put aside last; empty for none."""
        wanted = {"name": [f"^/{re.escape(self._own)}-before-"]}
        query = {"all": "true", "filters": json.dumps(wanted)}
        listed = self._ask(system, "GET", "/containers/json", query, None, (200,)).get("items", [])
        last: Mapping[str, Any] = max(listed, key=lambda each: each.get("Created") or 0, default={})
        return str(last.get("Id", ""))

    def _found(self, system: System, name: str) -> dict[str, Any] | None:
        if not name:
            return None
        path = f"/containers/{quote(name)}/json"
        answer = self._ask(system, "GET", path, {}, None, (200, 404))
        return answer if "Id" in answer else None

    def _call(
        self,
        system: System,
        method: str,
        verb: str,
        query: Mapping[str, str] | None = None,
        *,
        good: tuple[int, ...],
    ) -> dict[str, Any]:
        path = f"/containers/{quote(self._own)}/{verb}"
        return self._ask(system, method, path, query or {}, None, good)

    def _ask(
        self,
        system: System,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None,
        good: tuple[int, ...],
    ) -> dict[str, Any]:
        """One call of the API; the answer's JSON object, empty where it has none; a list stands
        under ``items``.

        Raises NotSupported without an engine, SourceError with the engine's own message.
        """
        target = path + ("?" + urlencode(query) if query else "")
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            answer = system.http.request(
                method,
                unix_url(self.socket, target),
                timeout=TIMEOUT,
                headers=headers,
                body=body,
                limit=MAX_ANSWER,
            )
        except HttpError as error:
            if error.reason == "refused":
                raise NotSupported(f"no container engine answers at {self.socket}") from error
            raise
        document = _object(answer.body)
        if answer.status not in good:
            said = str(document.get("message") or f"HTTP {answer.status}")
            line = "".join(c for c in said if c.isprintable())[:300]
            raise SourceError(f"{self.container}: {line}")
        return document


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, list):
        return {"items": [item for item in document if isinstance(item, dict)]}
    return document if isinstance(document, dict) else {}


def _moment(text: object) -> float | None:
    """RFC 3339 with up to nine digits of a second as Unix seconds; year 1 means never."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", str(text))
    if found is None or found[1].startswith("0001"):
        return None
    zone = "+00:00" if found[3] == "Z" else found[3]
    return datetime.fromisoformat(found[1] + zone).timestamp() + float(found[2] or 0)
