"""What a server's answer to a probe says about its engine, and its metrics page meanwhile.

Pure: nothing is asked here. Prompt and answer are looked at and never kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
TRIES = 2  # of an idle server before it counts as hung
LATE = 10.0  # times its longest usual answer: so long an idle server is waited for in a quick try
QUICK = 2.0  # seconds, and at least so long
ENOUGH = 3  # answers in a row that tell what is usual
KEPT = 30  # of them so many are remembered

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
    last answer still stands, ``late`` when no answer came in time and ``busy`` when the engine's
    page then told of requests."""

    verdict: Outcome
    reason: str = ""
    seconds: float | None = None
    canary: bool | None = None
    kind: str = ""
    model: str = ""
    unfit: bool = False
    waits: bool = False
    late: bool = False
    busy: bool = False


@dataclass(frozen=True)
class Progress:
    """Tokens and steps the engine has done (None: not told), and its queue."""

    tokens: float | None = None
    running: float = 0.0
    waiting: float = 0.0
    asleep: bool = False

    @property
    def idle(self) -> bool:
        """Whether no request is known to be in the engine, and it tells of progress."""
        return self.tokens is not None and not (self.running or self.waiting or self.asleep)


def quick_limit(took: Sequence[float], limit: float) -> float | None:
    """Seconds within which an idle server that ``took`` so long for its last answers gives the next
    one; None where too little is known, or where it is too slow for that to tell anything."""
    if len(took) < ENOUGH:
        return None
    quick = max(QUICK, LATE * max(took))
    return quick if TRIES * quick < limit else None


def usual(kept: Mapping[str, Any], before: Progress | None) -> list[float]:
    """How long the server took for its last answers in a row, in seconds, as the last probe
    ``kept`` it; nothing for one that began anew since."""
    if before is None or before.tokens is None or kept.get("tokens") is None:
        return []
    return [] if before.tokens < float(kept["tokens"]) else list(kept.get("took") or ())


def remember(
    finding: Finding, kept: Mapping[str, Any], before: Progress | None, wall: float
) -> dict[str, Any]:
    """What the next probe needs, as JSON: what to ask, what was told, since when nothing to ask was
    found (``wall``, Unix seconds), and how long answers take."""
    doc = {**kept, "tokens": before.tokens if before is not None else None}
    if finding.waits:
        return doc
    ok, unknown = finding.verdict == "ok", finding.verdict == "unknown"
    took = [*usual(kept, before), round(finding.seconds or 0.0, 3)]
    doc["took"] = took[-KEPT:] if ok else []
    doc["failing"] = finding.verdict == "failed" or (
        finding.verdict == "slow" and bool(kept.get("failing"))
    )
    doc["told"] = finding.reason if unknown else ""
    doc["asked"] = wall if unknown and not kept.get("model") else None
    if ok:
        doc.update(kind=finding.kind, model=finding.model)
    elif unknown:
        doc.update(kind=None, model=None)
    return doc


def patience(before: Progress | None, tokens: float | None, limit: float) -> float:
    """Seconds to wait for an answer: more behind a queue that moves, never more than twice the
    limit. ``tokens`` are those of the last probe."""
    if before is None or before.waiting <= 0 or before.tokens in (None, tokens):
        return limit
    return limit * min(2.0, 1.0 + before.waiting / max(before.running, 1.0))


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
