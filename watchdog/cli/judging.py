"""Commands that judge decisions: test-incidents and explain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from .output import AsJson, print_json, print_table


def test_incidents(
    paths: Annotated[list[Path], typer.Argument(help="Incident files, or folders of them.")],
    as_json: AsJson = False,
) -> None:
    """Play incidents and compare causes and acts with the right ones.

    Exit status 0 when all are right, 1 when any is wrong, 2 when a file cannot be read.
    """
    from ..incidents import Table, found, judge, play, read

    incidents, problems = [], []
    for path in found(paths):
        try:
            incidents.append(read(path))
        except ConfigError as error:  # noqa: PERF203 (all files' errors at once)
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    table, findings = Table(), []
    for incident in incidents:
        judged = judge(incident, play(incident))
        table.add(judged)
        findings += judged
    if as_json:
        print_json({**table.doc(), "incidents": [finding.doc() for finding in findings]})
    else:
        for finding in findings:
            whom = f" [{finding.service}]" if finding.service else ""
            for problem in finding.problems:
                print(f"WRONG {finding.file}{whom}: {problem}")
        _print_matrix("causes: expected (rows) and named", table.causes)
        _print_matrix("acts: expected (rows) and let through", table.acts)
        needless = table.needless
        print(f"{len(incidents)} incidents, {table.right} right, {table.wrong} wrong; "
              f"{needless} acts where none was due")  # fmt: skip
    if table.wrong:
        raise typer.Exit(1)


def _print_matrix(title: str, counts: Mapping[str, Mapping[str, int]]) -> None:
    columns = sorted({got for row in counts.values() for got in row})
    rows = [
        [wanted, *(str(row[got]) if row.get(got) else "" for got in columns)]
        for wanted, row in sorted(counts.items())
    ]
    if rows:
        print_table(title, ("", *columns), rows)
