"""The webhook door: whose word counts, what a cluster's alert means for this node, what nothing does."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import FakeDesk
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.api.doors import Caller, Rate, Token
from vllm_watchdog.watchdog.api.routes import Answer, Routes
from vllm_watchdog.watchdog.api.server import Server
from vllm_watchdog.watchdog.api.webhook import MAX_BODY, PATH, Webhook
from vllm_watchdog.watchdog.system import Files, RealClock

FOREVER = "0001-01-01T00:00:00Z"


def alert(status: str = "firing", fingerprint: str = "f1", **labels: str) -> dict[str, Any]:
    named = {"alertname": "NodeMaintenance", "instance": "node-1:9710", **labels}
    return {
        "status": status,
        "labels": {name: value for name, value in named.items() if value},
        "annotations": {"summary": "rm -rf /; $(reboot)"},
        "startsAt": "2026-11-30T22:00:00Z",
        "endsAt": FOREVER,
        "generatorURL": "http://prometheus/",
        "fingerprint": fingerprint,
    }


def body(*alerts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "version": "4",
        "receiver": "node-1",
        "status": "firing",
        "alerts": list(alerts),
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://am",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        **more,
    }


class Hook:
    """A door with a token, and the desk behind it."""

    def __init__(self, folder: Path, burst: int = 60, **standing: Any) -> None:
        (folder / "token").write_text("s3cret")
        self.desk, self.clock = FakeDesk(**standing), VirtualClock()
        self.door = Webhook(
            self.desk,
            Token(lambda: folder / "token", Files()),
            Rate(self.clock, burst, 1.0),
            Rate(self.clock, 3, 0.1),
            {"node-1", "node-1:9710"},
        )

    def send(self, doc: Any, authorization: str = "Bearer s3cret") -> Answer:
        data = doc if isinstance(doc, bytes) else json.dumps(doc).encode()
        caller = Caller("POST", address="10.0.0.9", authorization=authorization, length=len(data))
        return self.door.refuse(caller) or self.door.answer(caller, data)

    def counts(self, *alerts: Mapping[str, Any]) -> dict[str, int]:
        answer = self.send(body(*alerts))
        assert answer.status == 200
        found: dict[str, int] = json.loads(answer.body)
        return found


@pytest.fixture
def hook(tmp_path: Path) -> Hook:
    return Hook(tmp_path)


HOLD = {"id": "f1", "source": "webhook", "reason": "NodeMaintenance"}


@pytest.mark.parametrize(
    ("told", "commands"),
    [
        (alert(), [("silence", {**HOLD, "matchers": [], "for": 86400.0})]),
        (
            alert(service="chat"),
            [("silence", {**HOLD, "matchers": [["service", "=", "chat"]], "for": 86400.0})],
        ),
        (alert("resolved"), [("unsilence", HOLD)]),
        (
            alert(instance="", node="node-1"),
            [("silence", {**HOLD, "matchers": [], "for": 86400.0})],
        ),
        (
            alert(alertname="ClusterOutage", instance=""),
            [("silence", {**HOLD, "reason": "ClusterOutage", "matchers": [], "for": 86400.0})],
        ),
        (
            alert(alertname="CardWithdrawn", card="npu 7"),
            [("quarantine", {"card": "0000:c1:00", "reason": "alert CardWithdrawn"})],
        ),
    ],
)
def test_the_table_leads_from_an_alert_to_a_command(
    hook: Hook, told: dict[str, Any], commands: list[Any]
) -> None:
    assert hook.counts(told) == {"taken": 1, "repeated": 0, "ignored": 0}
    assert hook.desk.verbs == commands


@pytest.mark.parametrize(
    "told",
    [
        alert(alertname="CardLost"),
        alert(alertname="Restart", vllm_watchdog_command="restart"),
        alert(instance="node-2:9710"),
        alert(node="node-2"),
        alert(instance=""),  # maintenance of whom?
        alert(service="billing"),
        alert(service="chat; reboot"),
        alert(alertname="ClusterOutage", instance="node-2:9710"),
        alert(alertname="CardWithdrawn", card="0000:99:00"),
        alert(alertname="CardWithdrawn"),
        alert("resolved", alertname="CardWithdrawn", card="npu 7"),
    ],
    ids=lambda told: " ".join(f"{k}={v}" for k, v in told["labels"].items()),
)
def test_every_other_alert_means_nothing_here(hook: Hook, told: dict[str, Any]) -> None:
    assert hook.counts(told) == {"taken": 0, "repeated": 0, "ignored": 1}
    assert hook.desk.commands == []


def test_a_card_that_is_quarantined_already_is_left_so(tmp_path: Path) -> None:
    hook = Hook(tmp_path, quarantined={"0000:c1:00": "a person"})
    hook.counts(alert(alertname="CardWithdrawn", card="npu 7"))

    assert hook.desk.commands == []


def test_a_repeated_body_starts_nothing(hook: Hook) -> None:
    first = hook.counts(alert())
    second = hook.counts(alert())

    assert (first["taken"], second["taken"], second["repeated"]) == (1, 0, 1)
    assert len(hook.desk.commands) == 1


def test_an_alert_twice_in_one_body_counts_once(hook: Hook) -> None:
    assert hook.counts(alert(), alert()) == {"taken": 1, "repeated": 1, "ignored": 0}


def test_another_status_start_or_fingerprint_is_news(hook: Hook) -> None:
    again = {**alert(), "startsAt": "2026-12-01T00:00:00Z"}
    counts = hook.counts(alert(), alert("resolved"), again, alert(fingerprint="f2"))

    assert counts["taken"] == 4


def test_what_could_not_be_passed_on_is_taken_when_it_comes_again(hook: Hook) -> None:
    hook.desk.fault = "1000 commands wait already: try again later"
    refused = hook.send(body(alert()))
    hook.desk.fault = ""

    assert refused.status == 503
    assert hook.counts(alert())["taken"] == 1


def test_who_said_it_is_kept(hook: Hook) -> None:
    hook.counts(alert())

    assert hook.desk.commands[0].who == "webhook (token from 10.0.0.9)"


def test_no_text_of_a_body_is_in_a_command(hook: Hook) -> None:
    hook.counts(
        alert(service="chat", vllm_watchdog_command="$(reboot)", summary="`id`", severity="x\n")
    )

    assert "reboot" not in json.dumps(hook.desk.verbs)


@pytest.mark.parametrize(
    ("doc", "told"),
    [
        (b"{", "Expecting"),
        (b"[" * 100_000, "nested too deeply"),
        ([], "version"),
        (body(version="3"), "version"),
        (body(alerts={}), "no list"),
        (body(alerts=[alert()] * 1001), "at most 1000"),
        (body(alerts=["x"]), "no alert"),
        (body({**alert(), "fingerprint": 3}), "fingerprint"),
        (body({**alert(), "fingerprint": "f" * 257}), "fingerprint"),
        (body({**alert(), "status": "suppressed"}), "neither"),
        (body({**alert(), "labels": {"alertname": 3}}), "labels"),
    ],
)
def test_a_body_of_another_form_is_400(hook: Hook, doc: Any, told: str) -> None:
    answer = hook.send(doc)

    assert (answer.status, hook.desk.commands) == (400, [])
    assert told in json.loads(answer.body)["error"]


def test_fields_that_are_not_known_are_passed_over(hook: Hook) -> None:
    answer = hook.send(body({**alert(), "more": [1]}, notification_reason="x"))

    assert answer.status == 200


@pytest.mark.parametrize(
    ("authorization", "status"), [("", 401), ("Bearer forged", 403), ("Basic s3cret", 401)]
)
def test_a_forged_body_is_refused(hook: Hook, authorization: str, status: int) -> None:
    assert hook.send(body(alert()), authorization).status == status
    assert hook.desk.commands == []


def test_an_oversized_body_is_refused_before_it_is_read(hook: Hook) -> None:
    caller = Caller("POST", authorization="Bearer s3cret", length=MAX_BODY + 1)
    refused = hook.door.refuse(caller)

    assert refused is not None
    assert refused.status == 413


def test_too_many_bodies_are_put_off(tmp_path: Path) -> None:
    hook = Hook(tmp_path, burst=2)
    answers = [hook.send(body(alert())) for _ in range(3)]
    hook.clock.advance(1)

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].headers["Retry-After"] == "2"
    assert hook.send(body(alert())).status == 200


def test_forged_bodies_do_not_use_up_the_place_of_true_ones(tmp_path: Path) -> None:
    hook = Hook(tmp_path, burst=1)
    for _ in range(50):
        hook.send(body(alert()), "Bearer forged")

    assert hook.send(body(alert())).status == 200


def test_without_token_and_authority_there_is_no_webhook() -> None:
    rate = Rate(VirtualClock(), 1, 1.0)
    door = Webhook(FakeDesk(), Token(lambda: None, Files()), rate, rate, set())
    refused = door.refuse(Caller("POST", length=2))

    assert refused is not None
    assert refused.status == 404


# Mutual TLS


def openssl(*words: str, folder: Path) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, node.{pem,key}, am.{pem,key} of that authority; stranger.{pem,key} of another."""
    folder = tmp_path_factory.mktemp("certificates")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    for name in ("ca", "stranger"):
        openssl("req", "-x509", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.pem", folder=folder)  # fmt: skip
    for name in ("node", "am"):
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out",
                f"{name}.csr", folder=folder)  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", folder=folder)  # fmt: skip
    return folder


@pytest.fixture
def secured(certificates: Path) -> Iterator[tuple[int, FakeDesk]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "node.pem", certificates / "node.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    desk, clock = FakeDesk(), RealClock()
    door = Webhook(
        desk,
        Token(lambda: None, Files()),
        Rate(clock, 60, 1.0),
        Rate(clock, 60, 1.0),
        {"node-1"},
        certificates=True,
    )
    server = Server(("127.0.0.1", 0), Routes(None), clock, print, context, {PATH: door})  # type: ignore[arg-type]
    server.start()
    yield server.address[1], desk
    server.stop()


def post(port: int, certificates: Path, client: str, **headers: str) -> int:
    """The status that a client with this certificate gets."""
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    context.check_hostname = False
    if client:
        context.load_cert_chain(certificates / f"{client}.pem", certificates / f"{client}.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    try:
        connection.request("POST", PATH, json.dumps(body(alert())), headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_certificate_of_our_authority_lets_a_body_in(
    secured: tuple[int, FakeDesk], certificates: Path
) -> None:
    port, desk = secured

    assert post(port, certificates, "am") == 200
    assert [command.who for command in desk.commands] == ["webhook (am from 127.0.0.1)"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null", "Content-Type": "application/x-www-form-urlencoded"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "application/json"},
    ],
    ids=["fetch", "form", "no origin"],
)
def test_a_page_in_a_browser_that_holds_the_certificate_cannot_use_it(
    secured: tuple[int, FakeDesk], certificates: Path, headers: dict[str, str]
) -> None:
    port, desk = secured

    assert (post(port, certificates, "am", **headers), desk.commands) == (403, [])


def test_no_certificate_is_401(secured: tuple[int, FakeDesk], certificates: Path) -> None:
    port, desk = secured

    assert (post(port, certificates, ""), desk.commands) == (401, [])


def test_a_strangers_certificate_is_refused_by_tls(
    secured: tuple[int, FakeDesk], certificates: Path
) -> None:
    port, desk = secured
    with pytest.raises(OSError, match=r".*"):
        post(port, certificates, "stranger")

    assert desk.commands == []
