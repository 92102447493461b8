"""Ways back: what an act changed for a time is taken back when its reason is gone.

Says when one is due; whether it may start is the guard's to say, as of any act.
"""

from __future__ import annotations

from dataclasses import replace

from ..diagnosis import Facts
from ..model import ServiceMode
from ..policies import PAGE
from .case import Case
from .proving import LOW_TRAFFIC, PATIENCE
from .sight import Sight

STABLE = 1800.0  # seconds without a case after which the first profile may be tried again
KEPT = 3600.0  # seconds for which a way back that failed is remembered
FREQUENCY, PROFILE, DRAIN = "lower_frequency", "quantize", "drain"
ACTS = (FREQUENCY, PROFILE, DRAIN)
DRAINED = "its front is drained until a person resumes"
NOTICED = "its users would notice the restart: a person approves it"


def owed(case: Case, act: str, now: float) -> Case:
    """The case of the way back of an act that a case ended with."""
    return Case(
        f"{case.key}|{act}|back" if act == DRAIN else f"{case.key}|back",
        replace(case.diagnosis, evidence=(f"{act} was done",), explains=()),
        now,
        now,
        policy=case.policy,
        ladder=(act, PAGE),
        mode=case.mode,
        back=True,
    )


def waits(sight: Sight, facts: Facts, case: Case, mode: ServiceMode, *, approved: bool,
          aside: bool) -> str:  # fmt: skip
    """What the way back waits for; empty when it is due. ``aside``: users can be kept on the other
    instance meanwhile."""
    if case.act == FREQUENCY:
        return _idle(sight, case)
    if case.act == DRAIN:
        return "" if approved else DRAINED
    if approved or case.act != PROFILE:
        return ""
    left = STABLE - (sight.now - max(mode.since, case.opened))
    if left > 0:
        return f"stable for another {left:.0f} s first"
    service = facts.services.get(case.service)
    if service is None or service.pending is None:
        return "how many requests run is not known"
    if service.pending > LOW_TRAFFIC:
        return f"{service.pending:g} requests run or wait: not at low load"
    return "" if aside else NOTICED


def approvable(case: Case) -> bool:
    """Whether a person's yes lets a way back begin at once, which may come by itself later."""
    open_ = case.back and case.running is None and not case.ended and case.mode != "observe"
    return open_ and case.act in (PROFILE, DRAIN)


def awaited(case: Case) -> bool:
    """Whether a way back waits for a person's yes and for nothing else."""
    needs = dict(case.checks).get("precondition", "")
    asked = needs in (NOTICED, DRAINED) or (case.mode == "confirm" and not needs)
    return approvable(case) and asked


def against(case: Case) -> list[str]:
    """What stands against an act that waits for a person's yes, beside that."""
    own = ("mode", "precondition") if case.back else ("mode",)
    return [text for name, text in case.checks if text and name not in own]


def _idle(sight: Sight, case: Case) -> str:
    """Whether every card still idles; after a restart of the daemon nothing is kept lowered."""
    if case.due:
        return ""
    name = case.diagnosis.alert.name
    idle = {dict(alert.labels).get("card") for alert in sight.firing if alert.name == name}
    busy = [card for card in case.diagnosis.cards if card not in idle]
    if case.diagnosis.cards and not busy:
        return "its cards still idle"
    return "" if read_since(sight, case, case.opened) else "its cards have not been read since"


def read_since(sight: Sight, case: Case, at: float) -> bool:
    """Whether what an act rested on was read after it ended: right after a restart nothing was, and
    what is not read has not changed. Who stays silent is not awaited for ever."""
    if sight.now - at >= PATIENCE:
        return True
    states = [sight.collectors.get(name) for name in sight.owners(case.diagnosis.alert)]
    return any(s is not None and (s.succeeded or 0.0) > at for s in states)
