"""`status --watch`: one screen that is kept up to date until Ctrl-C; and what `status` says of
healing.

Only what fits is shown, the gravest first. It asks; it changes nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..errors import WatchdogError
from ..system import Clock
from .output import visible

EVERY = 2.0  # seconds between two looks
NARROW = 90  # columns below which the lesser figures are left out

Doc = dict[str, Any]
Look = Callable[[], tuple[Doc, Doc]]
"""Gives the documents of status and of healing; raises WatchdogError where nobody answers."""


def watch(look: Look, clock: Clock, console: Console) -> None:
    """Show the node until interrupted."""
    last: tuple[Doc, Doc] | None = None
    silent = ""
    with Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        try:
            while True:
                try:
                    last, silent = look(), ""
                except WatchdogError as error:
                    silent = str(error)
                shown = screen(last, silent, console.width, console.height)
                live.update(shown, refresh=True)
                clock.sleep(EVERY)
        except KeyboardInterrupt:
            return


def screen(last: tuple[Doc, Doc] | None, silent: str, width: int, height: int) -> RenderableType:
    """What one look shows, cut to the terminal's size."""
    lines: list[RenderableType] = []
    if silent:
        lines.append(_line(silent, "bold red", width))
    if last is None:
        return Group(*lines)
    status, healing = last
    lines.append(_head(status, healing, width))
    room = height - len(lines) - 1
    for title, heads, rows in _parts(status, healing, width >= NARROW):
        if room < 3:
            lines.append(_line("… the terminal is too low for the rest", "dim", width))
            break
        fit = max(1, room - 2)
        table = _table(title, heads, rows[:fit], len(rows) - fit)
        lines.append(table)
        room -= min(len(rows), fit) + 2 + (len(rows) > fit)
    return Group(*lines)


def _line(text: str, style: str, width: int) -> Text:
    line = Text(visible(text), style=style)
    line.truncate(width, overflow="ellipsis")
    return line


def _head(status: Doc, healing: Doc, width: int) -> Text:
    firing = status["firing"]
    words = [f"vllm-watchdog {status.get('instance', '')}", f"mode {status['mode']}"]
    words.append(f"{firing} firing")
    if healing.get("paused"):
        words.append("healing paused")
    if healing.get("hold_file"):
        words.append("hold file")
    if healing.get("breaker"):
        words.append("breaker open")
    words += [
        f"{b['budget']} acts left {b['left']}/{b['most']}" for b in healing.get("budgets", ())
    ]
    words.append(str(status.get("time") or "")[11:19] + " UTC")
    return _line(" · ".join(words), "bold red" if firing else "bold green", width)


def healing_lines(healing: Doc) -> Iterator[str]:
    """What a person must know of healing, one line each: what waits for a yes, what is under way,
    what holds acts back. Nothing where all is as usual.
    """
    for each in healing.get("waiting", ()):
        way = "the way back from " if each.get("back") else ""
        what = f"{way}{each['act']} for {each['service'] or each['id']} ({each['cause']})"
        yield f"waits for a yes: {what}: `vllm-watchdog approve {shlex.quote(each['id'])}`"
    for act in healing.get("acts", ()):
        what = f"{act['act']} for {act['service'] or act['case']} ({act['cause']})"
        yield f"under way: {what} since {act['since']}, until {act['deadline']} at the latest"
    for case in healing.get("cases", ()):
        if case.get("ended") == "cancelled":
            what = case["service"] or case["case"]
            yield f"cancelled: nothing is done for {what} until its alerts were over for 15 s"
    for each in healing.get("paused", ()):
        until = f" until {each['until']}" if each["until"] else ""
        yield f"paused: healing of {each['service'] or 'every service'}{until}"
    for each in healing.get("held_back", ()):
        yield f"held back: {each}"
    if healing.get("hold_file"):
        yield "the hold file is there: nothing is done until it is removed"
    if healing.get("breaker"):
        yield f"the breaker is open: {healing['breaker']}; `vllm-watchdog resume` closes it"
    for each in healing.get("quarantined", ()):
        yield f"quarantined: card {each['card']} by {each['by']}: {each['why']}"


Part = tuple[str, Sequence[str], list[list[Any]]]


def _parts(status: Doc, healing: Doc, wide: bool) -> Iterable[Part]:
    """The tables, gravest first; empty ones are left out."""
    parts: list[Part] = [
        ("alerts", ("alert", "where", "since"), [_alert(a) for a in status.get("alerts", ())]),
        ("acts under way", ("act", "of", "cause", "since", "until"), [
            [a["act"], a["service"] or a["case"], a["cause"], _clock(a["since"]),
             _clock(a["deadline"])] for a in healing.get("acts", ())]),
        ("wait for a yes", ("act", "of", "cause", "id"), [
            [a["act"], a["service"], a["cause"], a["id"]] for a in healing.get("waiting", ())]),
        ("cases", ("of", "cause", "next", "word"), [_case(c) for c in healing.get("cases", ())]),
        ("services", *_services(status, healing, wide)),
        ("cards", *_cards(status, healing, wide)),
        ("outlets", ("outlet", "waiting", "error"), [
            [o["outlet"], o["lag"], o["error"]] for o in status["outlets"]]),
        ("collectors that fail", ("collector", "state", "what it said"), [
            [c["collector"], c["state"], c["error"]] for c in status["collectors"]
            if c["state"] in ("failed", "stalled")]),
    ]  # fmt: skip
    return (part for part in parts if part[2])


def _alert(alert: Doc) -> list[Any]:
    labels = alert["labels"]
    where = " ".join(labels[k] for k in ("service", "card", "peer", "collector") if labels.get(k))
    return [alert["alert"], where, _clock(alert["fired_at"])]


def _case(case: Doc) -> list[Any]:
    word = case["refusal"] or case["ended"] or ("a person was paged" if case["paged"] else "")
    return [case["service"] or case["case"], case["cause"], case["next"], word]


def _services(status: Doc, healing: Doc, wide: bool) -> tuple[Sequence[str], list[list[Any]]]:
    more = {each["service"]: each for each in healing.get("services", ())}
    heads = ["service", "probe", "running", "waiting", "mode"]
    heads += ["serving", "front", "profile", "last token"] if wide else []
    rows = []
    for each in status["services"]:
        own = more.get(each["service"], {})
        row = [each[key] for key in ("service", "probe", "running", "waiting", "mode")]
        if wide:
            idle = own.get("idle")
            row += [own.get("serving"), own.get("front"), own.get("profile")]
            row.append(None if idle is None else f"{idle:.0f} s ago")
        rows.append(row)
    return heads, rows


def _cards(status: Doc, healing: Doc, wide: bool) -> tuple[Sequence[str], list[list[Any]]]:
    locked = {each["card"]: each["why"] for each in healing.get("quarantined", ())}
    heads = ["card", "healthy", "load", "memory", "°C"]
    heads += ["quarantined", "model"] if wide else []
    rows = []
    for card in status["cards"]:
        load, used, total = (
            card[k] for k in ("utilization", "memory_used_bytes", "memory_total_bytes")
        )
        healthy = {None: None, 0: "no", 1: "yes"}.get(card["healthy"])
        row = [
            card["card"],
            "gone" if card["present"] == 0 else healthy,
            None if load is None else f"{load:.0%}",
            None if not used or not total else f"{used / total:.0%}",
            card["temperature"],
        ]
        rows.append(row + ([locked.get(card["card"], ""), card["model"]] if wide else []))
    return heads, rows


def _clock(text: Any) -> str:
    return str(text or "")[11:19]


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[Any]], more: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for _ in heads:
        table.add_column(no_wrap=True, overflow="ellipsis")
    first = [title, *heads[1:]] if heads else [title]
    table.add_row(
        *(Text(head, style="bold cyan" if not n else "dim") for n, head in enumerate(first))
    )
    for row in rows:
        table.add_row(*(Text(visible(cell), style=_style(cell)) for cell in row))
    if more > 0:
        table.add_row(Text(f"… and {more} more", style="dim"))
    return table


def _style(cell: Any) -> str:
    return {"failed": "red", "no": "red", "gone": "bold red", "ok": "green"}.get(str(cell), "")
