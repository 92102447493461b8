"""A recording on disk: what came in and what was decided, a line a tick, complete after a crash.

Layout: ``manifest.json`` (format, start, groups), ``config.yaml``, ``rules/`` (the files in force),
``state.json`` (the state at the start, if any), ``inputs.jsonl``, ``decisions.jsonl``. Only files
are handled here; running them again is replay's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from . import documents
from .errors import ConfigError, Place, Problem
from .model import Decisions, Inputs, Tick
from .wire import InputsReader, InputsWriter, decisions_doc, dumps, finite, labels_of, texts

FORMAT = 1
MAX_LINE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a recording rests on. ``rules`` are file names in ``rules/`` in the order of loading."""

    version: str
    started: float
    interval: float
    stale_after: float
    groups: tuple[str, ...]
    urgent: tuple[str, ...]
    labels: Mapping[str, str]
    rules: tuple[str, ...]
    external_labels: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT


def beside(folder: Path) -> Path:
    """The folder itself, or the next one beside it (DIR.1, DIR.2 …) where it holds a recording: a
    daemon that is started again goes on recording."""
    number, found = 0, folder
    while (found / "manifest.json").exists():
        number += 1
        found = folder.with_name(f"{folder.name}.{number}")
    return found


class Recorder:
    """Writes a recording. Each finished tick is handed to the kernel before the next begins, so a
    killed process loses at most the tick under way."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        config: str,
        rules: Sequence[tuple[str, bytes]],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a recording in ``folder``. Raises ConfigError when one is there, OSError."""
        if (folder / "manifest.json").exists():
            raise ConfigError(
                Problem(Place(str(folder)), "already holds a recording", "name another folder")
            )
        (folder / "rules").mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, data in rules:
            _write(folder / "rules" / name, data)
        _write(folder / "config.yaml", config.encode())
        if state is not None:
            _write(folder / "state.json", dumps(state).encode())
        doc = {**{k: getattr(manifest, k) for k in Manifest.__slots__}}
        _write(folder / "manifest.json", dumps(doc, indent=2).encode())
        self.folder = folder
        self._inputs = _append(folder / "inputs.jsonl")
        self._decisions = _append(folder / "decisions.jsonl")
        self._writer = InputsWriter()

    def write(self, tick: Tick, inputs: Inputs, decisions: Decisions) -> None:
        """Add a tick. Raises OSError."""
        self._inputs.write(self._writer.line(tick, inputs) + "\n")
        self._inputs.flush()
        self._decisions.write(dumps(decisions_doc(tick, decisions)) + "\n")
        self._decisions.flush()

    def close(self) -> None:
        """End the recording."""
        self._inputs.close()
        self._decisions.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def _append(path: Path) -> IO[str]:
    path.touch(mode=0o600)
    return path.open("a", encoding="utf-8")


class Recording:
    """Reads a recording. Raises ConfigError, one line, for what is missing or foreign."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "manifest.json").exists():
            hint = "give a folder that `record` or `run --record` wrote"
            problem = Problem(Place(str(folder)), "holds no recording (no manifest.json)", hint)
            raise ConfigError(problem)
        doc = _json(folder / "manifest.json")
        if not isinstance(doc, dict) or doc.get("format") != FORMAT:
            place = Place(str(folder / "manifest.json"))
            raise ConfigError(Problem(place, "is of another format than this version reads"))
        self.manifest = _manifest(doc, folder)
        self.rule_files = [folder / "rules" / Path(name).name for name in self.manifest.rules]

    @property
    def state(self) -> Mapping[str, Any] | None:
        """The engine's state at the start, or None for a cold start."""
        path = self.folder / "state.json"
        if not path.exists():
            return None
        doc = _json(path)
        if not isinstance(doc, dict):
            raise ConfigError(Problem(Place(str(path)), "holds no state"))
        return doc

    @property
    def size(self) -> int:
        """Bytes of the inputs, for showing progress."""
        path = self.folder / "inputs.jsonl"
        return path.stat().st_size if path.exists() else 0

    def inputs(self) -> Iterator[tuple[Tick, Inputs, int]]:
        """Each finished tick with its inputs and the bytes read so far; a cut last line is left
        out."""
        reader = InputsReader()
        path = self.folder / "inputs.jsonl"
        read = 0
        for position, line in enumerate(self._lines(path), 1):
            read += len(line)
            try:
                tick, inputs = reader.read(line)
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                place = Place(str(path), position)
                text = str(error).partition("\n")[0][:100]
                problem = Problem(place, f"is no line of a recording ({text})")
                raise ConfigError(problem) from error
            yield tick, inputs, read

    def decisions(self) -> Iterator[str]:
        """The lines of decisions.jsonl that are whole."""
        for line in self._lines(self.folder / "decisions.jsonl"):
            yield line.decode("utf-8", "replace").rstrip("\n")

    @staticmethod
    def _lines(path: Path) -> Iterator[bytes]:
        try:
            if path.exists() and not path.is_file():
                raise ConfigError(Problem(Place(str(path)), "is no file"))
            with path.open("rb") as stream:
                while line := stream.readline(MAX_LINE):
                    if not line.endswith(b"\n"):
                        return
                    yield line
        except FileNotFoundError as error:
            raise ConfigError(Problem(Place(str(path)), "is missing from the recording")) from error
        except OSError as error:
            raise ConfigError(
                Problem(Place(str(path)), f"cannot be read: {error.strerror}")
            ) from error


def _json(path: Path) -> Any:
    try:
        return documents.json_of(path.read_bytes() if path.is_file() else b"")
    except (OSError, ValueError) as error:
        raise ConfigError(Problem(Place(str(path)), f"cannot be read: {error}")) from error


def _manifest(doc: Mapping[str, Any], folder: Path) -> Manifest:
    try:
        return Manifest(
            str(doc["version"]),
            finite(doc["started"]),
            _positive(doc["interval"]),
            _positive(doc["stale_after"]),
            texts(doc["groups"]),
            texts(doc["urgent"]),
            dict(labels_of(doc["labels"])),
            texts(doc["rules"]),
            dict(labels_of(doc["external_labels"])),
        )
    except (KeyError, TypeError, ValueError) as error:
        place = Place(str(folder / "manifest.json"))
        raise ConfigError(Problem(place, f"lacks or garbles {error}")) from error


def _positive(value: Any) -> float:
    seconds = finite(value)
    if not 0 < seconds < 1e9:
        raise ValueError(f"a duration: {value!r}")
    return seconds
