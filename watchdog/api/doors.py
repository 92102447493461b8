"""Who may come in to change something: by the socket's credentials, a token or a certificate.

Only whether a caller is let through a door, and with how large a body; what is asked there is read
by the doors themselves.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from ..system import Clock, Files
from .parameters import dumps
from .routes import JSON, Answer

MAX_TOKEN = 4096  # bytes of the token's file

Proof = Literal["ok", "absent", "wrong", "off", "unusable"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request. ``peer``: the user on the other end of a Unix socket, as the kernel
    says; ``certificate``: whom a client certificate that was verified names; ``address``: of the
    other end of a TCP connection; ``length``: of the body, None where it is not told; ``browser``:
    a page that somebody looks at sends it."""

    method: str
    peer: str = ""
    certificate: str = ""
    address: str = ""
    authorization: str = ""
    kind: str = ""
    length: int | None = None
    browser: bool = False


class Door(Protocol):
    """One path that changes something."""

    def refuse(self, caller: Caller) -> Answer | None:
        """Why the request is not even read; None lets it in."""
        ...

    def answer(self, caller: Caller, body: bytes) -> Answer:
        """The answer to a request that was let in."""
        ...


Doors = Mapping[str, Door]
"""Doors by path."""


class Token:
    """The bearer token of a file, read anew for each request, so that it can be exchanged.

    ``path`` gives the file that the configuration names just now.
    """

    def __init__(self, path: Callable[[], Path | None], files: Files) -> None:
        self._path, self._files = path, files

    @property
    def set(self) -> bool:
        """Whether the configuration names one."""
        return self._path() is not None

    def proof(self, authorization: str) -> Proof:
        """What an Authorization header proves. Takes equal time for every wrong token."""
        path = self._path()
        if path is None:
            return "off"
        try:
            wanted = self._files.read(path, MAX_TOKEN).strip()
        except OSError:
            return "unusable"
        if not wanted:
            return "unusable"
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            return "absent"
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), wanted)
        return "ok" if same else "wrong"


class Rate:
    """At most so many in a row, and so many a second in the long run."""

    def __init__(self, clock: Clock, burst: int, each_second: float) -> None:
        self._clock, self._burst, self._each_second = clock, burst, each_second
        self._left, self._at = float(burst), clock.mono()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take one: 0, or the seconds until the next may be taken."""
        with self._lock:
            now = self._clock.mono()
            self._left = min(self._burst, self._left + (now - self._at) * self._each_second)
            self._at = now
            if self._left >= 1:
                self._left -= 1
                return 0.0
            return (1 - self._left) / self._each_second


def error(
    status: int, message: str, headers: Mapping[str, str] | None = None, kind: str = ""
) -> Answer:
    """An error of the caller's in one line, in the form of the other paths' errors."""
    doc = {"status": "error", "errorType": kind or _KINDS.get(status, "bad_data"), "error": message}
    return Answer(status, dumps(doc), JSON, headers or {})


_KINDS = {401: "unauthorized", 403: "forbidden", 404: "not_found", 409: "conflict",
          413: "too_large", 429: "too_many_requests", 503: "unavailable"}  # fmt: skip


def too_many(seconds: float) -> Answer:
    """The answer to somebody who comes too often."""
    wait = max(1, round(seconds + 0.5))
    return error(429, "too many requests: try again later", {"Retry-After": str(wait)})


def unproved(proof: Proof) -> Answer:
    """The answer to somebody whose token does not let him in."""
    if proof == "absent":
        text = "send the token: Authorization: Bearer …"
        return error(401, text, {"WWW-Authenticate": "Bearer"})
    if proof == "unusable":
        return error(403, "the daemon cannot read its own token: see control.token_file")
    return error(403, "the token is not right")
