"""Which alerts make a case of their own: those that a policy names and no cause explains. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..diagnosis import Facts
from ..model import Alert, Diagnosis, labelset
from ..policies import Bound, first_match


def uncaused(
    firing: Sequence[Alert],
    policies: Sequence[Bound],
    facts: Facts,
    busy: Collection[str],
    explained: Collection[Any],
) -> Iterable[tuple[str, Diagnosis]]:
    """One case each service and alert name; ``busy`` services have a cause, ``explained`` are the
    label sets of alerts that one explains."""
    found: dict[str, list[tuple[str, Alert]]] = {}
    for alert in firing:
        if alert.labels in explained:
            continue
        for service in _services_of(alert, facts):
            labels = {**dict(alert.labels), "cause": "none"}
            if service in busy or not first_match(policies, labels, service):
                continue
            found.setdefault(f"{service or 'node'}|{alert.name}", []).append((service, alert))
    for key, alerts in sorted(found.items()):
        service, first = min(alerts, key=lambda each: (each[1].fired_at or 0.0, each[1].labels))
        cards = sorted({dict(alert.labels).get("card", "") for _, alert in alerts} - {""})
        traits = labelset({"cause": "none"})
        evidence = (f"alert {first.name}",)
        yield key, Diagnosis(service, "none", first, evidence, (), tuple(cards), traits)


def _services_of(alert: Alert, facts: Facts) -> list[str]:
    """The services that an alert is about; the node ("") where there is none."""
    labels = dict(alert.labels)
    if labels.get("service"):
        return [labels["service"]] if labels["service"] in facts.services else []
    users = [s.name for s in facts.services.values() if labels.get("card") in s.cards]
    return users or [""]


def same_place(alert: Alert, diagnosis: Diagnosis) -> bool:
    """Whether an alert is about the service, card and peer of a diagnosis."""
    labels, wanted = dict(alert.labels), dict(diagnosis.alert.labels)
    return all(labels.get(key) == wanted.get(key) for key in ("service", "card", "peer"))
