"""Whether a model's files on disk are there, whole and what they are said to be. Looks only.

Weights are never read: names, sizes, and the small JSON files beside them.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ...watchdog.system import System

MODEL_KEYS = ("MODEL", "MODEL_PATH", "VLLM_MODEL")
MAX_JSON = 16 * 1024 * 1024
_WEIGHTS = (".safetensors", ".bin", ".pt")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def model_of(values: Mapping[str, str]) -> str:
    """The model that a profile names: MODEL, MODEL_PATH, VLLM_MODEL, or ``--model`` in any value;
    empty for none."""
    for key in MODEL_KEYS:
        if values.get(key):
            return values[key]
    for value in values.values():
        words = _words(value)
        for at, word in enumerate(words):
            if word.startswith("--model="):
                return word.partition("=")[2]
            if word == "--model" and at + 1 < len(words):
                return words[at + 1]
    return ""


def size_of(system: System, model: str) -> int | None:
    """Bytes of a checkpoint's weights; None where there are none to be seen."""
    folder = PurePosixPath(model)
    if not folder.is_absolute():
        return None
    try:
        sizes = [_size(system, folder / name) for name in _weights(system, folder)]
    except OSError:
        return None
    return sum(sizes) or None


def broken(system: System, model: str) -> str:
    """Why a checkpoint could not be loaded, as far as its files tell; empty where it could."""
    folder = PurePosixPath(model)
    if not folder.is_absolute():
        return f"{model} is no path on this node: whether it is there cannot be proved"
    try:
        if not isinstance(_json(system, folder / "config.json"), dict):
            return f"{folder}/config.json is no JSON object"
        names = [*_indexed(system, folder)] or [*_weights(system, folder)]
        if not names:
            return f"{folder} holds no weights"
        for name in names:
            if _size(system, folder / name) == 0:
                return f"{folder}/{name} is empty"
    except OSError as error:
        return f"{error.filename or folder}: {error.strerror or error}"
    except ValueError as error:
        return f"{folder}: {error}"
    return ""


def quantized(system: System, model: str) -> bool:
    """Whether a checkpoint says of itself that its weights are quantized."""
    folder = PurePosixPath(model)
    names = system.files.names(str(folder))
    if any(name.startswith("quant_model_description") and name.endswith(".json") for name in names):
        return True
    try:
        config = _json(system, folder / "config.json")
    except (OSError, ValueError):
        return False
    inner = config.get("text_config") if isinstance(config, dict) else None
    return any(
        isinstance(each, dict) and each.get("quantization_config") for each in (config, inner)
    )


def _weights(system: System, folder: PurePosixPath) -> Iterable[str]:
    return [name for name in system.files.names(str(folder)) if name.endswith(_WEIGHTS)]


def _indexed(system: System, folder: PurePosixPath) -> Iterator[str]:
    """The files that the checkpoint's own index names; none where it has no index."""
    for index in _INDEXES:
        if not system.files.exists(str(folder / index)):
            continue
        told = _json(system, folder / index)
        weights = told.get("weight_map") if isinstance(told, dict) else None
        if not weights or not hasattr(weights, "values"):
            raise ValueError(f"{index} names no weights")
        for name in sorted({str(name) for name in weights.values()}):
            if "/" in name or name in ("", ".", ".."):
                raise ValueError(f"{index} names a file elsewhere")
            yield name


def _size(system: System, path: PurePosixPath) -> int:
    return system.files.part(str(path), 0, 0).size


def _json(system: System, path: PurePosixPath) -> Any:
    data = system.files.part(str(path), 0, MAX_JSON).data
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is no JSON") from error


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()
