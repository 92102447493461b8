"""Tests of rules: promtool's test files run on this engine, with promtool's verdict.

What a finding means for an exit status is the command's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import ConfigError, Problem
from .finding import Finding
from .reading import TestFile, read
from .running import run_file

__all__ = ["Finding", "TestFile", "read", "run", "run_file"]


def run(paths: Iterable[str | Path]) -> list[Finding]:
    """Run test files. Raises ConfigError with all that cannot be read, and then runs nothing."""
    problems: list[Problem] = []
    files: list[TestFile] = []
    for path in paths:
        files += _readable(Path(path), problems)
    if problems:
        raise ConfigError(problems)
    return [finding for file in files for finding in run_file(file)]


def _readable(path: Path, problems: list[Problem]) -> list[TestFile]:
    try:
        return [read(path)]
    except ConfigError as error:
        problems += error.problems
        return []
