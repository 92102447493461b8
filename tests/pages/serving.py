"""The real HTTP side over a story, on a free port, with a token and a desk to command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.pages.node import Story
from tests.support.desk import FakeDesk
from vllm_watchdog.watchdog.api.control import PATH, Commands
from vllm_watchdog.watchdog.api.doors import Rate, Token
from vllm_watchdog.watchdog.api.routes import Routes
from vllm_watchdog.watchdog.api.server import Server
from vllm_watchdog.watchdog.system import Files, RealClock

TOKEN = "correct horse"


@dataclass
class Served:
    """``reports``: faults of ours, one line each."""

    url: str
    story: Story
    desk: FakeDesk
    reports: list[str] = field(default_factory=list)


@contextlib.contextmanager
def served(folder: Path, story: Story | None = None) -> Iterator[Served]:
    """A server until the block ends."""
    found = Served("", story or Story(), FakeDesk())
    (folder / "token").write_text(TOKEN)
    clock = RealClock()
    token = Token(lambda: folder / "token", Files())
    door = Commands(found.desk, token, Rate(clock, 10, 0.2))
    server = Server(
        ("127.0.0.1", 0), Routes(found.story), clock, found.reports.append, None, {PATH: door}
    )
    server.start()
    found.url = f"http://127.0.0.1:{server.address[1]}"
    try:
        yield found
    finally:
        server.stop()
