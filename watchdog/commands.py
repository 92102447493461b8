"""The door to commands: argument lists with a deadline and a bound on what they may say.

A part of ``system``: only here are processes started. What an output means is for collectors.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from .errors import CommandTimeout, NotSupported

MAX_OUTPUT = 16 * 1024 * 1024  # bytes; nvidia-smi -q -x of 16 GPUs is below 1 MiB


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended: exit status (negative = signal), its output, whether that was cut."""

    code: int
    stdout: bytes
    stderr: bytes = b""
    truncated: bool = False

    @property
    def text(self) -> str:
        """Standard output as text; undecodable bytes become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")


class Runner(Protocol):
    """Runs external commands: argument lists, never shell text, always with a deadline."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        stdin: bytes = b"",
        limit: int = MAX_OUTPUT,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run ``argv`` and return how it ended.

        Raises NotSupported when the program is not on PATH, PermissionError when it may not be
        run, CommandTimeout when it did not end within ``timeout`` seconds. Output past ``limit``
        bytes ends the command (``truncated``); memory use is bounded by ``limit``.
        """
        ...

    def start(
        self, argv: Sequence[str], *, log: str | Path, env: Mapping[str, str] | None = None
    ) -> int:
        """Start ``argv`` in a session of its own, its output appended to ``log``, and return its
        pid at once; it outlives the caller. Raises NotSupported, OSError.
        """
        ...

    def which(self, program: str) -> str | None:
        """Path of a program on PATH, or None."""
        ...


class RealRunner:
    """Commands of this machine, each in a session of its own, killed as a group at its deadline.

    While a killed process of a program lives on in uninterruptible sleep, that program is not
    started again: dead queries must not pile up.
    """

    def __init__(self) -> None:
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}
        self._started: list[int] = []

    def start(
        self, argv: Sequence[str], *, log: str | Path, env: Mapping[str, str] | None = None
    ) -> int:
        """See Runner.start."""
        self._started = [pid for pid in self._started if not _collected(pid)]
        appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        try:
            pid = os.posix_spawnp(
                argv[0],
                list(argv),
                {**os.environ, **(env or {})},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.fspath(log), appended, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        except FileNotFoundError as missing:
            raise NotSupported(f"{argv[0]} is not on this node") from missing
        self._started.append(pid)
        return pid

    def which(self, program: str) -> str | None:
        """Path of a program on PATH, or None."""
        import shutil

        return shutil.which(program)

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        stdin: bytes = b"",
        limit: int = MAX_OUTPUT,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        """See Runner.run."""
        earlier = self._stuck.get(argv[0])
        if earlier is not None:
            if earlier.poll() is None:
                text = f"{argv[0]}: an earlier call cannot be killed (uninterruptible sleep)"
                raise CommandTimeout(text, stuck=True)
            del self._stuck[argv[0]]
        deadline = time.monotonic() + timeout
        if not _there(argv[0], env or {}):
            raise NotSupported(f"{argv[0]} is not on this node")
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env={**os.environ, **env} if env is not None else None,
            )
        except FileNotFoundError as missing:
            raise NotSupported(f"{argv[0]} is not on this node") from missing
        reading = _Reading(process, stdin, limit)
        ended = reading.wait(deadline)
        if not ended:
            _kill(process)
        code = _reap(process)
        if ended or reading.over_limit:
            return Finished(
                code if code is not None else -signal.SIGKILL,
                reading.stdout.taken(),
                reading.stderr.taken(),
                reading.over_limit,
            )
        stuck = code is None
        if stuck:
            self._stuck[argv[0]] = process
        raise CommandTimeout(
            f"{argv[0]} did not end within {timeout:g} s"
            + (", and cannot be killed (uninterruptible sleep)" if stuck else ""),
            stuck=stuck,
        )


def _collected(pid: int) -> bool:
    """Whether a process that was started has ended; its entry in the table then goes."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


class _Pipe:
    """What came out of one pipe, up to a limit."""

    def __init__(self, stream: IO[bytes] | None, limit: int) -> None:
        assert stream is not None
        self.descriptor = stream.fileno()
        os.set_blocking(self.descriptor, False)
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    @property
    def over_limit(self) -> bool:
        return self._size > self._limit

    def drain(self) -> bool:
        """Take what there is now; False at the end."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._chunks.append(chunk)
        self._size += len(chunk)
        return bool(chunk)

    def taken(self) -> bytes:
        return b"".join(self._chunks)[: self._limit]


class _Reading:
    """Both pipes of a command and the wait for its end.

    Nothing here blocks past the deadline: a grandchild that left the session may hold the pipes
    open for ever.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limit: int) -> None:
        self._process = process
        self.stdout = _Pipe(process.stdout, limit)
        self.stderr = _Pipe(process.stderr, limit)
        if process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin)  # answers to prompts: far below a pipe's buffer
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()

    @property
    def over_limit(self) -> bool:
        return self.stdout.over_limit or self.stderr.over_limit

    def wait(self, deadline: float) -> bool:
        """True when the command ended in time with both pipes drained within the limit."""
        poll = select.poll()
        pipes = {pipe.descriptor: pipe for pipe in (self.stdout, self.stderr)}
        for descriptor in pipes:
            poll.register(descriptor, select.POLLIN)
        while pipes:
            left = deadline - time.monotonic()
            if left <= 0 or self.over_limit:
                return False
            for descriptor, _ in poll.poll(left * 1000 + 1):
                if not pipes[descriptor].drain():
                    poll.unregister(descriptor)
                    del pipes[descriptor]
        if self.over_limit:
            return False
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.05))
        except subprocess.TimeoutExpired:
            return False
        return True


def _there(program: str, env: Mapping[str, str]) -> bool:
    """Whether a file of this name lies on PATH: that costs a tenth of a start that fails."""
    if "/" in program:
        return True
    folders = os.get_exec_path({**os.environ, **env})
    return any(os.path.lexists(os.path.join(folder, program)) for folder in folders)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _reap(process: subprocess.Popen[bytes]) -> int | None:
    """Exit status, or None when the process outlives its kill by a second; pipes are let go of."""
    try:
        code: int | None = process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = None
    for stream in (process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
    return code
