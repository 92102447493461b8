"""Starts the sick server anew: nothing of the old one is left before the new one begins.

Not while its manager restarts it by itself. The exit status is no matter: a server that nobody
asked to stop and that is gone has crashed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Step
from ..watchdog.system import System
from .adapters.handled import Handled, changeable, startable, unmanaged
from .adapters.instances import serving
from .adapters.renewing import renew_steps


@dataclass(frozen=True, slots=True)
class Restart:
    """The serving instance is stopped as a whole and started."""

    name: ClassVar[str] = "restart"
    effect: ClassVar[str] = "the server's process group is ended and started again by its manager"
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = True

    def precheck(self, system: System, case: ActCase) -> str:
        """No manager, or one that cannot be asked, could not start it, or restarts it already."""
        if case.settings is None:
            return "it belongs to no service"
        handled = _handled(case)
        why = unmanaged(system, handled)
        if why or handled is None:
            return why
        return changeable(system, handled) if handled.changes else startable(system, handled)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:  # noqa: ARG002
        """Traffic away, evidence, stop, proof that nothing is left, start, first answer."""
        handled = _handled(case)
        return () if handled is None else renew_steps(handled)


def _handled(case: ActCase) -> Handled | None:
    """Against a fragmented allocator the new one gets expandable segments, where configured."""
    settings = case.settings
    segments = settings is not None and settings.expandable_segments
    changes = segments and case.request.cause == "fragmentation"
    return Handled.of(case, serving(case), changes=changes)
