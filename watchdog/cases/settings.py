"""What deciding needs of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..config import Config, Guard, Mode, Service
from ..policies import Bound, bind


@dataclass(frozen=True, slots=True)
class Healing:
    """``mode`` of the node, its configured services, the policies in order, the guard's limits.

    ``warm``: rules count as warm from the start (an incident that is played, not a node).
    """

    mode: Mode = "observe"
    services: Mapping[str, Service] = field(default_factory=dict)
    policies: tuple[Bound, ...] = ()
    guard: Guard = field(default_factory=Guard)
    interval: float = 5.0
    warm: bool = False


def healing(config: Config, *, warm: bool = False) -> Healing:
    """What a configuration says of deciding. Raises ConfigError for bad policies."""
    return Healing(
        config.mode, dict(config.services), bind(config), config.guard, config.interval, warm
    )
