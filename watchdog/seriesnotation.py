"""Series as people write them in tests: ``up{job="a"}`` with ``1+2x3 _x4 stale``.

The notation is promtool's. Only reading: what the values are for is the caller's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import WatchdogError
from .model import NAME, Labels, labelset
from .series import STALE

MOST = 1_000_000  # values that one line may stand for

# No hexadecimal: 0x10 is eleven zeros.
_NUMBER = (
    r"(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
    r"|[iI][nN][fF]|[nN][aA][nN])"
)
_ITEM = re.compile(
    rf"(?:(?P<blank>_)|(?P<stale>stale)|(?P<first>[+-]?{_NUMBER})(?P<step>[+-]{_NUMBER})?)"
    r"(?:x(?P<times>[0-9]+))?"
)
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"\s*(?:(?P<name>[a-zA-Z_][a-zA-Z0-9_]*)|(?P<quoted>\"(?:[^\"\\]|\\.)*\"))\s*")
_VALUE = re.compile(r"\s*=\s*(\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)\s*")
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class NotationError(WatchdogError):
    """A series or its values cannot be read; ``offset`` is the character that is to blame."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def values(text: str) -> list[float | None]:
    """Return one entry a step: a value, ``STALE`` for a staleness marker, None for no sample.

    ``a+bxn`` and ``axn`` stand for n further values after ``a``, ``_xn`` for n gaps. Raises
    NotationError.
    """
    found: list[float | None] = []
    for match in re.finditer(r"\S+", text):
        item = _ITEM.fullmatch(match.group())
        if item is None:
            hint = " (native histograms are not supported)" if match.group()[0] == "{" else ""
            raise NotationError(f"{match.group()!r} is no series value{hint}", match.start())
        if len(found) + int(item["times"] or 0) >= MOST:
            raise NotationError(f"more than {MOST} values", match.start())
        found += _item(item, match.start())
    return found


def _item(item: re.Match[str], offset: int) -> list[float | None]:
    times = int(item["times"] or 0)
    if item["blank"]:
        return [None] * (times if item["times"] is not None else 1)
    if item["stale"]:
        if item["times"] is not None:
            raise NotationError("'stale' cannot be repeated", offset)
        return [STALE]
    value, step = _number(item["first"]), _number(item["step"] or "0")
    if item["step"] and item["times"] is None:
        raise NotationError(f"{item.group()!r} has a step but no count (as in 1+2x3)", offset)
    run: list[float | None] = [value]
    for _ in range(times):
        value += step
        run.append(value)
    return run


def _number(text: str) -> float:
    value = float(text.lstrip("+-"))
    return -value if text.startswith("-") else value


def series(text: str) -> Labels:
    """Return the label set (metric name included) of ``name{label="value",…}``.

    Raises NotationError.
    """
    start = len(text) - len(text.lstrip())
    metric = _METRIC.match(text, start)
    at = metric.end() if metric else start
    pairs: dict[str, str] = {NAME: metric.group()} if metric else {}
    if text[at:].strip():
        at = _labels(text, at, pairs)
    if text[at:].strip():
        raise NotationError(f"unexpected {text[at:].strip()!r} after the series", at)
    if not pairs:
        raise NotationError("a series must have a name or labels", start)
    return labelset(pairs)


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    value: str
    end: int


def _labels(text: str, at: int, pairs: dict[str, str]) -> int:
    while text[at : at + 1] == " ":
        at += 1
    if text[at : at + 1] != "{":
        raise NotationError(f"unexpected {text[at:]!r}, wanted labels in braces", at)
    at += 1
    while True:
        if text[at:].lstrip().startswith("}"):
            return text.index("}", at) + 1
        entry = _entry(text, at, named=NAME in pairs)
        if entry.name in pairs:
            raise NotationError(f"label {entry.name!r} is given twice", at)
        pairs[entry.name] = entry.value
        at = entry.end
        if text[at : at + 1] == ",":
            at += 1
        elif text[at : at + 1] != "}":
            raise NotationError("wanted ',' or '}' after a label", at)


def _entry(text: str, at: int, *, named: bool) -> _Entry:
    label = _LABEL.match(text, at)
    if label is None:
        raise NotationError("wanted a label name", at)
    name = label["name"] or _unquote(label["quoted"], label.start("quoted"))
    value = _VALUE.match(text, label.end())
    if value is None:
        if label["quoted"] and not named:
            return _Entry(NAME, name, label.end())
        raise NotationError(f'wanted ="value" after label {name!r}', label.end())
    return _Entry(name, _unquote(value[1], value.start(1)), value.end())


def _unquote(text: str, offset: int) -> str:
    if text[0] == "`":
        return text[1:-1]

    def decode(match: re.Match[str]) -> str:
        two, four, eight, octal, plain = match.groups()
        if plain is None:
            return chr(int(octal, 8) if octal else int(two or four or eight, 16))
        if plain not in _PLAIN and plain not in ("\\", text[0]):
            raise NotationError(f"unknown escape \\{plain}", offset)
        return _PLAIN.get(plain, plain)

    return _ESCAPE.sub(decode, text[1:-1])
