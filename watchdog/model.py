"""The values that pass between rooms: frozen, slotted, equal by value. No behaviour beyond that."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

NAME = "__name__"

Labels = tuple[tuple[str, str], ...]
"""A label set: pairs sorted by label name, names unique, no empty values.

Where a series is meant (``Batch.keys``, the window) the metric name is in it as ``__name__``.
"""

Json = Mapping[str, Any]
"""A JSON object: string keys; values None, bool, int, float, str, list or a further object."""


def labelset(pairs: Mapping[str, str] | Iterable[tuple[str, str]], name: str = "") -> Labels:
    """Return the canonical label set of ``pairs`` (and the metric ``name``, if given).

    Halves of characters (from file names that are no UTF-8) become U+FFFD.
    """
    items = dict(pairs)
    if name:
        items[NAME] = name
    return tuple(sorted((key, _whole(value)) for key, value in items.items() if value != ""))


def _whole(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Tick:
    """One step of the engine. ``mono`` in seconds for durations; ``wall`` in Unix seconds.

    ``wall`` is steady: within one run it advances with ``mono`` and never jumps, so that series,
    ``for`` clocks and recordings have one time base; ``ms`` is what series are stamped with.
    ``urgent``: an extra step between two regular ones, for what cannot wait.
    """

    number: int
    mono: float
    wall: float
    urgent: bool = False

    @property
    def ms(self) -> int:
        """The tick's time in whole milliseconds since the Unix epoch."""
        return round(self.wall * 1000)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series. It has no time: the host stamps a whole batch alike."""

    name: str
    value: float
    labels: Labels = ()

    @property
    def key(self) -> Labels:
        """The series' identity: the label set with the metric name in it."""
        return labelset(self.labels, self.name)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, as opposed to a value that holds.

    ``kind`` is a word of the fault vocabulary or of the journal; ``labels`` identify (service,
    card, vendor …), ``fields`` describe. ``severity``: info, warning or critical. ``urgent`` wakes
    the engine at once. ``time`` is the source's own time in Unix seconds, if it gave one.
    """

    kind: str
    message: str = ""
    labels: Labels = ()
    fields: Json = field(default_factory=dict)
    severity: str = "info"
    urgent: bool = False
    time: float | None = None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as the journal keeps it.

    ``seq`` rises within one journal; ``id`` is unique for ever and sorts by start, tick and order.
    ``time`` is when it happened (the source's own time, else the tick's), ``recorded`` the tick's;
    both Unix seconds. ``labels_json`` and ``fields_json`` are JSON objects as text, so that what
    only passes them on need not parse them.
    """

    seq: int
    id: str
    time: float
    recorded: float
    kind: str
    severity: str
    message: str
    labels_json: str = "{}"
    fields_json: str = "{}"

    @property
    def labels(self) -> Labels:
        """What identifies: service, card, alertname …"""
        return labelset(json.loads(self.labels_json))

    @property
    def fields(self) -> Json:
        """What describes."""
        fields: Json = json.loads(self.fields_json)
        return fields


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a collector stands in its source (a log position). Kept with the batch's events in
    one transaction, so that a crash neither loses nor repeats a line. ``doc`` is JSON."""

    doc: Json


@dataclass(frozen=True, slots=True)
class Page:
    """The samples of one reading in columns: ``keys[i]`` has ``values[i]``.

    A source whose series repeat (a metrics page) yields the *same* ``keys`` tuple object again, so
    that the window recognises it by identity and appends values only.
    """

    keys: tuple[Labels, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one run of one collector gave.

    ``collector`` is the instance's name (``nvidia_smi``, ``vllm_metrics/deepseek``) and owns the
    series in ``pages``; a series of the collector that is not in them has ended. ``scope`` are the
    labels that every series of this instance carries (``service``), ``error`` is one line when
    the run failed, was refused by the tool, or overran its deadline (``stalled``): then there are
    no pages, and the collector's series go stale. ``absent`` means not on this node, ``resting``
    that an act keeps the collector still: what it reads is unknown, and that is no fault.
    """

    collector: str
    pages: tuple[Page, ...] = ()
    events: tuple[Event, ...] = ()
    duration: float = 0.0
    error: str | None = None
    stalled: bool = False
    absent: bool = False
    scope: Labels = ()
    checkpoint: Checkpoint | None = None
    resting: bool = False

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All samples, one object each (for people and tests; the window reads pages)."""
        return tuple(
            Sample(
                dict(key).get(NAME, ""),
                value,
                tuple(pair for pair in key if pair[0] != NAME),
            )
            for page in self.pages
            for key, value in zip(page.keys, page.values, strict=True)
        )


AlertState = Literal["inactive", "pending", "firing", "resolved"]


@dataclass(frozen=True, slots=True)
class Alert:
    """One label set of one alerting rule. Identity is ``rule`` + ``labels``; annotations describe.

    ``rule`` is ``group/alertname``; ``labels`` include ``alertname``. Times are Unix seconds;
    ``unknown_since`` is set while the rule's inputs are unknown and the state is held; ``ends_at``
    where a firing alert ends by itself, whoever lives on then.
    """

    rule: str
    labels: Labels
    state: AlertState
    active_at: float
    value: float
    annotations: Labels = ()
    fired_at: float | None = None
    resolved_at: float | None = None
    keep_since: float | None = None
    unknown_since: float | None = None
    ends_at: float | None = None

    @property
    def name(self) -> str:
        """The alert's name."""
        return dict(self.labels)["alertname"]


@dataclass(frozen=True, slots=True)
class Transition:
    """An alert's change of state at a tick."""

    alert: Alert
    before: AlertState
    after: AlertState


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One cause for one service, with its evidence and what it explains away.

    ``service`` is empty for a case of the node; ``cards`` are the sick ones. ``traits`` stand
    beside the naming alert's labels where a policy matches (cause, holder).
    """

    service: str
    cause: str
    alert: Alert
    evidence: tuple[str, ...] = ()
    explains: tuple[Alert, ...] = ()
    cards: tuple[str, ...] = ()
    traits: Labels = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A remediation that the guard let through.

    ``cause`` is the diagnosis' word, ``cards`` the sick ones, ``spares`` the cards reserved for the
    act; ``standby``: traffic may go to the standby. ``limit``: seconds that the act may last.
    ``back``: the way back of an earlier act (from INT8 to the first profile, from a lowered
    frequency to the one as found).
    """

    remediation: str
    alert: Alert
    attempt: int = 1
    service: str = ""
    id: str = ""
    cause: str = ""
    cards: tuple[str, ...] = ()
    spares: tuple[str, ...] = ()
    standby: bool = False
    limit: float = 0.0
    back: bool = False


@dataclass(frozen=True, slots=True)
class ServiceMode:
    """How a service stands because of what was done to it; survives restarts of the daemon.

    ``serving``: which of the two instances users reach. ``front``: open, drained (503), cache_only
    or shedding. ``profile``: empty as configured. ``cards``, ``standby_cards``: the cards of the
    configured instance and of its standby where an act gave them others; empty as configured.
    ``since`` is Unix seconds, ``by`` the request or the person.
    """

    serving: Literal["primary", "standby"] = "primary"
    front: Literal["open", "drained", "cache_only", "shedding"] = "open"
    profile: str = ""
    cards: tuple[str, ...] = ()
    standby_cards: tuple[str, ...] = ()
    since: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's word on a request: allowed, or refused with the first reason in its order."""

    request: Request
    allowed: bool
    reason: str = ""
    checks: tuple[tuple[str, bool], ...] = ()


OutcomeStatus = Literal["done", "declined", "failed", "timed_out", "cancelled", "unknown"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. ``again``: it was declined for something that ends by itself; seconds
    after which it is worth another look (0: no such reason)."""

    request: Request
    status: OutcomeStatus
    detail: str = ""
    duration: float = 0.0
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Command:
    """What a person (or an authenticated webhook) asked of the daemon."""

    verb: str
    args: Json = field(default_factory=dict)
    who: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that can differ between two runs, as of one tick."""

    batches: tuple[Batch, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Decisions:
    """All that follows from one tick: what changed, what shall be done, what was refused, what to
    tell.
    """

    transitions: tuple[Transition, ...] = ()
    requests: tuple[Request, ...] = ()
    refusals: tuple[Verdict, ...] = ()
    events: tuple[Event, ...] = ()
