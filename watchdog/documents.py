"""Documents that people write: read within bounds, every value with the place where it stands.

Only reading and places; what a document means is for the rooms above.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from .errors import ConfigError, Place, Problem
from .system import read_input

Path = tuple[str | int, ...]

MAX_BYTES = 16 * 1024 * 1024
MAX_DEPTH = 64
MAX_VALUES = 1_000_000
ALIASED = 100_000  # values of a short text that repeats itself by aliases


@dataclass(frozen=True, slots=True)
class Document:
    """A YAML document as plain values, with the place of each key and value by its path.

    ``places[("groups", 0, "name")]`` is where that value begins; ``keys`` likewise for the key
    itself; ``blocks`` holds the paths of block scalars (``|`` and ``>``), whose text begins a line
    below.
    """

    value: Any
    file: str
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    blocks: frozenset[Path] = frozenset()

    def place(self, path: Iterable[str | int], *, key: bool = False) -> Place:
        """Where ``path`` stands; for a path that is not there, its nearest parent."""
        at = tuple(path)
        table = self.keys if key else self.places
        while at:
            found = table.get(at) or self.places.get(at)
            if found:
                return found
            at = at[:-1]
        return self.places.get((), Place(self.file, 1, 1))


def read(path: str | pathlib.Path, what: str = "file") -> str:
    """The text of a file that a person named. Raises ConfigError, one line, where it is none."""
    place = Place(str(path))
    try:
        data = read_input(path, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise ConfigError(Problem(place, f"{what} is larger than {MAX_BYTES} bytes"))
        return data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(Problem(place, f"cannot read {what}: {reason}")) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Problem(place, f"{what} is not UTF-8")) from error


def json_of(data: str | bytes) -> Any:
    """The value of a JSON text from outside. Raises ValueError, for one nested too deeply, too."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def parse(text: str | bytes, file: str) -> Document:
    """Read one YAML document. Raises ConfigError with file, line and column."""
    if len(text) > MAX_BYTES:
        raise ConfigError(Problem(Place(file), f"is larger than {MAX_BYTES} bytes"))
    loader: Any = None
    try:
        loader = yaml.CSafeLoader(text) if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader(text)
        root = loader.get_single_node()
        builder = _Builder(file, min(max(len(text), ALIASED), MAX_VALUES))
        value = builder.build(root, (), 0) if root is not None else None
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_yaml_problem(error, file)) from error
    except yaml.YAMLError as error:
        raise ConfigError(Problem(Place(file), f"is not YAML: {_line(error)}")) from error
    finally:
        if loader is not None:
            loader.dispose()
    return Document(value, file, builder.places, builder.keys, frozenset(builder.blocks))


def _yaml_problem(error: yaml.MarkedYAMLError, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
    text = error.problem or "is not YAML"
    if error.context:
        text = f"{text} {error.context}"
    return Problem(place, f"broken YAML: {text}")


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


class _Builder:
    """Turns the node tree into values, noting places; refuses what would be read two ways."""

    def __init__(self, file: str, most: int) -> None:
        self.file = file
        self._left = most
        self.places: dict[Path, Place] = {}
        self.keys: dict[Path, Place] = {}
        self.blocks: set[Path] = set()
        self._constructor = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: Path, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise ConfigError(Problem(self._at(node), f"is nested deeper than {MAX_DEPTH} levels"))
        self._left -= 1
        if self._left < 0:
            message = "holds too many values, counting what its aliases (*) repeat"
            raise ConfigError(Problem(self._at(node), message))
        self.places[path] = self._at(node)
        if isinstance(node, yaml.MappingNode):
            return dict(self._pairs(node, path, depth))
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            self.blocks.add(path)
        return self._scalar(node)

    def _pairs(
        self, node: yaml.MappingNode, path: Path, depth: int
    ) -> Iterator[tuple[str | int, Any]]:
        seen: set[Any] = set()
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                hint = "write the keys out"
                raise ConfigError(Problem(self._at(key_node), "merge keys are not read", hint))
            key = self._scalar(key_node)
            if not isinstance(key, str | int) or isinstance(key, bool):
                message = f"{key_node.value!r} cannot be a key here"
                hint = "quote it" if isinstance(key, bool) else ""
                raise ConfigError(Problem(self._at(key_node), message, hint))
            if key in seen:
                raise ConfigError(Problem(self._at(key_node), f"{key!r} is given twice"))
            seen.add(key)
            below = (*path, key)
            self.keys[below] = self._at(key_node)
            yield key, self.build(value_node, below, depth + 1)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = self._constructor.construct_object(node, deep=True)
        except (ValueError, OverflowError) as error:
            raise ConfigError(Problem(self._at(node), _line(error))) from error
        if isinstance(value, str) and "\0" in value:
            raise ConfigError(Problem(self._at(node), "holds a NUL character"))
        return value

    def _at(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)
