"""How a service stands because of what was done to it: which of its two instances users reach, on
which cards, in which profile.

Pure: settings and a mode give settings. Whoever watches, decides or acts uses the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from .config import Service
from .config.models import Standby
from .model import Json, ServiceMode

STANDBY = "/standby"
"""What is appended to a service's name for the instance that users do not reach."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "serving": ("primary", "standby"),
    "front": ("open", "drained", "cache_only", "shedding"),
}


def effective(service: Service, mode: ServiceMode) -> Service:
    """The service as users reach it: roles exchanged where traffic is on the standby, cards as an
    act gave them."""
    cards = mode.cards or service.cards
    standby = service.standby
    if standby is not None and mode.standby_cards:
        standby = standby.model_copy(update={"cards": mode.standby_cards})
    if mode.serving != "standby" or standby is None:
        return service.model_copy(update={"cards": cards, "standby": standby})
    return service.model_copy(
        update={
            "url": standby.url,
            "manager": standby.manager,
            "cards": standby.cards,
            "standby": Standby(url=service.url, manager=service.manager, cards=cards),
        }
    )


def aside(service: Service, mode: ServiceMode) -> Service | None:
    """The instance that users do not reach, as a service of its own; None where there is none.

    Log files belong to the configured instance, wherever users are.
    """
    now = effective(service, mode)
    if now.standby is None:
        return None
    other = now.standby
    return service.model_copy(
        update={
            "url": other.url,
            "manager": other.manager,
            "cards": other.cards,
            "spares": (),
            "standby": None,
            "front": None,
            "needs": (),
            "logs": service.logs if mode.serving == "standby" else (),
        }
    )


def watched(
    services: Mapping[str, Service], modes: Mapping[str, ServiceMode]
) -> dict[str, Service]:
    """All that is watched by name: each service as users reach it, and ``NAME/standby``."""
    found: dict[str, Service] = {}
    for name, service in services.items():
        mode = modes.get(name, ServiceMode())
        now = effective(service, mode)
        if mode.serving == "standby" and service.standby is not None:
            now = now.model_copy(update={"logs": ()})
        found[name] = now
        other = aside(service, mode)
        if other is not None:
            found[name + STANDBY] = other
    return found


def words(mode: ServiceMode, start_profile: str | None = None) -> tuple[str, ...]:
    """How a service stands, as ``service_mode`` names it; ``normal`` where nothing was changed."""
    found = ["standby"] if mode.serving == "standby" else []
    if mode.profile and mode.profile != start_profile:
        found.append(mode.profile)
    if mode.front != "open":
        found.append(mode.front)
    return tuple(found) or ("normal",)


def changed(mode: ServiceMode, sets: Json, at: float, by: str) -> ServiceMode:
    """The mode after a step that ``sets`` these fields. Raises ValueError for what is no field, or
    no value of one."""
    fields: dict[str, Any] = {}
    for name, value in sets.items():
        if name in ("cards", "standby_cards"):
            fields[name] = _names(value)
        elif isinstance(value, str) and (name == "profile" or value in _VALUES.get(name, ())):
            fields[name] = value
        else:
            raise ValueError(f"{name} = {value!r} is no way for a service to stand")
    return replace(mode, **fields, since=at, by=by) if fields else mode


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{value!r} are no cards")  # noqa: TRY004 (input, not a call)
    return tuple(str(card) for card in value)


def mode_doc(mode: ServiceMode) -> dict[str, Any]:
    """A mode as JSON."""
    doc = asdict(mode)
    return {**doc, "cards": list(mode.cards), "standby_cards": list(mode.standby_cards)}


def mode_of(doc: Json) -> ServiceMode:
    """The mode of a JSON object. Raises KeyError, TypeError, ValueError."""
    sets = {name: doc[name] for name in ("serving", "front", "profile", "cards", "standby_cards")}
    return changed(ServiceMode(), sets, float(doc["since"]), str(doc["by"]))
