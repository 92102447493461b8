"""Commands that judge decisions: test-incidents and explain."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from ..errors import ConfigError, Place, Problem
from .asking import DEFAULT_URL, Url, _ask
from .output import AsJson, counted, print_json, visible


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
    for incident in _with_progress(incidents):
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
        for line in (*matrix("causes", table.causes), *matrix("acts", table.acts)):
            print(line)
        print(f"{counted(len(incidents), 'incident')}, {counted(len(findings), 'answer')}: "
              f"{table.right} right, {table.wrong} wrong; "
              f"{counted(table.needless, 'act')} where none was due")  # fmt: skip
    if table.wrong:
        raise typer.Exit(1)


def _with_progress(incidents: list[Any]) -> Iterable[Any]:
    """The incidents, one after the other; a bar tells a person at a terminal how far it is."""
    if not sys.stderr.isatty():
        return incidents
    from rich.console import Console
    from rich.progress import track

    return track(incidents, "playing", console=Console(stderr=True), transient=True)


def matrix(title: str, counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Expected against got as lines: a row and a column per word. Columns carry their row's number,
    so that twenty words fit a terminal; a dot is none."""
    words = sorted({*counts, *(got for row in counts.values() for got in row)})
    if not words:
        return []
    wide = max(len(word) for word in words)
    lines = [f"{title} (row: expected, column: got, numbered like the rows)", ""]
    lines.append(" " * (wide + 4) + "".join(f"{n:>4}" for n in range(1, len(words) + 1)))
    for number, word in enumerate(words, 1):
        row = counts.get(word, {})
        cells = "".join(f"{row.get(got) or '·':>4}" for got in words)
        lines.append(f"{number:>2}  {word:<{wide}}{cells}")
    return [*lines, ""]


def explain(
    what: Annotated[
        str, typer.Argument(help="A service, a card, an alert's name, or an incident file.")
    ] = "",
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Say why: what is known and unknown, what would be done about it, what would be refused.

    Asks a running daemon; an incident file is played instead. Without WHAT: the node.
    """
    if what.endswith((".yaml", ".yml")):
        docs = _played(Path(what))
    else:
        docs = [_ask(url, f"/api/v1/explain?{urlencode({'what': what})}", _EXPLAINED)]
        if docs[0]["found"] is None:
            known = ", ".join(docs[0].get("services") or ()) or "none"
            hint = f"services: {known}; or a card, or an alert's name"
            raise ConfigError(Problem(Place(what), "is no service, card or alert here", hint))
    if as_json:
        print_json(docs if len(docs) > 1 else docs[0])
        return
    for doc in docs:
        for line in _tree(doc):
            print(visible(line))


_EXPLAINED = frozenset({"found", "asked", "time", "mode"})


def _played(path: Path) -> list[Any]:
    """What is to be said of an incident after it was played: each service's explanation."""
    from ..explain import explain as why
    from ..incidents import play, read

    incident = read(path)
    played = play(incident)
    docs = []
    for service in incident.config.services or [""]:
        act, at = played.act(service)
        doc = why(played.engine, service)
        answer = f"{act} at {at:g}s" if at is not None else act
        docs.append({**doc, "incident": incident.name, "answer": answer})
    return docs


_PARTS = (
    ("known", "known"), ("unknown", "unknown"), ("alerts", "fires"), ("quarantined", "quarantined"),
)  # fmt: skip


Branch = tuple[str, "list[Branch]"]


def _tree(doc: Mapping[str, Any]) -> Iterator[str]:
    """The document as an indented tree, a line each."""
    title = f"{doc['found']} {doc['asked']}".strip()
    yield f"{title} at {doc['time']}, mode {doc['mode']}"
    yield from _drawn(list(_branches(doc)))


def _drawn(branches: Sequence[Branch], indent: str = "") -> Iterator[str]:
    for number, (text, below) in enumerate(branches, 1):
        last = number == len(branches)
        yield f"{indent}{'└─' if last else '├─'} {text}"
        yield from _drawn(below, indent + ("   " if last else "│  "))


def _leaves(items: Iterable[object]) -> list[Branch]:
    return [(str(item), []) for item in items]


def _branches(doc: Mapping[str, Any]) -> Iterator[Branch]:
    if doc.get("incident"):
        yield f"incident: {doc['incident']} → {doc['answer']}", []
    for key, name in _PARTS:
        if doc.get(key):
            yield name, _leaves(doc[key])
    if doc.get("breaker"):
        yield f"breaker open: {doc['breaker']}", []
    for case in doc.get("cases", ()):
        whom = case["service"] or ", ".join(case["cards"]) or "node"
        named = f"named by {case['named_by']} since {case['opened']}"
        yield f"case of {whom}: {case['cause']}, {named}", list(_case(case))
    if doc.get("observed") not in (None, "none"):
        yield f"observed: {doc['observed']}", []
    if doc.get("decision"):
        yield str(doc["decision"]), []
    elif not doc.get("cases"):
        yield "no open case", []


def _case(case: Mapping[str, Any]) -> Iterator[Branch]:
    for key, name in (("evidence", "evidence"), ("explains", "explains away"), ("tried", "tried")):
        if case[key]:
            yield name, _leaves(case[key])
    if case["policy"]:
        yield f"policy {case['policy']} ({case['mode']}): {' → '.join(case['ladder'])}", []
    against = {name: text for name, text in case["checks"].items() if text}
    if case["checks"]:
        passed = len(case["checks"]) - len(against)
        text = f"guard: {passed} of {len(case['checks'])} checks passed"
        yield text, _leaves(f"{name}: {why}" for name, why in against.items())
    yield case["decision"] + (", a person was paged" if case["paged"] else ""), []
