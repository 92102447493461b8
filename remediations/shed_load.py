"""Lets the front refuse a bounded share of new requests while more wait than the server can take.

High load is no fault: without a queue nothing is refused. It ends when nobody waits any more, or
with its time; nginx ends it without the daemon, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Done, Step
from ..watchdog.errors import SourceError
from ..watchdog.fronts import CACHE_LIMIT
from ..watchdog.system import System
from .adapters.flagged import Flagged
from .adapters.front import Front
from .adapters.handled import queue
from .adapters.instances import serving

LEAST = 60.0  # seconds: a queue comes back at once where the flag is lowered at its first gap


@dataclass(frozen=True, slots=True)
class ShedLoad:
    """The front refuses ``front.shed_percent`` of new requests until nobody waits."""

    name: ClassVar[str] = "shed_load"
    effect: ClassVar[str] = (
        "the front answers a share of new requests with 503 and Retry-After until nobody waits"
    )
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = False

    def precheck(self, system: System, case: ActCase) -> str:
        """Only where requests wait, and where it can be told when they no longer do."""
        front = Front.of(case)
        if case.settings is None or front is None or case.settings.front is None:
            return "it has no front"
        if not case.settings.front.njs:
            return "its front runs without njs and cannot refuse a share"
        if front.state(system) == "drained":
            return "its front is drained"
        told = queue(system, serving(case).url)
        if told is None:
            return "the server does not tell how many requests wait"
        return "" if told.waiting > 0 else "no request waits"

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Flag up, hold until nobody waits, flag down."""
        front = Front.of(case)
        if front is None:
            raise SourceError("there is no front to raise the flag for")
        flag = front.shedding
        held = Flagged(case, flag, min(case.request.limit or CACHE_LIMIT, CACHE_LIMIT))
        url = serving(case).url

        def eased(inside: System) -> Done:
            if not held.mine(inside):
                return "yes"  # a person took the flag away
            since = flag.since(inside)
            if since is None or inside.clock.wall() - since < LEAST:
                return "no"
            told = queue(inside, url)
            return "unknown" if told is None else "yes" if told.waiting == 0 else "no"

        return [
            held.raising("refuse a share of new requests", lambda _: True, {"front": "shedding"}),
            Step("hold until nobody waits", held.seconds, eased, poll=5.0),
            held.lowering("take all requests again", {"front": "open"}),
        ]
