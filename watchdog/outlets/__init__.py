"""Who is told: each outlet on a thread of its own, behind a cursor or a queue, never in the way.

Here: which outlets a configuration asks for. An outlet that is off is not even imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ..config import Config
from ..figures import OutletFigures
from ..journal import Journal
from ..model import Alert, Command
from ..system import System, hostname

Log = Callable[..., object]


class Outlet(Protocol):
    """Somebody who is told."""

    name: str

    def start(self) -> None:
        """Begin, on a thread of its own."""
        ...

    def offer(self, alerts: Sequence[Alert], now: float, offset: float = 0.0) -> None:
        """The alerts as of this tick; ``now`` is real Unix time, ``offset`` leads from the alerts'
        times to it. Does not block."""
        ...

    def figures(self) -> OutletFigures:
        """How the outlet stands."""
        ...

    def stop(self, timeout: float) -> None:
        """End within ``timeout`` seconds."""
        ...


class Teller(Protocol):
    """What outlets need of the daemon."""

    @property
    def system(self) -> System: ...

    @property
    def journal(self) -> Journal | None: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def log(self) -> Log: ...

    def command(self, command: Command) -> None: ...


def make_outlets(teller: Teller, config: Config) -> list[Any]:
    """The outlets that the configuration asks for, started. Raises ConfigError."""
    made: list[Outlet] = []
    if config.outlets.alertmanager.urls:
        from .alertmanager import Alertmanager

        made.append(Alertmanager(config, teller.system, teller.labels, teller.log, teller.command))
    if config.outlets.elasticsearch.hosts and teller.journal is not None:
        from .elasticsearch import Elasticsearch
        from .follower import Follower

        delivery = Elasticsearch(config.outlets.elasticsearch, hostname())
        made.append(Follower(teller.journal, delivery, teller.log))
    for outlet in made:
        outlet.start()
    return made
