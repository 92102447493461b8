"""The log patterns of rules/patterns.yaml as values: what to look for, and what it means.

Expressions are written in RE2's syntax and are linear in practice; they see one line at a time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml

from .errors import ConfigError, Place, Problem

SOURCES = ("vllm", "kernel", "ascend")
SEVERITIES = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of line.

    ``literals`` are texts of which at least one is in each such line; ``match`` then has the last
    word, ``unless`` a veto. ``fields`` are set as they are, named groups of ``match`` beside them.
    ``key`` names the fields that tell one event's lines from another's, ``within`` the seconds that
    one event's lines may lie apart (0: each line is an event). ``finish`` names what else is done
    (logrecords.FINISHERS). ``info``: may be logged at level INFO, then at the beginning of the
    message; ``indented``: may be an indented line; ``traceback``: a traceback follows, whose
    exception becomes the field ``error``; ``consequence``: never the cause; ``cann``: one of the
    lines of a CANN failure; ``kernel``: of the kernel's log alone. ``raw`` and ``raw_unless`` are
    the expressions for bytes.
    """

    name: str
    kind: str
    severity: str
    sources: tuple[str, ...]
    literals: tuple[str, ...]
    match: re.Pattern[str]
    unless: re.Pattern[str] | None = None
    fields: Mapping[str, Any] = None  # type: ignore[assignment]
    key: tuple[str, ...] = ()
    within: float = 0.0
    finish: str = ""
    info: bool = False
    indented: bool = False
    traceback: bool = False
    consequence: bool = False
    cann: bool = False
    kernel: bool = False
    raw: re.Pattern[bytes] = None  # type: ignore[assignment]
    raw_unless: re.Pattern[bytes] | None = None
    example: str = ""
    expect: Mapping[str, Any] = None  # type: ignore[assignment]


def parse(text: str, name: str = "patterns.yaml") -> tuple[Pattern, ...]:
    """Read the patterns. Raises ConfigError that names each bad one."""
    rows: list[dict[str, Any]] = yaml.load(text, Loader=_LOADER)["patterns"]  # noqa: S506 safe
    problems: list[Problem] = []
    patterns: list[Pattern] = []
    for row in rows:
        try:
            patterns.append(_pattern(row))
        except (KeyError, TypeError, ValueError, re.error) as error:  # noqa: PERF203 all problems
            label = row.get("name", "?")
            problems.append(Problem(Place(name), f"pattern {label}: {error}"))
    if problems:
        raise ConfigError(problems)
    return tuple(patterns)


def _pattern(row: dict[str, Any]) -> Pattern:
    sources = tuple(row["source"].split())
    if not sources or not set(sources) <= set(SOURCES):
        raise ValueError(f"source is not of {', '.join(SOURCES)}")
    if row["severity"] not in SEVERITIES:
        raise ValueError(f"severity is not of {', '.join(SEVERITIES)}")
    literals = tuple(row["literals"])
    if not literals or min(map(len, literals)) < 3:
        raise ValueError("literals of at least three characters are needed")
    flags = {name: bool(row[name]) for name in _FLAGS if name in row}
    return Pattern(
        name=row["name"],
        kind=row["kind"],
        severity=row["severity"],
        sources=sources,
        literals=literals,
        match=re.compile(row["match"]),
        unless=re.compile(row["unless"]) if "unless" in row else None,
        fields=dict(row.get("fields") or {}),
        key=tuple((row.get("key") or "").split()),
        within=float(row.get("within", 0)),
        finish=row.get("finish", ""),
        kernel=sources == ("kernel",),
        raw=re.compile(row["match"].encode()),
        raw_unless=re.compile(row["unless"].encode()) if "unless" in row else None,
        example=row["example"],
        expect=dict(row.get("expect") or {}),
        **flags,
    )


@lru_cache(maxsize=1)
def shipped() -> tuple[Pattern, ...]:
    """The patterns that come with the package, read once."""
    package = __package__.rpartition(".")[0] + ".rules"
    return parse((resources.files(package) / "patterns.yaml").read_text(encoding="utf-8"))


_FLAGS = ("info", "indented", "traceback", "consequence", "cann")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
