"""The real servers start, answer and end: other tests build on that."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from tests.support import peers, servers

pytestmark = pytest.mark.peer


def test_prometheus_is_of_the_third_generation(prometheus: servers.Server) -> None:
    version = prometheus.get("/api/v1/status/buildinfo")["data"]["version"]

    assert version.split(".")[0] == "3"


def test_alertmanager_takes_an_alert_and_shows_it(alertmanager: servers.Server) -> None:
    alertmanager.ask("POST", "/api/v2/alerts", [{"labels": {"alertname": "CardLost"}}])

    shown = [alert["labels"] for alert in alertmanager.get("/api/v2/alerts")]
    assert shown == [{"alertname": "CardLost"}]


def test_elasticsearch_keeps_a_document_once(elasticsearch: servers.Server) -> None:
    elasticsearch.ask("PUT", "/once/_create/1?refresh=true", {"message": "one"})

    with pytest.raises(urllib.error.HTTPError, match="409"):
        elasticsearch.ask("PUT", "/once/_create/1", {"message": "one"})
    assert elasticsearch.get("/once/_count")["count"] == 1


def test_a_stopped_server_no_longer_answers(tmp_path: Path) -> None:
    with servers.alertmanager(tmp_path) as server:
        assert servers.answers(server.url + "/-/healthy")

    assert not servers.answers(server.url + "/-/healthy")


def test_a_server_that_cannot_start_fails_the_test_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(pytest.fail.Exception, match="no_such_key"),
        servers.alertmanager(tmp_path, "no_such_key: 1\n"),
    ):
        pass


def test_a_missing_server_skips_and_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("VLLM_WATCHDOG_PEERS", "/nowhere")

    with pytest.raises(pytest.skip.Exception, match="run `make peers`"):
        peers.require("prometheus")


def test_a_missing_server_is_a_failure_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("VLLM_WATCHDOG_PEERS", "/nowhere")

    with pytest.raises(pytest.fail.Exception, match="run `make peers`"):
        peers.require("prometheus")
