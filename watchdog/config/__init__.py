"""Configuration: one YAML file in, one checked value out, every error with its place.

Nothing is looked up on the node here beyond the file itself.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from .. import documents
from ..errors import ConfigError, Place, Problem
from .models import (
    ADDRESS,
    Act,
    CollectorSettings,
    Config,
    Guard,
    Manager,
    Mode,
    Policy,
    Probe,
    Schedule,
    Service,
    Targets,
    default_state,
)

__all__ = [
    "Act",
    "CollectorSettings",
    "Config",
    "Guard",
    "Manager",
    "Mode",
    "Policy",
    "Probe",
    "Schedule",
    "Service",
    "Targets",
    "checked",
    "default_state",
    "load",
    "parse",
]

MAX_MESSAGE = 300  # characters of a message that quotes what is wrong
_PATTERNS = ("files", "logs")  # keys that hold patterns of file names


def load(path: str | Path) -> Config:
    """Read and check a configuration file. Raises ConfigError naming every problem."""
    return parse(documents.read(path, "configuration"), str(path))


def parse(text: str | bytes, file: str = "<configuration>") -> Config:
    """Check a configuration's text. Relative paths are taken as relative to the file's folder."""
    document = documents.parse(text, file)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise ConfigError(Problem(Place(file, 1, 1), "must be a mapping of keys, such as mode:"))
    config: Config = _rooted(checked(value, document), Path(file).absolute().parent)
    return config


def checked(value: Mapping[str, Any], document: documents.Document) -> Config:
    """The configuration of keys that stand at the top of ``document``; paths are left as they are.

    Raises ConfigError with every error at its place in the document.
    """
    try:
        return Config.model_validate(value)
    except ValidationError as error:
        problems = [_problem(item, document) for item in error.errors(include_url=False)]
        raise ConfigError(_unique(problems)) from error


def _unique(problems: list[Problem]) -> list[Problem]:
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((str(problem.place), problem.message), problem)
    return sorted(seen.values(), key=lambda problem: (problem.place.line, problem.place.column))


def _problem(error: Any, document: documents.Document) -> Problem:
    path = [part for part in error["loc"] if _in_document(part)]
    where = ".".join(str(part) for part in path)
    if error["type"] == "extra_forbidden":
        known = _known_keys(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, 1)
        hint = f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(sorted(known))
        return Problem(document.place(path, key=True), f"unknown key {where!r}", hint)
    message = error["msg"].removeprefix("Value error, ")
    if len(message) > MAX_MESSAGE:
        message = message[:MAX_MESSAGE] + "..."
    if error["type"] == "missing":
        return Problem(document.place(path[:-1]), f"{where!r} is missing")
    if error["type"] == "string_pattern_mismatch":
        message = f"{str(error['input'])[:MAX_MESSAGE]!r} does not have the form wanted here"
        if error["ctx"]["pattern"] == ADDRESS:
            hint = "write http://HOST:PORT"
            return Problem(document.place(path), f"{where}: {message}", hint)
    return Problem(document.place(path), f"{where}: {message}" if where else message)


def _in_document(part: str | int) -> bool:
    return isinstance(part, int) or part != "[key]"


def _known_keys(path: list[Any]) -> Collection[str]:
    """The keys a mapping at ``path`` may hold (empty for free-form mappings)."""
    annotation: Any = Config
    for part in path:
        model = _model_in(annotation)
        if _is_mapping(annotation) or isinstance(part, int):
            annotation = model  # the part was a name or a position: the model below it is meant
        else:
            field = model.model_fields.get(str(part)) if model else None
            annotation = field.annotation if field else None
    model = None if _is_mapping(annotation) else _model_in(annotation)
    return model.model_fields if model else ()


def _is_mapping(annotation: Any) -> bool:
    return get_origin(annotation) is dict


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The first model named in an annotation, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for part in get_args(annotation):
        found = _model_in(part)
        if found is not None:
            return found
    return None


def _rooted(value: Any, folder: Path) -> Any:
    """The same value; what it names relative to the file, patterns of files too, is absolute."""
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, dict):
        return {key: _rooted(each, folder) for key, each in value.items()}
    if not isinstance(value, BaseModel):
        return value
    changed = {}
    for name in type(value).model_fields:
        given = getattr(value, name)
        if name in _PATTERNS and given is not None:
            rooted: Any = tuple(str(folder / pattern) for pattern in given)
        else:
            rooted = _rooted(given, folder)
        if rooted != given:
            changed[name] = rooted
    return value.model_copy(update=changed)
