"""Text made fit to be kept: prompts, outputs, request bodies and secrets cut out. Pure.

It cuts rather too much than too little. A prompt can run over many lines of a log: after a line
that was cut, lines without a head of their own are its rest and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ...watchdog.logheads import head, plain
from ...watchdog.logtext import without_prompts

MAX_LINE = 1000  # characters of a line that are kept
CUT = "<cut>"

_BODY = re.compile(
    r"(?is)(Generated response \S+|"
    r"[\"']?\b(?:prompt\w*|messages|content|text|inputs?|outputs?|arguments|completion|body|query"
    r"|multi_modal_data|generated_text|output_text|output_token_ids|token_ids)[\"']?\s*[=:]\s*"
    r"(?=[\"'\[{(]|b[\"']))"
    r".*"
)
_SECRET = re.compile(
    r"(?i)([\"']?\b(?:[\w-]{0,24}api[_-]?keys?|[\w-]{0,24}(?:password|passwd|secret)\w{0,24}|authorization"
    r"|(?:hf|hugging_face_hub|access|auth|bearer|refresh|id|session)[_-]?token|cookie)[\"']?"
    r"\s*(?:[=:]|\s)\s*)(?:[\"'\[(]*(?:Bearer |Basic )?[^\s\"',\])]+)"
)
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{8,}|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9._-]+)"
    r"|(?i:\bBearer\s+)[^\s\"',]+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"
)
_HEADLESS = re.compile(r"INFO:|WARNING:|ERROR:|Traceback |\w+(?:\.\w+)*(?:Error|Exception)\b")
_SECRET_WORDS = {"key", "keys", "token", "password", "passwd", "secret", "credential", "auth"}


def line(text: str) -> str:
    """One line without what users wrote and without secrets, of bounded length."""
    kept = without_prompts(text[:MAX_LINE])
    kept = _BODY.sub(rf"\1{CUT}", kept)
    kept = _SECRET.sub(rf"\1{CUT}", kept)
    kept = _TOKENS.sub(CUT, kept)
    return kept if len(text) <= MAX_LINE else f"{kept} {CUT}"


def log(data: bytes, *, whole: bool = False) -> str:
    """The lines of a log that may be kept. ``whole``: the data begin where the log does; else
    what comes before the first line with a head is the rest of something not seen."""
    kept: list[str] = []
    inside, left_out = not whole, 0
    for raw in data.replace(b"\0", b"").decode("utf-8", "replace").split("\n"):
        text = plain(raw[: 4 * MAX_LINE].rpartition("\r")[2] or raw[: 4 * MAX_LINE])
        if not text.strip():
            continue
        if head(text).body or _HEADLESS.match(text):
            inside = False
        if inside:
            left_out += 1
            continue
        shown = line(text)
        inside = CUT in shown or without_prompts(text) != text or len(raw) > len(text) + 64
        kept.append(shown)
    if left_out:
        kept.append(f"({left_out} lines without a head left out: they may be users' text)")
    return "\n".join(kept) + "\n"


def lines(text: str) -> str:
    """Text of a tool, each line made fit to be kept."""
    return "\n".join(line(one.rstrip()) for one in text.splitlines()) + "\n"


def words(argv: Sequence[str]) -> str:
    """A command line without the values of options that name a secret."""
    return " ".join(line(word) for word in _hidden(argv))


def _hidden(argv: Iterable[str]) -> Iterable[str]:
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        option = word.startswith("-") and bool(_SECRET_WORDS & set(re.split(r"[-_]", name.lower())))
        if hide and not word.startswith("--"):
            yield CUT
        elif option and equals:
            yield f"{name}={CUT}"
        else:
            yield word
        hide = (option and not equals) or (hide and not word.startswith("-"))
