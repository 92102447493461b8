"""A YAML document read strictly: unknown keys told, every error with its place, text as written.

Rule files and rule tests are read through this; what their keys mean is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml

from .. import documents
from ..documents import Document, Path
from ..errors import Problem
from ..templates import CallError, parse_duration
from .places import place_in

T = TypeVar("T", bound="Strict")


@dataclass(slots=True)
class Strict:
    """One file being read, and what is wrong with it.

    ``raw`` is the document with every scalar as the text it was written as: Prometheus reads
    ``yes`` or ``1.0`` as text where text is wanted.
    """

    document: Document
    raw: Any
    lines: list[str]
    problems: list[Problem] = field(default_factory=list)
    where: str = ""  # the part being read, for messages

    @classmethod
    def of(cls: type[T], text: str, file: str) -> T:
        """Read a text. Raises ConfigError when it is not YAML."""
        document = documents.parse(text, file)
        raw = yaml.load(text, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))  # noqa: S506
        return cls(document, raw, text.splitlines())

    def error(self, path: Path, message: str, hint: str = "", *, key: bool = False) -> None:
        """Note an error at a value, or at its key."""
        place = self.document.place(path, key=key)
        self.problems.append(Problem(place, self.where + message, hint))

    def warn(self, path: Path, message: str) -> None:
        """Note something suspicious but loadable."""
        place = self.document.place(path)
        self.problems.append(Problem(place, self.where + message, severity="warning"))

    def in_text(self, path: Path, value: str, offset: int, message: str, severity: str) -> None:
        """Note a problem at character ``offset`` of the text at ``path``."""
        place = place_in(self.document, self.lines, path, value, offset)
        self.problems.append(Problem(place, self.where + message, severity=severity))

    def mapping(
        self, path: Path, value: Any, keys: Collection[str], what: str
    ) -> Mapping[str, Any] | None:
        """The mapping at ``path``, its unknown keys told; None if it is something else."""
        if not isinstance(value, dict):
            self.error(path, f"{what} must be a mapping")
            return None
        for key in value:
            if key not in keys:
                hint = f"known: {', '.join(keys)}"
                self.error((*path, key), f"unknown key {key!r}", hint, key=True)
        return value

    def items(self, path: Path, value: Any, what: str) -> list[Any]:
        """The list at ``path``; nothing counts as an empty one."""
        if value in (None, ""):
            return []
        if not isinstance(value, list):
            self.error(path, f"{what} must be a list")
            return []
        return value

    def text(self, path: Path, value: Any) -> str:
        """The text at ``path`` as written; nothing and null are the empty text."""
        if isinstance(value, dict | list):
            self.error(path, f"{path[-1]} must be text")
            return ""
        written = "" if value is None else str(value)
        null = written in ("~", "null", "Null", "NULL") and path not in self.document.blocks
        return "" if null and self.value(path) is None else written

    def value(self, path: Path) -> Any:
        """The value at ``path`` as YAML means it, "" where a key is no text there."""
        value = self.document.value
        for step in path:
            if isinstance(value, dict) and step not in value:
                return ""
            value = value[step]
        return value

    def duration(self, path: Path, entry: Mapping[str, Any]) -> float | None:
        """The seconds of the duration at ``path``; None where there is none or a wrong one."""
        key = str(path[-1])
        if key not in entry or self.value(path) is None:
            return None
        text = self.text(path, entry[key])
        try:
            return parse_duration(text)
        except CallError:
            self.error(path, f"{key}: {text!r} is no duration", "write 30s, 5m or 1h30m")
            return None
