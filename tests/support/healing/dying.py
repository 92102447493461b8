"""The daemon, killed at one moment of one step: ``dying.py run …`` in place of ``vllm-watchdog run …``.

The file ``die`` in the state folder names the step and the moment (JSON ``{"step", "when"}``):
``started``: its intention is journaled, nothing is done yet; ``done``: it is done, the journal does
not know. The file goes with the kill, so that the next start lives.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from vllm_watchdog.watchdog.cli import main
from vllm_watchdog.watchdog.intents import Intents, StepRow

WORD = Path("/var/lib/vllm-watchdog/die")

_step = Intents.step


def step(self: Intents, act: str, row: StepRow) -> None:
    """Journal a step, unless this is the moment to die."""
    if WORD.exists():
        word = json.loads(WORD.read_text())
        if (word["step"], word["when"]) == (row.name, row.state):
            if row.state == "started":
                _step(self, act, row)
            WORD.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    _step(self, act, row)


if __name__ == "__main__":
    Intents.step = step  # type: ignore[method-assign]
    main()
