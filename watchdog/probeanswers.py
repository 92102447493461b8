"""What a server's answer to a probe says about its engine, and its metrics page meanwhile.

Pure: nothing is asked here. Prompt and answer are looked at and never kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import re2

from .errors import SourceError
from .exposition import Exposition
from .model import NAME
from .system import Response

Kind = Literal["completion", "chat", "embedding", "none"]
Outcome = Literal["ok", "failed", "slow", "unknown"]

ROUTES: Mapping[str, str] = {
    "completion": "/v1/completions",
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
}
PROGRESS = ("generation_tokens_total", "prompt_tokens_total", "iteration_tokens_total_count")
_TELLING = tuple(
    f"{prefix}vllm:{name}".encode()
    for prefix in ("", "ray_", "kserve_")
    for name in (*PROGRESS, "num_requests_running", "num_requests_waiting", "engine_sleep_state")
)
"""Beginnings of the lines that tell progress: a page has thousands of others."""


@dataclass(frozen=True)
class Finding:
    """What one try gave. ``canary`` is set where an expected answer is configured, ``unfit`` when
    the server does not take this kind of request, ``waits`` when nothing was asked because the
    last answer still stands."""

    verdict: Outcome
    reason: str = ""
    seconds: float | None = None
    canary: bool | None = None
    kind: str = ""
    model: str = ""
    unfit: bool = False
    waits: bool = False


@dataclass(frozen=True)
class Progress:
    """Tokens and steps the engine has done (None: not told), and its queue."""

    tokens: float | None = None
    running: float = 0.0
    waiting: float = 0.0
    asleep: bool = False


def judge(answer: Response, kind: str, expect: str | None) -> Finding:
    """The verdict of an answer to a request of a kind; ``expect`` is the canary's expression."""
    if answer.status >= 500 and answer.status != 501:
        return Finding("failed", f"HTTP {answer.status}")
    if answer.status != 200:
        unfit = answer.status in (400, 404, 405, 422, 501)
        return Finding("unknown", f"{ROUTES[kind]} answers {answer.status}", unfit=unfit)
    document = document_of(answer)
    if kind == "embedding":
        first = _first(document, "data")
        good = isinstance(first.get("embedding"), (list, str)) and bool(first["embedding"])
        return Finding("ok") if good else Finding("failed", "broken answer")
    choice = _first(document, "choices")
    text = choice.get("text") if kind == "completion" else _first_content(choice)
    if "finish_reason" not in choice or not isinstance(text, str):
        return Finding("failed", "broken answer")
    if choice["finish_reason"] == "error":
        return Finding("failed", "finish_reason error")
    canary = None if expect is None else bool(re2.search(expect, text))
    return Finding("ok", canary=canary)


def progress(answer: Response) -> Progress:
    """The engine's counters on its metrics page."""
    if answer.status != 200:
        return Progress()
    told = b"\n".join(line for line in answer.body.split(b"\n") if line.startswith(_TELLING))
    try:
        page = Exposition().read(told).page
    except SourceError:
        return Progress()
    sums: dict[str, float] = {}
    asleep = False
    for key, value in zip(page.keys, page.values, strict=True):
        labels = dict(key)
        name = labels[NAME].removeprefix("vllm:")
        sums[name] = sums.get(name, 0.0) + value
        if name == "engine_sleep_state" and labels.get("sleep_state") == "awake":
            asleep = asleep or value == 0.0
    known = [sums[name] for name in PROGRESS if name in sums]
    return Progress(
        sum(known) if known else None,
        sums.get("num_requests_running", 0.0),
        sums.get("num_requests_waiting", 0.0),
        asleep,
    )


def document_of(answer: Response) -> dict[str, Any]:
    """The answer's JSON object; empty when it is none."""
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _first(document: dict[str, Any], name: str) -> dict[str, Any]:
    items = document.get(name)
    first = items[0] if isinstance(items, list) and items else None
    return first if isinstance(first, dict) else {}


def _first_content(choice: dict[str, Any]) -> str | None:
    """A chat answer's text; a reasoning model's may be empty at one token."""
    message = choice.get("message")
    if not isinstance(message, dict):
        return None
    return str(message.get("content") or "")
