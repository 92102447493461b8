"""Users kept on a service's other instance while theirs is renewed.

Only with an instance that gives a completion at that moment, and back only to one that does: until
then users stay where they are, and the service's mode says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from .front import Front
from .handled import answering
from .instances import Instance, other, serving

ANSWER = 8.0  # seconds for a completion: users wait meanwhile


def silent(system: System, case: ActCase, instance: Instance) -> str:
    """Why an instance cannot take users: it gives no completion; empty where it can."""
    if case.settings is None:
        return "no service"
    good, why = answering(system, case.settings, instance.url, ANSWER)
    if good:
        return ""
    return f"the {_called(instance)} gives no completion: {why or 'no answer'}"


def aside_step(case: ActCase, *, must: bool) -> Step | None:
    """Users to the other instance for the time of the act, where the engine saw that it answers.

    ``must``: the act ends where it cannot be. None where nobody can be moved.
    """
    front, target = Front.of(case), other(case) if case.settings is not None else None
    if front is None or target is None or not case.request.standby:
        return None
    role, home = target.role, serving(case)
    step = front.step(
        "standby" if role == "standby" else "primary",
        name=f"keep users on the {_called(target)} meanwhile",
        temporary=True,
        moves_traffic=True,
        must=must,
        sets={"serving": role},
    )
    there, back = step.do, step.undo
    assert there is not None
    assert back is not None

    def undo(system: System) -> None:
        if front.state(system) == role:  # else somebody has pointed it elsewhere by now
            _to(case, home, back, system)

    return replace(step, do=partial(_to, case, target, there), undo=undo)


def drained_step(case: ActCase, away: Step | None = None) -> Step | None:
    """New requests refused for the time of the act, unless ``away`` has taken them elsewhere."""
    front = Front.of(case)
    if front is None:
        return None
    if away is None:
        return front.step("drained", temporary=True)
    name = "drain the front, unless users are elsewhere"
    step, elsewhere = front.step("drained", name=name, temporary=True), away.done

    def done(system: System) -> Done:
        return "yes" if elsewhere(system) == "yes" else step.done(system)

    return replace(step, done=done)


def _to(
    case: ActCase, instance: Instance, switch: Callable[[System], None], system: System
) -> None:
    """Raises SourceError where the instance gives no completion, and as Front.point does."""
    why = silent(system, case, instance)
    if why:
        raise SourceError(why)
    switch(system)


def _called(instance: Instance) -> str:
    return "standby" if instance.role == "standby" else "configured instance"
