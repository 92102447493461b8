"""One call of the systemd adapter, or one act, inside a machine: ``driver.py NAME VERB [WORDS]``.

NAME is the instance of ``vllm@.service``; the answer is one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from vllm_watchdog.remediations import REMEDIATIONS
from vllm_watchdog.remediations.adapters import environment
from vllm_watchdog.remediations.adapters.managers import Settings
from vllm_watchdog.remediations.adapters.systemd import Systemd
from vllm_watchdog.watchdog.acting import ActCase
from vllm_watchdog.watchdog.config import Service
from vllm_watchdog.watchdog.model import Alert, Request, ServiceMode, labelset
from vllm_watchdog.watchdog.scheduler import Inbox
from vllm_watchdog.watchdog.system import System
from vllm_watchdog.watchdog.workers.carrying import Carrying
from vllm_watchdog.watchdog.workers.tools import Tools
from vllm_watchdog.watchdog.workers.words import StopWord

STATE = Path("/var/lib/vllm-watchdog")
PROFILES = Path("/etc/vllm")
URL = "http://127.0.0.1:8101"


def act(system: System, name: str, verb: str) -> list[str]:
    """An act as the worker carries it; its status and its sentence."""
    settings = Service.model_validate(
        {
            "url": URL,
            "manager": {"systemd": f"vllm@{name}.service"},
            "probe": {"kind": "completion", "timeout": 3},
            "start_profile": "fp16",
            "profiles": {each: PROFILES / f"{each}.profile" for each in ("fp16", "int8")},
        }
    )
    alert = Alert("x", labelset({"alertname": "x"}), "firing", time.time(), 1.0)
    cause = "device_memory" if verb == "quantize" else "engine_dead"
    request = Request(verb, alert, service=name, id="act-1", cause=cause)
    case = ActCase(request, name, settings, ServiceMode(), (), (), (), time.time(), STATE)
    tools = Tools(system, Inbox(), time.time)
    outcome = Carrying(tools, REMEDIATIONS[verb], case, StopWord(), 120.0).run()
    assert outcome is not None
    return [outcome.status, outcome.detail]


def answer(name: str, verb: str, words: list[str]) -> Any:
    """What the call gives, as JSON."""
    manager, system = Systemd(f"vllm@{name}.service", name, STATE), System()
    if verb in REMEDIATIONS:
        return act(system, name, verb)
    if verb == "status":
        status = manager.status(system)
        told = {key: getattr(status, key) for key in status.__slots__}
        return {**told, "now": system.clock.wall()}
    if verb == "processes":
        return [process.name for process in manager.processes(system)]
    if verb == "configure":
        values = dict(word.split("=", 1) for word in words)
        return manager.configure(system, Settings(values, "act-1", "int8"))
    if verb == "restore":
        return manager.restore(system, "act-1")
    if verb == "proved":
        values = dict(manager.settings(system).values)
        return environment.proved(system, manager.status(system).pid or 0, values)
    return getattr(manager, verb)(system)


def main() -> None:
    try:
        told = answer(sys.argv[1], sys.argv[2], sys.argv[3:])
    except Exception as error:  # told to the test
        told = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
