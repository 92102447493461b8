"""Nothing that a test's daemons started outlives the test: hanging tools, servers without end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_stays_behind(tmp_path: Path) -> Iterator[None]:
    """Ends what bears the folder of a daemon of this test in its environment."""
    yield
    for pid in born_in(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def born_in(folder: Path) -> list[int]:
    """The processes that a daemon in this folder started, and those that they started."""
    wanted = f"RUNTIME_DIRECTORY={folder}/".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(
                line.startswith(wanted) for line in (process / "environ").read_bytes().split(b"\0")
            ):
                found.append(int(process.name))
    return found
