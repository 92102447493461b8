"""The server that an act handles: its instance, its manager, and whether the act is past its start.

Everything is told by the world: what runs now and since when, against when the act began.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.completion import completion
from ...watchdog.config import Service
from ...watchdog.errors import CommandTimeout, HttpError, NotSupported, SourceError, Temporary
from ...watchdog.probeanswers import Progress, progress
from ...watchdog.system import System
from .instances import Instance
from .managers import Manager, Status, manager_of

LOOK = 5.0  # seconds for a metrics page
EXIT = 5.0  # seconds in which a server whose engine died ends by itself
GRACE = 900.0  # seconds from a start to the first answer: weights are loaded, graphs captured
CARD_CAUSES = ("card_lost", "card_uncorrectable", "card_reset_required", "driver_fault")
UNREADABLE = (SourceError, NotSupported, CommandTimeout, HttpError, OSError)


@dataclass(frozen=True, slots=True)
class Handled:
    """``changes``: the act gives the server other settings, so that only a start after that
    counts as its own. ``starts``: false where it shall stay stopped, whoever starts it."""

    case: ActCase
    instance: Instance
    manager: Manager
    changes: bool = False
    starts: bool = True

    @classmethod
    def of(
        cls, case: ActCase, instance: Instance, *, changes: bool = False, starts: bool = True
    ) -> Handled | None:
        """None where nobody manages the instance."""
        manager = manager_of(instance, case.state)
        return None if manager is None else cls(case, instance, manager, changes, starts)

    def renewed(self, system: System) -> bool:
        """Whether the server that is there now was started since the act began (and with its
        settings): all that comes before the start is then past."""
        return self.begun(system, self.manager.status(system))

    def begun(self, system: System, status: Status) -> bool:
        """The same of a status that was read already."""
        up = status.state in ("running", "starting") and not status.restarting
        return self.starts and up and self.tried(system, status)

    def tried(self, system: System, status: Status) -> bool:
        """Whether its last start, successful or not, was the act's."""
        if status.since is None:
            return False
        after = self.case.began
        if self.changes:
            if self.manager.settings(system).mark != self.case.request.id:
                return False
            after = max(after, self.manager.configured_at(system))
        return status.since >= after

    def before(self, step: Step) -> Step:
        """The step, done as well once the server was renewed: it belongs to what was before."""
        return replace(step, done=looking(lambda s: _yes(self.renewed(s)) or step.done(s)))


def looking(done: Callable[[System], Done]) -> Callable[[System], Done]:
    """``done`` that cannot see says unknown."""

    def look(system: System) -> Done:
        try:
            return done(system)
        except UNREADABLE:
            return "unknown"

    return look


def unmanaged(system: System, handled: Handled | None) -> str:
    """Why the manager cannot be asked to act now; empty where it can. Raises Temporary while it
    restarts the server by itself: another's restart is under way."""
    if handled is None:
        return "no manager is configured for it"
    try:
        status = handled.manager.status(system)
    except UNREADABLE as error:
        return str(error)
    if status.state == "unknown":
        return f"{handled.manager.name} does not tell how it stands"
    if status.restarting:
        raise Temporary("its manager restarts it by itself")
    request = handled.case.request
    began = request.alert.active_at
    left = EXIT - (system.clock.wall() - began)
    dying = request.cause == "engine_dead" and status.always and status.state == "running"
    if dying and left > 0 and not request.standby:  # with a standby users are moved meanwhile
        raise Temporary("its manager starts it again by itself once it has ended", max(left, 1.0))
    if status.restarts and status.since is not None and status.since > began:
        age = system.clock.wall() - status.since
        if status.state in ("running", "starting") and age < GRACE:
            raise Temporary(f"its manager restarted it by itself {age:.0f} s ago")
    return ""


def startable(system: System, handled: Handled) -> str:
    """Why the server, once stopped, could not be started again, as far as that shows before."""
    try:
        return handled.manager.startable(system)
    except UNREADABLE as error:
        return str(error)


def changeable(system: System, handled: Handled) -> str:
    """Why the server cannot be given another environment and that be proved, if so."""
    try:
        why = handled.manager.startable(system) or handled.manager.takes_profile(system)
        pid = handled.manager.status(system).pid
        if not why and pid is not None:
            system.files.read(f"/proc/{pid}/environ", 1)
    except PermissionError:
        return "the environment of its processes may not be read (deploy/systemd/acting.conf)"
    except FileNotFoundError:
        return ""  # ended meanwhile
    except UNREADABLE as error:
        return str(error)
    return why


def queue(system: System, url: str) -> Progress | None:
    """The engine's own figures; None where its page does not answer."""
    try:
        answer = system.http.request("GET", f"{url.rstrip('/')}/metrics", timeout=LOOK)
    except HttpError:
        return None
    return progress(answer) if answer.status == 200 else None


def answering(system: System, service: Service, url: str, timeout: float) -> tuple[bool, str]:
    """Whether a real request to ``url`` succeeds just now, and why not."""
    finding = completion(system, url, service, timeout=min(timeout, service.probe.timeout))
    if finding.verdict == "ok" and finding.canary is False:
        return False, "the answer is not the expected one"
    return finding.verdict == "ok", finding.reason


def _yes(value: bool) -> Done | None:
    return "yes" if value else None
