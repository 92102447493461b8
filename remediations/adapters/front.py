"""The nginx front of a service: where it sends new requests, and the flags that it looks at.

A switch is whole or taken back: the include is put in place, tested by nginx itself and loaded;
where that fails the old one stands again. It decides nothing and waits for nothing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.config import Service
from ...watchdog.errors import HttpError, SourceError, WatchdogError
from ...watchdog.fronts import (
    CACHE_LIMIT,
    Pointed,
    Target,
    cache_flag,
    flag_owner,
    flag_text,
    include_text,
    pointed,
    shed_flag,
)
from ...watchdog.system import System
from .privileged import Privileged

TIMEOUT = 10.0  # seconds for nginx to test, and again to take the word to reload
LOOK = 5.0  # seconds for a look at the front
READABLE = 0o644  # nginx's workers are another user
MAX_INCLUDE = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Flag:
    """A file that nginx looks at on each request: no reload, and over by itself after the seconds
    that it names, whatever becomes of the daemon (``most`` of them, from its mtime)."""

    path: Path
    percent: int
    most: float

    def since(self, system: System) -> float | None:
        """When it was raised (its mtime, Unix seconds), or None. It may be over by now."""
        try:
            return system.files.modified(self.path)
        except FileNotFoundError:
            return None

    def owner(self, system: System) -> str:
        """The request that raised it; empty where none did."""
        try:
            return flag_owner(system.files.text(self.path, 4096))
        except FileNotFoundError:
            return ""

    def up(self, system: System, seconds: float, owner: str = "") -> None:
        """Raise it, or raise it anew. Raises OSError."""
        text = flag_text(min(seconds, self.most), self.percent, owner)
        Privileged.write(system, self.path, text.encode(), READABLE)

    def down(self, system: System) -> None:
        """Take it away; one that is not there is no error. Raises OSError."""
        system.files.remove(self.path)


@dataclass(frozen=True, slots=True)
class Front:
    """One service's front. ``former``: the include as it was before a switch that is under way;
    the file is gone again once nginx has taken the new one, or the old one is back."""

    service: Service
    former: Path
    serving: Target

    @classmethod
    def of(cls, case: ActCase) -> Front | None:
        """The front of the case's service, if it has one."""
        if case.settings is None or case.settings.front is None:
            return None
        former = case.state / "fronts" / f"{case.name}.before"
        return cls(case.settings, former, case.mode.serving)

    @property
    def include(self) -> Path:
        """The file that nginx reads inside the service's ``upstream``."""
        assert self.service.front is not None
        return self.service.front.nginx

    def state(self, system: System) -> Pointed:
        """Where the include sends new requests; ``unknown`` where it names anything else or is not
        there. Raises OSError where it cannot be read."""
        try:
            return pointed(system.files.text(self.include, MAX_INCLUDE), self.service)
        except FileNotFoundError:
            return "unknown"

    def settled(self, system: System) -> bool:
        """Whether nginx has taken what the include says; false after a crash amid a switch, until
        the next one is through."""
        return not system.files.exists(self.former)

    def point(self, system: System, target: Target) -> None:
        """Send new requests to ``target``; requests under way stay where they are.

        Raises SourceError with nginx's own line, CommandTimeout, NotSupported, Permanent (there is
        no such instance) or OSError; the old include then stands again.
        """
        text = include_text(target, self.service).encode()
        place = self._place(system)
        self._keep_former(system)
        try:
            Privileged.write(system, place, text, READABLE)
            self._test(system)
        except (WatchdogError, OSError):
            self._take_back(system)
            raise
        try:
            self._reload(system)
        except (WatchdogError, OSError):
            self._take_back(system)
            with contextlib.suppress(WatchdogError, OSError):
                self._reload(system)  # the first one may have gone through all the same
            raise
        system.files.remove(self.former)

    def step(self, target: Target, *, name: str = "", deadline: float = 30.0, **more: Any) -> Step:
        """The step that points the front at ``target`` (``more``: further fields of Step).

        Taken back, the front points at the other instance again; after ``drained``, at the one that
        served when the case was opened.
        """
        back: Target = self.serving if target == "drained" else _OTHER[target]

        def done(system: System) -> Done:
            try:
                there = self.state(system) == target and self.settled(system)
            except OSError:
                return "unknown"
            return "yes" if there else "no"

        return Step(
            name or _NAMES[target],
            deadline,
            done,
            do=lambda system: self.point(system, target),
            undo=lambda system: self.point(system, back),
            **more,
        )

    @property
    def cache_only(self) -> Flag:
        """The flag of answers from the cache only."""
        return Flag(cache_flag(self.service), 100, CACHE_LIMIT)

    @property
    def shedding(self) -> Flag:
        """The flag of refusing the configured share of new requests."""
        assert self.service.front is not None
        return Flag(shed_flag(self.service), self.service.front.shed_percent, CACHE_LIMIT)

    def flag(self, system: System) -> float | None:
        """Since when the cache-only flag is there (its mtime, Unix seconds), or None."""
        return self.cache_only.since(system)

    def code(self, system: System, path: str) -> str:
        """The word by which the front itself refuses ``path``; empty where something else answers,
        or nothing. Asked by GET."""
        front = self.service.front
        assert front is not None
        try:
            answer = system.http.request("GET", front.url.rstrip("/") + path, timeout=LOOK)
            told = json.loads(answer.body)["error"]["code"] if answer.status == 503 else ""
        except (HttpError, ValueError, TypeError, KeyError):
            return ""
        return told if isinstance(told, str) else ""

    def _keep_former(self, system: System) -> None:
        """Keep the include as nginx has it; after a crash amid a switch, the one kept then."""
        if system.files.exists(self.former):
            return
        try:
            text = system.files.read(self.include, MAX_INCLUDE)
        except FileNotFoundError:
            text = b""
        system.files.make_folder(self.former.parent)
        system.files.write(self.former, text)

    def _place(self, system: System) -> Path:
        """The file to write: where the include is a symbolic link, the one that it means. Raises
        SourceError for a link that cannot be followed."""
        try:
            return system.files.followed(self.include)
        except OSError as error:
            raise SourceError(f"{self.include} {error.strerror}") from error

    def _take_back(self, system: System) -> None:
        text, place = system.files.read(self.former, MAX_INCLUDE), self._place(system)
        if text or place != self.include:  # a link to nothing would keep nginx from starting
            Privileged.write(system, place, text, READABLE)
        else:
            system.files.remove(self.include)
        system.files.remove(self.former)

    def _test(self, system: System) -> None:
        front = self.service.front
        assert front is not None
        if not front.reload:
            _run(system, (*front.command, "-t"))

    def _reload(self, system: System) -> None:
        front = self.service.front
        assert front is not None
        _run(system, front.reload or (*front.command, "-s", "reload"))


_OTHER: dict[Target, Target] = {"primary": "standby", "standby": "primary"}
_NAMES: dict[Target, str] = {
    "primary": "point the front at the configured instance",
    "standby": "point the front at the standby",
    "drained": "drain the front",
}


def _run(system: System, argv: Sequence[str]) -> None:
    ended = Privileged.run(system, argv, TIMEOUT)
    if ended.code != 0:
        raise SourceError(_said(ended.stderr + b"\n" + ended.stdout, argv[0], ended.code))


def _said(output: bytes, program: str, code: int) -> str:
    """nginx's own word for what is wrong: the first line that is an error, else the last one."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    lines = ["".join(c for c in line if c.isprintable())[:500] for line in lines if line]
    for mark in ("[emerg]", "[alert]", "[crit]", "[error]"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else f"{program} ended with {code}"
