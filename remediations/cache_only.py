"""Lets the front answer from its cache alone while the service and what it needs are out of reach.

The upstream is left alone meanwhile; what the cache has not got is refused with 503. It ends when
the upstream answers again, and after ten minutes in any case: nginx sees to that, not the daemon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..watchdog.acting import ActCase, Done, Step
from ..watchdog.completion import answers, completion
from ..watchdog.config import Service
from ..watchdog.errors import SourceError
from ..watchdog.fronts import CACHE_LIMIT
from ..watchdog.system import System
from .adapters.flagged import Flagged
from .adapters.front import Front
from .adapters.instances import serving

HEALTHY = 1800.0  # seconds of health before the cache may serve again
PATIENCE = 10.0  # seconds for one look through the front; the probe may set less
GLANCE = 5.0  # seconds for one look at the upstream, so that a person's word is soon heard
UNKEPT = "/vllm-watchdog/cache-only"  # an address that no server has: the cache refuses it


@dataclass(frozen=True, slots=True)
class CacheOnly:
    """Answers from the cache until the upstream is back, ten minutes at the most."""

    name: ClassVar[str] = "cache_only"
    effect: ClassVar[str] = (
        "the front answers from its cache alone and refuses the rest, for 10 minutes at most"
    )
    disruptive: ClassVar[bool] = False
    verified: ClassVar[bool] = True

    def precheck(self, system: System, case: ActCase) -> str:
        """Only for a service that does not answer through its front, twice, and whose needs are out
        of reach (that is the case's cause); and not again for the same outage."""
        front = Front.of(case)
        if case.settings is None or front is None or case.settings.front is None:
            return "it has no front"
        if not case.settings.front.njs:
            return "its front runs without njs and keeps no answers"
        if case.request.cause != "network_outage":
            return "what it needs is not known to be out of reach"
        if front.state(system) == "drained":
            return "its front is drained"
        return _served_lately(system, case, front) or _still_answers(system, case.settings)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Flag up, hold until the upstream answers, flag down."""
        front = Front.of(case)
        settings = case.settings
        if front is None or settings is None:
            raise SourceError("there is no front to raise the flag for")
        held = _held(case, front)
        url = serving(case).url

        def back(inside: System) -> Done:
            if not held.mine(inside):
                return "yes"  # a person took the flag away
            limit = min(settings.probe.timeout, GLANCE)
            return "yes" if answers(inside, url, settings, timeout=limit) else "no"

        return [
            held.raising(
                "answer from the cache only",
                lambda inside: front.code(inside, UNKEPT) == "cache_only",
                {"front": "cache_only"},
            ),
            Step("hold until the upstream answers", held.seconds, back, poll=2.0),
            held.lowering("go to the upstream again", {"front": "open"}),
        ]


def _held(case: ActCase, front: Front) -> Flagged:
    return Flagged(case, front.cache_only, min(case.request.limit or CACHE_LIMIT, CACHE_LIMIT))


def _served_lately(system: System, case: ActCase, front: Front) -> str:
    """Why the cache may not serve again yet, or nothing.

    An outage that goes on is noted as seen, so that health counts from its true end; nothing else
    is touched.
    """
    held = _held(case, front)
    note = held.note(system)
    if not note.request or note.request == case.request.id:
        return ""
    left = note.left or note.entered + CACHE_LIMIT
    if case.request.alert.active_at >= left + HEALTHY:
        return ""
    held.keep(system, replace(note, left=max(left, system.clock.wall())))
    return f"the cache has served for this outage; {held.path} says since when"


def _still_answers(system: System, settings: Service) -> str:
    """Why the service is no case for the cache: it fails twice through its front, or it is left
    alone, whatever the network does."""
    assert settings.front is not None
    limit = min(settings.probe.timeout, PATIENCE)
    for _ in range(2):
        found = completion(system, settings.front.url.rstrip("/"), settings, timeout=limit)
        if found.verdict == "ok":
            return "it still answers through its front"
        if found.verdict != "failed":
            return f"whether it answers cannot be told: {found.reason}"
    return ""
