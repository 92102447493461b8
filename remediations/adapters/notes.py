"""Small JSON documents of an act in the state folder: what was found, what was begun.

Written whole, aside, synced, before the change that they are about. A damaged one is no reason to
forget: it is told, and nothing is changed by it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...watchdog.errors import SourceError
from ...watchdog.system import System

MAX_BYTES = 1024 * 1024


def load(system: System, path: Path) -> dict[str, Any]:
    """The document; empty where there is none. Raises SourceError where it cannot be read."""
    try:
        data = system.files.part(path, 0, MAX_BYTES).data
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        document = json.loads(data)
    except ValueError as error:
        raise SourceError(f"{path} is damaged: {error}") from error
    if not isinstance(document, dict):
        raise SourceError(f"{path} is damaged: no JSON object")
    return document


def save(system: System, path: Path, document: dict[str, Any]) -> None:
    """Put the document in place, synced. Raises OSError."""
    system.files.make_folder(path.parent)
    text = json.dumps(document, indent=1, sort_keys=True)
    system.files.write(path, text.encode(), 0o600)
