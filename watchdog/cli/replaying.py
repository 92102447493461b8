"""Commands that run rules on virtual time: replay and test-rules."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .output import AsJson, counted, note, print_json, print_table


def replay(
    folder: Annotated[Path, typer.Argument(help="Folder that `record` or `run --record` wrote.")],
    rules: Annotated[
        list[Path] | None, typer.Option("--rules", help="Judge by these rule files instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Feed a recording to the engine again and show what it decides.

    The same recording gives the same bytes every time. Exit status 1 when the decisions differ
    from the recorded ones (not compared with --rules).
    """
    from ..replay import replay as run_again

    result = run_again(folder, rules or None, progress=_progress())
    if as_json:
        print_json(result.doc)
    else:
        doc = result.doc
        print(f"{counted(doc['ticks'], 'tick')} from {doc['from']} to {doc['to']}")
        rows = [
            (
                t["time"],
                t["alert"],
                t["labels"].get("service") or t["labels"].get("card"),
                f"{t['before']} → {t['after']}",
                t["value"],
            )
            for t in doc["transitions"]
        ]
        if rows:
            print_table(
                "", ("time", "alert", "where", "change", "value"), rows, whole=("time", "alert")
            )
        else:
            print("no alert changed its state")
    if result.difference:
        note(result.difference)
        raise typer.Exit(1)


def _progress() -> bool:
    return sys.stderr.isatty()


def test_rules(
    files: Annotated[list[Path], typer.Argument(help="Rule test files in promtool's format.")],
    as_json: AsJson = False,
) -> None:
    """Run promtool's rule test files on this engine.

    Exit status 1 when an expectation is not met, 2 when a file cannot be read.
    """
    from ..ruletests import run

    findings = run(files)
    if as_json:
        docs = [
            {
                "file": f.place.file,
                "line": f.place.line,
                "test": f.test,
                "eval_time": f.eval_time,
                "message": f.message,
                "expected": f.expected,
                "got": f.got,
            }
            for f in findings
        ]
        print_json({"findings": docs, "files": len(files)})
    else:
        for finding in findings:
            print(finding, file=sys.stderr)
        print(f"{counted(len(files), 'file')}, {counted(len(findings), 'finding')}")
    if findings:
        raise typer.Exit(1)
