"""The whole chain to the people who are told: daemon → real Alertmanager, daemon → real Elasticsearch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support import servers
from tests.support.daemon import Running, daemon, wait_for
from tests.support.gpus import ScriptedGpus
from tests.support.servers import free_port

CARDS = ["0000:53:00", "0000:64:00"]
RULES = """\
groups:
  - name: hardware
    rules:
      - alert: TooBusy
        expr: accelerator_utilization_ratio > 0.85
        for: 1s
        labels: {severity: warning}
"""


def rules(folder: Path) -> dict[str, Any]:
    (folder / "rules.yaml").write_text(RULES)
    return {"interval": "500ms", "rules": {"files": [str(folder / "rules.yaml")]}}


def alerts_of(server: servers.Server) -> dict[str, dict[str, Any]]:
    found = server.get("/api/v2/alerts?active=true")
    return {alert["labels"].get("card", ""): alert for alert in found}


@pytest.mark.peer
def test_an_alert_is_in_alertmanager_while_it_fires_and_ends_when_resolved(
    tmp_path: Path, alertmanager: servers.Server
) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    config = {
        **rules(tmp_path),
        "external_labels": {"zone": "a"},
        "outlets": {"alertmanager": {"urls": [alertmanager.url], "resend": "2s"}},
    }

    with daemon(tmp_path / "d", config, path=[gpus.folder]):
        gpus.set(c53=95)
        alert = wait_for(lambda: alerts_of(alertmanager).get("0000:53:00"))
        gpus.set(c53=10)
        wait_for(lambda: not alerts_of(alertmanager))

    assert alert["labels"]["alertname"] == "TooBusy"
    assert (alert["labels"]["zone"], alert["labels"]["evaluator"]) == ("a", "node")


def events_of_index(server: servers.Server) -> list[str]:
    server.ask("POST", "/logs-vllm_watchdog-default/_refresh")
    query = {"size": 10000, "query": {"match_all": {}}, "_source": ["event.id", "event.action"]}
    hits = server.ask("POST", "/logs-vllm_watchdog-default/_search", query)["hits"]["hits"]
    return sorted(hit["_id"] for hit in hits)


def events_of_journal(node: Running) -> list[str]:
    return sorted(event["id"] for event in node.server.get("/api/v1/events?limit=10000"))


@pytest.mark.peer
@pytest.mark.slow
def test_every_event_is_in_elasticsearch_once_although_it_starts_later(tmp_path: Path) -> None:
    gpus = ScriptedGpus.install(tmp_path / "bin", CARDS)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    config = {**rules(tmp_path), "outlets": {"elasticsearch": {"hosts": [url]}}}

    with daemon(tmp_path / "d", config, path=[gpus.folder]) as node:
        gpus.set(c53=95)
        wait_for(lambda: "TooBusy" in node.alerts().get("firing", set()))
        with servers.elasticsearch(8, port=port) as server:
            gpus.set(c53=10)
            wait_for(lambda: "resolved" in node.alerts())
            wait_for(lambda: node.server.get("/api/v1/status")["outlets"][0]["lag"] == 0, 120)
            journal = events_of_journal(node)

            assert len(journal) >= 4
            assert events_of_index(server) == journal
