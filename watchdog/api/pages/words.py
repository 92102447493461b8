"""Numbers, times and names as a person reads them, in English or Chinese."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .chinese import CHINESE

LANGUAGES = ("en", "zh")


@dataclass(frozen=True, slots=True)
class Words:
    """Says things in one language; what it does not know stays English."""

    lang: str
    known: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, text: str, **values: object) -> str:
        """A text of ours, with values put in where it has ``{name}``."""
        said = self.known.get(text, text)
        return said.format(**values) if values else said

    def count(self, number: int, one: str, many: str) -> str:
        """The text for one, or for another number ``{n}`` of things."""
        return self(one if number == 1 else many, n=number) if number != 1 else self(one)

    def name(self, word: str) -> str:
        """An act, a cause or a state by its name: ``card_lost`` is card lost."""
        return self(word.replace("_", " "))

    def listed(self, words: list[str]) -> str:
        """Several after each other."""
        return ("、" if self.lang == "zh" else ", ").join(words)


def words(lang: str) -> Words:
    """The words of a language."""
    return Words(lang, CHINESE if lang == "zh" else {})


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})  # control, direction marks, halves, unassigned
LONGEST = 1000  # characters of a text from anywhere that are shown


def visible(text: str) -> str:
    """Text from anywhere in one line, without characters that hide or turn what follows; cut where
    it is longer than anybody reads."""
    if len(text) > LONGEST:
        text = text[: LONGEST - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        " " if c in "\n\r\t" else "\ufffd" if unicodedata.category(c) in _HIDDEN else c
        for c in text
    )


def language(asked: str, accepted: str) -> str:
    """``en`` or ``zh``: what was asked for, else what a browser likes best (Accept-Language)."""
    if asked in LANGUAGES:
        return asked
    best, found = 0.0, "en"
    for part in accepted.split(",")[:20]:
        tag, _, rest = part.strip().partition(";")
        match = re.fullmatch(r"\s*q=([01](?:\.\d{0,3})?)\s*", rest) if rest else None
        weight = float(match[1]) if match else 0.0 if rest else 1.0
        known = tag.strip().lower().partition("-")[0]
        if known in LANGUAGES and weight > best:
            best, found = weight, known
    return found


def seconds_of(moment: object) -> float | None:
    """Unix seconds of a moment as documents have it: RFC 3339, or a number already."""
    if isinstance(moment, int | float):
        return float(moment)
    try:
        return datetime.fromisoformat(str(moment).replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def clock(moment: object, now: float | None) -> str:
    """The time of day, with the date where it is not today's; UTC."""
    at = seconds_of(moment)
    if at is None:
        return ""
    when = datetime.fromtimestamp(at, timezone.utc)
    if now is not None and when.date() == datetime.fromtimestamp(now, timezone.utc).date():
        return f"{when:%H:%M:%S}"
    return f"{when:%Y-%m-%d %H:%M}"


def span(say: Words, seconds: float) -> str:
    """A duration, short."""
    if seconds < 10:
        return _whole(say("{n} s", n=f"{seconds:.1f}".removesuffix(".0")))
    for size, below, text in ((1, 120, "{n} s"), (60, 7200, "{n} min"), (3600, 172_800, "{n} h")):
        if seconds < below:
            return _whole(say(text, n=round(seconds / size)))
    return _whole(say("{n} d", n=round(seconds / 86400)))


def _whole(text: str) -> str:
    """A measure that no line break parts from its unit."""
    return text.replace(" ", "\u00a0")


def since(say: Words, moment: object, now: float | None) -> str:
    """A time and how long ago that was."""
    at = seconds_of(moment)
    if at is None:
        return ""
    if now is None or now < at:
        return clock(moment, now)
    return f"{clock(moment, now)} · {span(say, now - at)}"


def figure(value: Any) -> float | None:
    """A number as documents have it; None for what is none (they write NaN and +Inf as text)."""
    return float(value) if isinstance(value, int | float) and value == value else None  # noqa: PLR0124


def percent(value: Any) -> str:
    """A share."""
    share = figure(value)
    if share is None:
        return ""
    digits = 0 if share == 0 or share >= 0.0995 else 1
    return _whole(f"{share * 100:.{digits}f} %")


def gibibytes(value: Any) -> str:
    """A size."""
    size = figure(value)
    return "" if size is None else f"{size / 2**30:.1f}".removesuffix(".0")


def plain(value: Any, unit: str = "") -> str:
    """A number with its unit."""
    number = figure(value)
    if number is None:
        return str(value) if isinstance(value, str) else ""
    shown = f"{number:.0f}" if abs(number) >= 1000 else f"{number:.3g}"
    return _whole(f"{shown}{unit}")
