"""Alerts to every Alertmanager, the way Prometheus sends them.

A firing alert is sent again and again with an end a little ahead, so a dead daemon holds no page; a
resolved one is repeated for a while with its true end. What waits for an instance is the newest
word on each alert, not a history. Which alerts there are is the engine's business.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ..config import Config
from ..ecs import timestamp
from ..errors import HttpError
from ..figures import OutletFigures
from ..model import Alert, Labels
from ..system import System
from .silences import EVERY, Silences, Tell

BATCH = 64  # alerts in a request
QUEUE = 10_000  # alerts that wait for one instance; then the oldest go
TIMEOUT = 10.0  # seconds for an answer
RESENT_RESOLVED = 900.0  # seconds for which a resolved alert is repeated
ENDS_AHEAD = 4  # a firing alert ends this many resends from now
LONGEST_DELAY = 30.0  # seconds between two tries
FIRST = ("watchdog/RemediationRunning",)  # it must be known when what it inhibits comes
REFUSALS = (400, 422)  # the good alerts of such a batch were taken; the bad ones never will be

Key = tuple[str, Labels]
Log = Callable[..., object]


@dataclass(slots=True)
class _Known:
    """An alert: its newest form, when that was sent, and its end as it was first told."""

    alert: Alert
    sent: float | None
    resolved_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Message:
    """An alert as it goes out, and the Unix time at which it is worth nothing any more."""

    body: Mapping[str, Any]
    stale_at: float


class Alertmanager:
    """The alerts of one node for all configured Alertmanagers.

    ``labels`` are the node's own (``instance`` names the page to look at). With ``tell`` its
    silences are read, and told as commands.
    """

    name = "alertmanager"

    def __init__(
        self,
        config: Config,
        system: System,
        labels: Mapping[str, str],
        log: Log,
        tell: Tell | None = None,
    ) -> None:
        settings = config.outlets.alertmanager
        self._resend = settings.resend
        self._external = {"evaluator": "node", **config.external_labels}
        self._generator = f"http://{quote(labels.get('instance', 'localhost'), safe=':[]')}/"
        self._known: dict[Key, _Known] = {}
        self._instances = [_Instance(url, system, log) for url in settings.urls]
        self._silences: Silences | None = None
        if tell is not None:
            own = {name: labels[name] for name in ("instance",) if name in labels}
            every = min(EVERY, settings.resend)
            self._silences = Silences(settings.urls, system, self._external, own, tell, log, every)

    def start(self) -> None:
        """Begin, a thread for each instance, so that a hung one delays no other."""
        for instance in self._instances:
            instance.start()
        if self._silences is not None:
            self._silences.start()

    def stop(self, timeout: float) -> None:
        """End within ``timeout`` seconds; what waits is tried once more where there is hope."""
        if self._silences is not None:
            self._silences.stop()
        for instance in self._instances:
            instance.end()
        for instance in self._instances:
            instance.join(timeout / len(self._instances))

    def figures(self) -> OutletFigures:
        """How it stands: up while any instance takes alerts; the lag is that of the slowest."""
        all_of = self._instances
        errors = [instance.last_error for instance in all_of if instance.last_error]
        return OutletFigures(
            self.name,
            up=any(not instance.last_error for instance in all_of),
            lag=max(len(instance.waiting) for instance in all_of),
            sent=sum(instance.sent for instance in all_of),
            errors=sum(instance.errors for instance in all_of),
            refused=sum(instance.refused for instance in all_of),
            lost=sum(instance.lost for instance in all_of),
            last_error=errors[0] if errors else "",
        )

    def offer(self, alerts: Sequence[Alert], now: float, offset: float = 0.0) -> None:
        """Queue what is due of these alerts. Does not block.

        ``now`` is real Unix time; ``offset`` leads from the alerts' times to it.
        """
        if self._silences is not None:
            self._silences.offset = offset
        offered = {(alert.rule, alert.labels): alert for alert in alerts}
        for key, known in list(self._known.items()):
            if key not in offered and known.resolved_at is not None:
                offered[key] = known.alert
        messages: dict[Key, _Message] = {}
        still: dict[Key, _Known] = {}
        for key, alert in offered.items():
            newest = self._newest(self._known.get(key), alert, now, offset)
            if newest is None:
                continue
            still[key] = newest
            if _over(newest, now - offset):
                continue
            if newest.sent is None or newest.sent + self._resend < now:
                newest.sent = now
                messages[key] = self._message(newest, now, offset)
        self._known = still
        if messages:
            messages = dict(sorted(messages.items(), key=lambda each: each[0][0] not in FIRST))
            for instance in self._instances:
                instance.queue(messages)

    def _newest(
        self, known: _Known | None, alert: Alert, now: float, offset: float
    ) -> _Known | None:
        """What to remember of an alert, ``sent`` None where it has news. None: nothing of it."""
        if alert.state == "firing":
            if known is None or known.resolved_at is not None:
                return _Known(alert, None)
            return _Known(alert, known.sent if known.alert.fired_at == alert.fired_at else None)
        if alert.state != "resolved":
            return None
        if known is not None and known.resolved_at is not None:
            newest = _Known(alert, known.sent, known.resolved_at)
        else:
            ended = now if alert.resolved_at is None else min(alert.resolved_at + offset, now)
            newest = _Known(alert, None, ended)
        assert newest.resolved_at is not None
        return newest if now - newest.resolved_at <= RESENT_RESOLVED else None

    def _message(self, known: _Known, now: float, offset: float) -> _Message:
        alert = known.alert
        ends = known.resolved_at
        ahead = now + ENDS_AHEAD * self._resend
        if alert.ends_at is not None:
            ahead = alert.ends_at + offset  # whoever lives on then
        starts = alert.active_at if alert.fired_at is None else alert.fired_at
        annotations = dict(alert.annotations)
        if alert.unknown_since is not None:
            annotations.setdefault("unknown_since", timestamp(alert.unknown_since + offset))
        body = {
            "labels": {**self._external, **dict(alert.labels)},
            "annotations": annotations,
            "startsAt": timestamp(min(starts + offset, now, ends or now)),
            "endsAt": timestamp(ahead if ends is None else ends),
            "generatorURL": self._generator,
        }
        return _Message(body, ahead if ends is None else ends + RESENT_RESOLVED)


def _over(known: _Known, now: float) -> bool:
    """Whether a firing alert has ended by itself: there is nothing more to say of it."""
    ends = known.alert.ends_at
    return known.resolved_at is None and ends is not None and now >= ends


class _Instance(threading.Thread):
    """One Alertmanager and what waits for it."""

    def __init__(self, url: str, system: System, log: Log) -> None:
        parts = urlsplit(url)
        self._shown = parts.netloc.rpartition("@")[2]
        super().__init__(name=f"alertmanager {self._shown}", daemon=True)
        self._url = url.rstrip("/") + "/api/v2/alerts"
        self._system, self._log = system, log
        self.waiting: OrderedDict[Key, _Message] = OrderedDict()
        self.sent = self.errors = self.refused = self.lost = 0
        self.last_error = ""
        self._failures = 0
        self._changed = threading.Condition()
        self._ending = False

    def queue(self, messages: Mapping[Key, _Message]) -> None:
        """Take the newest word on some alerts; past the bound the oldest go, counted."""
        with self._changed:
            for key, message in messages.items():
                self.waiting.pop(key, None)
                self.waiting[key] = message
            while len(self.waiting) > QUEUE:
                self.waiting.popitem(last=False)
                self.lost += 1
            self._changed.notify()

    def end(self) -> None:
        """End soon."""
        with self._changed:
            self._ending = True
            self._changed.notify()

    def run(self) -> None:
        """Send what waits until told to end."""
        while True:
            with self._changed:
                while not self.waiting and not self._ending:
                    self._changed.wait()
                ending = self._ending
            delay = self.step()
            if ending and (delay or not self.waiting):
                return
            if delay:
                with self._changed:
                    self._changed.wait_for(lambda: self._ending, delay)

    def step(self) -> float:
        """Send one batch; returns the seconds until the next try (0: at once)."""
        batch = self._take()
        if not batch:
            return 0.0
        body = json.dumps([message.body for message in batch.values()]).encode()
        try:
            answer = self._system.http.request(
                "POST",
                self._url,
                timeout=TIMEOUT,
                headers={"Content-Type": "application/json"},
                body=body,
                limit=65536,
            )
        except HttpError as error:
            return self._failed(batch, error.reason)
        except Exception as error:  # noqa: BLE001 (the boundary of a delivery)
            return self._failed(batch, type(error).__name__)
        said = " ".join(answer.text.split())[:300]
        if answer.status in REFUSALS:
            self.refused += 1
            self._log(f"Alertmanager {self._shown} refused an alert", level="warning", reason=said)
        elif not 200 <= answer.status < 300:
            return self._failed(batch, f"{answer.status} {said}")
        else:
            self.sent += len(batch)
        self._succeeded()
        return 0.0

    def _take(self) -> dict[Key, _Message]:
        """The oldest that wait, without those that have become worthless."""
        now = self._system.clock.wall()
        batch: dict[Key, _Message] = {}
        with self._changed:
            while self.waiting and len(batch) < BATCH:
                key, message = self.waiting.popitem(last=False)
                if message.stale_at > now:
                    batch[key] = message
                else:
                    self.lost += 1
        return batch

    def _failed(self, batch: Mapping[Key, _Message], reason: str) -> float:
        self.errors += 1
        self._failures += 1
        if self._failures == 1:
            self._log(f"Alertmanager {self._shown} takes no alerts", level="warning", reason=reason)
        self.last_error = f"{self._shown}: {reason}"
        with self._changed:
            for key, message in reversed(list(batch.items())):
                if key not in self.waiting:
                    self.waiting[key] = message
                    self.waiting.move_to_end(key, last=False)
        return float(min(2 ** min(self._failures - 1, 30), LONGEST_DELAY))

    def _succeeded(self) -> None:
        if self._failures:
            self._failures, self.last_error = 0, ""
            self._log(f"Alertmanager {self._shown} takes alerts again")
