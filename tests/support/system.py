"""A System without a machine: virtual time, scripted commands and HTTP, fixture files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_watchdog.watchdog.errors import NotSupported
from vllm_watchdog.watchdog.system import (
    MAX_OUTPUT,
    Checkpoints,
    Files,
    Finished,
    Process,
    Response,
    System,
)


class VirtualClock:
    """Time that moves only when told to (or when somebody sleeps)."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._mono, self._wall = 1000.0, wall

    def mono(self) -> float:
        return self._mono

    def wall(self) -> float:
        return self._wall

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._mono += seconds
        self._wall += seconds


class ScriptedRunner:
    """Answers commands from a table; an unexpected call fails the test.

    ``script`` maps a command line (words joined by blanks) to stdout text, bytes, a Finished, an exception
    to raise, or a list of these used one after the other (the last one stays).
    """

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.script = dict(script)
        self.calls: list[list[str]] = []
        self.started: list[tuple[list[str], dict[str, str]]] = []

    def which(self, program: str) -> str | None:
        known = any(line.split()[0] == program for line in self.script)
        return f"/usr/bin/{program}" if known else None

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        stdin: bytes = b"",
        limit: int = MAX_OUTPUT,
        env: Mapping[str, str] | None = None,
    ) -> Finished:
        self.calls.append(list(argv))
        line = " ".join(argv)
        if line not in self.script:
            if self.which(argv[0]) is None:
                raise NotSupported(f"{argv[0]} is not on this node")
            raise AssertionError(f"unexpected command: {line}")
        return _finished(_next(self.script[line]), limit)

    def start(
        self, argv: Sequence[str], *, log: str | Path, env: Mapping[str, str] | None = None
    ) -> int:
        """Noted in ``started`` with its environment; the pid is the script's answer."""
        line = " ".join(argv)
        assert line in self.script, f"unexpected start: {line}"
        self.started.append((list(argv), dict(env or {})))
        return int(_next(self.script[line]))


def _next(answer: Any) -> Any:
    if isinstance(answer, list):
        answer = answer.pop(0) if len(answer) > 1 else answer[0]
    if isinstance(answer, BaseException):
        raise answer
    return answer


def _finished(answer: Any, limit: int) -> Finished:
    if isinstance(answer, Finished):
        return answer
    data = answer.encode() if isinstance(answer, str) else answer
    return Finished(0, data[:limit], truncated=len(data) > limit)


class ScriptedHttp:
    """Answers requests from a table ``"GET http://…"`` -> text, bytes, Response, exception or a list."""

    def __init__(self, script: Mapping[str, Any]) -> None:
        self.script = dict(script)
        self.calls: list[tuple[str, str, bytes | None]] = []

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = MAX_OUTPUT,
    ) -> Response:
        self.calls.append((method, url, body))
        line = f"{method} {url}"
        assert line in self.script, f"unexpected request: {line}"
        answer = _next(self.script[line])
        if isinstance(answer, Response):
            return answer
        data = answer.encode() if isinstance(answer, str) else answer
        return Response(200, data[:limit], {}, len(data) > limit)


class FakeHost:
    """A process table and host figures given by the test."""

    def __init__(
        self, processes: Sequence[Process] = (), figures: Mapping[str, float] | None = None
    ) -> None:
        self.table = list(processes)
        self.values = dict(figures or {})
        self.signals: list[tuple[int, int]] = []

    def processes(self) -> list[Process]:
        return list(self.table)

    def details(self, process: Process) -> Process:
        return process

    def figures(self) -> Mapping[str, float]:
        return self.values

    def kill(self, process: Process, number: int) -> bool:
        """Noted in ``signals``; a test takes the process out of ``table`` where it shall end."""
        self.signals.append((process.pid, number))
        return any(each.pid == process.pid for each in self.table)


def fake_system(
    commands: Mapping[str, Any] | None = None,
    pages: Mapping[str, Any] | None = None,
    root: Path | None = None,
    clock: VirtualClock | None = None,
    host: FakeHost | None = None,
) -> System:
    """A System whose every door is scripted; ``root`` is a fixture tree (an empty one by default)."""
    return System(
        clock=clock or VirtualClock(),
        runner=ScriptedRunner(commands or {}),
        files=Files(root or Path("/nonexistent")),
        http=ScriptedHttp(pages or {}),
        checkpoints=Checkpoints(),
        host=host or FakeHost(),
    )
