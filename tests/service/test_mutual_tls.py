"""A real Alertmanager that proves itself to the daemon's webhook by a client certificate, or cannot."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import peers, servers
from tests.support.certificates import authority, signed
from tests.support.daemon import Running, command, daemon, wait_for
from tests.support.gpus import ScriptedGpus
from tests.support.pages import REPOSITORY
from tests.support.servers import free_port

pytestmark = pytest.mark.peer

SHIPPED = REPOSITORY / "deploy/alertmanager/mutual-tls.yml"


def test_amtool_accepts_the_shipped_example() -> None:
    argv = [peers.require("amtool"), "check-config", SHIPPED]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@dataclass(frozen=True)
class Secured:
    """A daemon behind TLS with an authority for its webhook's clients."""

    node: Running
    address: str
    certificates: Path

    @property
    def held_back(self) -> list[str]:
        """What holds acts back, as the control socket tells it."""
        socket = str(self.node.folder / "control.sock")
        done = command("approve", "--json", "--socket", socket)
        assert done.returncode == 0, done.stderr.decode()
        found: list[str] = json.loads(done.stdout)["held_back"]
        return found

    def routes(self, shown: str | None) -> str:
        """The shipped example for this daemon; ``shown``: the certificate that it shows, if any."""
        doc = yaml.safe_load(SHIPPED.read_text())
        (route,) = doc["route"]["routes"]
        route["group_interval"] = "1s"
        route["matchers"][1] = f'instance=~"{self.address}|"'
        hook = doc["receivers"][1]["webhook_configs"][0]
        hook["url"] = hook["url"].replace("node-1:9710", self.address)
        pair = {"cert_file": f"{shown}.pem", "key_file": f"{shown}.key"} if shown else {}
        files = {"ca_file": "node-ca.pem", **pair}
        hook["http_config"]["tls_config"] = {
            name: str(self.certificates / file) for name, file in files.items()
        }
        text: str = yaml.safe_dump(doc)
        return text


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """node by node-ca; alertmanager by alertmanager-ca; stranger by another authority."""
    folder = tmp_path / "certificates"
    folder.mkdir()
    for by, name in (
        ("node-ca", "node"), ("alertmanager-ca", "alertmanager"), ("stranger-ca", "stranger"),
    ):  # fmt: skip
        authority(folder, by)
        signed(folder, name, by)
    return folder


@pytest.fixture
def secured(
    tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Secured]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "node-ca.pem"))  # for urllib
    gpus = ScriptedGpus.install(tmp_path / "bin", ["0000:53:00"])
    port = free_port()
    config = {
        "interval": "500ms",
        "labels": {"instance": f"127.0.0.1:{port}"},
        "tls": {
            "cert_file": str(certificates / "node.pem"),
            "key_file": str(certificates / "node.key"),
            "client_ca_file": str(certificates / "alertmanager-ca.pem"),
        },
    }
    with daemon(tmp_path / "d", config, path=[gpus.folder], port=port) as node:
        yield Secured(node, f"127.0.0.1:{port}", certificates)


def tell(central: servers.Server, instance: str, ends_in: float, ago: float = 0.0) -> None:
    now = datetime.now(timezone.utc)
    alert = {
        "labels": {"alertname": "NodeMaintenance", "instance": instance},
        "startsAt": (now - timedelta(seconds=ago)).isoformat(),
        "endsAt": (now + timedelta(seconds=ends_in)).isoformat(),
    }
    central.ask("POST", "/api/v2/alerts", [alert])


def events(node: Running, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = node.server.get(f"/api/v1/events?limit=10000&kind={kind}")
    return found


def test_alertmanager_with_a_certificate_of_the_authority_holds_acts_back_and_lets_go(
    tmp_path: Path, secured: Secured
) -> None:
    routes = secured.routes("alertmanager")
    with servers.alertmanager(tmp_path / "am", routes) as central:
        tell(central, secured.address, ends_in=600)
        (silenced,) = wait_for(lambda: events(secured.node, "alert_silenced"))
        (held_back,) = secured.held_back

        tell(central, secured.address, ends_in=-0.1, ago=1.0)
        wait_for(lambda: not secured.held_back)

    assert held_back.startswith("webhook: every alert")
    assert silenced["fields"]["who"] == "webhook (alertmanager from 127.0.0.1)"


@pytest.mark.parametrize(
    ("shown", "refusal"),
    [(None, "unexpected status code 401"), ("stranger", "tls: unknown certificate authority")],
)
def test_alertmanager_without_a_certificate_of_the_authority_is_refused_and_nothing_is_taken(
    tmp_path: Path, secured: Secured, shown: str | None, refusal: str
) -> None:
    with servers.alertmanager(tmp_path / "am", secured.routes(shown)) as central:
        tell(central, secured.address, ends_in=600)
        wait_for(lambda: refusal in central.log.read_text(), what=refusal)

        assert secured.held_back == []
        assert events(secured.node, "alert_silenced") == []
