"""What a diagnosis rests on, as plain values: alerts, services as they stand, recent events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..model import Alert


@dataclass(frozen=True, slots=True)
class Noted:
    """An event that a diagnosis may rest on. ``at`` is Unix seconds."""

    at: float
    kind: str
    severity: str
    message: str
    labels: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A service as it stands; None where nothing is known.

    ``operation`` is what is under way on purpose (restart, start, stop, drain, pause, sleep, or
    empty); ``probe`` the probe's last verdict; ``pending`` how many requests run or wait; ``moved``
    the times of the two samples between which tokens or steps last rose; ``unreachable`` the peers
    that it needs and that do not answer; ``started`` when its process last began.
    """

    name: str
    cards: tuple[str, ...] = ()
    operation: str = ""
    process: bool | None = None
    up: bool | None = None
    probe: str | None = None
    probe_at: float | None = None
    pending: float | None = None
    waiting: float | None = None
    moved: tuple[float, float] | None = None
    client_errors: float | None = None
    requests: float | None = None
    orphans: bool = False
    unreachable: tuple[str, ...] = ()
    started: float | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """The node as of ``now`` (Unix seconds): firing alerts, services by name, recent events oldest
    first, the kinds of fault that each card's driver tells just now, and when each card's tool last
    called it healthy, unless it called it sick after that."""

    now: float
    alerts: Sequence[Alert] = ()
    services: Mapping[str, ServiceFacts] = field(default_factory=dict)
    events: Sequence[Noted] = ()
    faults: Mapping[str, frozenset[str]] = field(default_factory=dict)
    healthy: Mapping[str, float] = field(default_factory=dict)
