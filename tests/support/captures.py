"""Captured outputs and logs, read as a user reads them: by the commands `collect` and `classify`.

The commands run in this process; what they print as JSON is taken apart again.
"""

from __future__ import annotations

import contextlib
import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.logrecords import LogRecord
from vllm_watchdog.watchdog.model import Event, Sample, labelset


def answer(*words: str | Path) -> tuple[int, str]:
    """Exit status and standard output of a command; it must have said nothing else."""
    out, wrong = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(wrong):
        status = run([str(word) for word in words])
    assert "Traceback" not in wrong.getvalue()
    return status, out.getvalue()


def collect(name: str, path: Path, command: str | None = None) -> list[Sample | Event]:
    """`collect NAME --from FILE --json`. Raises SourceError with the error of a capture in which
    the source reports failure or nothing can be read (exit status 1)."""
    words = ["collect", name, "--from", path, "--json", *(["--as", command] if command else [])]
    status, text = answer(*words)
    document = json.loads(text)
    assert (document["collector"], document["success"]) == (name, status == 0)
    if status:
        assert (status, document["samples"]) == (1, [])
        raise SourceError(document["error"])
    assert document["error"] is None
    return [
        *(Sample(s["name"], float(s["value"]), labelset(s["labels"])) for s in document["samples"]),
        *(_event(event) for event in document["events"]),
    ]


def _event(event: dict[str, Any]) -> Event:
    labels = labelset(event["labels"])
    return Event(event["kind"], event["message"], labels, event["fields"], event["severity"])


def classify(path: Path, source: str | None = None) -> list[LogRecord]:
    """`classify [--source SOURCE] FILE --json`."""
    words = ["classify", path, "--json", *(["--source", source] if source else [])]
    status, text = answer(*words)
    assert status == 0
    return [_record(json.loads(line)) for line in text.splitlines()]


def _record(document: dict[str, Any]) -> LogRecord:
    moment = document.pop("time")
    time = None if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return LogRecord(**document, time=None if time is None else time.timestamp())
