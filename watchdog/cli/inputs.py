"""Commands that look at inputs: discover, check, collect, classify. None needs a running daemon."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ...collectors import COLLECTORS, PER_SERVICE, capture_function
from ..errors import ConfigError, NoData, NotSupported, Place, Problem, SourceError
from ..model import Event, Page, Sample
from ..system import read_input
from ..wire import number, plain
from .output import AsJson, counted, note, print_json, print_table, visible

if TYPE_CHECKING:
    from ..logrecords import LogRecord
    from ..logs import Classifier

MAX_CAPTURE = 64 * 1024 * 1024  # bytes of a captured output
PIECE = 64 * 1024 * 1024  # bytes of a log read at a time

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Configuration file (YAML); without it all is discovered."),
]


def discover(as_json: AsJson = False) -> None:
    """Find cards and running vLLM servers, and print the configuration that `run` would use.

    Save it and change what you like: `vllm-watchdog discover > watchdog.yaml`, then
    `vllm-watchdog check --config watchdog.yaml`.
    """
    from ..findings import look
    from ..system import System

    found = look(System())
    if as_json:
        print_json(found.doc())
    else:
        print(found.yaml(), end="")


def check(
    rules: Annotated[
        list[Path] | None, typer.Argument(help="Rule files to check beside the configuration's.")
    ] = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check a configuration and rule files; name every error with file, line and column.

    Exit status: 0 fine, 1 suspicious but loadable, 2 not loadable.
    """
    from ..checking import check_all

    report = check_all(config, rules or [])
    if as_json:
        print_json(
            {
                "problems": [
                    {
                        "file": p.place.file,
                        "line": p.place.line,
                        "column": p.place.column,
                        "message": p.message,
                        "hint": p.hint,
                        "severity": p.severity,
                    }
                    for p in report.problems
                ],
                "groups": report.groups,
                "rules": report.rules,
            }
        )
    else:
        for problem in report.problems:
            print(visible(f"{problem.severity}: {problem}"), file=sys.stderr)
        if not report.failed:
            rules_said = counted(report.rules, "rule")
            print(f"{rules_said} in {counted(report.groups, 'group')}, ready to run")
    if report.problems:
        raise typer.Exit(2 if report.failed else 1)


def collect(
    name: Annotated[str, typer.Argument(help="Collector: " + ", ".join(COLLECTORS) + ".")],
    file: Annotated[
        Path | None, typer.Option("--from", help="Read this captured output instead (- = stdin).")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--as", help="The command line that gave the captured output.")
    ] = None,
    config: ConfigFile = None,
    service: Annotated[
        str | None, typer.Option(help="Service to ask (vllm_metrics, vllm_probe, vllm_log).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one collector once, or read a captured output, and show what it says.

    Without --from the source is read on this machine; collectors of a vLLM server ask those that
    run here or that the configuration names. Exit status 1 when the source itself reports failure,
    is not on this node, or nothing could be read.
    """
    if name not in COLLECTORS:
        known = ", ".join(COLLECTORS)
        raise ConfigError(Problem(Place(name), "no such collector", f"known: {known}"))
    if file is not None:
        answer = _captured(name, _read(file), command)
    else:
        answer = _live(name, config, service)
    _show_reading(answer, as_json=as_json)
    if not answer["success"]:
        raise typer.Exit(1)


def _captured(name: str, data: bytes, command: str | None) -> dict[str, Any]:
    function = capture_function(name)
    if function is None:
        raise ConfigError(Problem(Place(name), "has no captured form", "run it without --from"))
    try:
        yielded = list(function(data, command))
    except (SourceError, NotSupported, NoData, OSError) as error:
        return _reading(name, (), (), str(error))
    samples = [s for item in yielded for s in _samples(item)]
    events = [item for item in yielded if isinstance(item, Event)]
    return _reading(name, samples, events, None)


def _samples(item: object) -> list[Sample]:
    if isinstance(item, Sample):
        return [item]
    if isinstance(item, Page):
        from ..model import Batch

        return list(Batch("", (item,)).samples)
    return []


def _live(name: str, config: Path | None, service: str | None) -> dict[str, Any]:
    from ..findings import collectors_for
    from ..scheduler import run_once
    from ..system import System

    system = System()
    chosen = [c for c in collectors_for(system, config) if _is(c, name)]
    if service is not None:
        chosen = [c for c in chosen if c.scope.get("service") == service]
    if not chosen:
        raise ConfigError(_nothing_to_run(name, service))
    batches = [run_once(collector, system) for collector in chosen]
    errors = [batch.error for batch in batches if batch.error]
    return _reading(
        name,
        [s for batch in batches for s in batch.samples],
        [e for batch in batches for e in batch.events],
        "; ".join(errors) or None,
    )


def _is(collector: object, name: str) -> bool:
    """Whether a collector is the one of that name; several may speak for one tool."""
    module, kind = COLLECTORS[name]
    own = type(collector)
    return (own.__module__.rpartition(".")[2], own.__name__) == (module, kind)


def _nothing_to_run(name: str, service: str | None) -> Problem:
    """Why a collector has nothing to look at, and what to do."""
    if service is not None:
        hint = "`vllm-watchdog discover` lists them; --config FILE may name others"
        return Problem(Place(name), f"nothing to ask at a service {service!r}", hint)
    if name in PER_SERVICE:
        hint = "start one, or name it under services: in --config FILE"
        return Problem(Place(name), "no vLLM server to ask on this node", hint)
    hint = f"collectors: {name}: enabled: in the configuration"
    return Problem(Place(name), "is switched off", hint)


def _reading(name: str, samples: Any, events: Any, error: str | None) -> dict[str, Any]:
    return {
        "collector": name,
        "success": error is None,
        "error": error,
        "samples": [
            {"name": s.name, "labels": dict(s.labels), "value": number(s.value)} for s in samples
        ],
        "events": [
            {
                "kind": e.kind,
                "message": e.message,
                "labels": dict(e.labels),
                "fields": plain(e.fields),
                "severity": e.severity,
            }
            for e in events
        ],
    }


def _show_reading(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    if answer["error"]:
        print(visible(f"{answer['collector']}: {answer['error']}"), file=sys.stderr)
    if not (answer["error"] or answer["samples"] or answer["events"]):
        note(f"{answer['collector']}: the source answered, and there is nothing to say")
    if answer["samples"]:
        rows = [(s["name"], _labels(s["labels"]), s["value"]) for s in answer["samples"]]
        print_table(answer["collector"], _SERIES, rows, whole=("series", "value"))
    if answer["events"]:
        rows = [(e["kind"], _labels(e["labels"]), e["message"]) for e in answer["events"]]
        print_table("events", ("kind", "labels", "message"), rows, whole=("kind",))


_SERIES = ("series", "labels", "value")


def _labels(labels: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def classify(
    file: Annotated[Path, typer.Argument(help="Log file, or - for standard input.")],
    source: Annotated[
        str | None, typer.Option(help="vllm, kernel or ascend; found out where not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the records of a log that mean something, one line each.

    With --json each line is one object: kind, severity, line, text, time, fields.
    """
    from ..logs import Classifier

    if source not in (None, "vllm", "kernel", "ascend"):
        place = Place(f"--source {source}")
        raise ConfigError(Problem(place, "no such source", "vllm, kernel or ascend"))
    silent = True
    for record in sorted(_records(file, Classifier(source)), key=lambda record: record.line):
        silent = False
        doc = record.document()
        if as_json:
            print_json(plain(doc), indent=None)
        else:
            text = visible(doc["text"])
            print(f"{doc['line']:>7}  {doc['severity']:<8}  {doc['kind']:<22}  {text}")
    if silent:
        note(f"{file}: no record that means something")


def _records(file: Path, reader: Classifier) -> Iterator[LogRecord]:
    """The records of a log of any length, read in pieces."""
    try:
        with _opened(file) as stream:
            while piece := stream.read(PIECE):
                yield from reader.feed(piece)
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error
    yield from reader.feed(b"\n")
    yield from reader.finish()


def _read(file: Path) -> bytes:
    """A captured output. Raises ConfigError for one that no tool prints."""
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(MAX_CAPTURE + 1)
        else:
            data = read_input(file, MAX_CAPTURE, patience=30.0)
    except OSError as error:
        raise _unreadable(file, error.strerror or str(error)) from error
    if len(data) > MAX_CAPTURE:
        raise _unreadable(file, f"is larger than {MAX_CAPTURE} bytes")
    return data


def _opened(file: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    return contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb")


def _unreadable(file: Path, reason: str) -> ConfigError:
    return ConfigError(Problem(Place(str(file)), f"cannot be read: {reason}"))
