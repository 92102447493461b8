"""Names the cause of what fires: card before link before host before memory before engine before
requests.

A cause is named once, by one alert; what it explains neither acts nor pages for itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model import Alert, Diagnosis, labelset
from . import causes as words
from .causes import CARD_ALERTS, LINK_ALERTS, layer_of, layer_rank
from .facts import Facts, Noted, ServiceFacts
from .observing import client_errors, moves, saturated

RECENT = 300.0  # seconds that an event counts as evidence of what fires now
_START = 900.0  # seconds within which a start that failed belongs to the dead engine
_OWN_VICTIMS = ("vllm", "VLLM", "python", "pt_main", "ray::", "EngineCore", "Worker")


def diagnose(facts: Facts) -> tuple[Diagnosis, ...]:
    """One diagnosis at most for each service that something fires for, and one for each sick card
    that no service uses."""
    users: dict[str, list[str]] = {}
    for service in facts.services.values():
        for card in service.cards:
            users.setdefault(card, []).append(service.name)
    own: dict[str, list[Alert]] = {}
    free: dict[str, list[Alert]] = {}
    for alert in facts.alerts:
        labels = dict(alert.labels)
        owner, card = labels.get("service", ""), labels.get("card", "")
        if owner:
            own.setdefault(owner, []).append(alert)
        elif card in users:
            for name in users[card]:
                own.setdefault(name, []).append(alert)
        elif card:
            free.setdefault(card, []).append(alert)
    found = [
        named
        for name, alerts in sorted(own.items())
        if name in facts.services
        for named in [_Patient(facts, facts.services[name], alerts).diagnosis()]
        if named is not None
    ]
    found += [
        named for card, alerts in sorted(free.items()) for named in _free(facts, card, alerts)
    ]
    return tuple(found)


def _free(facts: Facts, card: str, alerts: Sequence[Alert]) -> Iterator[Diagnosis]:
    """The case of a card that no service uses."""
    sick = [alert for alert in alerts if alert.name in CARD_ALERTS]
    if sick:
        cause, alert = _card_cause(sick, facts.faults.get(card, frozenset()))
        evidence = tuple(shown(each) for each in sick)
        traits = labelset({"cause": cause})
        yield Diagnosis("", cause, alert, evidence, (), (card,), traits)


def _card_cause(alerts: Sequence[Alert], kinds: frozenset[str]) -> tuple[str, Alert]:
    """The gravest of the cards' alerts, and its cause."""
    ranked = sorted(alerts, key=lambda alert: (words.rank(CARD_ALERTS[alert.name]), _order(alert)))
    best = ranked[0]
    cause = CARD_ALERTS[best.name]
    by_tool = any(
        alert.name == best.name and dict(alert.labels).get("proof") == "tool" for alert in alerts
    )
    if cause == "card_reset_required" and kinds == {"driver_fault"} and not by_tool:
        cause = "driver_fault"
    return cause, best


def _order(alert: Alert) -> tuple[bool, float]:
    """Known before unknown, earliest first."""
    return alert.unknown_since is not None, alert.fired_at or alert.active_at


def shown(alert: Alert) -> str:
    """An alert in a line of evidence: its name and where it is."""
    labels = dict(alert.labels)
    where = [f"{key}={labels[key]}" for key in ("card", "peer", "proof") if labels.get(key)]
    held = " (inputs unknown)" if alert.unknown_since is not None else ""
    return f"alert {alert.name}" + (f" [{', '.join(where)}]" if where else "") + held


@dataclass(slots=True)
class _Patient:
    """One service under examination."""

    facts: Facts
    service: ServiceFacts
    alerts: Sequence[Alert]

    def diagnosis(self) -> Diagnosis | None:
        """The first cause in the order that fits."""
        examinations = (
            self._card, self._link, self._host, self._memory, self._engine, self._requests,
        )  # fmt: skip
        for examine in examinations:
            found = examine()
            if found is not None:
                return found
        return None

    # What fires

    def _named(self, *names: str) -> list[Alert]:
        return sorted((a for a in self.alerts if a.name in names), key=_order)

    def _first(self, *names: str) -> Alert | None:
        """The alert of the first of these names that fires."""
        for name in names:
            found = self._named(name)
            if found:
                return found[0]
        return None

    @property
    def _gone(self) -> Alert | None:
        return self._first(words.GONE)

    def _events(self, kinds: Iterable[str], within: float = RECENT) -> list[Noted]:
        """Recent events of these kinds that speak of the service, its cards or the node."""
        wanted = frozenset(kinds)
        return [
            event
            for event in self.facts.events
            if event.kind in wanted
            and self.facts.now - event.at <= within
            and self._concerns(event.labels)
        ]

    def _concerns(self, labels: Mapping[str, str]) -> bool:
        if "service" in labels:
            return labels["service"] == self.service.name
        return "card" not in labels or labels["card"] in self.service.cards

    def _case(
        self,
        cause: str,
        alert: Alert,
        events: Sequence[Noted] = (),
        cards: Sequence[str] = (),
        **traits: str,
    ) -> Diagnosis:
        """The diagnosis, with what it explains: all that fires in its layer or below."""
        lowest = layer_rank(_layer(cause))
        same = [each for each in self.alerts if each.name == alert.name]
        explained = [
            each
            for each in self.alerts
            if each not in same and layer_of(each.name) != "none"
            if layer_rank(layer_of(each.name)) >= lowest or layer_of(each.name) == "requests"
        ]
        beside = [each for each in self.alerts if each not in same and each not in explained]
        evidence = [shown(each) for each in sorted(same, key=_order)]
        evidence += [shown(each) for each in beside if layer_of(each.name) != "none"]
        evidence += [f"{event.kind}: {event.message}" for event in events[-3:]]
        return Diagnosis(
            self.service.name,
            cause,
            alert,
            tuple(dict.fromkeys(evidence)),
            tuple(sorted(explained, key=lambda each: (each.name, each.labels))),
            tuple(cards),
            labelset({"cause": cause, **traits}),
        )

    # Layers

    def _card(self) -> Diagnosis | None:
        sick = self._named(*CARD_ALERTS)
        doubtful = [alert for alert in sick if self._contradicted(alert)]
        real = [alert for alert in sick if alert not in doubtful]
        if real:
            cards = sorted({dict(alert.labels).get("card", "") for alert in real} - {""})
            kinds = frozenset().union(*(self.facts.faults.get(card, frozenset()) for card in cards))
            cause, alert = _card_cause(real, kinds)
            return self._case(cause, alert, self._card_events(cards), cards)
        if doubtful and self._first(words.GONE, words.STALLED) is None:
            return self._case("sensor", doubtful[0])
        return None

    def _card_events(self, cards: Sequence[str]) -> list[Noted]:
        return [
            event
            for event in self.facts.events
            if event.labels.get("card") in cards
            and self.facts.now - event.at <= 3 * RECENT
            and event.severity != "info"
        ]

    def _contradicted(self, alert: Alert) -> bool:
        """Whether a card that the tool alone reads as lost has other, healthy readings."""
        labels = dict(alert.labels)
        card = labels.get("card", "")
        if alert.name != "CardLost" or labels.get("proof") == "driver":
            return False
        told = any(
            dict(each.labels).get("card") == card and dict(each.labels).get("proof") == "driver"
            for each in self._named("CardLost")
        )
        return not told and self.facts.healthy.get(card, 0.0) >= alert.active_at

    def _link(self) -> Diagnosis | None:
        outage = self._first(words.OUTAGE)
        if outage is not None:
            return self._case("network_outage", outage)
        symptom = self._first(words.GONE, words.STALLED, words.START_FAILED)
        if symptom is None or self.service.operation:
            return None
        down = self._first(*sorted(LINK_ALERTS))
        events = self._events(words.LINK_KINDS)
        if down is not None and symptom.name != words.GONE:
            return self._case("link_down", down, events)
        if down is not None or events:
            return self._case("link_down", symptom, events)
        return None

    def _host(self) -> Diagnosis | None:
        gone = self._gone
        if gone is None or self.service.operation:
            return None
        killed = [event for event in self._events({"host_oom"}) if _own_victim(event)]
        return self._case("host_memory", gone, killed) if killed else None

    def _memory(self) -> Diagnosis | None:
        gone = self._gone or self._first(words.START_FAILED)
        oom = self._events(words.OOM_KINDS)
        refused = [
            e for e in self._events({"npu_error"}) if e.fields.get("class") == "device_memory"
        ]
        oom = sorted([*oom, *refused], key=lambda event: event.at)
        held = self._first(words.HELD)
        foreign = [event for event in oom if event.kind == "oom_foreign_process"]
        orphans = self._events({"orphan_processes"}, _START)
        left = bool(orphans) or self.service.orphans or self._orphaned()
        starved = self._first(words.OVERFLOW, words.GONE) if oom else None
        if held is not None or ((foreign or left) and starved is not None):
            alert = gone or held or starved
            assert alert is not None
            holder = "orphan" if left else "foreign"
            return self._case("foreign_memory", alert, [*oom, *orphans], holder=holder)
        overflow, fragmented = self._first(words.OVERFLOW), self._first(words.FRAGMENTED)
        if overflow is not None or (gone is not None and oom):
            if fragmented is not None or _fragmented(oom):
                alert = gone or fragmented or overflow
                assert alert is not None
                return self._case("fragmentation", alert, oom)
            alert = overflow or gone
            assert alert is not None
            return self._case("device_memory", alert, oom)
        engine = self._first(words.GONE, words.STALLED, words.CORRUPT)
        if fragmented is not None and engine is None:
            return self._case("fragmentation", fragmented)
        return None

    def _orphaned(self) -> bool:
        return "orphan" in {dict(alert.labels).get("holder") for alert in self._named(words.HELD)}

    def _engine(self) -> Diagnosis | None:
        alert = self._first(words.GONE, words.START_FAILED, words.STALLED, words.CORRUPT)
        if alert is None:
            return None
        if self.service.operation:
            return self._case("planned", alert, self._events({"lifecycle"}))
        if alert.name in (words.GONE, words.START_FAILED):
            failed = self._failed_start()
            if failed or alert.name == words.START_FAILED:
                return self._case("engine_start_failed", alert, failed)
            signs = self._events({"engine_dead", "engine_proc_died", "worker_died", "server_exit"})
            return self._case("engine_dead", alert, signs)
        if alert.name == words.STALLED:
            signs = self._events({"ipc_stall", "collective_timeout", "hccl_timeout", "rpc_timeout"})
            return self._case("engine_stalled", alert, signs)
        return self._case("output_corrupt", alert, self._events({"output_corrupt"}))

    def _failed_start(self) -> list[Noted]:
        """The lines of a start that failed, unless the server was ready after them."""
        failed = self._events({"engine_init_failed"}, _START)
        ready = [
            event.at
            for event in self._events({"lifecycle"}, _START)
            if event.fields.get("phase") == "ready"
        ]
        return [event for event in failed if event.at > max(ready, default=0.0)]

    def _requests(self) -> Diagnosis | None:
        below = [a for a in self.alerts if layer_of(a.name) == "requests"]
        if not below:
            return self._idle_and_busy()
        alert = sorted(below, key=_order)[0]
        if self.service.operation:
            return self._case("planned", alert)
        if saturated(self.service, self.facts.now):
            return self._case("saturated", alert)
        if client_errors(self.service):
            return self._case("client_errors", alert)
        slow = self._first(*sorted(words.LATENCY_ALERTS))
        if slow is not None and not self._named("RequestFailuresHigh"):
            return self._case("latency", slow)
        return None

    def _idle_and_busy(self) -> Diagnosis | None:
        """A card that is read as busy for long under an engine that has nothing to do."""
        busy = self._first("AcceleratorBusy")
        if busy is None or self.service.pending != 0 or moves(self.service, self.facts.now):
            return None
        return self._case("sensor", busy)


def _layer(cause: str) -> str:
    return next(layer for layer, names in words.LAYERS.items() if cause in names)


def _fragmented(oom: Sequence[Noted]) -> bool:
    """Whether the last refusal of memory was one of fragmentation."""
    told = [event.fields.get("cause") for event in oom if event.fields.get("cause")]
    return bool(told) and told[-1] == "fragmentation"


def _own_victim(event: Noted) -> bool:
    """Whether the host's memory killed a part of an engine (or nobody can tell whose it was)."""
    comm = str(event.fields.get("comm", ""))
    return "service" in event.labels or not comm or comm.startswith(_OWN_VICTIMS)
