"""A report as Markdown, for a ticket or a chat: the same parts as tables and lists, plots in words.

Text from outside is escaped, so that a line of a log is neither markup nor a link.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .model import Report
from .svg import told
from .words import after, clock, day, outcome, span, visible

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~&@]|:(?=//)|(?<=www)\.)")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def markdown(report: Report) -> str:
    """The whole text."""
    incident = report.incident
    title = (
        f"{incident.subject}: {incident.cause.replace('_', ' ')}" if incident.key else "Recording"
    )
    lines = [
        f"# {_text(title)}",
        "",
        f"{_text(incident.result[:1].upper() + incident.result[1:])}.",
        "",
    ]
    lines += _facts(report)
    for head, part in _parts(report):
        content = list(part)
        if content:
            lines += ["", f"## {head}", "", *content]
    lines += ["", "---", ""]
    lines += [_text(note) + "\n" for note in report.notes]
    lines.append(
        f"Written by vllm-watchdog {_text(report.version)} on {day(report.made)} "
        f"from the {_text(report.source)}. Times are UTC."
    )
    return "\n".join(lines) + "\n"


def _text(text: str) -> str:
    """Text from anywhere as plain text of Markdown, on one line."""
    plain = " ".join(visible(text).split())
    return _SPECIAL.sub(lambda found: _ENTITIES.get(found[1]) or "\\" + found[1], plain)


def _code(text: str) -> str:
    """A line of a log as a code span, whatever backticks are in it."""
    plain = " ".join(visible(text).split())
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {plain} {fence}" if plain else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """A table; cells are finished text, bars in code are written out for the table's sake."""
    lines = [f"| {' | '.join(map(_barred, row))} |" for row in rows]
    if lines:
        yield f"| {' | '.join(heads)} |"
        yield f"|{' --- |' * len(heads)}"
        yield from lines


def _barred(cell: str) -> str:
    """A cell whose bars part no cells, whether they were escaped before or stand in code."""
    return cell.replace("\\|", "|").replace("|", "\\|")


def _facts(report: Report) -> Iterable[str]:
    incident = report.incident
    closed = incident.closed
    yield f"- Node: {_text(report.node or 'unknown')}"
    yield f"- Began: {day(incident.opened)}"
    yield f"- Lasted: {span(closed - incident.opened) if closed is not None else 'not over'}"
    for name, value in (
        ("Named by", incident.alert), ("Cards", ", ".join(incident.cards)), ("Mode", incident.mode),
        ("Policy", incident.policy), ("Incident", incident.name),
    ):  # fmt: skip
        if value:
            yield f"- {name}: {_text(value)}"


def _parts(report: Report) -> Iterable[tuple[str, Iterable[str]]]:
    origin = report.incident.opened
    yield "Diagnosis", _diagnosis(report)
    yield "Acts", _acts(report)
    yield "What clients saw", _clients(report)
    yield "Signals", (f"- {_text(told(plot))}" for plot in report.plots)
    yield (
        "Timeline",
        _table(
            ("UTC", "After", "Sort", "What happened"),
            (
                (clock(each.time), after(each.time, origin), each.sort,
                 _code(each.text) if each.sort == "log" else _text(each.text))
                for each in report.timeline
            ),
        ),
    )  # fmt: skip
    yield "Alerts", _alerts(report)
    yield (
        "Not done, and why",
        _table(
            ("UTC", "Act", "Why"),
            (
                (clock(each.time), _text(each.remediation), _text(each.text))
                for each in report.refusals
            ),
        ),
    )
    yield (
        "Log",
        _table(
            ("UTC", "Kind", "Line"),
            ((clock(each.time), _text(each.kind), _code(each.text)) for each in report.log),
        ),
    )


def _diagnosis(report: Report) -> Iterable[str]:
    incident = report.incident
    if not incident.key:
        return
    yield f"Cause: **{_text(incident.cause)}**, named by {_text(incident.alert)}."
    if incident.evidence:
        yield ""
        yield from (f"- {_code(each)}" for each in incident.evidence)
    if incident.explains:
        yield ""
        yield f"It explains away: {_text(', '.join(incident.explains))}."


def _acts(report: Report) -> Iterable[str]:
    for act in report.acts:
        took = f" after {span(act.ended - act.began)}" if act.ended is not None else ""
        detail = f": {_text(act.detail)}" if act.detail else ""
        healthy = act.healthy
        well = (
            f"; well again {span(healthy)} after the first bad sample"
            if healthy is not None
            else ""
        )
        yield (
            f"- **{_text(act.remediation)}** (attempt {act.attempt}) began at {clock(act.began)}: "
            f"{_text(act.status)}{took}{detail}{well}"
        )
        for step in act.steps:
            seconds = "" if step.seconds is None else f", took {span(step.seconds)}"
            said = f": {_text(step.detail)}" if step.detail else ""
            at = after(step.time, act.began)
            yield f"  - {at} {_text(step.name)}: {_text(outcome(step.status))}{seconds}{said}"


def _clients(report: Report) -> Iterable[str]:
    for seen in report.clients:
        yield f"{_text(seen.service)}:"
        yield ""
        rows = (tuple(map(_text, row)) for row in seen.rows)
        yield from _table(("Figure", "Before", "Worst during", "At the end"), rows)
        yield ""


def _alerts(report: Report) -> Iterable[str]:
    rows = (
        (
            _text(each.name),
            "" if each.fired is None else clock(each.fired),
            "goes on" if each.resolved is None else clock(each.resolved),
            _text(each.summary),
        )
        for each in report.alerts
    )
    return _table(("Alert", "Fired", "Resolved", "Summary"), rows)
