"""All that may need more rights than observing: commands, signals, files of others.

One door, direct for now: what the daemon's user may not do fails with one clear line. It decides
nothing, and no text of logs, labels or webhooks comes here: callers pass words of their own and of
the configuration.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ...watchdog.errors import SourceError
from ...watchdog.system import Finished, Process, System

MAX_OUTPUT = 65_536  # bytes of a command's output that are read


class Privileged:
    """Commands, signals and files that ask for rights."""

    @staticmethod
    def run(system: System, argv: Sequence[str], timeout: float, stdin: bytes = b"") -> Finished:
        """Run a command and return how it ended; ``stdin`` answers what it asks. Raises
        NotSupported, CommandTimeout, OSError."""
        return system.runner.run(argv, timeout=timeout, stdin=stdin, limit=MAX_OUTPUT)

    @staticmethod
    def kill(system: System, process: Process, signal: int) -> bool:
        """Signal this very process (pid and start); False when it is gone.

        Raises SourceError where that is not allowed: another user's process needs CAP_KILL.
        """
        try:
            return system.host.kill(process, signal)
        except PermissionError as error:
            hint = "vllm-watchdog needs CAP_KILL (deploy/systemd/acting.conf)"
            raise SourceError(f"process {process.pid} may not be ended: {hint}") from error

    @staticmethod
    def write(system: System, path: str | Path, data: bytes, mode: int = 0o600) -> None:
        """Replace a file atomically. Raises OSError."""
        system.files.write(path, data, mode)

    @staticmethod
    def write_in_place(system: System, path: str | Path, data: bytes) -> None:
        """Write into a file that is there and cannot be replaced: a setting of the kernel.

        Raises OSError.
        """
        descriptor = os.open(system.files.path(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)
