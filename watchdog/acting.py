"""What an act looks like: a case, a plan, its steps. Shapes only: nothing is carried out here.

Remediations make plans; the workers journal, ask, do, wait and take back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from .config import Service
from .model import Json, Request, ServiceMode
from .system import System

Done = Literal["yes", "no", "unknown"]


@dataclass(frozen=True, slots=True)
class ActCase:
    """All that a remediation may know of what it answers.

    ``name``: the service, empty for an act of the node; ``settings`` as configured, with roles
    *not* exchanged (``mode.serving`` says which instance users reach). ``cards`` are those the
    sick instance uses now, resolved; ``sick`` of them or of the node the sick ones; ``spares``
    reserved for this act. ``began``: when the intent was written (Unix seconds): what a step did
    is told from what was there before by it. ``state``: the state folder. ``vendors`` by card.
    """

    request: Request
    name: str
    settings: Service | None
    mode: ServiceMode
    cards: tuple[str, ...]
    sick: tuple[str, ...]
    spares: tuple[str, ...]
    began: float
    state: Path
    vendors: Mapping[str, str] = field(default_factory=dict)
    policy: Json = field(default_factory=dict)

    @property
    def back(self) -> bool:
        """Whether this is the way back of an earlier act."""
        return self.request.back


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an act; whoever carries it out journals it, asks, does, waits and takes back.

    ``done`` looks at the world: yes, no, or unknown where it cannot be told; it raises Permanent
    where waiting has become futile (the unit failed), which fails the step at once. ``do`` begins
    the step and returns soon; it is then complete when ``done`` says yes, which is asked again
    and again for ``deadline`` seconds (a step without ``do`` only waits). Errors of ``do``:
    Temporary, Permanent, SourceError, NotSupported, CommandTimeout, HttpError, OSError fail the
    step. ``undo`` takes it back after a later failure; ``temporary``: it is taken back at the end
    of the act whatever comes (the flag of the cache, a drained front). ``must`` false: when it
    fails or its deadline passes, the act goes on. ``sets``: how the service stands once the step
    is done, as fields of ServiceMode. ``gives``: what the act's events name from then on (where
    its evidence lies). ``moves_traffic``: users no longer reach the sick instance.
    ``poll``: seconds between two looks. ``turns``: from its begin on the server is ended by our
    hand ("off"), or started ("on").
    """

    name: str
    deadline: float
    done: Callable[[System], Done]
    do: Callable[[System], None] | None = None
    undo: Callable[[System], None] | None = None
    temporary: bool = False
    must: bool = True
    sets: Json = field(default_factory=dict)
    gives: Json = field(default_factory=dict)
    moves_traffic: bool = False
    poll: float = 0.25
    turns: Literal["", "off", "on"] = ""


@runtime_checkable
class Remediation(Protocol):
    """One act as a plan of steps.

    ``effect`` says in one sentence what changes on the node; ``disruptive``: users notice;
    ``verified``: it succeeded only when a completion through the users' path does. It neither
    retries nor judges success, and it never sleeps.
    """

    @property
    def name(self) -> str:
        """The act's word in policies."""
        ...

    @property
    def effect(self) -> str:
        """One sentence for people."""
        ...

    @property
    def disruptive(self) -> bool:
        """Whether users notice."""
        ...

    @property
    def verified(self) -> bool:
        """Whether the users' path judges it."""
        ...

    def precheck(self, system: System, case: ActCase) -> str:
        """Why the act is declined (the next rung is then tried), or nothing. Looks only.

        Raises Temporary for what ends by itself (another's restart): the act stays due.
        """
        ...

    def plan(self, system: System, case: ActCase) -> Sequence[Step]:
        """The steps in order. Looks only; called again after a restart of the daemon, it must
        give the same steps (by name) for an equal case, whatever is done of them already."""
        ...
