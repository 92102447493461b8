"""The errors that cross rooms. A room may subclass them; it must not invent a parallel family."""

from __future__ import annotations

from dataclasses import dataclass


class WatchdogError(Exception):
    """Base of every error that the daemon raises on purpose."""


class NotSupported(WatchdogError):
    """This node has no such thing (tool, device, file): off, told once, never an error."""


class NoData(WatchdogError):
    """There is nothing to read just now; quiet, and not a failure of the source."""


class SourceError(WatchdogError):
    """The source itself reports failure, or what it said cannot be read; one line says what."""


class Permanent(WatchdogError):
    """Trying again cannot help."""


class Temporary(WatchdogError):
    """Worth another try after ``delay`` seconds."""

    def __init__(self, message: str, delay: float = 0.0) -> None:
        super().__init__(message)
        self.delay = delay


class CommandTimeout(WatchdogError):
    """A command did not end by its deadline; its process group was killed.

    ``stuck`` is true when the process survived the kill (uninterruptible sleep): it was let go
    of, and the same collector must not start another while it lives.
    """

    def __init__(self, message: str, *, stuck: bool = False) -> None:
        super().__init__(message)
        self.stuck = stuck


class HttpError(WatchdogError):
    """No usable HTTP answer. ``reason`` is ``refused``, ``timeout``, ``tls`` or ``broken``."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an input something stands; line and column count from 1 (0 = unknown)."""

    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file or "<input>"]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in an input: where, what, and what to do about it."""

    place: Place
    message: str
    hint: str = ""
    severity: str = "error"  # or "warning": suspicious but loadable

    def __str__(self) -> str:
        tail = f" ({self.hint})" if self.hint else ""
        return f"{self.place}: {self.message}{tail}"


class ConfigError(WatchdogError):
    """Bad input from a person: all its problems at once, each with its place."""

    def __init__(self, problems: list[Problem] | Problem | str) -> None:
        if isinstance(problems, str):
            problems = Problem(Place(), problems)
        if isinstance(problems, Problem):
            problems = [problems]
        self.problems: list[Problem] = problems
        super().__init__("\n".join(str(p) for p in problems))
