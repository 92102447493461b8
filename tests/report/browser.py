"""A headless Chromium, driven by its debugging pipe: what a page shows, says and asks for.

Starts one browser with a profile of its own and ends it; nothing is asked of any network.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import peers

PATIENCE = 60.0  # seconds for one answer


class Browser:
    """One page. ``events`` are all that the browser told of it, in order."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._rest, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        (target,) = (
            each["targetId"]
            for each in self.ask("Target.getTargets")["targetInfos"]
            if each["type"] == "page"
        )
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """The browser's answer to one command."""
        self._number += 1
        doc: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            doc["sessionId"] = self._session
        os.write(self._writing, json.dumps(doc).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def open(self, url: str) -> None:
        """Load a page to its end."""
        seen = len(self.events)
        self.ask("Page.navigate", url=url)
        while not self.told("Page.loadEventFired", since=seen):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release one key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code
            )

    def told(self, *methods: str, since: int = 0) -> list[dict[str, Any]]:
        """What was told by these events."""
        return [each["params"] for each in self.events[since:] if each.get("method") in methods]

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            assert left > 0, "the browser does not answer"
            if select.select([self._reading], [], [], left)[0]:
                data = os.read(self._reading, 1 << 16)
                assert data, "the browser has ended"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with an empty page; without Chromium the test skips, and fails in CI."""
    program = peers.require("chromium")
    to_read, to_write = os.pipe(), os.pipe()
    process = subprocess.Popen(
        [
            "bash", "-c", f'exec "$@" 3<&{to_read[0]} 4>&{to_write[1]}', "bash", str(program),
            "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
            "--disable-background-networking", "--disable-component-update", "--no-first-run",
            f"--user-data-dir={profile}", "about:blank",
        ],
        pass_fds=(to_read[0], to_write[1]), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read[0])
    os.close(to_write[1])
    try:
        found = Browser(to_write[0], to_read[1])
        yield found
        found._session = ""
        found.ask("Browser.close")
        process.wait(PATIENCE)
    finally:
        os.close(to_read[1])
        os.close(to_write[0])
        process.kill()
        process.wait()
