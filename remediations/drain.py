"""Takes a service out of traffic until a person brings it back: new requests get 503 at the front.

Nothing is stopped; what runs may finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Done, Step
from ..watchdog.system import System
from .adapters.front import Front
from .adapters.handled import queue
from .adapters.instances import serving

FINISH = 540.0  # seconds for what runs


@dataclass(frozen=True, slots=True)
class Drain:
    """The front refuses new requests; running ones finish."""

    name: ClassVar[str] = "drain"
    effect: ClassVar[str] = (
        "the front answers new requests with 503 and Retry-After; running ones finish"
    )
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = False

    def precheck(self, system: System, case: ActCase) -> str:
        """Without a front, or with one that does not tell where it leads."""
        if case.settings is None:
            return "it belongs to no service"
        front = Front.of(case)
        if front is None:
            return "it has no front"
        try:
            state = front.state(system)
        except OSError as error:
            return f"{front.include}: {error.strerror or error}"
        return f"{front.include} is not as we wrote it" if state == "unknown" else ""

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Front drained, then wait for the last request; back: requests to who served before."""
        front = Front.of(case)
        if front is None:
            return ()
        if case.back:
            return [front.step(case.mode.serving, sets={"front": "open"})]
        url = serving(case).url

        def quiet(inside: System) -> Done:
            told = queue(inside, url)
            return "yes" if told is None or told.running + told.waiting == 0 else "no"

        return [
            front.step("drained", moves_traffic=True, sets={"front": "drained"}),
            Step("let running requests finish", FINISH, quiet, must=False, poll=1.0),
        ]
