"""Says why: what is known and unknown of a service, a card or an alert, what would be done about
it, and what would be refused.

Reads an engine as it stands; changes nothing and decides nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .cases import Case, Sight
from .diagnosis import Facts, ServiceFacts, layer_of, observe
from .engine import Engine
from .guard import Judgement
from .model import Alert, Tick
from .policies import PAGE, first_match
from .wire import moment

Doc = dict[str, Any]

_CARD_READINGS = {
    "accelerator_present": "present",
    "accelerator_healthy": "healthy",
    "accelerator_reset_required": "reset required",
    "accelerator_utilization_ratio": "utilisation",
    "accelerator_temperature_celsius": "temperature",
}


def explain(engine: Engine, what: str = "") -> Doc:
    """Explain a service, a card, an alert's name, or the node (empty). ``found`` says which it was,
    None when there is no such thing.
    """
    return _Explaining(engine).about(what)


@dataclass(slots=True)
class _Explaining:
    """One question."""

    engine: Engine

    def about(self, what: str) -> Doc:
        """The document that answers it."""
        sight = self._sight
        facts = self.engine.healer.facts(sight)
        head: Doc = {"asked": what, "time": moment(sight.now), "mode": sight.healing.mode}
        if what in facts.services:
            return {**head, "found": "service", **self._service(sight, facts, what)}
        card = sight.card(what) if what else ""
        if card in sight.cards():
            return {**head, "found": "card", **self._card(sight, facts, card)}
        named = [rule for group in self.engine.rules.groups for rule in group.rules
                 if rule.kind == "alert" and rule.name == what]  # fmt: skip
        if named:
            return {**head, "found": "alert", **self._alert(sight, facts, what)}
        if what:
            return {**head, "found": None, "services": sorted(facts.services)}
        return {**head, "found": "node", **self._node(sight, facts)}

    @property
    def _sight(self) -> Sight:
        engine = self.engine
        return engine.sight(Tick(engine.ticks, engine.ms / 1000, engine.ms / 1000))

    # What can be asked for

    def _node(self, sight: Sight, facts: Facts) -> Doc:
        cases = sorted(self.engine.healer.cases.values(), key=lambda case: case.key)
        breaker = self.engine.healer.guard.breaker
        return {
            "known": [f"{len(facts.services)} services, {len(sight.cards())} cards"],
            "unknown": list(self._silent("")),
            "cases": [self._case(sight, facts, case) for case in cases],
            "breaker": breaker.why if breaker.opened is not None else None,
            "quarantined": dict(self.engine.healer.guard.quarantined),
        }

    def _service(self, sight: Sight, facts: Facts, name: str) -> Doc:
        service = facts.services[name]
        cases = [c for c in self.engine.healer.cases.values() if c.service == name]
        alerts = [alert for alert in sight.firing if _is_about(alert, service)]
        doc: Doc = {
            "known": list(_known(service, sight.now)),
            "unknown": [*_unknown(service), *self._silent(name), *_held(alerts)],
            "alerts": [_alert_line(alert) for alert in alerts],
            "cases": [self._case(sight, facts, case) for case in cases],
        }
        if not cases:
            word = observe(service, sight.now)
            doc["observed"] = word
            doc["decision"] = _no_case(word, alerts)
        return doc

    def _card(self, sight: Sight, facts: Facts, card: str) -> Doc:
        guard = self.engine.healer.guard
        users = [s.name for s in facts.services.values() if card in s.cards]
        alerts = [alert for alert in sight.firing if dict(alert.labels).get("card") == card]
        known = list(self._readings(sight, card))
        known += [f"its driver tells: {kind}" for kind in sorted(facts.faults.get(card, ()))]
        known.append(f"used by {', '.join(users)}" if users else "no service uses it")
        if card in guard.quarantined:
            known.append(f"quarantined: {guard.quarantined[card]}")
        if card in guard.reserved:
            known.append(f"reserved for the case of {guard.reserved[card]}")
        cases = [c for c in self.engine.healer.cases.values()
                 if card in c.diagnosis.cards or c.service in users]  # fmt: skip
        return {
            "card": card,
            "known": known,
            "unknown": [*self._unread(sight, card), *_held(alerts)],
            "alerts": [_alert_line(alert) for alert in alerts],
            "cases": [self._case(sight, facts, case) for case in cases],
        }

    def _alert(self, sight: Sight, facts: Facts, name: str) -> Doc:
        alerts = [alert for alert in self.engine.alerts() if alert.name == name]
        live = [alert for alert in alerts if alert.state in ("pending", "firing")]
        rules = [rule for group in self.engine.rules.groups for rule in group.rules
                 if rule.kind == "alert" and rule.name == name]  # fmt: skip
        policy = first_match(sight.healing.policies, {"alertname": name}, "")
        known = [f"rule in group {rule.group}: {' '.join(rule.text.split())}" for rule in rules]
        known.append(
            f"policy {policy.name}: {' → '.join(policy.ladder)}" if policy else "no policy names it"
        )
        cases = [c for c in self.engine.healer.cases.values()
                 if c.diagnosis.alert.name == name
                 or any(alert.name == name for alert in c.diagnosis.explains)]  # fmt: skip
        return {
            "known": known,
            "unknown": _held(live),
            "alerts": [_alert_line(alert) for alert in live],
            "cases": [self._case(sight, facts, case) for case in cases],
            "decision": None if live else "it neither fires nor is about to: nothing is done",
        }

    # Parts

    def _case(self, sight: Sight, facts: Facts, case: Case) -> Doc:
        """A case: its cause with the evidence, what it explains, what comes next and why (not)."""
        diagnosis = case.diagnosis
        doc: Doc = {
            "service": case.service or None,
            "cards": list(diagnosis.cards),
            "cause": diagnosis.cause,
            "named_by": diagnosis.alert.name,
            "opened": moment(case.opened),
            "evidence": list(diagnosis.evidence),
            "explains": [_alert_line(alert) for alert in diagnosis.explains],
            "policy": case.policy or None,
            "ladder": list(case.ladder),
            "mode": case.mode if case.ladder else None,
            "tried": [f"{act}: {how}" for act, how in case.done],
            "paged": case.paged,
        }
        return {**doc, **self._next(sight, facts, case)}

    def _next(self, sight: Sight, facts: Facts, case: Case) -> Doc:
        if case.running is not None:
            act = case.running.request.remediation
            checks = {name: "" for name, _ in case.checks}
            decision = f"{act} is under way since {moment(case.running.since)}"
            return {"decision": decision, "checks": checks}
        if not case.ladder:
            return {"decision": f"nothing is done: {_why_none(case)}", "checks": {}}
        if case.ended:
            return {"decision": f"the ladder ended: {case.ended}", "checks": {}}
        judgement = self.engine.healer.examine(sight, facts, case)
        if case.would:
            judgement = Judgement(case.checks)
        checks = dict(judgement.checks)
        if judgement.allowed or case.act == PAGE:
            decision = f"{case.act} is let through"
        else:
            word = "would be done" if judgement.only("mode") else "is refused"
            decision = f"{case.act} {word}: {judgement.text}"
            if case.mode == "confirm" and judgement.only("mode"):
                decision += f" (`vllm-watchdog approve {shlex.quote(case.key)}`)"
        return {"decision": decision, "checks": checks}

    def _readings(self, sight: Sight, card: str) -> Iterable[str]:
        for name, word in _CARD_READINGS.items():
            value = sight.readings.value(name, sight.tick.ms, card=card)
            if value is not None:
                yield f"{word}: {value:g}"

    def _unread(self, sight: Sight, card: str) -> Iterable[str]:
        ms = sight.tick.ms
        for name in ("accelerator_present", "accelerator_healthy"):
            if sight.readings.value(name, ms, card=card) is None:
                yield f"no current reading of {_CARD_READINGS[name]}"

    def _silent(self, service: str) -> Iterable[str]:
        """Collectors that fail just now, of the node and of the service."""
        for name, state in sorted(self.engine.collectors.items()):
            of = name.partition("/")[2]
            if state.success or state.absent or (service and of not in ("", service)):
                continue
            yield f"{name} fails since {moment(state.since)}: {state.error}"


def _known(service: ServiceFacts, now: float) -> Iterable[str]:
    """What is known of a service, a line each."""
    if service.cards:
        yield f"cards: {', '.join(service.cards)}"
    if service.operation:
        yield f"under way on purpose: {service.operation}"
    for name, value in (("process", service.process), ("metrics page", service.up)):
        if value is not None:
            yield f"{name}: {'there' if value else 'gone'}"
    if service.probe is not None:
        yield f"probe: {service.probe}"
    if service.pending is not None:
        yield f"requests running or waiting: {service.pending:g}"
    if service.moved is not None:
        yield f"last token or step {now - service.moved[1]:.0f} s ago"
    if service.orphans:
        yield "processes of an earlier engine are left"


def _unknown(service: ServiceFacts) -> Iterable[str]:
    """What is not known of a service, a line each."""
    for value, text in (
        (service.cards or None, "which cards it uses"),
        (service.process, "whether its process is there"),
        (service.probe, "whether a completion works (no probe)"),
        (service.pending, "how many requests it has"),
        (service.moved, "when it last made a token"),
    ):
        if value is None:
            yield text


def _held(alerts: Sequence[Alert]) -> list[str]:
    """Alerts whose inputs are unknown."""
    return [
        f"inputs of {alert.name} since {moment(alert.unknown_since)}"
        for alert in alerts
        if alert.unknown_since is not None
    ]


def _is_about(alert: Alert, service: ServiceFacts) -> bool:
    labels = dict(alert.labels)
    if labels.get("service"):
        return labels["service"] == service.name
    return labels.get("card") in service.cards


def _alert_line(alert: Alert) -> str:
    labels: Mapping[str, str] = dict(alert.labels)
    where = [labels[key] for key in ("service", "card", "peer") if labels.get(key)]
    proof = f", by {labels['proof']}" if labels.get("proof") else ""
    since = moment(alert.fired_at if alert.state == "firing" else alert.active_at)
    return f"{alert.name} {' '.join(where)} {alert.state} since {since}{proof}".replace("  ", " ")


def _why_none(case: Case) -> str:
    if case.diagnosis.cause == "planned":
        return "somebody is at work on the service"
    if case.diagnosis.cause == "sensor":
        return "the readings contradict each other"
    if not case.service:
        return "no service uses the card; it is no destination any more"
    return "no policy names it"


def _no_case(observed: str, alerts: Sequence[Alert]) -> str:
    words = {
        "planned": "nothing is done: somebody is at work on the service",
        "saturated": "nothing is done: the engine works as fast as it can",
        "client_errors": "nothing is done: the clients' own requests are wrong",
    }
    if observed in words:
        return words[observed]
    told = sorted({alert.name for alert in alerts if layer_of(alert.name)})
    if told:
        return f"nothing is done: {', '.join(told)} told, no fault and no policy"
    return "nothing is done: nothing fires"
