"""A machine of our own for tests of units: this system's root under an overlay, booted by
systemd-nspawn with its own systemd and its own network. Nothing of the real system is changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import peers


@dataclass(frozen=True)
class Machine:
    """A booted machine; ``leader`` is the pid of its systemd as seen from here."""

    root: Path
    leader: int

    def run(self, *argv: str | Path, timeout: float = 90.0) -> subprocess.CompletedProcess[str]:
        """Run a command inside; never raises for its exit status."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-C"]
        return subprocess.run(
            [*enter, *map(str, argv)], capture_output=True, text=True, timeout=timeout, check=False
        )

    def show(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", name, unit).stdout.strip()


@contextlib.contextmanager
def machine(folder: Path, prepare: Callable[[Path], None]) -> Iterator[Machine]:
    """Boot a machine whose root ``prepare`` has changed first; it is gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip("booting a machine needs root")
    peers.require("systemd-nspawn")
    root, upper, work = (folder / name for name in ("root", "upper", "work"))
    for made in (root, upper, work):
        made.mkdir(parents=True)
    options = f"lowerdir=/,upperdir={upper},workdir={work}"
    mount = ["mount", "-t", "overlay", "overlay", "-o", options, root]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no overlay can be mounted here: {mounted.stderr.strip()}")
    try:
        prepare(root)
        with _booted(folder, root) as leader:
            yield Machine(root, leader)
    finally:
        subprocess.run(["umount", "-l", root], check=False)


@contextlib.contextmanager
def _booted(folder: Path, root: Path) -> Iterator[int]:
    argv: Sequence[str] = [
        "systemd-nspawn",
        f"--directory={root}",
        f"--machine=test-{os.getpid()}",
        "--boot",
        "--register=no",
        "--keep-unit",
        "--private-network",
        "--capability=all",
        "--quiet",
        "--console=pipe",
        *(f"--bind-ro={path}" for path in hidden_paths()),
        "systemd.unit=basic.target",
    ]
    with (folder / "boot.log").open("wb") as log:
        nspawn = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    leader = 0
    try:
        leader = _leader(nspawn, folder)
        yield leader
    finally:
        if leader:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGRTMIN + 4)  # power off
        with contextlib.suppress(subprocess.TimeoutExpired):
            nspawn.wait(20)
        if nspawn.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader or nspawn.pid, signal.SIGKILL)
            nspawn.kill()
            nspawn.wait(20)


def hidden_paths() -> list[Path]:
    """What runs our tests, where it lies below a folder that the machine has anew (``/tmp``)."""
    repository = Path(__file__).resolve().parents[2]
    needed = {repository, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return sorted(path for path in needed if path.parts[1] in ("tmp", "run"))


def _leader(nspawn: subprocess.Popen[bytes], folder: Path) -> int:
    """The pid of the machine's systemd, once it is running."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and nspawn.poll() is None:
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children").read_text().split()
        for child in map(int, children):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                    found = Machine(folder, child).run("systemctl", "is-system-running")
                    if found.stdout.strip() in ("running", "degraded", "starting"):
                        return child
        time.sleep(0.1)
    pytest.fail(f"the machine did not boot:\n{(folder / 'boot.log').read_text()[-2000:]}")
