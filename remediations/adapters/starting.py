"""Starts a server and waits until it really answers; with other settings, proves that it has them.

Steps only. Loading weights may take a quarter of an hour and is waited for as long as the process
lives; a server that ends meanwhile ends the wait at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...watchdog.acting import Done, Step
from ...watchdog.completion import completion
from ...watchdog.errors import Permanent
from ...watchdog.system import System
from . import environment
from .handled import GRACE, Handled, looking
from .managers import Settings

BEGIN = 30.0  # seconds until a process is there
PROOF = 15.0
TRIES = 2  # starts of the manager's own after ours; then it ends as often as it is started

Wanted = Callable[[System], Settings]


def configure_step(
    handled: Handled, wanted: Wanted, check: Callable[[System], str] | None = None
) -> Step:
    """Give the next start the settings of this request. ``wanted`` is asked when it is done, and
    ``check`` just before: why not, or nothing."""
    manager, mark = handled.manager, handled.case.request.id

    def do(system: System) -> None:
        why = check(system) if check else ""
        if why:
            raise Permanent(why)
        manager.configure(system, wanted(system))

    return Step(
        "give it other settings",
        BEGIN,
        looking(lambda system: "yes" if manager.settings(system).mark == mark else "no"),
        do=do,
        undo=lambda system: manager.restore(system, mark),
    )


def start_steps(
    handled: Handled, *, must: bool = True, sets: Mapping[str, Any] | None = None
) -> list[Step]:
    """All steps of a start, up to the first answer. ``sets`` holds once it answers."""
    steps = [_start(handled, must)]
    if handled.changes:
        steps.append(_proof(handled, must))
    steps.append(_answers(handled, must, sets or {}))
    return steps


def _start(handled: Handled, must: bool) -> Step:
    manager = handled.manager

    def done(system: System) -> Done:
        status = manager.status(system)
        if handled.begun(system, status):
            return "yes"
        if status.state == "failed" and handled.tried(system, status):
            raise Permanent(f"it ended at once: {status.result or 'failed'}")
        return "no"

    def do(system: System) -> None:
        if handled.changes and manager.settings(system).mark != handled.case.request.id:
            raise Permanent("it was not given the settings that it needs")
        manager.start(system)

    def undo(system: System) -> None:
        manager.stop(system)
        manager.kill(system)

    return Step(
        "start",
        BEGIN,
        looking(done),
        do=do,
        undo=undo if handled.changes else None,
        must=must,
        turns="on",
    )


def _proof(handled: Handled, must: bool) -> Step:
    """``/proc/PID/environ`` of the first process holds what it was given."""

    def done(system: System) -> Done:
        status = handled.manager.status(system)
        if status.pid is None:
            return "no"
        values = handled.manager.settings(system).values
        return environment.proved(system, status.pid, values)

    return Step("prove that the settings took effect", PROOF, looking(done), must=must)


def _answers(handled: Handled, must: bool, sets: Mapping[str, Any]) -> Step:
    limit = handled.case.request.limit

    def done(system: System) -> Done:
        return _answer(system, handled)

    return Step(
        "wait for its first answer",
        min(GRACE, limit) if limit > 0 else GRACE,
        done,
        must=must,
        sets=dict(sets),
        poll=1.0,
    )


def _answer(system: System, handled: Handled) -> Done:
    settings = handled.case.settings
    if settings is None:
        return "unknown"
    finding = completion(
        system, handled.instance.url, settings, timeout=min(settings.probe.timeout, 20.0)
    )
    if finding.verdict == "ok" and finding.canary is False:
        raise Permanent("it answers, but not what is expected of it")
    if finding.verdict in ("ok", "unknown"):  # unknown: it answers and will not talk to us
        return "yes"
    looking(lambda inside: _alive(inside, handled))(system)
    return "no"


def _alive(system: System, handled: Handled) -> Done:
    """Raises Permanent once waiting is futile."""
    status = handled.manager.status(system)
    if status.ended and not status.restarting:
        raise Permanent(f"it ended before it answered: {status.result or status.state}")
    if status.restarts >= TRIES:
        raise Permanent(f"it ended {status.restarts} times before it answered")
    return "yes"
