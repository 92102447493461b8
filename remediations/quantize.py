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
from ..watchdog.system import System
from .adapters.checkpoints import broken, model_of, quantized, size_of
from .adapters.composition import composed, moved_cards, profile_values
from .adapters.handled import UNREADABLE, Handled, changeable, queue, unmanaged
from .adapters.instances import serving
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
        handled = Handled.of(case, serving(case), changes=True)
        why = unmanaged(system, handled)
        if why or handled is None:
            return why
        chosen = _chosen(system, case, settings, handled)
        if not chosen:
            return "start_profile is not configured" if case.back else "no profile is left to try"
        why = changeable(system, handled)
        if not why and case.back:
            why = _busy(system, handled)
        return why or _implausible(system, handled, settings, chosen)

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        """Traffic away, evidence, stop, the profile, start, proof of it, first answer."""
        settings = case.settings
        handled = Handled.of(case, serving(case), changes=True) if settings else None
        if settings is None or handled is None:
            return ()
        chosen = _chosen(system, case, settings, handled)
        now = "" if chosen == settings.start_profile else chosen
        wanted = composed(handled, chosen, moved_cards(handled))
        return renew_steps(handled, wanted, {"profile": now})


def order(settings: Service) -> tuple[str, ...]:
    """The profiles that are tried, in their order."""
    if settings.overflow is not None:
        return settings.overflow
    return (INT8,) if INT8 in settings.profiles else ()


def _chosen(system: System, case: ActCase, settings: Service, handled: Handled) -> str:
    """The profile of this act: once it is given to the server, that one; empty for none."""
    if case.back:
        return settings.start_profile or ""
    try:
        given = handled.manager.settings(system)
    except UNREADABLE:
        given = None
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
