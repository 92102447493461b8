"""The node as deciding sees it at one tick: alerts, readings, who collected what and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..diagnosis import Facts, Noted, Readings, ServiceFacts
from ..inventory import infos, resolve
from ..model import NAME, Alert, Tick, labelset
from ..roles import STANDBY
from .people import Operations
from .settings import Healing


class Collected(Protocol):
    """How a collector instance stands: when it last ran and last succeeded (Unix seconds)."""

    success: bool
    absent: bool
    ran: float
    succeeded: float | None


@dataclass(frozen=True, slots=True)
class Sight:
    """What one tick shows. ``warm`` and ``owners`` tell of an alert's rules whether they are warm
    and which collectors own what they read."""

    tick: Tick
    firing: Sequence[Alert]
    readings: Readings
    collectors: Mapping[str, Any]
    warm: Callable[[Alert], bool]
    owners: Callable[[Alert], frozenset[str]]
    healing: Healing = field(default_factory=Healing)

    @property
    def now(self) -> float:
        """The moment in Unix seconds."""
        return self.tick.wall

    def card(self, name: str) -> str:
        """The card that a configured name means."""
        found = self.readings.rows("accelerator_info", self.tick.ms)
        keys = [labelset(labels, labels[NAME]) for labels, _ in found]
        return resolve(name, infos(keys)) or name.replace("npu ", "npu")

    def cards(self) -> frozenset[str]:
        """Every card of the node that is known."""
        seen = {
            labels.get("card", "")
            for name in ("accelerator_present", "accelerator_info")
            for labels, _ in self.readings.rows(name, self.tick.ms)
        }
        for service in self.healing.services.values():
            named = (*service.cards, *service.spares, *_standby_cards(service.standby))
            seen.update(self.card(name) for name in named)
        return frozenset(seen - {""})

    def facts(self, events: Sequence[Noted], people: Operations, paused: frozenset[str]) -> Facts:
        """What a diagnosis rests on."""
        ms = self.tick.ms
        names = set(self.healing.services)
        for alert in self.firing:
            service = dict(alert.labels).get("service", "")
            if service and not service.endswith(STANDBY):
                names.add(service)
        for labels, _ in self.readings.rows("service_card", ms):
            if not labels.get("service", "").endswith(STANDBY):
                names.add(labels.get("service", ""))
        faults: dict[str, set[str]] = {}
        for labels, series in self.readings.rows("accelerator_fault", ms):
            if labels.get("severity") not in ("info", "warning") and series.values[-1] > 0:
                faults.setdefault(labels.get("card", ""), set()).add(labels.get("kind", ""))
        healthy: dict[str, float] = {}
        for card in {dict(alert.labels).get("card", "") for alert in self.firing} - {""}:
            last = max(
                self.readings.last("accelerator_healthy", ms, _RECENT, card=card), default=None
            )
            if last is not None and last[1] == 1:
                healthy[card] = last[0]
        return Facts(
            self.now,
            self.firing,
            {name: self.service(name, people, name in paused) for name in sorted(names - {""})},
            tuple(events),
            {card: frozenset(kinds) for card, kinds in faults.items()},
            healthy,
        )

    def service(self, name: str, people: Operations, paused: bool = False) -> ServiceFacts:
        """One service as it stands."""
        ms, read = self.tick.ms, self.readings
        running = read.total("vllm:num_requests_running", ms, service=name)
        waiting = read.total("vllm:num_requests_waiting", ms, service=name)
        pending = None if running is None and waiting is None else (running or 0) + (waiting or 0)
        operation = people.word(name) or ("pause" if paused else "")
        return ServiceFacts(
            name,
            self._cards_of(name),
            operation or self._phase(name),
            _flag(read.value("service_process_up", ms, service=name)),
            _flag(read.value("service_up", ms, service=name)),
            self._probe(name),
            read.read_at("service_probe_success", ms, service=name),
            pending,
            waiting,
            read.moved(name, ms),
            self._client_errors(name),
            self._requests(name),
            self._orphans(name),
            self._unreachable(name),
            self._started(name, people),
        )

    def _cards_of(self, name: str) -> tuple[str, ...]:
        rows = self.readings.rows("service_card", self.tick.ms, service=name)
        found = {labels.get("card", "") for labels, _ in rows}
        service = self.healing.services.get(name)
        if not found and service is not None:
            found = {self.card(card) for card in service.cards}
        return tuple(sorted(found - {""}))

    def _phase(self, name: str) -> str:
        """What the server itself is known to be at: asleep, loading, draining …"""
        awake = self.readings.value(
            "vllm:engine_sleep_state", self.tick.ms, service=name, sleep_state="awake"
        )
        if awake == 0:
            return "sleep"
        for labels, series in self.readings.rows("service_phase", self.tick.ms, service=name):
            if series.values[-1] == 1 and labels.get("phase") in _PHASES:
                return _PHASES[labels["phase"]]
        return ""

    def _probe(self, name: str) -> str | None:
        for labels, series in self.readings.rows(
            "service_probe_verdict", self.tick.ms, service=name
        ):
            if series.values[-1] == 1:
                return labels.get("verdict")
        success = self.readings.value("service_probe_success", self.tick.ms, service=name)
        return None if success is None else ("ok" if success else "failed")

    def _started(self, name: str, people: Operations) -> float | None:
        told = self.readings.value("service_process_start_time_seconds", self.tick.ms, service=name)
        return max((at for at in (told, people.started.get(name)) if at is not None), default=None)

    def _unreachable(self, name: str) -> tuple[str, ...]:
        ms = self.tick.ms
        needs = {row["peer"] for row, _ in self.readings.rows("service_needs", ms, service=name)}
        away = {
            labels.get("peer", "")
            for labels, series in self.readings.rows("peer_reachable", ms)
            if series.values[-1] == 0
        }
        return tuple(sorted(needs & away))

    def _orphans(self, name: str) -> bool:
        """Whether processes of an earlier engine are still there."""
        ms, read = self.tick.ms, self.readings
        told = read.rise("log_events_total", ms, 3 * _SPAN, service=name, kind="orphan_processes")
        return bool(told or read.value("service_orphan_processes", ms, service=name))

    def _client_errors(self, name: str) -> float | None:
        ms = self.tick.ms
        found = [
            self.readings.rise("http_requests_total", ms, _SPAN, service=name, status="4xx"),
            self.readings.rise("log_requests_total", ms, _SPAN, service=name, status="4xx"),
        ]
        known = [value for value in found if value is not None]
        return max(known) if known else None

    def _requests(self, name: str) -> float | None:
        ms = self.tick.ms
        found = [
            self.readings.rise("http_requests_total", ms, _SPAN, service=name),
            self.readings.rise("log_requests_total", ms, _SPAN, service=name),
        ]
        known = [value for value in found if value is not None]
        return max(known) if known else None


_SPAN = 300_000  # milliseconds
_RECENT = 60_000  # milliseconds in which a reading still says something though it has ended
_PHASES = {
    "starting": "start", "loading": "start", "compiling": "start", "sleeping": "sleep",
    "paused": "pause", "draining": "drain", "restarting": "restart", "reloading": "start",
}  # fmt: skip


def _flag(value: float | None) -> bool | None:
    return None if value is None else value != 0


def _standby_cards(standby: object) -> tuple[str, ...]:
    return tuple(getattr(standby, "cards", ()))
