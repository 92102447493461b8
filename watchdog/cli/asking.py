"""Commands that ask a running daemon: status, alerts, query."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from ..documents import json_of
from ..errors import ConfigError, HttpError, Place, Problem, WatchdogError
from ..system import RealClock, RealHttp, Response
from .output import AsJson, counted, note, print_json, print_table, visible

DEFAULT_URL = "http://127.0.0.1:9710"

Url = Annotated[
    str,
    typer.Option(
        "--url", envvar="VLLM_WATCHDOG_URL", help="Where the daemon listens.", show_default=True
    ),
]


def status(
    url: Url = DEFAULT_URL,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep one screen up to date until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how the node stands: what waits for a yes, cards, services, collectors, outlets."""
    from .watching import healing_lines

    if watch and not as_json:
        _watch(url)
        return
    doc = _ask(url, "/api/v1/status", _STATUS)
    if as_json:
        print_json(doc)
        return
    head = f"vllm-watchdog {doc['version']}, mode {doc['mode']}, tick {doc['ticks']}"
    print(f"{visible(head)}, up {doc['uptime']:.0f} s; {counted(doc['firing'], 'alert')} firing")
    for line in healing_lines(_ask(url, "/api/v1/healing")):
        print(visible(line))
    if doc["cards"]:
        heads = ("card", "vendor", "model", "present", "healthy", "load", "memory", "°C")
        print_table("cards", heads, ([_card(card).get(c) for c in _CARD] for card in doc["cards"]))
    if doc["services"]:
        rows = [[s.get(c) for c in _SERVICE] for s in doc["services"]]
        print_table("services", _SERVICE, rows, whole=("service", "url"))
    columns = ("collector", "state", "duration", "error")
    rows = [[c[column] for column in columns] for c in doc["collectors"]]
    print_table("collectors", ("collector", "state", "seconds", "what it said"), rows,
                whole=("collector", "state"))  # fmt: skip
    if doc["outlets"]:
        rows = [[o["outlet"], o["lag"], o["error"]] for o in doc["outlets"]]
        print_table("outlets", ("outlet", "events waiting", "last error"), rows)


def _watch(url: str) -> None:
    """One screen, kept up to date. Raises ConfigError where standard output is no terminal."""
    from rich.console import Console

    from .watching import watch

    console = Console(highlight=False)
    if not console.is_terminal:
        raise ConfigError(
            Problem(Place("--watch"), "needs a terminal", "leave it out, or use --json")
        )

    def look() -> tuple[dict[str, Any], dict[str, Any]]:
        return _ask(url, "/api/v1/status", _STATUS), _ask(url, "/api/v1/healing")

    look()  # where nobody answers, one line says so instead of a screen
    watch(look, RealClock(), console)


_CARD = ("card", "vendor", "model", "present", "healthy", "load", "memory", "temperature")
_SERVICE = ("service", "url", "up", "health", "probe", "running", "waiting", "mode")


def _card(card: dict[str, Any]) -> dict[str, Any]:
    """A card's row with figures that a person reads at a glance."""
    load, used, total = (
        card[key] for key in ("utilization", "memory_used_bytes", "memory_total_bytes")
    )
    return {
        **card,
        "load": None if load is None else f"{load:.0%}",
        "memory": None if None in (used, total) else f"{used / 2**30:.1f}/{total / 2**30:.0f} GiB",
    }


def alerts(
    url: Url = DEFAULT_URL,
    state: Annotated[
        str | None, typer.Option(help="Only pending, firing or resolved ones.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the alerts that are pending, firing or resolved a short while ago."""
    if state not in (None, "pending", "firing", "resolved"):
        place = Place(f"--state {state}")
        raise ConfigError(Problem(place, "no such state", "pending, firing or resolved"))
    told = _ask(url, "/api/v1/alerts", _ALERT, many=True)
    found = [alert for alert in told if state in (None, alert["state"])]
    if as_json:
        print_json(found)
        return
    if not found:
        print("no alerts")
        return
    rows = [
        (a["state"], a["alert"], _where(a), a["fired_at"] or a["active_at"], _summary(a))
        for a in found
    ]
    heads = ("state", "alert", "where", "since", "summary")
    print_table("", heads, rows, whole=("state", "alert"))


def _where(alert: dict[str, Any]) -> str:
    labels = alert["labels"]
    named = [labels[key] for key in ("service", "card", "peer", "collector") if labels.get(key)]
    return " ".join(named)


def _summary(alert: dict[str, Any]) -> str:
    annotations = alert["annotations"]
    text = annotations.get("summary", "")
    if annotations.get("unknown_since"):
        text = f"(inputs unknown since {annotations['unknown_since']}) {text}"
    return str(text)


def query(
    expr: Annotated[str, typer.Argument(help="PromQL expression, such as 'service_up == 0'.")],
    time: Annotated[
        str | None, typer.Option(help="Moment (Unix seconds or RFC 3339); default now.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Evaluate a PromQL expression over what the node has seen in the last minutes."""
    parameters = {"query": expr, **({"time": time} if time else {})}
    path = f"/api/v1/query?{urlencode(parameters, errors='replace')}"
    data = _ask(url, path, frozenset({"resultType", "result"}))
    if as_json:
        print_json(data)
    elif not data["result"]:
        note("no series fits: its name is not here, or no value meets the condition")
    elif data["resultType"] in ("scalar", "string"):
        print(visible(data["result"][1]))
    elif data["resultType"] == "vector":
        for series in data["result"]:
            print(f"{_series(series['metric'])} {series['value'][1]}")
    else:
        for series in data["result"]:
            points = " ".join(f"{value}@{at}" for at, value in series["values"])
            print(f"{_series(series['metric'])} {points}")


def _series(metric: dict[str, str]) -> str:
    name = metric.get("__name__", "")
    labels = ", ".join(
        f"{key}={json.dumps(value, ensure_ascii=False)}"
        for key, value in sorted(metric.items())
        if key != "__name__"
    )
    return visible(f"{name}{{{labels}}}")


_REASONS = {
    "refused": "nothing listens",
    "timeout": "no answer in time",
    "tls": "TLS failed",
    "broken": "no HTTP there, or no such host",
}


_STATUS = frozenset(
    "version mode ticks uptime firing cards services collectors outlets".split()  # noqa: SIM905
)
_ALERT = frozenset("state alert labels annotations fired_at active_at".split())  # noqa: SIM905


def _ask(url: str, path: str, keys: frozenset[str] = frozenset(), *, many: bool = False) -> Any:
    """The daemon's answer: an object with these keys, or a list of such.

    Raises ConfigError, one line, when there is none, it refuses, or it is another program's.
    """
    base = url.rstrip("/")
    doc = _document(base, _get(base, path))
    found = doc["data"] if isinstance(doc, dict) and "data" in doc else doc
    items = found if isinstance(found, list) else [found]
    fits = isinstance(found, list) is many
    if not fits or not all(isinstance(item, dict) and keys <= item.keys() for item in items):
        text = "is no vllm-watchdog of this version: it answers in another form"
        raise ConfigError(Problem(Place(base), text, "check --url"))
    return found


def fetch(url: str, path: str) -> Response:
    """The daemon's answer as it is; its refusal is raised as by ``_ask``."""
    base = url.rstrip("/")
    response = _get(base, path)
    if response.status != 200:
        _document(base, response)
    return response


def _get(base: str, path: str) -> Response:
    if not base.startswith(("http://", "https://")):
        raise ConfigError(Problem(Place(base), "is no URL", f"write {DEFAULT_URL}"))
    try:
        return RealHttp().request("GET", base + path, timeout=10.0)
    except HttpError as error:
        hint = "start it with `vllm-watchdog run`, or name it with --url or VLLM_WATCHDOG_URL"
        text = f"no daemon answers there ({_REASONS.get(error.reason, error.reason)})"
        raise ConfigError(Problem(Place(base), text, hint)) from error


def _document(base: str, response: Response) -> Any:
    """The JSON of an answer. Raises ConfigError for no JSON, WatchdogError for a refusal."""
    try:
        doc = json_of(response.body)
    except ValueError as error:
        text = f"is no vllm-watchdog (HTTP {response.status}, no JSON)"
        raise ConfigError(Problem(Place(base), text, "check --url")) from error
    if response.status != 200:
        message = doc.get("error", "") if isinstance(doc, dict) else ""
        raise WatchdogError(message or f"{base}: HTTP {response.status}")
    return doc
