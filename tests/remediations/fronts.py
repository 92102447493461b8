"""Cases and steps for the tests of fronts, without a worker."""

from __future__ import annotations

from tests.support.nginx import FrontServer, until
from vllm_watchdog.remediations.adapters.front import Front
from vllm_watchdog.watchdog.acting import ActCase, Step
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode
from vllm_watchdog.watchdog.system import System


def acting(
    front: FrontServer,
    act: str,
    *,
    cause: str = "engine_dead",
    request: str = "r1",
    active: float = 0.0,
    limit: float = 600.0,
) -> ActCase:
    """A case of the front's service; ``active``: since when the alert is, in Unix seconds."""
    labels = (("alertname", "NetworkOutage"), ("service", front.name))
    alert = Alert("serving/NetworkOutage", labels, "firing", active, 1.0)
    return ActCase(
        request=Request(act, alert, service=front.name, id=request, cause=cause, limit=limit),
        name=front.name,
        settings=front.service,
        mode=ServiceMode(),
        cards=(),
        sick=(),
        spares=(),
        began=0.0,
        state=front.state,
    )


def adapter(front: FrontServer) -> Front:
    """The front as an act sees it."""
    found = Front.of(acting(front, "restart"))
    assert found is not None
    return found


def walked(step: Step, system: System) -> bool:
    """Ask, do, ask until it is done."""
    if step.done(system) == "yes":
        return True
    if step.do is not None:
        step.do(system)
    return until(lambda: step.done(system) == "yes")
