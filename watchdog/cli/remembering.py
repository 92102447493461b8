"""The command `history`: what the journal of a running daemon holds, filtered."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from ..config.durations import positive
from ..errors import ConfigError, Place, Problem
from ..system import RealClock
from .asking import DEFAULT_URL, Url, _ask
from .output import AsJson, note, print_json, print_table

MOST = 10_000
_EVENT = frozenset("seq id time kind severity message labels fields".split())  # noqa: SIM905


def history(
    service: Annotated[str | None, typer.Option(help="Only events of this service.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only this kind, such as alert_firing; repeatable.")
    ] = None,
    severity: Annotated[str | None, typer.Option(help="Only info, warning or critical.")] = None,
    since: Annotated[
        str | None, typer.Option(help="From then on: 1h ago, or Unix seconds or RFC 3339.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Up to then, written likewise.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="At most so many, the newest.")] = 100,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what happened on the node: events of its journal, the newest last."""
    if severity not in (None, "info", "warning", "critical"):
        place = Place(f"--severity {severity}")
        raise ConfigError(Problem(place, "no such severity", "info, warning or critical"))
    wanted: dict[str, Any] = {
        "limit": limit,
        "service": service,
        "severity": severity,
        "kind": ",".join(kind) if kind else None,
        "since": _moment("--since", since),
        "until": _moment("--until", until),
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    found = _ask(url, f"/api/v1/events?{urlencode(given, errors='replace')}", _EVENT, many=True)
    if as_json:
        print_json(found)
        return
    if not found:
        note("no event fits")
        return
    rows = [(e["time"], e["severity"], e["kind"], _where(e["labels"]), e["message"]) for e in found]
    heads = ("time", "severity", "kind", "where", "what happened")
    print_table("", heads, rows, whole=("time", "severity"))


def _where(labels: dict[str, str]) -> str:
    named = [labels[key] for key in ("service", "card", "peer", "collector") if labels.get(key)]
    return " ".join(named)


def _moment(option: str, text: str | None) -> str | None:
    """A moment as the daemon takes it; a duration means that long ago. Raises ConfigError."""
    if text is None:
        return None
    try:
        return f"{RealClock().wall() - positive(text):.3f}"
    except ValueError:
        pass
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except ValueError:
            hint = "write 1h, Unix seconds or 2026-01-31T12:00:00Z"
            problem = Problem(Place(f"{option} {text}"), "is neither a duration nor a time", hint)
            raise ConfigError(problem) from None
    return f"{seconds:.3f}"
