"""Calls that bring a server to a wanted state, one after the other, each only where it is needed.

Sends what it is given; what is wanted of which server is said in the rooms beside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import ConfigError, HttpError, Place, Problem, WatchdogError
from ..system import Http, Response

TIMEOUT = 30.0  # seconds for any answer

State = Literal["unchanged", "created", "updated", "would create", "would update", "not supported"]


class SetupFailed(WatchdogError):
    """A server refused a call, or does not answer: one line says which and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a server: its base address and the headers that let us in."""

    url: str
    http: Http
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None) -> Response:
        """One request with a JSON body. Raises SetupFailed where there is no answer at all."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", **self.headers}
        if data is not None:
            headers["Content-Type"] = "application/json"
        return self.send(method, path, data, headers)

    def send(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> Response:
        """One request as it is. Raises SetupFailed where there is no answer at all."""
        url = self.url.rstrip("/") + path
        try:
            return self.http.request(method, url, timeout=TIMEOUT, headers=headers, body=data)
        except HttpError as error:
            words = {"refused": "refused: nothing listens there", "timeout": "no answer in time",
                     "tls": "its certificate is not trusted (--ca-file)"}  # fmt: skip
            raise SetupFailed(f"{url}: {words.get(error.reason, error)}") from error


def credentials(
    api_key_file: Path | None, username: str | None, password_file: Path | None
) -> dict[str, str]:
    """The header that lets us in, its secret from a file. Raises ConfigError."""
    if api_key_file is not None:
        return {"Authorization": f"ApiKey {_secret(api_key_file)}"}
    if username is not None and password_file is not None:
        pair = f"{username}:{_secret(password_file)}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Problem(Place(str(path)), f"cannot be read: {reason}")) from error


@dataclass(frozen=True, slots=True)
class Wanted:
    """One thing that shall be on a server: how to look at it, and what to send where it is not so.

    ``same`` holds the server's answer (its JSON) against what is wanted. ``optional``: a server
    without the call is used all the same.
    """

    what: str
    look: str
    put: tuple[str, str]
    body: Any
    same: Callable[[Any], bool]
    optional: bool = False


def apply(
    access: Access, wanted: Iterable[Wanted], *, dry_run: bool
) -> Iterator[tuple[str, State]]:
    """Bring the server there; yields each thing and what became of it. Raises SetupFailed."""
    for item in wanted:
        yield item.what, _apply_one(access, item, dry_run)


def _apply_one(access: Access, item: Wanted, dry_run: bool) -> State:
    found = access.ask("GET", item.look)
    if absent_call(found):
        if item.optional:
            return "not supported"
        raise refused("GET", item.look, found)
    if found.status not in (200, 404):
        raise refused("GET", item.look, found)
    there = found.status == 200
    if there and item.same(document(found)):
        return "unchanged"
    if dry_run:
        return "would update" if there else "would create"
    method, path = item.put
    answer = access.ask(method, path, item.body)
    if answer.status >= 300:
        if item.optional and absent_call(answer):
            return "not supported"
        raise refused(method, path, answer)
    return "updated" if there else "created"


def absent_call(answer: Response) -> bool:
    """Whether the server does not know the call at all."""
    no_handler = answer.status == 400 and b"no handler found" in answer.body
    return answer.status == 405 or no_handler


def refused(method: str, path: str, answer: Response) -> SetupFailed:
    """The error for an answer that says no, in the server's own words."""
    document_ = document(answer)
    error = document_.get("error") if isinstance(document_, dict) else None
    reason = error.get("reason") if isinstance(error, dict) else error
    if not reason and isinstance(document_, dict):
        reason = document_.get("message")
    hints = {401: " (give credentials that the server knows)", 403: " (the right is missing)"}
    text = " ".join(str(reason or answer.text[:200]).split())
    return SetupFailed(f"{method} {path}: {answer.status} {text}{hints.get(answer.status, '')}")


def document(answer: Response) -> Any:
    """The answer's JSON; an empty object where it is none."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
