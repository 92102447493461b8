"""The whole environment that an act wants a server to have: its profile, its cards, its allocator.

Values come from the operator's profile files, from what an earlier act gave, and from the cards'
tools; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...watchdog.config import Service
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from .environment import profile as read_profile
from .handled import Handled
from .managers import Settings
from .visible import allocator, visible


def composed(handled: Handled, profile: str, cards: Sequence[str]) -> Callable[[System], Settings]:
    """What the server shall be given. ``profile``: empty for what it has now; ``cards``: those that
    it shall see, none for the same as now.

    The result raises SourceError where a profile cannot be read or a card not be named.
    """

    def settings(system: System) -> Settings:
        case = handled.case
        service = case.settings
        if service is None:
            raise SourceError("an act of the node has no server")
        given = handled.manager.settings(system)
        name = profile or given.profile
        values = dict(given.values)
        if profile:
            values = dict(profile_values(system, service, profile))
        own = {**_first(system, service), **values}  # as far as its unit has the first profile
        if service.expandable_segments:
            for key, value in allocator(case.vendors, [*cards, *case.cards]).items():
                values[key] = ",".join(filter(None, (_others(own.get(key, "")), value)))
        values.update(visible(system, cards, case.vendors, own))
        return Settings(values, case.request.id, name)

    return settings


def moved_cards(handled: Handled) -> tuple[str, ...]:
    """The cards that an earlier act gave the instance; none where it has its own."""
    mode = handled.case.mode
    return mode.standby_cards if handled.instance.role == "standby" else mode.cards


def profile_values(system: System, service: Service, name: str) -> Mapping[str, str]:
    """The values of a profile of the service. Raises SourceError."""
    if name not in service.profiles:
        raise SourceError(f"there is no profile {name}")
    return read_profile(system, service.profiles[name])


def _first(system: System, service: Service) -> Mapping[str, str]:
    if not service.start_profile:
        return {}
    return profile_values(system, service, service.start_profile)


def _others(configured: str) -> str:
    """What else a profile says of the allocator."""
    parts = [part for part in configured.split(",") if part]
    return ",".join(part for part in parts if not part.startswith("expandable_segments"))
