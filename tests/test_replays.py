"""What happened on a whole node, decided again: the recordings of healed faults on a virtual clock.

They come from tests/healing, with RECORDINGS=FOLDER, made small by tests/support/healing/trimming.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_watchdog.watchdog.replay import replay

FOLDER = Path(__file__).parent / "replays"
ACTS: dict[str, list[tuple[str, str]]] = {
    "broken-front": [("card_failover", "card_lost"), ("page", "")],
    "card-lost": [("card_failover", "card_lost")],
    "engine-dead": [("restart", "engine_dead")],
    "engine-hung": [("restart", "engine_stalled")],
    "memory-overflow": [("quantize", "device_memory")],
    "network-cut-local": [],
    "network-cut-remote": [("cache_only", "network_outage")],
    "orphans": [("restart", "engine_dead")],
    "own-restart": [("restart", "engine_dead")],  # declined: its manager is at it
    "slow-start": [],
    "spare-taken": [("card_failover", "card_lost")],
    "standby-sick": [("card_failover", "card_lost")],
    "tool-hung": [("card_failover", "card_lost")],
    "way-back": [("quantize", "device_memory"), ("quantize", "device_memory")],
}


def test_every_recording_is_replayed() -> None:
    assert sorted(ACTS) == sorted(path.parent.name for path in FOLDER.glob("*/manifest.json"))


@pytest.mark.parametrize("name", ACTS)
def test_the_same_is_decided_again(name: str) -> None:
    replayed = replay(FOLDER / name)

    assert replayed.difference == ""
    asked = [(each["remediation"], each["cause"]) for each in replayed.doc["requests"]]
    assert ACTS[name] == asked
