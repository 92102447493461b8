"""Feeds a recording to an engine again, on the recording's own time.

Nothing of the present enters: the same recording gives the same document on every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import healing
from .config import Config
from .config import load as load_config
from .engine import Engine, EngineSettings
from .errors import ConfigError, Place, Problem
from .model import Tick
from .recording import Recording
from .rulepack import load as load_rules
from .wire import decisions_doc, dumps, moment


@dataclass(frozen=True, slots=True)
class Replayed:
    """The document of a replay, and where it first differs from what was recorded, if it does."""

    doc: dict[str, Any]
    difference: str = ""


def engine_of(recording: Recording, rules: Sequence[Path] | None = None) -> Engine:
    """The engine as it stood when the recording began. Raises ConfigError."""
    manifest = recording.manifest
    settings = EngineSettings(
        interval=manifest.interval,
        stale_after=manifest.stale_after,
        urgent=tuple(manifest.urgent),
        labels=manifest.labels,
        external_labels=manifest.external_labels,
    )
    pack = load_rules(rules or recording.rule_files, manifest.groups)
    engine = Engine(settings, pack.groups, healing=healing(_config(recording)))
    state = recording.state
    if state is not None:
        try:
            engine.restore(state, manifest.started)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            place = Place(str(recording.folder / "state.json"))
            problem = Problem(place, f"holds no state of this version ({error})")
            raise ConfigError(problem) from error
    return engine


def _config(recording: Recording) -> Config:
    """The configuration that was in force; the defaults where there was none."""
    path = recording.folder / "config.yaml"
    return load_config(path) if path.exists() else Config()


def replay(
    folder: Path, rules: Sequence[Path] | None = None, *, progress: bool = False
) -> Replayed:
    """Run a recording through an engine. Raises ConfigError for what is no recording."""
    recording = Recording(folder)
    engine = engine_of(recording, rules)
    collected = _Collected()
    recorded = None if rules else recording.decisions()
    difference = ""
    with _bar(progress, recording.size) as advance:
        for tick, inputs, read in recording.inputs():
            doc = decisions_doc(tick, engine.step(tick, inputs))
            collected.add(tick, doc)
            if recorded is not None and not difference:
                difference = _compare(tick, dumps(doc), next(recorded, None))
            advance(read)
    if recorded is not None and not difference:
        extra = sum(1 for _ in itertools.islice(recorded, 1))
        difference = "decisions.jsonl holds more ticks than inputs.jsonl" if extra else ""
    return Replayed(collected.doc(), difference)


def _compare(tick: Tick, again: str, recorded: str | None) -> str:
    if recorded is None or recorded == again:
        return ""  # a run killed between its two files has inputs without decisions at the end
    return f"tick {tick.number} ({moment(tick.wall)}) was decided otherwise when it was recorded"


class _Collected:
    """Sums up the ticks' decisions."""

    def __init__(self) -> None:
        self._lists: dict[str, list[Any]] = {
            key: [] for key in ("transitions", "requests", "refusals", "events")
        }
        self._first: Tick | None = None
        self._last: Tick | None = None
        self._ticks = 0

    def add(self, tick: Tick, doc: dict[str, Any]) -> None:
        self._first = self._first or tick
        self._last = tick
        self._ticks += 1
        for key, items in self._lists.items():
            items.extend(doc[key])

    def doc(self) -> dict[str, Any]:
        return {
            "from": moment(self._first.wall) if self._first else None,
            "to": moment(self._last.wall) if self._last else None,
            "ticks": self._ticks,
            **self._lists,
        }


class _bar:  # noqa: N801 (used as a function)
    """A progress bar on standard error, or nothing."""

    def __init__(self, shown: bool, total: int) -> None:
        self._shown, self._total = shown, total

    def __enter__(self) -> Any:
        if not self._shown:
            return lambda _read: None
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), transient=True)
        task = self._progress.add_task("replaying", total=self._total)
        self._progress.start()
        return lambda read: self._progress.update(task, completed=read)

    def __exit__(self, *_exit: object) -> None:
        if self._shown:
            self._progress.stop()
