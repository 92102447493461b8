"""Gives a server that lacks device memory a profile that needs less; back to the first one later.

Only against a lack of device memory. The profiles are tried in the configured order, weaker changes
before another checkpoint; what the next one needs is proved on disk before anything is stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..watchdog.acting import ActCase, Step
from ..watchdog.config import Service
from ..watchdog.errors import Temporary
from ..watchdog.system import System
from .adapters.aside import silent
from .adapters.checkpoints import broken, model_of, quantized, size_of
from .adapters.composition import composed, moved_cards, profile_values
from .adapters.handled import UNREADABLE, Handled, changeable, queue, unmanaged
from .adapters.instances import other, serving
from .adapters.managers import Settings
from .adapters.renewing import renew_steps

CAUSE = "device_memory"
INT8 = "int8"
LOW_TRAFFIC = 2.0  # requests that run or wait, on the way back


@dataclass(frozen=True, slots=True)
class Quantize:
    """The next profile of the overflow's order; the first one on the way back."""

    name: ClassVar[str] = "quantize"
    effect: ClassVar[str] = "the server is started again on a profile that needs less device memory"
    disruptive: ClassVar[bool] = True
    verified: ClassVar[bool] = True

    def precheck(self, system: System, case: ActCase) -> str:
        """Another cause, no further profile, one that cannot be given or would not load."""
        settings = case.settings
        if settings is None:
            return "it belongs to no service"
        if not case.back and case.request.cause != CAUSE:
            return f"it cures no {case.request.cause or 'other cause'}"
        handled = _handled(system, case)
        why = unmanaged(system, handled)
        if why or handled is None:
            return why
        chosen = _chosen(system, case, settings, handled)
        if not chosen:
            return "start_profile is not configured" if case.back else "no profile is left to try"
        why = changeable(system, handled)
        if not why and case.back:
            why = _busy(system, handled)
            _look_aside(system, handled)
        return why or _implausible(system, handled, settings, chosen)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        """Traffic away, evidence, stop, the profile, start, proof of it, first answer."""
        settings = case.settings
        handled = _handled(system, case) if settings else None
        if settings is None or handled is None:
            return ()
        chosen = _chosen(system, case, settings, handled)
        now = "" if chosen == settings.start_profile else chosen
        wanted = composed(handled, chosen, moved_cards(handled))
        return renew_steps(handled, wanted, {"profile": now}, aside=case.back, must=case.back)


def _handled(system: System, case: ActCase) -> Handled | None:
    """The serving instance; on the way back the one that has the profile."""
    own = Handled.of(case, serving(case), changes=True)
    target = other(case) if case.back else None
    beside = Handled.of(case, target, changes=True) if target is not None else None
    if beside is None:
        return own
    for wanted in ("mark", "profile"):  # what this act gave already comes first
        for each in (own, beside):
            settings = _settings(system, each) if each is not None else None
            if settings is not None and _of(case, settings, wanted):
                return each
    return own


def _of(case: ActCase, settings: Settings, wanted: str) -> bool:
    if wanted == "mark":
        return settings.mark == case.request.id
    return bool(settings.profile) and settings.profile == case.mode.profile


def _settings(system: System, handled: Handled) -> Settings | None:
    try:
        return handled.manager.settings(system)
    except UNREADABLE:
        return None


def _look_aside(system: System, handled: Handled) -> None:
    """Users shall not notice: raises Temporary until the other instance can have them."""
    case = handled.case
    target = other(case)
    if case.request.standby and handled.instance.role == serving(case).role and target is not None:
        why = silent(system, case, target)
        if why:
            raise Temporary(why)


def order(settings: Service) -> tuple[str, ...]:
    """The profiles that are tried, in their order."""
    if settings.overflow is not None:
        return settings.overflow
    return (INT8,) if INT8 in settings.profiles else ()


def _chosen(system: System, case: ActCase, settings: Service, handled: Handled) -> str:
    """The profile of this act: once it is given to the server, that one; empty for none."""
    if case.back:
        return settings.start_profile or ""
    given = _settings(system, handled)
    if given is not None and given.mark == case.request.id and given.profile:
        return given.profile
    tried = order(settings)
    now = case.mode.profile
    left = tried[tried.index(now) + 1 :] if now in tried else tried
    return next((name for name in left if name != settings.start_profile), "")


def _busy(system: System, handled: Handled) -> str:
    told = queue(system, handled.instance.url)
    if told is None:
        return "how many requests run cannot be read"
    pending = told.running + told.waiting
    return f"{pending:g} requests run or wait: not at low load" if pending > LOW_TRAFFIC else ""


def _implausible(system: System, handled: Handled, settings: Service, chosen: str) -> str:
    """Why the profile would not help or not load, as far as files tell."""
    case = handled.case
    present_profile = case.mode.profile or settings.start_profile
    try:
        values = profile_values(system, settings, chosen)
        now = profile_values(system, settings, present_profile) if present_profile else {}
        composed(handled, chosen, moved_cards(handled))(system)
    except UNREADABLE as error:
        return str(error)
    model, present = model_of(values), model_of(now)
    if values == now:
        return f"profile {chosen} changes nothing"
    if not model:
        return ""
    why = broken(system, model)
    if why or case.back or model == present:
        return why
    if not quantized(system, model):
        return f"{model} is not quantized: config.json has no quantization_config"
    return _too_large(system, model, present)


def _too_large(system: System, model: str, present: str) -> str:
    """Weights that are no smaller than the present ones free nothing."""
    new, old = size_of(system, model), size_of(system, present)
    if new is not None and old is not None and new >= old:
        return f"{model} is no smaller than {present}"
    return ""
