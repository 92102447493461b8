"""The board as HTML. Every text is escaped here, in one place (``_text``); no script, no style in
it, so the strictest policy holds."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ...signals import SIGNALS
from .board import Board, Table
from .static import address
from .words import LANGUAGES, Words, visible

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
LINKS = ("metrics", "api/v1/status", "api/v1/alerts", "api/v1/healing", "api/v1/events")
NAMES = {"en": "English", "zh": "中文"}
PAUSES = ("30m", "1h", "2h", "8h", "24h")
PLOTS_AFTER = "cards"  # the table below which the plots stand


def html(board: Board, say: Words) -> str:
    """The whole page."""
    tables = "".join(_part(each, say) for each in _parts(board))
    return (
        f'<!doctype html>\n<html lang="{_text(say.lang)}">{_head(board)}'
        f'<body{_spoken(say)}><a class="skip" href="#main">{_text(say("Skip to the content"))}</a>'
        f"<header>{_header(board, say)}</header>"
        f'<main id="main" tabindex="-1">{_state(board, say)}{tables}{_control(board, say)}</main>'
        f"{_footer(say)}</body></html>\n"
    )


def _text(text: str) -> str:
    """Text from anywhere, harmless in markup and readable."""
    return escape(visible(text), quote=True)


def _head(board: Board) -> str:
    styles = "".join(
        f'<link rel="stylesheet" href="{address(name)}">' for name in ("uplot.css", "page.css")
    )
    scripts = "".join(
        f'<script src="{address(name)}" defer></script>' for name in ("uplot.js", "page.js")
    )
    return (
        '<head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="{address("icon.svg")}" type="image/svg+xml">'
        f"<title>{_text(board.node)} · vllm-watchdog</title>{styles}{scripts}</head>"
    )


def _spoken(say: Words) -> str:
    """The few things that the script says by itself."""
    spoken = {
        "lost": say("The daemon does not answer. What is shown is of then."),
        "approve": say("Approve"),
        "locked": say("needs a token"),
        "working": say("One moment …"),
        "unlocked": say("The token is right."),
        "unreachable": say("The daemon does not answer."),
    }
    return "".join(f' data-{name}="{_text(text)}"' for name, text in spoken.items())


def _header(board: Board, say: Words) -> str:
    other = next(each for each in LANGUAGES if each != say.lang)
    return (
        f'<p class="brand">vllm-watchdog</p><h1>{_text(board.node)}</h1>'
        f'<p id="about" class="quiet">{_text(board.about)}</p>'
        f'<p class="tools"><span id="at">{_text(board.at)}</span>'
        f'<a href="?lang={other}" lang="{other}" hreflang="{other}">{NAMES[other]}</a></p>'
    )


def _state(board: Board, say: Words) -> str:
    notes = "".join(f'<li class="{each.tone}">{_text(each.text)}</li>' for each in board.notes)
    tiles = "".join(
        f'<div><dt>{_text(tile.label)}</dt><dd data-tile="{tile.name}" class="{tile.tone}">'
        f"{_text(tile.text)}</dd></div>"
        for tile in board.tiles
    )
    return (
        f'<div role="status"><p id="headline" class="{board.tone}">{_text(board.headline)}</p>'
        f'<ul id="notes">{notes}</ul></div><p id="lost" class="bad" role="alert" hidden></p>'
        f'<dl class="tiles">{tiles}</dl>'
        f'<noscript><p class="quiet">{_text(_without(say))}</p></noscript>'
    )


def _without(say: Words) -> str:
    return say("Without JavaScript this page does not renew itself and draws nothing: reload it.")


def _parts(board: Board) -> list[Sequence[Table]]:
    """The tables in order; small ones next to each other share a part."""
    parts: list[list[Table]] = []
    for table in board.tables:
        if table.small and parts and parts[-1][0].small:
            parts[-1].append(table)
        else:
            parts.append([table])
    return list(parts)


def _part(tables: Sequence[Table], say: Words) -> str:
    inner = "".join(map(_section, tables))
    if tables[0].small:
        return f'<div class="pair">{inner}</div>'
    return inner + (_plots(say) if tables[0].name == PLOTS_AFTER else "")


def _section(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in table.heads)
    doc = table.doc()["rows"]
    body = "".join(_row(row, table.heads) for row in doc)
    none, some = ("", " hidden") if not doc else (" hidden", "")
    return (
        f'<section aria-labelledby="{table.name}-head"><h2 id="{table.name}-head">'
        f'{_text(table.title)}</h2><p class="none"{none}>{_text(table.none)}</p>'
        f'<table id="{table.name}"{some}><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></section>"
    )


def _row(row: dict[str, Any], heads: Sequence[str]) -> str:
    cells = "".join(
        _cell(cell, head, first=number == 0)
        for number, (cell, head) in enumerate(zip(row["cells"], heads, strict=True))
    )
    return f'<tr data-key="{_text(row["key"])}">{cells}</tr>'


def _cell(cell: dict[str, Any], head: str, *, first: bool) -> str:
    """A cell; on a phone its heading stands beside it (``data-head``)."""
    tag, scope = ("th", ' scope="row"') if first else ("td", "")
    style = f' class="{cell["style"]}"' if cell.get("style") else ""
    return f'<{tag}{scope}{style} data-head="{_text(head)}">{_inner(cell)}</{tag}>'


def _inner(cell: dict[str, Any]) -> str:
    text = _text(cell["text"])
    if cell.get("told") and text:
        text = f'<span lang="en">{text}</span>'
    if cell.get("href"):
        text = f'<a href="{_text(cell["href"])}">{text}</a>'
    if "bar" in cell:
        text += (
            '<svg class="bar" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect width="{cell["bar"]}" height="6"/></svg>'
        )
    if cell.get("items"):
        items = "".join(f'<li class="{tone}">{_text(item)}</li>' for item, tone in cell["items"])
        text += f"<ol>{items}</ol>"
    if cell.get("approve"):
        text += f'<span class="approve" data-id="{escape(cell["approve"])}"></span>'
    return text


def _plots(say: Words) -> str:
    figures = "".join(
        f'<figure data-plot="{signal.name}" data-unit="{signal.unit}">'
        f'<figcaption>{_text(say(signal.title))}</figcaption><div class="plot"></div>'
        '<ul class="key"></ul></figure>'
        for signal in SIGNALS
        if signal.live
    )
    title = _text(say("The last 15 minutes"))
    return (
        f'<section id="plots" aria-labelledby="plots-head" hidden><h2 id="plots-head">{title}</h2>'
        f'<div class="plots">{figures}</div></section>'
    )


def _control(board: Board, say: Words) -> str:
    """What a token unlocks. Hidden without a script: it could do nothing."""
    services = "".join(f"<option>{_text(each)}</option>" for each in board.services)
    times = "".join(f'<option value="{each}">{each}</option>' for each in PAUSES)
    return (
        '<section id="control" aria-labelledby="control-head" hidden>'
        f'<h2 id="control-head">{_text(say("Pause and approve"))}</h2>'
        f"<p>{_text(_explained(say))}</p>"
        f'<p id="open" class="warn" hidden>{_text(say("This connection is not encrypted."))}</p>'
        f'<form id="unlock"><label>{_text(say("Token"))}'
        '<input type="password" id="token" autocomplete="off" spellcheck="false" required></label>'
        f"<button>{_text(say('Unlock'))}</button></form>"
        '<form id="pause" hidden>'
        f'<label>{_text(say("Service"))}<select id="whom">'
        f'<option value="">{_text(say("all services"))}</option>{services}</select></label>'
        f'<label>{_text(say("For"))}<select id="long">{times}'
        f'<option value="">{_text(say("until resumed"))}</option></select></label>'
        f'<label class="grow">{_text(say("Reason"))}'
        '<input id="reason" maxlength="200" autocomplete="off"></label>'
        f'<button data-verb="pause">{_text(say("Pause"))}</button>'
        f'<button data-verb="resume">{_text(say("Resume"))}</button>'
        f'<button type="button" id="forget">{_text(say("Forget the token"))}</button></form>'
        '<p id="told" role="status"></p></section>'
    )


def _explained(say: Words) -> str:
    return say(
        "This page only reads. With the token of control.token_file it can pause, resume and "
        "approve; the token stays in this page's memory and is gone when it is closed."
    )


def _footer(say: Words) -> str:
    links = "".join(f'<li><a href="{link}">{link}</a></li>' for link in LINKS)
    licence = f'<a href="{address("uplot-LICENSE.txt")}">uPlot</a>'
    return (
        f'<footer><nav aria-label="{_text(say("For programs"))}"><ul>{links}</ul></nav>'
        f"<p>{_text(say('Times are UTC. Plots are drawn by'))} {licence}.</p></footer>"
    )
