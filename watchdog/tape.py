"""The recording of a run: where it goes, when it goes on elsewhere, that it ends without harm."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from .engine import Engine
from .loading import Loaded
from .model import Decisions, Inputs, Tick
from .recording import Manifest, Recorder
from .version import version


class Tape:
    """Watching goes on without a recording, not the other way round. ``tell`` takes an own event:
    kind, message, severity."""

    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        self._tell = tell
        self.recorder: Recorder | None = None
        self._count = 0
        self._first: Path | None = None

    def begin(self, folder: Path, loaded: Loaded, engine: Engine, wall: float) -> None:
        """Record from now on. Raises ConfigError when the folder holds a recording, OSError."""
        names = [f"{n:02d}-{path.name}" for n, path in enumerate(loaded.files)]
        settings = engine.settings
        manifest = Manifest(
            version(),
            wall,
            settings.interval,
            settings.stale_after,
            loaded.config.rules.groups,
            settings.urgent,
            dict(settings.labels),
            tuple(names),
            dict(settings.external_labels),
        )
        files = [(name, path.read_bytes()) for name, path in zip(names, loaded.files, strict=True)]
        state = engine.dump() if engine.warm else None
        self.recorder = Recorder(folder, manifest, loaded.text, files, state)

    def begin_anew(self, loaded: Loaded, engine: Engine, wall: float) -> None:
        """A recording holds one configuration: go on in a folder of its own beside the last."""
        if self.recorder is None:
            return
        self.recorder.close()
        first = self._first = self._first or self.recorder.folder
        folder = self.recorder.folder
        self.recorder = None
        while folder.exists():
            self._count += 1
            folder = first.with_name(f"{first.name}.{self._count}")
        try:
            self.begin(folder, loaded, engine, wall)
        except OSError as error:
            self._ended(folder, error)

    def write(self, tick: Tick, inputs: Inputs, decisions: Decisions) -> None:
        """Add a tick, if there is a recording."""
        recorder = self.recorder
        if recorder is None:
            return
        try:
            recorder.write(tick, inputs, decisions)
        except (OSError, ValueError) as error:
            self.recorder = None
            with contextlib.suppress(OSError):
                recorder.close()
            self._ended(recorder.folder, error)

    def _ended(self, folder: Path, error: OSError | ValueError) -> None:
        reason = getattr(error, "strerror", None) or error
        self._tell("recording_ended", f"recording ended: {folder}: {reason}", "warning")

    def close(self) -> None:
        """End the recording."""
        if self.recorder is not None:
            self.recorder.close()
