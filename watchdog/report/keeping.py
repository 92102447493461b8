"""Reports in the state folder: one is written after each incident, the oldest go.

Writing happens on a thread of its own, so that no tick waits for it.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from ..model import Event
from .composing import compose
from .html import html
from .markdown import markdown
from .model import Report
from .sources import Source

FOLDER = "reports"
MOST = 100  # reports kept
MOST_BYTES = 50 * 1024 * 1024  # of all that are kept
MOST_WAITING = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
FORMS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "html": (".html", html),
    "markdown": (".md", markdown),
}
"""Form of a report: the end of its file's name, and what writes it."""


def write_report(folder: Path, report: Report) -> Path:
    """Write a report into ``folder``/reports in every form, whole or not at all, and let the oldest
    go. Returns the HTML file. Raises OSError.
    """
    target = folder / FOLDER
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for ending, write in FORMS.values():
        path = target / f"{report.incident.name}{ending}"
        aside = path.with_name(f".{path.name}.new")
        aside.touch(mode=0o600)
        aside.write_text(write(report), encoding="utf-8")
        os.replace(aside, path)
    _thin(target)
    return target / f"{report.incident.name}.html"


def kept_reports(folder: Path) -> list[Path]:
    """The HTML reports in ``folder``/reports, newest first."""
    with contextlib.suppress(OSError):
        return sorted((folder / FOLDER).glob("[!.]*.html"), reverse=True)
    return []


def kept_report(folder: Path, name: str, form: str = "html") -> Path | None:
    """The file of an incident's report, if it was kept; None for any other name."""
    if not _NAME.fullmatch(name):
        return None
    path = folder / FOLDER / f"{name}{FORMS[form][0]}"
    return path if path.is_file() else None


def _thin(target: Path) -> None:
    """Let the oldest reports go, past their number and their size."""
    total = 0
    for number, path in enumerate(sorted(target.glob("[!.]*.html"), reverse=True)):
        files = [path.with_suffix(ending) for ending, _ in FORMS.values()]
        files = [file for file in files if file.exists()]
        total += sum(file.stat().st_size for file in files)
        if number and (number >= MOST or total > MOST_BYTES):
            for file in files:
                file.unlink(missing_ok=True)


class Keeper:
    """Writes a report whenever a case is closed. ``source`` is asked on the keeper's own thread;
    ``now`` gives Unix seconds; ``log`` is told of a report that could not be written."""

    def __init__(
        self,
        folder: Path,
        source: Source,
        version: str,
        now: Callable[[], float],
        log: Callable[[str], object],
    ) -> None:
        self._folder, self._source, self._version = folder, source, version
        self._now, self._log = now, log
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def offer(self, events: Iterable[Event]) -> None:
        """Look at the events of a tick, once they are in the journal. Never waits."""
        closed = [
            str(each.fields.get("case") or "") for each in events if each.kind == "case_closed"
        ]
        if not closed:
            return
        with self._lock:
            self._waiting = [*self._waiting, *closed][-MOST_WAITING:]
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="reports", daemon=True)
                self._thread.start()

    def stop(self, patience: float) -> None:
        """Wait at most so many seconds for a report that is being written."""
        thread = self._thread
        if thread is not None:
            thread.join(patience)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key = self._waiting.pop(0)
            self._write(key)

    def _write(self, key: str) -> None:
        try:
            found = [each for each in self._source.incidents() if each.key == key]
            over = [each for each in found if each.closed is not None]
            if over:
                report = compose(self._source, over[0], self._version, self._now())
                write_report(self._folder, report)
        except Exception as error:  # noqa: BLE001 (the next incident's report must still be written)
            self._log(f"no report on {key}: {type(error).__name__}: {error}")
