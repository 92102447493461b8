"""The whole way from one running server to the next: traffic away, evidence, stop, start, answer.

The plan that restart, defragment and quantize share; with other settings for the new one, if asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...watchdog.acting import Step
from ...watchdog.system import System
from .composition import composed
from .evidence import evidence_step
from .handled import Handled
from .managers import Settings
from .starting import configure_step, start_steps
from .stopping import quiet_steps, stop_steps


def renew_steps(
    handled: Handled,
    wanted: Callable[[System], Settings] | None = None,
    sets: Mapping[str, Any] | None = None,
    *,
    aside: bool = True,
    must: bool = False,
) -> list[Step]:
    """The steps in order. ``wanted``: what an act that changes gives the new server; without it
    the present profile and cards. ``sets`` holds once the new one answers. ``aside``: users may be
    kept on the other instance meanwhile; ``must``: or nothing is done."""
    case = handled.case
    steps = [
        *quiet_steps(handled, aside=aside, must=must),
        handled.before(evidence_step(case, handled.instance)),
        *stop_steps(handled, start_again=handled.changes),
    ]
    if handled.changes:
        settings = wanted or composed(handled, "", ())
        steps.append(configure_step(handled, settings))
    return [*steps, *start_steps(handled, sets=sets)]
