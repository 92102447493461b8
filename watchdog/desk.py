"""The daemon as those who give it commands see it: how it stands, and commands on their way in.

Reads under the daemon's lock; what a command means is for the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from .api.standing import Act, Standing, Waiting
from .cases import Case, Sight, against, approvable
from .daemon import Daemon
from .guard import Guard
from .model import Command, Tick
from .outlook import held_back
from .policies import PAGE

PATIENCE = 8.0  # seconds that a command may wait for its tick
LOOK = 0.02  # seconds between two looks whether a tick is over


class DaemonDesk:
    """The Desk of one daemon (see ``api``)."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def standing(self) -> Standing:
        """See Desk.standing."""
        daemon = self._daemon
        with daemon.lock:
            engine, healer = daemon.engine, daemon.engine.healer
            now, guard = engine.ms / 1000, healer.guard
            sight = engine.sight(Tick(engine.ticks, now, now))
            cases = sorted(healer.cases.values(), key=lambda case: case.key)
            return Standing(
                mode=healer.healing.mode,
                instance=daemon.labels["instance"],
                services=sorted({*daemon.loaded.config.services, *daemon.seen.services}),
                cards=dict(self._cards(sight)),
                quarantined=dict(guard.quarantined),
                paused=_current(guard.holds, now),
                held_back=list(held_back(guard, now)),
                held=guard.held,
                breaker=guard.breaker.why if guard.breaker.opened is not None else "",
                forced=healer.standing.forced,
                waiting=[_waiting(case) for case in cases if _waits(case, guard, now)],
                acts=[act for case in cases for act in _acts(case)],
                open={c.key: c.service for c in cases if c.ladder and not c.ended},
            )

    def carry(self, commands: Sequence[Command]) -> bool:
        """See Desk.carry. A tick that began before may not have heard them: two are waited for."""
        daemon = self._daemon
        with daemon.lock:
            before = daemon.engine.ticks
        for command in commands:
            daemon.command(command)
        return self._passed(before + 1) and self._passed(before + 2)

    def _passed(self, ticks: int) -> bool:
        daemon, clock = self._daemon, self._daemon.system.clock
        deadline = clock.mono() + PATIENCE
        daemon.inbox.wake.set()
        while clock.mono() < deadline:
            with daemon.lock:
                if daemon.engine.ticks >= ticks:
                    return True
            threading.Event().wait(LOOK)
        return False

    def _cards(self, sight: Sight) -> Iterator[tuple[str, str]]:
        """Every name of every card: its own, the tools' numbers, what the configuration says."""
        for card in sorted(sight.cards()):
            yield card, card
        for info in self._daemon.seen.cards:
            card = info.get("card", "")
            if not card:
                continue
            if info.get("vendor") == "ascend" and info.get("npu"):
                yield f"npu {info['npu']}/{info.get('chip', '0')}", card
                if info.get("chip", "0") in ("", "0"):
                    yield f"npu {info['npu']}", card
            elif info.get("index"):
                yield f"gpu {info['index']}", card
        yield from self._daemon.pins.kept.items()


def _current(holds: Any, now: float) -> dict[str, float | None]:
    return {scope: until for scope, until in holds.items() if until is None or now < until}


def _waits(case: Case, guard: Guard, now: float) -> bool:
    """Whether the case's next act wants a person's yes."""
    unapproved = guard.approvals.get(case.key, 0.0) <= now
    if approvable(case):
        return unapproved
    if case.mode != "confirm" or case.ended or case.running is not None:
        return False
    return case.act not in ("", PAGE) and bool(dict(case.checks).get("mode")) and unapproved


def _waiting(case: Case) -> Waiting:
    diagnosis = case.diagnosis
    return Waiting(
        case.key,
        case.service,
        case.act,
        diagnosis.cause,
        diagnosis.alert.name,
        case.fired,
        against(case),
        case.back,
    )


def _acts(case: Case) -> Iterator[Act]:
    running = case.running
    if running is not None:
        request = running.request
        yield Act(
            request.id,
            case.key,
            case.service,
            request.remediation,
            running.since,
            running.deadline,
        )
