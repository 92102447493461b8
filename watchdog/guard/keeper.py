"""The guard: what people ask of it, what it keeps count of, and its order of refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import Guard as Limits
from ..config import Mode
from ..model import Alert
from .acts import ACTS, Kind
from .breaker import Breaker
from .ledger import Ledger
from .silences import Silence, silence_of

APPROVED_FOR = 600.0  # seconds that a person's yes holds

QUIET = frozenset(
    {
        "hold", "mode", "silenced", "explained", "warming", "unknown", "other_restart", "busy",
        "precondition",
    }
)  # fmt: skip
"""Refusals that page nobody: a person or the configuration asked for them, or they may end by
themselves."""


@dataclass(frozen=True, slots=True)
class Asked:
    """An act that somebody wants to start. ``key`` is what attempts are counted by; ``first`` says
    that a ladder begins with it, ``undoing`` that it only takes back what we did, so that no count
    holds it. The texts are reasons to refuse, empty where there is none."""

    act: str
    kind: Kind
    service: str
    key: str
    case: str
    alert: Alert
    mode: Mode
    first: bool = True
    undoing: bool = False
    explained: str = ""
    destination: str = ""
    other: str = ""
    warming: str = ""
    unknown: str = ""
    precondition: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The guard's word, with every check in order: name and what stands against it (or nothing)."""

    checks: tuple[tuple[str, str], ...]

    @property
    def allowed(self) -> bool:
        """Whether nothing stands against it."""
        return not any(text for _, text in self.checks)

    @property
    def reason(self) -> str:
        """The first check that refuses; empty when allowed."""
        return next((name for name, text in self.checks if text), "")

    @property
    def text(self) -> str:
        """What the first refusing check says."""
        return next((text for _, text in self.checks if text), "")

    def only(self, *names: str) -> bool:
        """Whether it is refused, and by none but these checks."""
        refusing = {name for name, text in self.checks if text}
        return bool(refusing) and refusing <= set(names)

    @property
    def final(self) -> str:
        """What will not end by itself and nobody asked for; empty where something else refuses too,
        or nothing but another act under way."""
        refusing = [name for name, text in self.checks if text and name != "busy"]
        if any(name in QUIET for name in refusing):
            return ""
        return refusing[0] if refusing else ""

    def without(self, name: str) -> Judgement:
        """The same, one check left out of account."""
        return Judgement(tuple((n, "" if n == name else text) for n, text in self.checks))


@dataclass(slots=True)
class Guard:
    """``holds``: pauses by service ("" all), with their end; ``held``: the hold file is there;
    ``quarantined``: cards out of use, and why; ``reserved``: cards by the case that takes them;
    ``approvals``: yes by case, with its end; ``running``: acts under way by request, with service
    and whether they touch cards or the front; ``fleet``: whether the fleet's coordinator grants;
    ``unwritable``: why no intent can be written."""

    limits: Limits = field(default_factory=Limits)
    held: bool = False
    holds: dict[str, float | None] = field(default_factory=dict)
    silences: list[Silence] = field(default_factory=list)
    approvals: dict[str, float] = field(default_factory=dict)
    quarantined: dict[str, str] = field(default_factory=dict)
    reserved: dict[str, str] = field(default_factory=dict)
    running: dict[str, tuple[str, bool]] = field(default_factory=dict)
    breaker: Breaker = field(default_factory=Breaker)
    ledger: Ledger = field(default_factory=Ledger)
    shadow: Ledger = field(default_factory=Ledger)
    fleet: bool = False
    unwritable: str = ""

    def judge(self, asked: Asked, now: float) -> Judgement:
        """Hold the act against every check, in the order of refusal."""
        return Judgement(
            (
                ("hold", self._hold(asked, now)),
                ("mode", self._mode(asked, now)),
                ("silenced", self._silenced(asked, now)),
                ("warming", asked.warming),
                ("unknown", asked.unknown),
                ("explained", asked.explained),
                ("destination", asked.destination),
                ("other_restart", asked.other),
                ("breaker", self._breaker(asked)),
                ("busy", self._busy(asked)),
                ("attempts", self._attempts(asked, now)),
                ("cooldown", self._cooldown(asked, now)),
                ("node_budget", self._budget(asked, now)),
                ("fleet_budget", self._fleet(asked)),
                ("journal", "" if asked.kind == "page" else self.unwritable),
                ("precondition", asked.precondition),
            )
        )

    def paused(self, service: str, now: float) -> bool:
        """Whether a person paused healing, of all or of this service."""
        return any(
            scope in ("", service) and (until is None or now < until)
            for scope, until in self.holds.items()
        )

    def book(self, mode: Mode) -> Ledger:
        """The counts that hold in a mode: in observe what would have been."""
        return self.shadow if mode == "observe" else self.ledger

    # Checks: the reason to refuse, or nothing

    def _hold(self, asked: Asked, now: float) -> str:
        if self.held:
            return "the hold file is there"
        return "a person paused healing" if self.paused(asked.service, now) else ""

    def _mode(self, asked: Asked, now: float) -> str:
        if asked.mode == "act":
            return ""
        if asked.mode == "observe":
            return "mode observe: nothing is done"
        if asked.kind == "page" or asked.undoing or self.approvals.get(asked.case, 0.0) > now:
            return ""
        return "mode confirm: not approved"

    def _silenced(self, asked: Asked, now: float) -> str:
        silenced = any(silence.covers(asked.alert, now, asked.service) for silence in self.silences)
        return f"{asked.alert.name} is silenced" if silenced else ""

    def _breaker(self, asked: Asked) -> str:
        if asked.kind in ("traffic", "page") or asked.undoing or self.breaker.opened is None:
            return ""
        return f"the breaker is open: {self.breaker.why}"

    def _busy(self, asked: Asked) -> str:
        if asked.kind == "page":
            return ""
        for service, exclusive in self.running.values():
            if asked.service and service == asked.service:
                return f"an act on {service} is under way"
            if exclusive and ACTS[asked.act].exclusive:
                return "an act on the node's cards or front is under way"
        return ""

    def _attempts(self, asked: Asked, now: float) -> str:
        if asked.kind == "page" or asked.undoing or not asked.first:
            return ""
        limits = self.limits
        count = self.book(asked.mode).attempts(asked.key, now, limits.per)
        if count < limits.attempts:
            return ""
        return f"tried {count} times within {limits.per:g} s"

    def _cooldown(self, asked: Asked, now: float) -> str:
        if asked.kind == "page" or asked.undoing or not asked.first:
            return ""
        limits, book = self.limits, self.book(asked.mode)
        until = book.rests_until(asked.key, now, limits.cooldown, limits.per)
        return f"cooling down for another {until - now:.0f} s" if now < until else ""

    def _budget(self, asked: Asked, now: float) -> str:
        if asked.kind == "page" or asked.undoing:
            return ""
        most, per = self.limits.node
        traffic = asked.kind == "traffic"
        spent = self.book(asked.mode).spent(now, per, traffic=traffic)
        what = "traffic" if traffic else "node"
        return f"the {what} budget of {most} in {per:g} s is spent" if spent >= most else ""

    def _fleet(self, asked: Asked) -> str:
        held = asked.kind in ("device", "restart") and not asked.undoing
        if not held or self.limits.fleet is None or self.fleet:
            return ""
        return "the fleet's coordinator did not grant it"

    # Keeping

    def dump(self) -> dict[str, Any]:
        """All that must outlive a restart, as JSON."""
        return {
            "held": self.held,
            "unwritable": self.unwritable,
            "holds": dict(self.holds),
            "silences": [each.dump() for each in self.silences],
            "approvals": dict(self.approvals),
            "quarantined": dict(self.quarantined),
            "reserved": dict(self.reserved),
            "running": {key: list(value) for key, value in self.running.items()},
            "breaker": self.breaker.dump(),
            "ledger": self.ledger.dump(),
            "shadow": self.shadow.dump(),
        }

    def restore(self, doc: Mapping[str, Any]) -> None:
        """Take up what ``dump`` gave. Raises KeyError, TypeError, ValueError."""
        self.held, self.unwritable = bool(doc["held"]), str(doc["unwritable"])
        self.holds = {str(k): None if v is None else float(v) for k, v in doc["holds"].items()}
        self.silences = [silence_of(each) for each in doc["silences"]]
        self.approvals = {str(key): float(until) for key, until in doc["approvals"].items()}
        self.quarantined = {str(card): str(why) for card, why in doc["quarantined"].items()}
        self.reserved = {str(card): str(holder) for card, holder in doc["reserved"].items()}
        self.running = {str(k): (str(s), bool(x)) for k, (s, x) in doc["running"].items()}
        self.breaker = Breaker.of(doc["breaker"])
        self.ledger = Ledger.of(doc["ledger"])
        self.shadow = Ledger.of(doc["shadow"])
