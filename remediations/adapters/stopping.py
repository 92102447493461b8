"""Ends a server so that nothing of it is left: requests, processes, orphans, memory on its cards.

Steps only. The manager is told first, so that its own restart policy keeps quiet; what does not go
in time is killed by pid and start; a process of somebody else is never touched.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

from ...watchdog import processes
from ...watchdog.acting import ActCase, Done, Step
from ...watchdog.processes import Stat
from ...watchdog.serversearch import vllm_servers
from ...watchdog.system import Process, System
from .aside import aside_step, drained_step
from .cards import holders, memory_free
from .handled import CARD_CAUSES, Handled, looking, queue
from .instances import serving
from .managers import members
from .privileged import Privileged

Undo = Callable[[System], None] | None

DRAIN = 30.0  # seconds for running requests to finish
TERM = 30.0  # seconds from SIGTERM to SIGKILL: a server may wait for its clients without end
KILL = 15.0
ORPHANS = 15.0
MEMORY = 60.0  # seconds until drivers have given memory back
_GONE = frozenset({"engine_dead", "engine_start_failed"})
_SILENT = frozenset({"engine_stalled", *CARD_CAUSES})


def quiet_steps(handled: Handled, *, aside: bool = False, must: bool = False) -> list[Step]:
    """Traffic taken off the instance and running requests finished, as far as the engine still
    serves. ``aside``: users go to the other instance meanwhile if it answers (``must``: only then);
    else the front refuses them. An instance that users do not reach is just let finish."""
    case, steps = handled.case, list[Step]()
    if handled.instance.role == serving(case).role:
        away = aside_step(case, must=must) if aside else None
        drained = None if away and must else drained_step(case, away)
        if away is not None:
            steps.append(away)
        if drained is not None and case.request.cause not in _GONE:
            steps.append(handled.before(drained))
    if case.request.cause not in _GONE | _SILENT:
        steps.append(drain_step(handled))
    return steps


def drain_step(handled: Handled, deadline: float = DRAIN) -> Step:
    """Wait until no request runs or waits; a server that does not answer has none."""

    def done(system: System) -> Done:
        told = queue(system, handled.instance.url)
        return "yes" if told is None or told.running + told.waiting == 0 else "no"

    step = Step("let running requests finish", deadline, done, must=False, poll=1.0)
    return handled.before(step)


def stop_steps(handled: Handled, *, must: bool = True, start_again: bool = False) -> list[Step]:
    """All steps of a stop. ``must`` false: users are served elsewhere already, the act goes on.
    ``start_again``: taken back, the server is started as it was before."""
    again = handled.manager.start if start_again else None
    steps = [_stop(handled, again), _kill(handled, must, again), _orphans(handled, must)]
    case = handled.case
    broken = case.sick if case.request.cause in CARD_CAUSES else ()  # they can prove nothing
    cards = [card for card in handled.instance.cards if card not in broken]
    if cards:
        steps.append(_memory(handled, cards, must))
    return steps


def _stop(handled: Handled, again: Undo) -> Step:
    return Step(
        "stop by the manager",
        TERM,
        looking(lambda system: _stopped(system, handled)),
        do=handled.manager.stop,
        undo=again,
        must=False,
        turns="off",
    )


def _kill(handled: Handled, must: bool, again: Undo) -> Step:
    """Only one of the two comes to its end by itself, and that one is taken back."""
    return Step(
        "kill what is left",
        KILL,
        looking(lambda system: _stopped(system, handled)),
        do=handled.manager.kill,
        undo=again,
        must=must,
        turns="off",
    )


def _stopped(system: System, handled: Handled) -> Done:
    """No process of it is left and its manager starts none; or another one is there already."""
    status = handled.manager.status(system)
    if handled.begun(system, status):
        return "yes"
    return "yes" if status.ended and not handled.manager.processes(system) else "no"


def _orphans(handled: Handled, must: bool) -> Step:
    def do(system: System) -> None:
        for process in orphans(system, handled.instance.cards, handled.case):
            Privileged.kill(system, process, signal.SIGKILL)

    def done(system: System) -> Done:
        return "no" if orphans(system, handled.instance.cards, handled.case) else "yes"

    step = Step("end orphans", ORPHANS, done, do=do, must=must, poll=1.0)
    return handled.before(step)


def _memory(handled: Handled, cards: Sequence[str], must: bool) -> Step:
    def done(system: System) -> Done:
        found = memory_free(system, cards, handled.case.vendors)
        return "no" if found == "unknown" and not must else found

    return handled.before(Step("prove the memory free", MEMORY, done, must=must, poll=1.0))


def orphans(system: System, cards: Sequence[str], case: ActCase) -> tuple[Process, ...]:
    """vLLM's processes on these cards that no living server owns: their parent is gone.

    Empty where the tools do not tell who is on the cards: nothing is killed on a guess.
    """
    if not cards:
        return ()
    held = holders(system, cards, case.vendors)
    pids = {pid for each in held.values() for pid in each.pids or ()}
    if not pids:
        return ()
    known = processes.table(system.files)
    serving = {server.pid for server in vllm_servers(system.files, known.values())}
    return members(system, [pid for pid in pids if _orphan(system, known.get(pid), serving)])


def _orphan(system: System, entry: Stat | None, serving: set[int]) -> bool:
    if entry is None or not entry.name.startswith("VLLM::"):
        return False
    line = processes.ancestors(system.files, entry.pid)
    return not any(ancestor.pid in serving for ancestor in line)
