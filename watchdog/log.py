"""The daemon's own log: ECS JSON lines for a machine, short lines for a person at a terminal.

A change is logged, not a state; secrets and request bodies never come here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TextIO


def make_log(stream: TextIO | None = None) -> Callable[..., None]:
    """A function ``log(message, level="info", **fields)`` that writes one line to ``stream``
    (standard error by default)."""
    structlog = _structlog()
    out = stream or sys.stderr
    processors: list[Any] = [structlog.processors.add_log_level]
    if out.isatty():
        processors += [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=True),
        ]
    else:
        import ecs_logging

        processors += [ecs_logging.StructlogFormatter()]
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out), processors=processors, wrapper_class=structlog.BoundLogger
    )

    def log(message: str, level: str = "info", **fields: Any) -> None:
        getattr(logger, level)(message, **{f"vllm_watchdog.{k}": v for k, v in fields.items()})

    return log


def _structlog() -> Any:
    """structlog without rich, which it would load for colourful tracebacks: a daemon on every node
    does not keep 3 MB for what it never shows."""
    held = sys.modules.get("rich")
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to bar an import
    try:
        import structlog
    finally:
        if held is None:
            del sys.modules["rich"]
        else:
            sys.modules["rich"] = held
    return structlog
