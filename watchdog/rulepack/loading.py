"""Finds and reads rule files; picks the groups that run here; refuses what looks too far back."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .. import documents
from ..errors import ConfigError, Place, Problem
from ..promql import EVER
from .reading import Reading
from .values import Group

MAX_REACH_MS = 6 * 3600 * 1000
_MAGIC = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Pack:
    """All loaded groups that run here, in file order.

    ``reach`` says per metric name how many milliseconds back the rules look ("" = every name);
    ``warnings`` are suspicious but loadable; ``skipped`` are files of a pattern that hold no rules.
    """

    groups: tuple[Group, ...]
    reach: dict[str, int]
    warnings: tuple[Problem, ...] = ()
    skipped: tuple[str, ...] = ()


def load(
    files: Sequence[str | Path],
    groups: Sequence[str] = ("*",),
    *,
    max_reach_ms: int = MAX_REACH_MS,
) -> Pack:
    """Read rule files (paths or glob patterns) and keep the groups whose name matches ``groups``.

    Raises ConfigError with every problem of every file.
    """
    problems: list[Problem] = []
    found: list[Group] = []
    skipped: list[str] = []
    for path, listed in _paths(files, problems):
        try:
            read, told = _read_file(path)
        except ConfigError as error:
            problems += error.problems
            continue
        if read is None and listed:
            problems.append(_no_groups(str(path)))
        elif read is None:
            skipped.append(str(path))
        found += read or []
        problems += told
    kept = tuple(g for g in found if any(fnmatchcase(g.name, pattern) for pattern in groups))
    problems += _unmatched(found, groups)
    problems += _too_long(kept, max_reach_ms)
    problems.sort(key=lambda each: (each.place.file, each.place.line, each.place.column))
    if any(problem.severity == "error" for problem in problems):
        raise ConfigError(problems)
    return Pack(kept, _reach(kept), tuple(problems), tuple(skipped))


def read_text(text: str, file: str = "<rules>") -> list[Group]:
    """Read the text of one rule file. Raises ConfigError with every error in it."""
    read, problems = _read(text, file)
    if read is None:
        problems.append(_no_groups(file))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise ConfigError(errors)
    return read or []


def _paths(files: Sequence[str | Path], problems: list[Problem]) -> list[tuple[Path, bool]]:
    """Every file once, with whether it was named itself (not found by a pattern)."""
    found: dict[Path, bool] = {}
    for entry in files:
        text = str(entry)
        if not _MAGIC & set(text):
            found[Path(text)] = True
            continue
        matches = sorted(glob.glob(text))
        if not matches:
            problems.append(Problem(Place(text), "no rule file matches this pattern"))
        for match in matches:
            found.setdefault(Path(match), False)
    return list(found.items())


def _read_file(path: Path) -> tuple[list[Group] | None, list[Problem]]:
    return _read(documents.read(path, "rule file"), str(path))


def _read(text: str, file: str) -> tuple[list[Group] | None, list[Problem]]:
    """The groups, None where the document has no such key; and all that is wrong."""
    reading = Reading.of(text, file)
    if isinstance(reading.raw, dict) and "groups" not in reading.raw and reading.raw:
        return None, []
    return reading.groups(), reading.problems


def _no_groups(file: str) -> Problem:
    return Problem(Place(file, 1, 1), "has no key 'groups': this is no rule file")


def _unmatched(found: Iterable[Group], patterns: Sequence[str]) -> list[Problem]:
    names = [group.name for group in found]
    return [
        Problem(Place("groups"), f"no rule group is named {pattern!r}", severity="warning")
        for pattern in patterns
        if names and not any(fnmatchcase(name, pattern) for name in names)
    ]


def _too_long(groups: Iterable[Group], most: int) -> list[Problem]:
    return [
        Problem(
            rule.place,
            f"group {group.name!r}, rule {rule.number} ({rule.name}): looks "
            f"{_shown(rule.reach_ms)}, the node keeps at most {_shown(most)[5:]}",
            "record the series in a group with a longer interval, or evaluate the rule centrally",
        )
        for group in groups
        for rule in group.rules
        if rule.reach_ms > most
    ]


def _shown(ms: int) -> str:
    if ms >= EVER:
        return "at a fixed time (@)"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return "back " + ("".join(parts) or "0s")


def _reach(groups: Iterable[Group]) -> dict[str, int]:
    reach: dict[str, int] = {}
    for group in groups:
        offset = round(group.query_offset * 1000)
        for rule in group.rules:
            for name, ms in rule.reach.items():
                reach[name] = max(reach.get(name, 0), ms + offset)
    return reach
