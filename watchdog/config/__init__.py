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


def load(path: str | Path) -> Config:
    """Read and check a configuration file. Raises ConfigError naming every problem."""
    return parse(documents.read(path, "configuration"), str(path))


def parse(text: str | bytes, file: str = "<configuration>") -> Config:
    """Check a configuration's text. Relative paths are taken as relative to the file's folder."""
    document = documents.parse(text, file)
    value = {} if document.value is None else document.value
    if not isinstance(value, dict):
        raise ConfigError(Problem(Place(file, 1, 1), "must be a mapping of keys, such as mode:"))
    return _rooted(checked(value, document), Path(file).parent)


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


def _rooted(config: Config, folder: Path) -> Config:
    """Make the paths that the file names relative to itself absolute."""
    services = {
        name: service.model_copy(
            update={"profiles": {key: folder / path for key, path in service.profiles.items()}}
        )
        for name, service in config.services.items()
    }
    rules = config.rules
    if rules.files is not None:
        rules = rules.model_copy(
            update={"files": tuple(str(folder / pattern) for pattern in rules.files)}
        )
    return config.model_copy(update={"services": services, "rules": rules})
