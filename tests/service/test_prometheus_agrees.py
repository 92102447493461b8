"""A real Prometheus with the same rule file, scraping the daemon, sees the same alerts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.support import servers
from tests.support.daemon import Running, daemon, wait_for
from tests.support.gpus import ScriptedGpus
from tests.support.servers import free_port
from tests.support.vllm import fake_vllm

INTERVAL = 4.0  # of the node
EVALUATION = 1.0  # of Prometheus, scrape included
RULES = """\
groups:
  - name: agreed
    rules:
      - record: service:failures:ratio_rate
        expr: |
          sum by (job, instance, service) (increase(http_requests_total{status="5xx"}[24s]))
          / sum by (job, instance, service) (increase(http_requests_total[24s]))
      - alert: AcceleratorBusy
        expr: accelerator_utilization_ratio > 0.85
        for: 8s
        labels: {severity: info}
        annotations: {summary: "{{ $labels.card }} at {{ $value | humanizePercentage }}"}
      - alert: RequestFailuresHigh
        expr: service:failures:ratio_rate > 0.01
        labels: {severity: warning}
      - alert: CardLost
        expr: max by (job, instance, vendor, card) (accelerator_present) == 0
        labels: {severity: critical}
"""

Labels = frozenset[tuple[str, str]]
Spans = dict[Labels, tuple[float, float]]


def node_alerts(node: Running) -> set[Labels]:
    firing = [a for a in node.server.get("/api/v1/alerts") if a["state"] == "firing"]
    return {frozenset(a["labels"].items()) for a in firing}


def prometheus_alerts(server: servers.Server) -> set[Labels]:
    found = server.get("/api/v1/alerts")["data"]["alerts"]
    return {frozenset(a["labels"].items()) for a in found if a["state"] == "firing"}


def node_spans(node: Running) -> Spans:
    """From when to when each alert fired, by the daemon's journal."""
    spans: Spans = {}
    for event in node.server.get("/api/v1/events?limit=10000"):
        key = frozenset(event["labels"].items())
        at = datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
        if event["kind"] == "alert_firing":
            spans[key] = (at, float("inf"))
        elif event["kind"] == "alert_resolved":
            spans[key] = (spans[key][0], at)
    return spans


def prometheus_spans(server: servers.Server) -> Spans:
    """The same by the ALERTS series that Prometheus wrote at its evaluations."""
    query = quote('ALERTS{alertstate="firing"}[10m]')
    spans: Spans = {}
    for series in server.get(f"/api/v1/query?query={query}")["data"]["result"]:
        metric = {k: v for k, v in series["metric"].items() if k not in ("__name__", "alertstate")}
        times = [float(at) for at, _ in series["values"]]
        spans[frozenset(metric.items())] = (times[0], times[-1] + EVALUATION)
    return spans


def wait_until(sides: list[Callable[[], set[Labels]]], expected: set[str], within: float) -> None:
    """Wait until both sides show firing alerts of exactly these names."""
    wait_for(
        lambda: all({dict(a)["alertname"] for a in side()} == expected for side in sides),
        within,
        f"{expected} on both sides",
    )


@pytest.mark.peer
@pytest.mark.slow
def test_the_same_alerts_fire_and_end_on_both_sides_within_an_interval(tmp_path: Path) -> None:
    cards = ["0000:53:00", "0000:64:00"]
    gpus = ScriptedGpus.install(tmp_path / "bin", cards)
    (tmp_path / "rules.yaml").write_text(RULES)
    port = free_port()
    labels = {"job": "vllm-watchdog", "instance": f"127.0.0.1:{port}"}
    with fake_vllm(requests_2xx=1000.0, running=1.0) as fake:
        config = {
            "listen": f"127.0.0.1:{port}",
            "interval": INTERVAL,
            "labels": labels,
            "rules": {"files": [str(tmp_path / "rules.yaml")]},
            "services": {"tiny": {"url": fake.url, "probe": {"kind": "none"}}},
        }
        scrape = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(tmp_path / "rules.yaml")],
            "scrape_configs": [
                {
                    "job_name": labels["job"],
                    "static_configs": [{"targets": [labels["instance"]]}],
                }
            ],
        }
        with (
            daemon(tmp_path / "node", config, path=[gpus.folder], port=port) as node,
            servers.prometheus(tmp_path / "prometheus", yaml.safe_dump(scrape)) as central,
        ):
            sides = [lambda: node_alerts(node), lambda: prometheus_alerts(central)]

            gpus.set(c53=95)
            wait_until(sides, {"AcceleratorBusy"}, 90)
            gpus.set(c53=40)
            wait_until(sides, set(), 90)

            fake.requests_2xx += 90
            fake.requests_5xx += 10
            wait_until(sides, {"RequestFailuresHigh"}, 90)
            wait_until(sides, set(), 90)

            gpus.lose("0000:64:00")
            wait_until(sides, {"CardLost"}, 90)
            ours, theirs = node_spans(node), prometheus_spans(central)

    assert len(ours) == 3
    assert ours.keys() == theirs.keys()
    for alert, (start, end) in ours.items():
        assert abs(start - theirs[alert][0]) <= INTERVAL + EVALUATION, sorted(alert)
        if dict(alert)["alertname"] != "CardLost":  # that one is still firing
            assert abs(end - theirs[alert][1]) <= INTERVAL + EVALUATION, sorted(alert)
