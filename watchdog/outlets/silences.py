"""Silences read from Alertmanager: what people silence there is not healed here either.

Every change becomes one command with all that holds now, so that a recording replays it. While no
instance answers, the last known ones hold until their own ends. What they cover is for the guard.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from ..documents import json_of
from ..errors import HttpError, WatchdogError
from ..guard.silences import MOST, SHARED, Silence, read_silence
from ..model import Command, Json
from ..series import predicate
from ..system import System

EVERY = 15.0  # seconds between two looks
TIMEOUT = 5.0  # seconds for an answer
LIMIT = 8 * 1024 * 1024  # bytes of one: ended silences are listed for days
_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$")

Log = Callable[..., object]
Tell = Callable[[Command], object]


class Silences:
    """Looks at every instance in turn, on a thread of its own.

    ``sent``: the labels that alerts get on sending, where they lack them; ``own``: those that
    alerts of this node carry (``instance``): a silence of another node is passed over. ``offset``
    leads from the daemon's steady time to the real one.
    """

    def __init__(
        self,
        urls: Sequence[str],
        system: System,
        sent: Mapping[str, str],
        own: Mapping[str, str],
        tell: Tell,
        log: Log,
        every: float = EVERY,
    ) -> None:
        self._urls, self._system, self._log, self._tell = list(urls), system, log, tell
        self._sent, self._own, self._every = dict(sent), dict(own), every
        self.offset = 0.0
        self._told: list[Json] | None = None
        self._unread = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silences", daemon=True)

    def start(self) -> None:
        """Begin, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End soon."""
        self._ending.set()

    def look(self) -> None:
        """Read what is silenced now, and tell it where it differs from what was told last."""
        read = [docs for docs in map(self._try, self._urls) if docs is not None]
        if not read:
            return  # the last known hold until they end
        self._unread = ""
        found = {doc["id"]: doc for docs in read for doc in docs}
        docs = [found[name] for name in sorted(found)][:MOST]
        if docs != self._told:
            command = Command("silences", {"source": SHARED, "silences": docs}, "Alertmanager")
            try:
                self._tell(command)
            except WatchdogError:
                return  # too many commands wait: the next look tells it
            self._told = docs

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 (the boundary of a delivery)
                self._failed(self._urls[0], error)
            self._ending.wait(self._every)

    def _try(self, url: str) -> list[Json] | None:
        try:
            return self._read(url)
        except (HttpError, ValueError) as error:
            self._failed(url, error)
            return None

    def _failed(self, url: str, error: Exception) -> None:
        reason = getattr(error, "reason", "") or str(error) or type(error).__name__
        if reason != self._unread:
            self._unread = reason
            shown = urlsplit(url).netloc.rpartition("@")[2]
            text = f"the silences of Alertmanager {shown} cannot be read; known ones hold"
            self._log(text, level="warning", reason=reason)

    def _read(self, url: str) -> list[Json]:
        """The active silences of one instance that may cover an alert of ours."""
        answer = self._system.http.request(
            "GET", url.rstrip("/") + "/api/v2/silences", timeout=TIMEOUT, limit=LIMIT
        )
        if answer.status != 200 or answer.truncated:
            raise ValueError(f"HTTP {answer.status}{', too large' if answer.truncated else ''}")
        docs = json_of(answer.body)
        if not isinstance(docs, list):
            raise ValueError("no list of silences")  # noqa: TRY004 (an answer)
        made = [silence_doc(doc, self._sent, round(self.offset)) for doc in docs]
        return [doc for doc in made if doc is not None and self._may_cover(doc)]

    def _may_cover(self, doc: Json) -> bool:
        """Whether a silence can cover any alert of this node at all."""
        silence = read_silence(doc)
        return silence is not None and not self._elsewhere(silence)

    def _elsewhere(self, silence: Silence) -> bool:
        return any(
            name in self._own
            and not predicate(op, value)(self._own[name])
            and not predicate(op, value)("")
            for name, op, value in silence.matchers
        )


def silence_doc(doc: Any, sent: Mapping[str, str], offset: float) -> Json | None:
    """An active silence of Alertmanager's as the guard reads it; None for any other."""
    try:
        if doc["status"]["state"] != "active":
            return None
        matchers = [
            [str(each["name"]), _operator(each), str(each["value"])] for each in doc["matchers"]
        ]
        return {
            "id": str(doc["id"])[:100],
            "matchers": matchers,
            "until": _unix(str(doc["endsAt"])) - offset,
            "labels": dict(sent),
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _unix(text: str) -> float:
    """Unix seconds of a time as Alertmanager writes it. Raises ValueError."""
    match = _TIME.match(text)
    if match is None:
        raise ValueError(f"no time: {text[:40]!r}")
    zone = "+00:00" if match[2] == "Z" else match[2]
    return datetime.fromisoformat(match[1] + zone).timestamp()


def _operator(matcher: Mapping[str, Any]) -> str:
    equal = matcher.get("isEqual", True)  # instances before 0.22 know no other
    if matcher.get("isRegex"):
        return "=~" if equal else "!~"
    return "=" if equal else "!="
