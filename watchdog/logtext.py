"""A log line's text: bytes decoded, what was overwritten left out, what users wrote cut.

What a line means is not asked here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .logheads import plain
from .logpatterns import Pattern
from .logrecords import MAX_LINE

_QUIET = re.compile(rb"\b(?:INFO|DEBUG)[ :]")
_NOT_PLAIN = re.compile(rb"\b(?:INFO|DEBUG)[ :]|[\])]   |[\r\x1b]")
_SECRET_WORDS = ("prompt", "messages", "Received request", "Dumping ", "SchedulerOutput", "NewReq")
_SECRET = re.compile(
    r"(?s)(Received request \S+?:|Dumping (?:input data|scheduler output)[^:]*?:?|"
    r"prompt(?:_token_ids)?\s*[=:]|messages\s*[=:]|SchedulerOutput\(|NewRequestData\().*"
)


def line_text(raw: bytes, literals: Sequence[str]) -> str:
    """The line as text: of a very long one its two ends, of one that a progress bar wrote over
    again and again the last writing, if that holds one of the literals."""
    if len(raw) > MAX_LINE:
        raw = raw[: MAX_LINE // 2] + b" ... " + raw[-MAX_LINE // 2 :]
    text = plain(raw.decode("utf-8", "replace"))
    if "\r" in text:
        last = text.rpartition("\r")[2]
        if any(literal in last for literal in literals):
            return last
    return text


def without_prompts(text: str) -> str:
    """The line without prompts, outputs and request bodies."""
    if any(word in text for word in _SECRET_WORDS):
        return _SECRET.sub(r"\1", text)
    return text


def is_plain(pattern: Pattern, block: bytes, start: int, stop: int) -> bool:
    """Whether what stands before a match lets no doubt that the line counts: no quiet level, no
    indented source text, nothing that was written over; of a quiet pattern, a head alone."""
    if pattern.info:
        return block[start:stop].rstrip().endswith((b"INFO:", b"]"))
    if pattern.indented:
        return _QUIET.search(block, start, stop) is None
    return block[start] not in b" \t" and _NOT_PLAIN.search(block, start, stop) is None


def without_nul(data: bytes) -> bytes:
    """Without NUL bytes: holes that truncation leaves, and the halves of UTF-16."""
    return data.translate(None, b"\0") if b"\0" in data else data
