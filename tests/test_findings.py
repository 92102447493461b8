"""What discover prints: a configuration that can be saved, and what a unit must hold for acts."""

from __future__ import annotations

import yaml

from vllm_watchdog.watchdog.config import Service, default_state
from vllm_watchdog.watchdog.findings import Found


def found(**services: str) -> Found:
    return Found((), {name: Service(url=url) for name, url in services.items()}, {})


def test_the_environment_file_of_each_service_is_named_in_a_comment() -> None:
    text = found(chat="http://127.0.0.1:8000", embed="http://127.0.0.1:8001").yaml()

    folder = default_state() / "services"
    for name in ("chat", "embed"):
        assert f"#   EnvironmentFile=-{folder}/{name}.env\n" in text
    assert set(yaml.safe_load(text)["services"]) == {"chat", "embed"}


def test_without_a_server_no_file_is_named() -> None:
    assert "EnvironmentFile" not in found().yaml()
