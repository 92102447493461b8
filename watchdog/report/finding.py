"""From journal events to incidents: every case from the event that opened it to the one that closed
it. Looks at events only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from ..errors import ConfigError, Place, Problem
from ..model import StoredEvent
from .model import Incident

CASE_KINDS = (
    "case_opened", "case_changed", "case_cancelled", "case_closed", "remediation_requested",
    "remediation_ended", "remediation_refused", "remediation_would", "page_sent",
)  # fmt: skip
"""The kinds of events that say what became of a case."""

_CARD = re.compile(r"\bcard=([^,\]\s]+)")
_FILE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(slots=True)
class _Open:
    """A case while its events are read."""

    key: str
    opened: StoredEvent
    last: StoredEvent
    said: list[str] = field(default_factory=list)
    cards: set[str] = field(default_factory=set)
    mode: str = ""
    evidence: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    paged: bool = False
    would: str = ""
    refused: str = ""
    done: list[tuple[str, str]] = field(default_factory=list)
    asked: str = ""
    cancelled: bool = False

    def take(self, event: StoredEvent) -> None:
        """Learn from one of its events."""
        fields = event.fields
        act = str(fields.get("remediation") or "")
        self.cards |= {value for name, value in event.labels if name == "card"}
        if event.kind in ("case_opened", "case_changed"):
            self._learn(event)
        elif event.kind == "remediation_requested":
            self.asked = act
        elif event.kind == "remediation_ended":
            self.done.append((act, str(fields.get("status") or "")))
            self.asked = ""
        elif event.kind == "remediation_would":
            self.would = act if fields.get("allowed") else ""
        elif event.kind == "remediation_refused":
            self.refused = str(fields.get("reason") or "")
        self.paged |= event.kind == "page_sent"
        self.cancelled |= event.kind == "case_cancelled"

    def _learn(self, event: StoredEvent) -> None:
        """Take its diagnosis; that our own act is planned is no cause of what it answers."""
        fields = event.fields
        if fields.get("cause") in ("planned", "none") and (self.asked or self.done):
            return
        self.last = event
        self.evidence = _texts(fields.get("evidence"))
        self.explains = _texts(fields.get("explains"))
        self.mode = str(fields.get("mode") or "")
        self.cards.update(card for text in self.evidence for card in _CARD.findall(text))

    def incident(self, closed: float | None) -> Incident:
        """The incident as far as it is known."""
        fields, labels = self.last.fields, dict(self.last.labels)
        service = labels.get("service", "")
        return Incident(
            _name(self.opened.time, self.key),
            self.key,
            service,
            tuple(sorted(self.cards)),
            str(fields.get("cause") or "none"),
            labels.get("alertname", ""),
            str(fields.get("policy") or ""),
            self.mode,
            self.opened.time,
            closed,
            self._result(closed is not None),
            self._ladder(),
            self.evidence,
            self.explains,
        )

    def _ladder(self) -> str:
        """The acts of the policy, as the event that opened the case names them in brackets."""
        found = re.search(r"\(([^()]*)\)$", self.last.message)
        return found[1] if found and self.last.fields.get("policy") else ""

    def _result(self, over: bool) -> str:
        """In a few words what came of it."""
        helped = [act for act, status in self.done if status == "done"]
        words = []
        if helped:
            words.append(
                f"{'healed by' if over else 'done:'} {' and '.join(dict.fromkeys(helped))}"
            )
        failed = [f"{act} {status}" for act, status in self.done if status != "done"]
        words += list(dict.fromkeys(failed))
        if self.asked:
            words.append(f"{self.asked} under way")
        if self.paged:
            words.append("a person was paged")
        if self.cancelled:
            words.append("cancelled by a person")
        if not words and self.would:
            words.append(f"observed only: would {self.would}")
        if not words and self.refused:
            words.append(f"nothing was done ({self.refused})")
        return ", ".join(words) or "told only"


def incidents(events: Iterable[StoredEvent]) -> list[Incident]:
    """The incidents that these events (in order) tell of, newest first.

    A case whose opening is not among the events is left out; one that is opened again without
    having been closed ended there.
    """
    found: list[Incident] = []
    current: dict[str, _Open] = {}
    for event in events:
        if event.kind not in CASE_KINDS:
            continue
        key = event.fields.get("case")
        if not isinstance(key, str):
            continue
        if event.kind == "case_opened":
            if key in current:
                found.append(current.pop(key).incident(event.time))
            current[key] = _Open(key, event, event)
        if key in current:
            current[key].take(event)
            if event.kind == "case_closed":
                found.append(current.pop(key).incident(event.time))
    found += [case.incident(None) for case in current.values()]
    return sorted(found, key=lambda each: (each.opened, each.key), reverse=True)


def chosen(found: Sequence[Incident], wanted: str) -> Incident:
    """The incident of that name, or the newest whose name begins with it, or whose service, card
    or case it is. Empty: the newest of all. Raises ConfigError where there is none.
    """
    for fits in (
        lambda each: each.name == wanted,
        lambda each: not wanted or each.name.startswith(wanted),
        lambda each: wanted in (each.service, each.key, *each.cards),
    ):
        for incident in found:
            if fits(incident):
                return incident
    known = ", ".join(each.name for each in found[:5])
    hint = f"the newest: {known}" if known else "there has been none"
    raise ConfigError(Problem(Place(wanted or "report"), "no such incident", hint))


def _name(opened: float, key: str) -> str:
    """A name that sorts by time and can be a file's."""
    when = datetime.fromtimestamp(opened, timezone.utc)
    return f"{when:%Y%m%dT%H%M%SZ}-{_FILE.sub('-', key).strip('-.') or 'node'}"[:100]


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()
