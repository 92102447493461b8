"""The page that documents every key of the configuration, made from the models themselves.

``python -m vllm_watchdog.watchdog.config.reference`` prints it (``make docs`` keeps it).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from . import durations
from .models import Config

HEAD = """\
# Configuration

One YAML file, named by `--config FILE`. Every key has a default, unknown keys are refused, and
`vllm-watchdog check --config FILE` names every error with file, line and column. Durations are
written as `5s`, `2m` or `1h30m`; paths are relative to the file.

`NAME` stands for a name of your own, `[]` for each item of a list.

| Key | Value | Default | Meaning |
| --- | --- | --- | --- |
"""

_FORMS = {
    durations.Seconds: "duration",
    durations.Period: "duration, 100ms to 1d",
    durations.PositiveSeconds: "duration > 0",
    durations.Rate: "count/time",
    durations.Address: "HOST:PORT",
}
_WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false"}
_SHOWN = {"listen": "127.0.0.1:9710", "guard.node": "4/h", "state": "/var/lib/vllm-watchdog"}


def page() -> str:
    """The whole page as Markdown."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows(Config, ""))


def rows(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """Key, form, default and meaning of every field below ``model``."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        below, step = _below(field.annotation)
        meaning = (field.description or (below.__doc__ if below else "") or "").split("\n")[0]
        if below is None:
            form = _form(_whole(field.annotation, field.metadata))
            unit = "s" if form.startswith("duration") else ""
            yield f"`{key}`", form, _default(key, field.default, unit), _cell(meaning)
        else:
            yield f"`{key}`", _container(step), "", _cell(meaning)
            yield from rows(below, f"{key}{step}.")


def _whole(annotation: Any, metadata: list[Any]) -> Any:
    """The annotation with what pydantic took off it."""
    for form in _FORMS:
        base, *marks = get_args(form)
        if base == annotation and marks and any(mark in metadata for mark in marks):
            return form
    return annotation


def _below(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The model below a field, and how its keys continue the field's own."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, ""
    origin: Any = get_origin(annotation)
    step = {dict: ".NAME", tuple: "[]"}.get(origin, "")
    for part in get_args(annotation):
        found, further = _below(part)
        if found is not None:
            return found, step + further
    return None, ""


def _container(step: str) -> str:
    return {"": "mapping", ".NAME": "mapping by name"}.get(step, "list")


def _form(annotation: Any) -> str:
    if annotation in _FORMS:
        return _FORMS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _form(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        return f"list of {_form(parts[0])}"
    if origin is dict:
        return f"mapping of {_form(parts[1])}"
    if parts:
        return " or ".join(_form(part) for part in parts if part is not type(None))
    return _WORDS.get(annotation, "path" if "Path" in str(annotation) else str(annotation))


def _default(key: str, value: Any, unit: str) -> str:
    if key in _SHOWN:
        return f"`{_SHOWN[key]}`"
    if value is None or value is PydanticUndefined or value in ((), {}):
        return "required" if value is PydanticUndefined else "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value:g}{unit}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
