"""Starts a server with a fragmented allocator anew while there is little to do.

It waits for nobody: without low traffic it is declined. Requests that run are let finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Step
from ..watchdog.system import System
from .adapters.handled import Handled, changeable, queue, startable, unmanaged
from .adapters.instances import serving
from .adapters.renewing import renew_steps

LOW_TRAFFIC = 2.0  # requests that run or wait


@dataclass(frozen=True, slots=True)
class Defragment:
    """A drained restart at low traffic, with expandable segments where configured."""

    name: ClassVar[str] = "defragment"
    effect: ClassVar[str] = (
        "the server is drained and started again, so that its allocator begins anew"
    )
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = True

    def precheck(self, system: System, case: ActCase) -> str:
        """No manager to ask, too much to do, or an environment that cannot be changed."""
        if case.settings is None:
            return "it belongs to no service"
        handled = _handled(case)
        why = unmanaged(system, handled)
        if why or handled is None:
            return why
        told = queue(system, handled.instance.url)
        if told is None:
            return "how many requests run cannot be read"
        if told.running + told.waiting > LOW_TRAFFIC:
            return f"{told.running + told.waiting:g} requests run or wait: not at low traffic"
        return changeable(system, handled) if handled.changes else startable(system, handled)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Front drained, requests finished, stop, start, first answer."""
        handled = _handled(case)
        return () if handled is None else renew_steps(handled)


def _handled(case: ActCase) -> Handled | None:
    segments = case.settings is not None and case.settings.expandable_segments
    return Handled.of(case, serving(case), changes=segments)
