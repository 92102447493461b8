"""What people may ask of a running daemon without holding it up."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.watchdog import views
from vllm_watchdog.watchdog.config import Config
from vllm_watchdog.watchdog.daemon import Daemon, prepare
from vllm_watchdog.watchdog.errors import ConfigError, WatchdogError
from vllm_watchdog.watchdog.views import DaemonViews


class Busy(VirtualClock):
    """A clock on which each look takes a millisecond."""

    def mono(self) -> float:
        self.advance(0.001)
        return super().mono()


def made(tmp_path: Path, **more: object) -> DaemonViews:
    (tmp_path / "rules.yaml").write_text("groups: []\n")
    rules = {"files": [str(tmp_path / "rules.yaml")]}
    loaded = prepare(Config.model_validate({"rules": rules, **more}))
    return DaemonViews(
        Daemon(fake_system(clock=Busy()), loaded, {"job": "j", "instance": "i"}, print)
    )


def test_a_service_is_shown_with_the_mode_that_counts(tmp_path: Path) -> None:
    services = {"a": {"url": "http://a", "mode": "act"}, "b": {"url": "http://b"}}

    shown = made(tmp_path, mode="confirm", services=services).status()

    assert shown["mode"] == "confirm"
    assert {row["service"]: row["mode"] for row in shown["services"]} == dict.fromkeys(
        "ab", "confirm"
    )


def test_a_query_that_takes_too_long_is_ended_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes longer than 2 s: name fewer series"):
        made(tmp_path).query("max_over_time(vector(1)[1h:1s])", 10_000_000)


def test_a_query_in_measure_is_answered(tmp_path: Path) -> None:
    answer = made(tmp_path).query("max_over_time(vector(1)[1m:1s])", 10_000_000)

    assert answer["result"][0]["value"][1] == "1"


def test_queries_are_answered_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "TURN", 0.01)
    daemon = made(tmp_path)
    asked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with daemon._turn():
            asked.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    asked.wait(10)
    try:
        with pytest.raises(WatchdogError, match="other queries are being answered"):
            daemon.query("1", None)
    finally:
        done.set()
        holder.join()

    assert daemon.query("1", None)["result"][1] == "1"
