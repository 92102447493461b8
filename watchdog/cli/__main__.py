"""``python -m vllm_watchdog.watchdog.cli``: the command line without its entry point."""

from __future__ import annotations

from . import main

main()
