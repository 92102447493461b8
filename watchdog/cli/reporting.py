"""The command `report`: what happened in one incident, as a file for people.

Asks a running daemon, or reads a state folder or a recording; what it tells is the room report's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from ..config.models import default_state
from ..errors import ConfigError, Place, Problem
from ..report import Incident, RecordingSource, Source, StateSource, chosen, compose
from ..report.keeping import FORMS, kept_report
from ..system import RealClock, hostname
from ..version import version
from .asking import DEFAULT_URL, Url, _ask, fetch
from .output import AsJson, note, print_json, print_table, visible

_KEYS = frozenset("incident service cards cause alert opened closed result".split())  # noqa: SIM905


def report(
    incident: Annotated[
        str,
        typer.Argument(help="Its name or how it begins, a service, a card; default the newest."),
    ] = "",
    folder: Annotated[
        Path | None, typer.Option("--from", help="A recording's folder instead of a daemon.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="A state folder; no daemon needs to run.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="html or markdown.")] = "html",
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", help="File to write (- = standard output); default INCIDENT.html."
        ),
    ] = None,
    list_them: Annotated[
        bool, typer.Option("--list", help="List the incidents instead, newest first.")
    ] = False,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write what happened in one incident, as one file that needs no network.

    Without INCIDENT it is the newest; `--list` (or `--json`) lists them all. A recording without an
    incident is reported on as a whole. The daemon keeps a report of each incident in its state
    folder, too, under reports/.
    """
    if form not in FORMS:
        known = " or ".join(FORMS)
        raise ConfigError(Problem(Place(f"--format {form}"), "no such format", known))
    if folder is not None and state is not None:
        raise ConfigError(Problem(Place("--from"), "either a recording or a state folder", ""))
    source = _source(folder, state, url)
    if list_them or as_json:
        found = _told(source) if source else _ask(url, "/api/v1/incidents", _KEYS, many=True)
        _print_list(found, as_json)
        return
    name, text = _made(source, state or default_state(), incident, form) if source else _asked(
        url, incident, form
    )  # fmt: skip
    _write(output or f"{name}{FORMS[form][0]}", text)


def _source(folder: Path | None, state: Path | None, url: str) -> Source | None:
    """What is read without a daemon; None where one answers."""
    if folder is not None:
        return RecordingSource(folder)
    if state is not None:
        return StateSource(state, hostname())
    try:
        _ask(url, "/api/v1/status")
    except ConfigError:
        here = default_state()
        if url != DEFAULT_URL or not (here / "journal.db").is_file():
            raise
        note(f"no daemon answers; reading the journal in {here}")
        return StateSource(here, hostname())
    return None


def _told(source: Source) -> list[dict[str, Any]]:
    return [each.document() for each in source.incidents()]


def _print_list(found: Iterable[dict[str, Any]], as_json: bool) -> None:
    docs = list(found)
    if as_json:
        print_json(docs)
        return
    if not docs:
        note("there has been no incident")
        return
    rows = [
        (
            each["incident"],
            each["service"] or " ".join(each["cards"]) or "node",
            each["cause"],
            each["opened"],
            each["closed"] or "not over",
            each["result"],
        )
        for each in docs
    ]
    heads = ("incident", "of", "cause", "opened", "closed", "result")
    print_table("", heads, rows, whole=("incident", "of", "cause"))


def _made(source: Source, state: Path, wanted: str, form: str) -> tuple[str, str]:
    """The report made here; the one that the daemon wrote at the end knows more."""
    found = source.incidents()
    if not found and not wanted and isinstance(source, RecordingSource):
        whole = Incident(
            "recording", "", "", (), "none", "", "", "", source.started, source.now(),
            "no incident began in this recording",
        )  # fmt: skip
        return "recording", FORMS[form][1](compose(source, whole, version(), RealClock().wall()))
    incident = chosen(found, wanted)
    if isinstance(source, StateSource) and incident.closed is not None:
        kept = kept_report(state, incident.name, form)
        if kept is not None:
            return incident.name, kept.read_text("utf-8")
    made = compose(source, incident, version(), RealClock().wall())
    return incident.name, FORMS[form][1](made)


def _asked(url: str, incident: str, form: str) -> tuple[str, str]:
    """The report that a running daemon makes."""
    found = _ask(url, "/api/v1/incidents", _KEYS, many=True)
    if not found:
        raise ConfigError(Problem(Place("report"), "there has been no incident to report on"))
    response = fetch(url, f"/report?{urlencode({'incident': incident, 'format': form})}")
    named = response.headers.get("content-disposition", "").partition('filename="')[2]
    name = Path(named.rstrip('"')).stem or "incident"
    return name, response.body.decode("utf-8", "replace")


def _write(output: str, text: str) -> None:
    """Write the file, for its owner alone, and say where it is."""
    if output == "-":
        sys.stdout.write(text)
        return
    path = Path(output)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        hint = "name another file with --output"
        place = Place(str(path))
        raise ConfigError(Problem(place, f"cannot be written: {error.strerror}", hint)) from error
    print(visible(path))
    if sys.stderr.isatty():
        note(f"{len(text.encode()) // 1024} KiB; open it in a browser")
