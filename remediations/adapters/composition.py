"""The whole environment that an act wants a server to have: its profile, its cards, its allocator.

Values come from the operator's profile files and from the cards' tools; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...watchdog.acting import ActCase
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from .environment import profile as read_profile
from .managers import Settings
from .visible import allocator, visible


def composed(case: ActCase, profile: str, cards: Sequence[str]) -> Callable[[System], Settings]:
    """What the server shall be given. ``profile``: empty for that of the first start; ``cards``:
    those that it shall see, none for as it is configured.

    The result raises SourceError where a profile cannot be read or a card not be named.
    """

    def settings(system: System) -> Settings:
        service = case.settings
        if service is None:
            raise SourceError("an act of the node has no server")
        name = profile or service.start_profile or ""
        values: dict[str, str] = {}
        if name:
            if name not in service.profiles:
                raise SourceError(f"there is no profile {name}")
            values.update(read_profile(system, service.profiles[name]))
        if service.expandable_segments:
            for key, value in allocator(case.vendors, [*cards, *case.cards]).items():
                values[key] = ",".join(filter(None, (_others(values.get(key, "")), value)))
        values.update(visible(system, cards, case.vendors, values))
        return Settings(values, case.request.id, name)

    return settings


def moved_cards(case: ActCase) -> tuple[str, ...]:
    """The cards that an earlier act gave the serving instance; none where it has its own."""
    standby = case.mode.serving == "standby"
    return case.mode.standby_cards if standby else case.mode.cards


def _others(configured: str) -> str:
    """What else a profile says of the allocator."""
    parts = [part for part in configured.split(",") if part]
    return ",".join(part for part in parts if not part.startswith("expandable_segments"))
