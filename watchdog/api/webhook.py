"""The webhook door: what Alertmanager tells of the cluster's alerts, for this node.

A fixed table leads from three alert names to commands, and these only hold acts back or take a card
out of use: nothing that comes in here ever starts an act, and no text of it becomes part of one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..documents import json_of
from ..errors import WatchdogError
from ..model import Command
from .doors import Caller, Rate, Token, error, too_many, unproved
from .parameters import dumps
from .routes import JSON, Answer
from .standing import Desk, Standing

PATH = "/api/v1/webhook/alertmanager"
MAX_BODY = 1024 * 1024  # bytes
MAX_ALERTS = 1000  # in one body
REMEMBERED = 10_000  # words on alerts that are not taken twice
AT_MOST = 86_400.0  # seconds that an alert holds acts back, should its end never be told
TEXT = 256  # characters of a name or a value that are looked at

MAINTENANCE, OUTAGE, WITHDRAWN = "NodeMaintenance", "ClusterOutage", "CardWithdrawn"

Word = tuple[str, str, str]
"""Fingerprint, start and status of an alert: what is not taken twice."""


class Webhook:
    """The door at ``/api/v1/webhook/alertmanager``. ``certificates``: one that the listener's
    client_ca_file vouches for lets in, too. ``names``: what this node is called."""

    def __init__(
        self,
        desk: Desk,
        token: Token,
        rate: Rate,
        wrong: Rate,
        names: Collection[str],
        *,
        certificates: bool = False,
    ) -> None:
        self._desk, self._token, self._rate, self._wrong = desk, token, rate, wrong
        self._names, self._certificates = frozenset(names), certificates
        self._known: OrderedDict[Word, None] = OrderedDict()
        self._lock = threading.Lock()

    def refuse(self, caller: Caller) -> Answer | None:
        """See Door.refuse: who sends is asked first, then how much and how often."""
        if not (self._token.set or self._certificates):
            text = "no webhook here: set control.token_file, or tls.client_ca_file"
            return error(404, text)
        if caller.method != "POST":
            return error(405, "method not allowed: use POST")
        if caller.browser:  # it shows a certificate whichever page asks
            return error(403, "a page in a browser sends no alerts")
        if not (self._certificates and caller.certificate):
            proof = self._token.proof(caller.authorization)
            if proof == "off":
                return error(401, "show a client certificate")
            if proof != "ok":
                wait = self._wrong.take()
                return too_many(wait) if wait else unproved(proof)
        if (caller.length or 0) > MAX_BODY:
            return error(413, f"the body is larger than {MAX_BODY} bytes")
        wait = self._rate.take()
        return too_many(wait) if wait else None

    def answer(self, caller: Caller, body: bytes) -> Answer:
        """See Door.answer. 503 where the alerts could not be passed on, so that they come again."""
        try:
            alerts = _alerts(body)
        except ValueError as fault:
            return error(400, str(fault))
        who = f"webhook ({caller.certificate or 'token'} from {caller.address})"
        with self._lock:
            try:
                return Answer(200, dumps(self._take(alerts, who)), JSON)
            except WatchdogError as fault:
                return error(503, str(fault))

    def _take(self, alerts: list[Mapping[str, Any]], who: str) -> Mapping[str, int]:
        """Pass on what is new and concerns this node; counts of what became of the alerts."""
        standing = self._desk.standing()
        counts = {"taken": 0, "repeated": 0, "ignored": 0}
        commands: list[Command] = []
        words: list[Word] = []
        for alert in alerts:
            word = (alert["fingerprint"], alert["startsAt"], alert["status"])
            if word in self._known or word in words:
                counts["repeated"] += 1
                continue
            found = list(_commands(alert, standing, self._names, who))
            counts["taken" if found else "ignored"] += 1
            if found:
                commands += found
                words.append(word)
        if commands and not self._desk.carry(commands):
            raise WatchdogError("the daemon's tick is late: see its log")
        for word in words:
            self._known[word] = None
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return counts


def _alerts(body: bytes) -> list[Mapping[str, Any]]:
    """The alerts of a body of version 4. Raises ValueError, one line; unknown fields are passed
    over."""
    doc = json_of(body)
    if not isinstance(doc, dict) or doc.get("version") != "4":
        raise ValueError('no webhook body of version "4"')
    alerts = doc.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > MAX_ALERTS:
        raise ValueError(f"alerts: is no list of at most {MAX_ALERTS}")
    for alert in alerts:
        _check(alert)
    return alerts


def _check(alert: Any) -> None:
    if not isinstance(alert, dict):
        raise ValueError("alerts: holds something that is no alert")  # noqa: TRY004 (input)
    for name in ("fingerprint", "startsAt", "status"):
        if not isinstance(alert.get(name), str) or not 0 < len(alert[name]) <= TEXT:
            raise ValueError(f"alerts: an alert's {name} is no short text")
    if alert["status"] not in ("firing", "resolved"):
        raise ValueError("alerts: a status is neither firing nor resolved")
    labels = alert.get("labels")
    if not isinstance(labels, dict) or not all(isinstance(v, str) for v in labels.values()):
        raise ValueError("alerts: an alert's labels are no mapping of texts")


def _commands(
    alert: Mapping[str, Any], standing: Standing, names: Collection[str], who: str
) -> Iterable[Command]:
    """What an alert means for this node: nothing, for most."""
    labels = {name: value[:TEXT] for name, value in alert["labels"].items()}
    name, firing = labels.get("alertname"), alert["status"] == "firing"
    if not _concerns(labels, standing, names, everywhere=name == OUTAGE):
        return
    service = labels.get("service", "")
    if service and service not in standing.services:
        return
    if name in (MAINTENANCE, OUTAGE):
        held = {"id": alert["fingerprint"], "source": "webhook", "reason": name}
        if firing:
            matchers = [["service", "=", service]] if service else []
            yield Command("silence", {**held, "matchers": matchers, "for": AT_MOST}, who)
        else:
            yield Command("unsilence", held, who)
    elif name == WITHDRAWN and firing:
        card = standing.cards.get(labels.get("card", ""))
        if card is not None and card not in standing.quarantined:
            yield Command("quarantine", {"card": card, "reason": f"alert {WITHDRAWN}"}, who)


def _concerns(
    labels: Mapping[str, str], standing: Standing, names: Collection[str], *, everywhere: bool
) -> bool:
    """Whether an alert is about this node: by ``instance``, by ``node``, or about every node."""
    instance, node = labels.get("instance"), labels.get("node")
    if instance is None and node is None:
        return everywhere
    return instance in (None, standing.instance) and (node is None or node in names)
