"""Silences: alerts that nobody wants to hear of, and for which nothing is done either.

Whoever sets one takes it back by its name; what covers which alert is decided here, as Alertmanager
decides it (matchers are anchored; an absent label is empty).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import Alert
from ..series import predicate

Matcher = tuple[str, str, str]
"""Label, operator (``=``, ``!=``, ``=~``, ``!~``), value."""

OPERATORS = frozenset({"=", "!=", "=~", "!~"})
SHARED = "alertmanager"  # the source whose silences mean the same elsewhere
MOST = 500  # silences that are kept of one source
ROOM = 64 * 1024  # characters of one silence
REASON = 200  # characters of why


@dataclass(frozen=True, slots=True)
class Silence:
    """``until``: Unix seconds, None for ever. ``id`` names it within its ``source`` (empty: a
    person at this node). ``labels`` are what alerts get on sending, where they lack them.
    ``reason``: why, for people."""

    matchers: tuple[Matcher, ...]
    until: float | None = None
    id: str = ""
    source: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""

    @classmethod
    def equal(cls, labels: Mapping[str, str], until: float | None = None) -> Silence:
        """The silence of all alerts with these labels."""
        return cls(tuple((name, "=", value) for name, value in sorted(labels.items())), until)

    def covers(self, alert: Alert, now: float, service: str = "") -> bool:
        """Whether the alert is silenced now. ``service``: whom the act is for that it asks for,
        which counts where nobody but this node hears of the silence."""
        if self.until is not None and now >= self.until:
            return False
        own = {"service": service} if self.source != SHARED else {}
        labels = {**own, **self.labels, **dict(alert.labels)}
        return all(predicate(op, value)(labels.get(name, "")) for name, op, value in self.matchers)

    @property
    def shown(self) -> str:
        """Its matchers for people, and its reason."""
        parts = [f"{name}{op}{value}" for name, op, value in self.matchers]
        why = f" ({self.reason})" if self.reason else ""
        return (", ".join(parts) or "every alert") + why

    def dump(self) -> dict[str, Any]:
        """It as JSON."""
        return {
            "matchers": [list(each) for each in self.matchers],
            "until": self.until,
            "id": self.id,
            "source": self.source,
            "labels": dict(self.labels),
            "reason": self.reason,
        }


def read_silence(doc: Any) -> Silence | None:
    """The silence of a JSON object from outside; None for what is none."""
    try:
        return silence_of(doc)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def silence_of(doc: Mapping[str, Any]) -> Silence:
    """The silence of a JSON object. Raises KeyError, TypeError, ValueError, also for a matcher
    that cannot be used."""
    matchers = tuple((str(name), str(op), str(value)) for name, op, value in doc["matchers"])
    if sum(len(text) for each in matchers for text in each) > ROOM:
        raise ValueError("a silence is too long")
    for _, op, value in matchers:
        if op not in OPERATORS:
            raise ValueError(f"no such operator: {op[:10]!r}")
        predicate(op, value)  # raises ValueError for a pattern that is none
    until = doc.get("until")
    return Silence(
        matchers,
        None if until is None else float(until),
        str(doc.get("id", "")),
        str(doc.get("source", "")),
        {str(name): str(value) for name, value in dict(doc.get("labels") or {}).items()},
        str(doc.get("reason", ""))[:REASON],
    )


def replaced(
    held: Iterable[Silence], source: str, newest: Iterable[Silence]
) -> tuple[list[Silence], list[Silence], list[Silence]]:
    """All silences once a source has said which ones it has now; those that began; those that
    ended."""
    before = list(held)
    wanted = {each.id: each for each in list(newest)[:MOST]}
    others = [each for each in before if each.source != source]
    own = {each.id: each for each in before if each.source == source}
    began = [each for key, each in wanted.items() if key not in own]
    ended = [each for key, each in own.items() if key not in wanted]
    return [*others, *wanted.values()], began, ended
