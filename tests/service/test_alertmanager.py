"""A real Alertmanager under the shipped configuration: who is paged, for what, and how often."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import peers, servers
from tests.support.daemon import Running, command, daemon, wait_for
from tests.support.gpus import ScriptedGpus
from tests.support.pages import REPOSITORY, SHIPPED, Pages, pages, shipped
from tests.support.servers import free_port
from vllm_watchdog.watchdog.config.models import Config
from vllm_watchdog.watchdog.model import Alert, labelset
from vllm_watchdog.watchdog.outlets.alertmanager import Alertmanager
from vllm_watchdog.watchdog.system import System

pytestmark = pytest.mark.peer

PROMETHEUS = REPOSITORY / "deploy/prometheus"
INSTANCE = "node-1:9710"
QUIET = 4.0  # seconds after which what did not come will not come (waits are 2 s here)


def test_the_shipped_files_are_accepted_by_amtool_and_promtool() -> None:
    checks = (
        ("amtool", "check-config", SHIPPED),
        ("promtool", "check", "config", PROMETHEUS / "prometheus.yml"),
        ("promtool", "check", "rules", PROMETHEUS / "centre.yaml"),
        ("promtool-2.42", "check", "rules", PROMETHEUS / "centre.yaml"),
    )
    for name, *words in checks:
        done = subprocess.run([peers.require(name), *words], capture_output=True, check=False)

        assert done.returncode == 0, (name, done.stderr)


def alert(name: str, **labels: str) -> Alert:
    """A firing alert of the node, as the engine gives it."""
    now = time.time()
    named = {"alertname": name, "instance": INSTANCE, "job": "vllm-watchdog", **labels}
    return Alert(f"g/{name}", labelset(named), "firing", now, 1.0, (), now)


def running(act: str, ends_in: float = 60.0, **labels: str) -> Alert:
    found = alert("RemediationRunning", service="chat", remediation=act, **labels)
    return replace(found, ends_at=time.time() + ends_in)


def resolved(found: Alert) -> Alert:
    return replace(found, state="resolved", resolved_at=time.time())


class Outlet:
    """Our own outlet, told by hand."""

    def __init__(self, *urls: str, resend: str = "2s") -> None:
        doc = {"outlets": {"alertmanager": {"urls": list(urls), "resend": resend}}}
        self.real = Alertmanager(
            Config.model_validate(doc), System(), {"instance": INSTANCE}, lambda *_, **__: None
        )
        self.real.start()

    def offer(self, *alerts: Alert) -> None:
        self.real.offer(alerts, time.time())


@pytest.fixture
def told() -> Iterator[Pages]:
    with pages() as found:
        yield found


@pytest.fixture
def central(tmp_path: Path, told: Pages) -> Iterator[servers.Server]:
    """Alertmanager with the shipped routes and inhibitions."""
    with servers.alertmanager(tmp_path / "alertmanager", shipped(told, wait="2s")) as server:
        yield server


@pytest.fixture
def outlet(central: servers.Server) -> Iterator[Outlet]:
    made = Outlet(central.url)
    yield made
    made.real.stop(3.0)


def suppressed(server: servers.Server) -> set[str]:
    found = server.get("/api/v2/alerts")
    return {a["labels"]["alertname"] for a in found if a["status"]["state"] == "suppressed"}


def test_a_fault_without_an_act_pages_and_its_end_is_told(outlet: Outlet, told: Pages) -> None:
    fault = alert("EngineDead", service="chat", severity="critical")
    outlet.offer(fault)
    wait_for(lambda: told.told("pages") == ["EngineDead"])
    outlet.offer(resolved(fault))

    wait_for(lambda: told.told("pages", "resolved") == ["EngineDead"])


def test_a_fault_whose_act_is_under_way_pages_nobody_and_the_failed_act_does_at_once(
    outlet: Outlet, told: Pages, central: servers.Server
) -> None:
    fault = alert("EngineDead", service="chat", severity="critical")
    act = running("restart")
    outlet.offer(fault, act)
    wait_for(lambda: told.told("chat") == ["RemediationRunning"])
    wait_for(lambda: suppressed(central) == {"EngineDead"})
    time.sleep(QUIET)
    assert told.told("pages") == []

    failed = alert("RemediationFailed", service="chat", remediation="restart", severity="page")
    outlet.offer(fault, resolved(act), failed)
    wait_for(lambda: set(told.told("pages")) == {"RemediationFailed", "EngineDead"})


def test_a_failed_act_pages_though_another_act_of_the_service_is_under_way(
    outlet: Outlet, told: Pages
) -> None:
    failed = alert("RemediationFailed", service="chat", remediation="restart", severity="page")
    outlet.offer(running("card_failover"), failed)

    wait_for(lambda: told.told("pages") == ["RemediationFailed"])


def test_another_service_or_another_node_pages_while_an_act_is_under_way(
    outlet: Outlet, told: Pages
) -> None:
    other = alert("EngineStalled", service="deepseek", severity="critical")
    elsewhere = alert("EngineDead", service="chat", severity="critical", instance="node-2:9710")
    outlet.offer(running("restart"), other, elsewhere)

    wait_for(lambda: set(told.told("pages")) == {"EngineStalled", "EngineDead"})


def test_a_cards_fault_pages_nobody_while_an_act_is_about_that_card(
    outlet: Outlet, told: Pages, central: servers.Server
) -> None:
    card = alert("CardLost", card="0000:53:00", vendor="nvidia", severity="critical")
    other = alert("CardUncorrectable", card="0000:64:00", vendor="nvidia", severity="critical")
    down = alert("WatchdogDown", severity="critical")
    outlet.offer(running("card_failover", card="0000:53:00"), card, other, down)
    wait_for(lambda: set(told.told("pages")) == {"WatchdogDown", "CardUncorrectable"})

    assert suppressed(central) == {"CardLost"}


def test_an_act_that_is_about_no_card_holds_back_no_alert_of_a_card_or_of_the_node(
    outlet: Outlet, told: Pages, central: servers.Server
) -> None:
    card = alert("CardLost", card="0000:53:00", vendor="nvidia", severity="critical")
    down = alert("LinkDown", severity="critical")
    outlet.offer(running("restart"), card, down)
    wait_for(lambda: set(told.told("pages")) == {"CardLost", "LinkDown"})

    assert suppressed(central) == set()


def test_a_dead_daemon_holds_a_page_no_longer_than_its_act_may_last(
    outlet: Outlet, told: Pages, central: servers.Server
) -> None:
    fault = alert("EngineDead", service="chat", severity="critical")
    central.ask("POST", "/api/v2/alerts", [posted(dict(fault.labels), ends_in=600)])
    outlet.offer(running("restart", ends_in=8.0))
    wait_for(lambda: told.told("chat") == ["RemediationRunning"])
    time.sleep(QUIET)  # the daemon says nothing more from here on
    assert told.told("pages") == []

    wait_for(lambda: told.told("pages") == ["EngineDead"], within=20)


def posted(labels: dict[str, str], ends_in: float, ago: float = 0.0) -> dict[str, Any]:
    now = datetime.now(timezone.utc)
    return {
        "labels": labels,
        "startsAt": (now - timedelta(seconds=ago)).isoformat(),
        "endsAt": (now + timedelta(seconds=ends_in)).isoformat(),
    }


def test_when_the_node_falls_silent_prometheus_word_counts(
    outlet: Outlet, told: Pages, central: servers.Server
) -> None:
    fault = alert("EngineDead", service="chat", severity="critical")
    outlet.offer(fault)
    labels = {**dict(fault.labels), "evaluator": "prometheus"}
    wait_for(lambda: told.told("pages") == ["EngineDead"])
    central.ask("POST", "/api/v2/alerts", [posted(labels, ends_in=600)])

    # the node's word ends four resends, 8 s, after it was given
    wait_for(lambda: told.told("pages") == ["EngineDead"] * 2, within=40)
    with told.lock:
        last = told.bodies["pages"][-1]["alerts"]
    assert {"prometheus"} == {a["labels"]["evaluator"] for a in last if a["status"] == "firing"}


def test_both_instances_hear_of_it_and_one_that_is_down_hears_later(
    tmp_path: Path, central: servers.Server
) -> None:
    port = free_port()
    made = Outlet(central.url, f"http://127.0.0.1:{port}")
    fault = alert("EngineDead", service="chat", severity="critical")
    try:
        made.offer(fault)
        wait_for(lambda: central.get("/api/v2/alerts"))
        assert made.real.figures().up

        with servers.alertmanager(tmp_path / "second", port=port) as second:
            wait_for(lambda: second.get("/api/v2/alerts"), within=40)
    finally:
        made.real.stop(3.0)


# The daemon

CARDS = ["0000:53:00", "0000:64:00"]
RULES = """\
groups:
  - name: hardware
    rules:
      - alert: TooBusy
        expr: accelerator_utilization_ratio > 0.85
        labels: {severity: critical}
"""


@pytest.fixture
def gpus(tmp_path: Path) -> ScriptedGpus:
    return ScriptedGpus.install(tmp_path / "bin", CARDS)


@pytest.fixture
def config(tmp_path: Path, central: servers.Server) -> dict[str, Any]:
    (tmp_path / "rules.yaml").write_text(RULES)
    return {
        "interval": "500ms",
        "rules": {"files": [str(tmp_path / "rules.yaml")]},
        "outlets": {"alertmanager": {"urls": [central.url], "resend": "1s"}},
    }


def prometheus_config(folder: Path, node: str, central: servers.Server) -> str:
    """The shipped configuration for this node, this Alertmanager, and short waits."""
    doc = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    centre = (PROMETHEUS / "centre.yaml").read_text().replace("for: 2m", "for: 2s")
    (folder / "centre.yaml").write_text(centre)
    doc["global"] = {"scrape_interval": "500ms", "evaluation_interval": "500ms"}
    doc["rule_files"] = [str(folder / "rules.yaml"), str(folder / "centre.yaml")]
    doc["scrape_configs"][0]["static_configs"] = [{"targets": [node]}]
    address = central.url.removeprefix("http://")
    doc["alerting"]["alertmanagers"][0]["static_configs"] = [{"targets": [address]}]
    text: str = yaml.safe_dump(doc)
    return text


@pytest.mark.slow
def test_one_fault_is_told_once_by_node_and_prometheus_and_a_dead_node_by_prometheus(
    tmp_path: Path, gpus: ScriptedGpus, config: dict[str, Any], central: servers.Server, told: Pages
) -> None:
    port = free_port()
    node = f"127.0.0.1:{port}"
    config["labels"] = {"instance": node}
    scrape = prometheus_config(tmp_path, node, central)
    flags = ["--rules.alert.resend-delay=1s"]
    with servers.prometheus(tmp_path / "prometheus", scrape, flags=flags) as prometheus:
        with daemon(tmp_path / "d", config, path=[gpus.folder], port=port) as running_:
            gpus.set(c53=95)
            wait_for(lambda: evaluators(central, "TooBusy") == {"node", "prometheus"})
            wait_for(lambda: told.told("pages") == ["TooBusy"])

            gpus.play("no answer that anybody could read")
            wait_for(lambda: held(running_))
            wait_for(lambda: not firing(prometheus, "TooBusy"))
            time.sleep(QUIET)
            assert told.told("pages") == ["TooBusy"]
            assert told.told("pages", "resolved") == []

        wait_for(lambda: "WatchdogDown" in told.told("pages"), within=60)


def evaluators(central: servers.Server, name: str) -> set[str]:
    found = central.get("/api/v2/alerts")
    return {a["labels"]["evaluator"] for a in found if a["labels"]["alertname"] == name}


def held(node: Running) -> bool:
    found = node.server.get("/api/v1/alerts")
    return any(
        a["alert"] == "TooBusy" and a["state"] == "firing" and "unknown_since" in a["annotations"]
        for a in found
    )


def firing(prometheus: servers.Server, name: str) -> bool:
    found = prometheus.get("/api/v1/alerts")["data"]["alerts"]
    return any(a["labels"]["alertname"] == name and a["state"] == "firing" for a in found)


def control(node: Running, *words: str) -> Any:
    """What a command says over the daemon's control socket."""
    socket = str(node.folder / "control.sock")
    done = command(*words, "--json", "--socket", socket)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def amtool(central: servers.Server, *words: str) -> str:
    argv = [peers.require("amtool"), f"--alertmanager.url={central.url}", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.strip()


DOWN = """\
groups:
  - name: serving
    rules:
      - {alert: ChatDown, expr: service_up == 0, labels: {severity: critical}}
"""


@pytest.mark.slow
def test_the_daemons_own_act_holds_the_page_and_its_failure_pages(
    tmp_path: Path, told: Pages
) -> None:
    (tmp_path / "rules.yaml").write_text(DOWN)
    manager = {"command": ["sleep", "20"]}  # it never answers
    with servers.alertmanager(tmp_path / "am", shipped(told, wait="5s")) as central:
        config = {
            "mode": "act",
            "interval": "500ms",
            "rules": {"files": [str(tmp_path / "rules.yaml")]},
            "outlets": {"alertmanager": {"urls": [central.url], "resend": "1s"}},
            "services": {"chat": {"url": f"http://127.0.0.1:{free_port()}", "manager": manager}},
            "policies": [{"when": ["ChatDown"], "do": ["restart"], "at_most": "15s"}],
        }
        with daemon(tmp_path / "d", config):
            wait_for(lambda: told.told("chat") == ["RemediationRunning"])
            wait_for(lambda: suppressed(central) == {"ChatDown"})
            time.sleep(QUIET + 2)
            assert told.told("pages") == []

            wait_for(lambda: "RemediationFailed" in told.told("pages"), within=60)
            wait_for(lambda: "ChatDown" in told.told("pages"), within=60)


def test_a_silence_of_alertmanager_is_held_by_the_node_also_while_alertmanager_is_away(
    tmp_path: Path, gpus: ScriptedGpus, config: dict[str, Any], central: servers.Server
) -> None:
    silence = ("silence", "add", "--comment=works on it", "--duration=1h", "alertname=~Too.*")
    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        name = amtool(central, *silence)
        (held_back,) = wait_for(lambda: control(node, "approve")["held_back"])
        assert held_back.startswith("alertmanager: alertname=~Too.*")

        amtool(central, "silence", "expire", name)
        wait_for(lambda: not control(node, "approve")["held_back"])

        amtool(central, *silence)
        wait_for(lambda: control(node, "approve")["held_back"])
        servers.stop(central.process)
        wait_for(lambda: outlet_is_down(node))
        assert control(node, "approve")["held_back"]


def test_a_silenced_alert_starts_no_act_until_the_silence_is_over(
    tmp_path: Path, gpus: ScriptedGpus, config: dict[str, Any], central: servers.Server
) -> None:
    config["policies"] = [{"when": ["TooBusy"], "do": ["drain"]}]
    name = amtool(central, "silence", "add", "--comment=x", "--duration=1h", "alertname=TooBusy")
    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        wait_for(lambda: control(node, "approve")["held_back"])
        gpus.set(c53=95)
        wait_for(lambda: kinds(node, "case_opened"))
        time.sleep(QUIET)
        assert kinds(node, "remediation_would") == 0

        amtool(central, "silence", "expire", name)
        wait_for(lambda: kinds(node, "remediation_would"))


def kinds(node: Running, kind: str) -> int:
    """How many events of a kind the journal holds."""
    return len(node.server.get(f"/api/v1/events?limit=10000&kind={kind}"))


def outlet_is_down(node: Running) -> bool:
    gone = node.folder / "server.log"
    return "silences of Alertmanager" in gone.read_text()


# The webhook


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


def send(node: Running, body: bytes, authorization: str = "Bearer s3cret") -> tuple[int, Any]:
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    url = node.url + "/api/v1/webhook/alertmanager"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_the_clusters_alert_comes_to_the_node_and_goes_and_a_repeated_body_is_harmless(
    tmp_path: Path, gpus: ScriptedGpus, told: Pages, token: Path
) -> None:
    port = free_port()
    node_ = f"127.0.0.1:{port}"
    route = shipped(told, node=node_, token=token)
    hook = f"      - url: http://{node_}/"
    route = route.replace(hook, f"      - url: {told.url}/copy\n{hook}")
    config = {
        "interval": "500ms",
        "labels": {"instance": node_},
        "control": {"token_file": str(token)},
    }
    maintenance = {"alertname": "NodeMaintenance", "instance": node_}
    with (
        servers.alertmanager(tmp_path / "am", route) as central,
        daemon(tmp_path / "d", config, path=[gpus.folder], port=port) as node,
    ):
        central.ask("POST", "/api/v2/alerts", [posted(maintenance, ends_in=600)])
        (held_back,) = wait_for(lambda: control(node, "approve")["held_back"])
        assert held_back.startswith("webhook: every alert")

        wait_for(lambda: told.told("copy"))
        body = json.dumps(told.bodies["copy"][0]).encode()
        before = kinds(node, "alert_silenced")
        assert send(node, body) == (200, {"taken": 0, "repeated": 1, "ignored": 0})
        assert (before, kinds(node, "alert_silenced")) == (1, 1)

        assert send(node, body, "Bearer forged")[0] == 403
        assert send(node, body, "")[0] == 401
        assert send(node, body + b" " * 2_000_000)[0] == 413
        assert kinds(node, "alert_silenced") == 1

        central.ask("POST", "/api/v2/alerts", [posted(maintenance, ends_in=-0.1, ago=1.0)])
        wait_for(lambda: not control(node, "approve")["held_back"])
