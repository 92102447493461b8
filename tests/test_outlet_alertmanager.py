"""Alerts on their way to Alertmanager: when, in which form, and what becomes of failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.support.servers import Server, free_port
from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.watchdog.config.models import Config
from vllm_watchdog.watchdog.errors import HttpError
from vllm_watchdog.watchdog.model import Alert, labelset
from vllm_watchdog.watchdog.outlets.alertmanager import QUEUE, Alertmanager
from vllm_watchdog.watchdog.system import Response, System

NOW = 1_700_000_000.0
LABELS = {"alertname": "CardLost", "card": "0000:53:00", "instance": "node-1:9710"}
URL = "http://am:9093/api/v2/alerts"


class Http:
    """Answers what the test says, and keeps what was sent."""

    def __init__(self) -> None:
        self.answers: dict[str, Response | HttpError | None] = {}
        self.sent: list[tuple[str, list[dict[str, Any]]]] = []

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = 0,
    ) -> Response:
        assert (method, timeout) == ("POST", 10.0)
        assert (headers or {})["Content-Type"] == "application/json"
        self.sent.append((url, json.loads(body or b"")))
        answer = self.answers.get(url)
        if isinstance(answer, HttpError):
            raise answer
        return answer or Response(200, b"")


class Bench:
    """An outlet without threads: ``tick`` offers and lets each instance send once."""

    def __init__(self, *urls: str, external: Mapping[str, str] | None = None) -> None:
        self.http = Http()
        self.clock = VirtualClock(NOW)
        self.log: list[str] = []
        config = Config.model_validate(
            {
                "outlets": {"alertmanager": {"urls": urls or ("http://am:9093",)}},
                "external_labels": external or {},
            }
        )
        system = replace(fake_system(clock=self.clock), http=self.http)
        self.outlet = Alertmanager(
            config, system, {"instance": "node-1:9710"}, lambda text, **_: self.log.append(text)
        )

    def tick(self, alerts: Sequence[Alert], offset: float = 0.0) -> list[dict[str, Any]]:
        """The alerts that went to the first instance in this tick."""
        before = len(self.http.sent)
        self.outlet.offer(alerts, self.clock.wall(), offset)
        for instance in self.outlet._instances:
            while instance.waiting and not instance.step():
                pass
        return [alert for url, sent in self.http.sent[before:] for alert in sent]

    def run(self, seconds: int, alerts: Callable[[float], Sequence[Alert]]) -> dict[int, str]:
        """Ticks each 5 s; at which second what end (in seconds from the start) was sent."""
        sent = {}
        for second in range(0, seconds + 1, 5):
            for body in self.tick(alerts(self.clock.wall())):
                sent[second] = body["endsAt"]
            self.clock.advance(5)
        return sent


def alert(**changes: Any) -> Alert:
    made = Alert(
        "hardware/CardLost",
        labelset(LABELS),
        "firing",
        NOW - 60,
        1.0,
        (("summary", "A card is gone."),),
        fired_at=NOW - 10,
    )
    return replace(made, **changes)


def at(seconds: float) -> str:
    moment = time.gmtime(NOW + seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", moment)


def test_a_firing_alert_goes_out_as_prometheus_writes_it() -> None:
    assert Bench().tick([alert()]) == [
        {
            "labels": {**LABELS, "evaluator": "node"},
            "annotations": {"summary": "A card is gone."},
            "startsAt": at(-10),
            "endsAt": at(240),
            "generatorURL": "http://node-1:9710/",
        }
    ]


def test_external_labels_are_added_only_where_they_are_absent() -> None:
    bench = Bench(external={"cluster": "east", "card": "other"})
    (sent,) = bench.tick([alert()])

    assert sent["labels"] == {**LABELS, "evaluator": "node", "cluster": "east"}


def test_pending_and_inactive_alerts_are_not_sent() -> None:
    assert Bench().tick([alert(state="pending", fired_at=None), alert(state="inactive")]) == []


def test_a_firing_alert_is_sent_again_after_more_than_the_resend_delay() -> None:
    sent = Bench().run(130, lambda _: [alert()])

    assert sent == {0: at(240), 65: at(305), 130: at(370)}


def test_an_alert_that_ends_by_itself_is_sent_with_that_end_and_not_beyond_it() -> None:
    running = alert(rule="watchdog/RemediationRunning", ends_at=NOW + 100)

    assert Bench().run(200, lambda _: [running]) == {0: at(100), 65: at(100)}


def test_that_an_act_is_under_way_goes_out_before_what_it_is_for() -> None:
    act = alert(rule="watchdog/RemediationRunning", labels=labelset({"alertname": "x"}))
    sent = Bench().tick([alert(), act])

    assert [body["labels"]["alertname"] for body in sent] == ["x", "CardLost"]


def test_an_alert_that_ends_by_itself_is_resolved_when_its_act_ended_earlier() -> None:
    def alerts(now: float) -> Sequence[Alert]:
        running = alert(ends_at=NOW + 600)
        ended = replace(running, state="resolved", resolved_at=NOW + 20)
        return [running if now < NOW + 20 else ended]

    assert Bench().run(25, alerts) == {0: at(600), 20: at(20)}


def test_a_resolved_alert_is_repeated_for_15_minutes_with_its_true_end() -> None:
    def alerts(now: float) -> Sequence[Alert]:
        return [alert() if now < NOW + 20 else alert(state="resolved", resolved_at=NOW + 18)]

    sent = Bench().run(1100, alerts)

    ends = [end for second, end in sent.items() if second >= 20]
    assert min(second for second in sent if second > 0) == 20
    assert set(ends) == {at(18)}
    assert 850 < max(sent) <= 18 + 900


def test_a_resolved_alert_that_the_engine_forgot_is_still_repeated() -> None:
    def alerts(now: float) -> Sequence[Alert]:
        if now < NOW + 20:
            return [alert()]
        return [alert(state="resolved", resolved_at=NOW + 20)] if now == NOW + 20 else []

    assert max(Bench().run(1100, alerts)) > 850


def test_an_alert_that_is_no_longer_evaluated_is_left_to_expire() -> None:
    sent = Bench().run(300, lambda now: [alert()] if now < NOW + 20 else [])

    assert list(sent) == [0]


def test_an_alert_that_comes_back_is_sent_at_once_as_a_new_one() -> None:
    bench = Bench()
    bench.tick([alert()])
    bench.clock.advance(5)
    bench.tick([alert(state="resolved", resolved_at=NOW + 4)])
    bench.clock.advance(5)
    (sent,) = bench.tick([alert(fired_at=NOW + 9)])

    assert (sent["startsAt"], sent["endsAt"]) == (at(9), at(250))


def test_an_alert_resolved_long_ago_is_not_sent_after_a_restart() -> None:
    assert Bench().tick([alert(state="resolved", resolved_at=NOW - 901)]) == []
    assert len(Bench().tick([alert(state="resolved", resolved_at=NOW - 899)])) == 1


def test_held_on_unknown_inputs_is_said_in_an_annotation() -> None:
    (sent,) = Bench().tick([alert(unknown_since=NOW - 5)])

    assert sent["annotations"]["unknown_since"] == at(-5)


def test_times_of_the_steady_clock_are_led_to_the_real_one() -> None:
    bench = Bench()
    (sent,) = bench.tick([alert()], offset=5.0)
    bench.clock.advance(5)
    (ended,) = bench.tick([alert(state="resolved", resolved_at=NOW)], offset=5.0)

    assert (sent["startsAt"], sent["endsAt"]) == (at(-5), at(240))
    assert ended["endsAt"] == at(5)


def test_an_alert_never_ends_before_it_starts_whatever_the_clocks_say() -> None:
    bench = Bench()
    (sent,) = bench.tick([alert(fired_at=NOW + 3600)])
    bench.clock.advance(5)
    (ended,) = bench.tick([alert(fired_at=NOW + 3600, state="resolved", resolved_at=NOW + 7200)])

    assert sent["startsAt"] == at(0)
    assert (ended["startsAt"], ended["endsAt"]) == (at(5), at(5))


def test_every_instance_gets_every_alert_in_batches_of_at_most_64() -> None:
    bench = Bench("http://a:9093", "http://b:9093/prefix/")
    bench.tick([alert(labels=labelset({"alertname": "X", "n": str(n)})) for n in range(150)])

    sizes = {}
    for url, sent in bench.http.sent:
        sizes.setdefault(url, []).append(len(sent))
    assert sizes == {
        "http://a:9093/api/v2/alerts": [64, 64, 22],
        "http://b:9093/prefix/api/v2/alerts": [64, 64, 22],
    }


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_batch_is_never_repeated_before_its_time(status: int) -> None:
    bench = Bench()
    bench.http.answers[URL] = Response(status, b'"bad label"')
    sent = bench.run(70, lambda _: [alert()])

    assert list(sent) == [0, 65]
    assert bench.outlet.figures().refused == 2


@pytest.mark.parametrize(
    "answer", [Response(503, b""), Response(429, b""), HttpError("http://user:pw@am no", "refused")]
)
def test_a_failed_batch_waits_and_goes_out_with_the_newest_word(answer: Any) -> None:
    bench = Bench()
    bench.http.answers[URL] = answer
    bench.tick([alert()])
    down = bench.outlet.figures()
    bench.clock.advance(5)
    bench.http.answers[URL] = None
    (sent,) = bench.tick([alert(state="resolved", resolved_at=NOW + 4)])

    assert (down.up, down.lag, down.errors) == (False, 1, 1)
    assert sent["endsAt"] == at(4)
    assert (bench.outlet.figures().up, bench.outlet.figures().lag, bench.outlet.figures().last_error) == (True, 0, "")  # fmt: skip
    assert bench.log == ["Alertmanager am:9093 takes no alerts", "Alertmanager am:9093 takes alerts again"]  # fmt: skip


def test_tries_grow_rarer_and_secrets_of_the_address_are_not_told() -> None:
    bench = Bench("http://user:secret@am:9093")
    bench.http.answers["http://user:secret@am:9093/api/v2/alerts"] = HttpError("secret", "refused")
    bench.tick([alert()])
    instance = bench.outlet._instances[0]
    delays = [instance.step() for _ in range(6)]

    assert delays == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert bench.outlet.figures().last_error == "am:9093: refused"


def test_one_dead_instance_does_not_make_the_outlet_down() -> None:
    bench = Bench("http://a:9093", "http://b:9093")
    bench.http.answers["http://b:9093/api/v2/alerts"] = HttpError("no", "timeout")
    bench.tick([alert()])
    figures = bench.outlet.figures()

    assert (figures.up, figures.sent, figures.lag, figures.last_error) == (True, 1, 1, "b:9093: timeout")  # fmt: skip


def test_past_the_bound_the_oldest_go_and_are_counted() -> None:
    bench = Bench()
    bench.http.answers[URL] = HttpError("no", "refused")
    many = [alert(labels=labelset({"alertname": "X", "n": f"{n:05}"})) for n in range(QUEUE + 5)]
    bench.outlet.offer(many, NOW)
    figures = bench.outlet.figures()

    assert (figures.lag, figures.lost) == (QUEUE, 5)


def test_a_message_that_outlived_its_end_is_not_sent() -> None:
    bench = Bench()
    bench.outlet.offer([alert()], NOW)
    bench.clock.advance(241)

    assert bench.outlet._instances[0].step() == 0.0
    assert bench.http.sent == []


def eventually(check: Callable[[], bool]) -> bool:
    for _ in range(200):
        if check():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.peer
def test_a_real_alertmanager_shows_the_alert_while_firing_and_not_after(
    alertmanager: Server,
) -> None:
    dead = f"http://127.0.0.1:{free_port()}"
    config = Config.model_validate(
        {"outlets": {"alertmanager": {"urls": [dead, alertmanager.url]}}}
    )
    outlet = Alertmanager(config, System(), {"instance": "node-1:9710"}, lambda *_, **__: None)
    outlet.start()
    now = time.time()
    firing = alert(active_at=now - 60, fired_at=now - 10)

    def shown() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = alertmanager.get("/api/v2/alerts")
        return found

    outlet.offer([firing], now)
    assert eventually(lambda: len(shown()) == 1)
    (seen,) = shown()
    assert seen["labels"] == {**LABELS, "evaluator": "node"}
    assert seen["annotations"] == {"summary": "A card is gone."}
    assert seen["status"]["state"] in ("active", "unprocessed")
    assert seen["startsAt"][:19] == time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now - 10))

    outlet.offer([replace(firing, state="resolved", resolved_at=now)], time.time())
    assert eventually(lambda: shown() == [])
    assert outlet.figures().up
    outlet.stop(5.0)
    assert outlet.figures().sent == 2
