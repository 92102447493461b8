"""Runs inside the near end of a delayed wire: windows of the collector ``peers``, one JSON line each."""

from __future__ import annotations

import json
import sys

from vllm_watchdog.collectors.peers import Peers
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.system import System

FAR, PORT = "10.77.0.2", 9100


def window(system: System, peers: Peers) -> dict[str, float]:
    """One window's series by name."""
    found = {}
    for item in peers.collect(system):
        if isinstance(item, Checkpoint):
            system.checkpoints.put(peers.instance, item.doc)
        elif isinstance(item, Sample):
            found[item.name] = item.value
    return found


def main() -> None:
    system = System()
    peers = Peers(peers={"far": (FAR, PORT)})
    for _ in range(int(sys.argv[1])):
        print(json.dumps(window(system, peers)), flush=True)


if __name__ == "__main__":
    main()
