"""What a person is told at the start: the address that leads to this daemon, and counts in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from vllm_watchdog.watchdog.config import Config
from vllm_watchdog.watchdog.greeting import greeting


def said(listen: str, cards: int = 0, mode: str = "observe") -> str:
    config = Config(listen=cast("Any", listen), mode=cast("Any", mode))
    daemon: Any = SimpleNamespace(
        loaded=SimpleNamespace(config=config, groups=()),
        engine=SimpleNamespace(collectors={}),
        seen=SimpleNamespace(cards=[{"card": f"npu{n}"} for n in range(cards)], services={}),
    )
    return "\n".join(greeting(daemon))


def test_at_the_usual_address_the_commands_need_no_url() -> None:
    assert "--url" not in said("127.0.0.1:9710")
    assert "--url" not in said("0.0.0.0:9710")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:9711", "http://127.0.0.1:9711"),
        ("0.0.0.0:9711", "http://127.0.0.1:9711"),
        ("[::1]:9710", "http://[::1]:9710"),
    ],
)
def test_at_another_address_the_commands_are_given_it(listen: str, url: str) -> None:
    text = said(listen)

    assert f"each with --url {url} " in text
    assert f"{url}/metrics" in text


def test_one_card_is_one_card() -> None:
    assert "found     1 card: npu0" in said("127.0.0.1:9710", cards=1)
    assert "found     2 cards: npu0" in said("127.0.0.1:9710", cards=2)


@pytest.mark.parametrize(
    ("mode", "word"), [("observe", ""), ("confirm", "approve"), ("act", "acts are carried out")]
)
def test_whether_acts_are_carried_out_is_said_at_once(mode: str, word: str) -> None:
    text = said("127.0.0.1:9710", mode=mode)

    assert word in text
    assert ("acts" in text) == (mode != "observe")
