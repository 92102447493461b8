"""A report as one HTML file that needs nothing else: no script, no network, pictures inside.

Every text from outside is escaped here, in one place (``_text``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources

from .marks import marks_of
from .model import Act, Plot, Report
from .svg import COLOURS, Mark, picture
from .words import after, clock, day, outcome, span, visible

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)
SORTS = {
    "alert": "alert", "case": "diagnosis", "act": "act", "person": "person", "log": "log",
    "node": "node",
}  # fmt: skip
"""What the timeline calls each sort of entry."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text with a class, or text set as it was written (``code``)."""

    text: str
    style: str = ""
    code: bool = False


def html(report: Report) -> str:
    """The whole file."""
    incident = report.incident
    title = (
        f"{incident.subject}: {incident.cause.replace('_', ' ')}" if incident.key else "Recording"
    )
    sections = [part for part in _sections(report) if part[2]]
    links = "".join(f'<li><a href="#{name}">{_text(head)}</a></li>' for name, head, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{_text(head)}</h2>{content}</section>'
        for name, head, content in sections
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{_text(title)} · vllm-watchdog</title>'
        f"<style>{_style()}</style></head><body><header>"
        f'<h1>{_text(title)}</h1>{_head(report)}<nav aria-label="Parts of this report">'
        f"<ul>{links}</ul></nav></header><main>{body}</main>{_foot(report)}</body></html>\n"
    )


@lru_cache(maxsize=1)
def _style() -> str:
    return resources.files(__package__).joinpath("report.css").read_text("utf-8")


def _text(text: str) -> str:
    """Text from anywhere, harmless in markup and readable."""
    return escape(visible(text), quote=True)


def _time(seconds: float, shown: str = "") -> str:
    moment = day(seconds)[:19].replace(" ", "T") + "Z"
    return f'<time datetime="{moment}">{_text(shown or clock(seconds))}</time>'


def _head(report: Report) -> str:
    """What came of it, and the figures that are asked for first."""
    incident = report.incident
    stop = incident.closed
    facts = [("Node", report.node or "unknown"), ("Began", day(incident.opened))]
    facts.append(("Lasted", span(stop - incident.opened) if stop is not None else "not over"))
    facts += [("Named by", incident.alert)] if incident.alert else []
    facts += [("Cards", ", ".join(incident.cards))] if incident.cards else []
    facts += [("Mode", incident.mode)] if incident.mode else []
    if incident.policy:
        facts.append(
            ("Policy", incident.policy + (f": {incident.ladder}" if incident.ladder else ""))
        )
    facts += [
        (f"{seen.service} failed for", f"about {span(seen.failed_for)}")
        for seen in report.clients
        if seen.failed_for
    ]
    cells = "".join(f"<div><dt>{_text(n)}</dt><dd>{_text(v)}</dd></div>" for n, v in facts)
    result = incident.result[:1].upper() + incident.result[1:]
    return f'<p class="result">{_text(result)}.</p><dl class="facts">{cells}</dl>'


def _sections(report: Report) -> Iterable[tuple[str, str, str]]:
    """Name, heading and content of each part, in order; an empty part is left out."""
    yield "diagnosis", "Diagnosis", _diagnosis(report)
    yield "acts", "Acts", "".join(_act(act) for act in report.acts)
    yield "clients", "What clients saw", _clients(report)
    yield "plots", "Signals", _plots(report)
    yield "timeline", "Timeline", _timeline(report)
    yield "alerts", "Alerts", _alerts(report)
    yield "refusals", "Not done, and why", _refusals(report)
    yield "log", "Log", _log(report)


def _diagnosis(report: Report) -> str:
    incident = report.incident
    if not incident.key:
        return ""
    cause = "no cause was found" if incident.cause == "none" else incident.cause.replace("_", " ")
    parts = [f"<p>Cause: <strong>{_text(cause)}</strong>, named by {_text(incident.alert)}.</p>"]
    if incident.evidence:
        items = "".join(f"<li><code>{_text(each)}</code></li>" for each in incident.evidence)
        parts.append(f"<h3>Evidence</h3><ul>{items}</ul>")
    if incident.explains:
        parts.append(f"<p>It explains away: {_text(', '.join(incident.explains))}.</p>")
    return "".join(parts)


def _act(act: Act) -> str:
    """One act with its steps."""
    style = {"done": "good", "failed": "bad", "timed_out": "bad", "unknown": "bad"}
    took = f" after {span(act.ended - act.began)}" if act.ended is not None else ""
    mark = style.get(act.status, "warn")
    head = (
        f"<h3>{_text(act.remediation)}, attempt {act.attempt}</h3>"
        f'<p>Began at {_time(act.began)}, <span class="{mark}">{_text(act.status)}</span>{took}'
        f"{': ' + _text(act.detail) if act.detail else ''}{_well(act)}.</p>"
    )
    rows: list[tuple[Cell, ...]] = [
        (
            Cell(after(step.time, act.began), "time"), Cell(step.name),
            Cell(outcome(step.status), style.get(step.status, "")),
            Cell("" if step.seconds is None else span(step.seconds)), Cell(step.detail),
        )
        for step in act.steps
    ]  # fmt: skip
    heads: tuple[str, ...] = ("After", "Step", "Result", "Took", "What it said")
    if not any(step.detail for step in act.steps):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    table = _table(f"Steps of {act.remediation}", heads, rows)
    return head + (table if rows else "")


def _well(act: Act) -> str:
    return (
        f"; well again {span(act.healthy)} after the first bad sample"
        if act.healthy is not None
        else ""
    )


def _clients(report: Report) -> str:
    parts = []
    for seen in report.clients:
        rows = [tuple(map(Cell, row)) for row in seen.rows]
        heads = ("Figure", "Before", "Worst during", "At the end")
        parts.append(
            f"<h3>{_text(seen.service)}</h3>" + _table(f"Clients of {seen.service}", heads, rows)
        )
    if parts:
        parts.append(f'<p class="quiet">{_MEANT}</p>')
    return "".join(parts)


_MEANT = "Shares, rates and percentiles are of the minute before each moment."


def _plots(report: Report) -> str:
    marks = marks_of(report)
    if not report.plots:
        return ""
    return _key(marks) + "".join(_figure(plot, report, marks) for plot in report.plots)


def _figure(plot: Plot, report: Report, marks: Sequence[Mark]) -> str:
    names = [
        f'<li><svg viewBox="0 0 32 10" aria-hidden="true"><path class="line c{number % COLOURS}" '
        f'd="M0 5H32"/></svg>{_text(name or plot.scope)}</li>'
        for number, (name, _) in enumerate(plot.lines)
    ]
    return (
        f"<figure><figcaption>{_text(plot.title)}</figcaption>"
        f"{picture(plot, report.begin, report.end, marks)}"
        f'<ul class="key">{"".join(names)}</ul></figure>'
    )


def _key(marks: Sequence[Mark]) -> str:
    """What the uprights and bands of all plots mean."""
    words = {"alert": "an alert fires", "over": "the case is over", "act": "an act is under way"}
    shapes = {
        "alert": '<path class="mark alert" d="M0 5H32"/>',
        "over": '<path class="mark over" d="M0 5H32"/>',
        "act": '<rect class="band" width="32" height="10"/>',
    }
    found = [sort for sort in words if any(mark.sort == sort for mark in marks)]
    items = "".join(
        f'<li><svg viewBox="0 0 32 10" aria-hidden="true">{shapes[sort]}</svg>{words[sort]}</li>'
        for sort in found
    )
    return f'<ul class="key">{items}</ul>' if items else ""


def _timeline(report: Report) -> str:
    origin = report.incident.opened
    rows = [
        (
            Cell(day(entry.time)[5:19], "time"), Cell(after(entry.time, origin), "time"),
            Cell(SORTS.get(entry.sort, entry.sort), f"sort t-{entry.sort}"),
            Cell(entry.text, _grave(entry.severity), code=entry.sort == "log"), Cell(entry.where),
        )
        for entry in report.timeline
    ]  # fmt: skip
    return _table("Timeline", ("UTC", "After", "Sort", "What happened", "Where"), rows)


def _grave(severity: str) -> str:
    return {"critical": "bad"}.get(severity, "")


def _alerts(report: Report) -> str:
    rows = []
    for alert in report.alerts:
        labels = ", ".join(f"{k}={v}" for k, v in alert.labels.items() if k not in _COMMON)
        fired = "" if alert.fired is None else clock(alert.fired)
        over = "goes on" if alert.resolved is None else clock(alert.resolved)
        since = "" if alert.active is None else clock(alert.active)
        rows.append((Cell(alert.name), Cell(labels), Cell(since, "time"), Cell(fired, "time"),
                     Cell(over, "time"), Cell(alert.summary)))  # fmt: skip
    heads = ("Alert", "Labels", "Since", "Fired", "Resolved", "Summary")
    return _table("Alerts", heads, rows)


_COMMON = frozenset({"job", "instance", "severity"})


def _refusals(report: Report) -> str:
    rows = [
        (
            Cell(clock(each.time), "time"), Cell(each.remediation, "sort"),
            Cell("would, but observes only" if each.would else "refused", "sort"), Cell(each.text),
            Cell("; ".join(f"{name}: {why}" for name, why in each.against.items())),
        )
        for each in report.refusals
    ]  # fmt: skip
    return _table("Refusals", ("UTC", "Act", "Word", "Why", "Against it"), rows)


def _log(report: Report) -> str:
    rows = [
        (
            Cell(clock(line.time), "time"), Cell(line.kind, "sort"),
            Cell(line.severity, _grave(line.severity)), Cell(line.where),
            Cell(line.text, code=True),
        )
        for line in report.log
    ]  # fmt: skip
    return _table("Log", ("UTC", "Kind", "Severity", "Where", "Line"), rows)


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table that scrolls by itself where it is too wide; nothing without rows."""
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in heads)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Table: {_text(name)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Cell) -> str:
    style = f' class="{_text(cell.style)}"' if cell.style else ""
    content = _text(cell.text)
    return f"<td{style}>{f'<pre>{content}</pre>' if cell.code and content else content}</td>"


def _foot(report: Report) -> str:
    notes = "".join(f"<p>{_text(note)}</p>" for note in report.notes)
    return (
        f"<footer>{notes}<p>Written by vllm-watchdog {_text(report.version)} on "
        f"{day(report.made)} from the {_text(report.source)}. Times are UTC; shown is "
        f"{day(report.begin)} to {day(report.end)}.</p></footer>"
    )
