"""The functions that Prometheus adds to Go's templates for alert labels and annotations."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote_plus, urlsplit

import re2

from .builtins import BUILTINS
from .humanize import (
    humanize,
    humanize1024,
    humanize_duration,
    humanize_percentage,
    humanize_timestamp,
    to_duration,
    to_float,
    to_time,
)
from .printf import sprintf
from .signature import CallError, Signature
from .values import ArgMap, LabelMap, Result, Sample

Query = Callable[[str], Sequence[tuple[Mapping[str, str], float]]]
"""Evaluates a PromQL text at the template's moment; raises an exception whose text is one line."""

_DURATION = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?"
)
_DURATION_MS = (31536000000, 604800000, 86400000, 3600000, 60000, 1000, 1)


def _no_query(text: str) -> Sequence[tuple[Mapping[str, str], float]]:
    raise CallError(f"no series to query for {text!r}")


@dataclass(frozen=True)
class Context:
    """What an expansion may look at besides its alert."""

    query: Query = _no_query
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""

    @cached_property
    def functions(self) -> Mapping[str, Signature]:
        """All functions, those that look outside bound to this context."""
        return {
            **BUILTINS,
            **_FUNCTIONS,
            "query": Signature(lambda text: _run(self, text), ("string",)),
            "externalURL": Signature(lambda: self.external_url),
            "pathPrefix": Signature(lambda: urlsplit(self.external_url).path),
        }


_JOINERS = ".:'’·․‧"  # between two letters these end no word


def _title(text: str) -> str:
    """Raise the first letter of each word; words end as Unicode's segmentation ends them."""
    out: list[str] = []
    fresh = True
    for at, char in enumerate(text):
        word = char.isalnum() and not "\u2e80" <= char <= "\u9fff"
        if word and fresh and char.upper() != char.lower():
            out.append(char.title())
            fresh = False
            continue
        out.append(char)
        if not (word or char == "_" or _joins(text, at)):
            fresh = True
    return "".join(out)


def _joins(text: str, at: int) -> bool:
    between = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return text[at] in _JOINERS and len(between) == 2 and between.isalpha()


def _single(char: str, changed: str) -> str:
    """Go maps letter to letter; where Python makes several, the letter stays."""
    return changed if len(changed) == 1 else char


def _upper(text: str) -> str:
    return "".join(_single(char, char.upper()) for char in text)


def _lower(text: str) -> str:
    return "".join("i" if char == "İ" else _single(char, char.lower()) for char in text)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Compile an RE2 pattern; CallError tells what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise CallError(f"error parsing regexp: {reason}") from None


def _match(pattern: str, text: str) -> bool:
    return compile_pattern(pattern).search(text) is not None


_GROUP = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")


def _replace_all(pattern: str, replacement: str, text: str) -> str:
    """Go's ReplaceAllString: no empty match right behind another match."""
    compiled = compile_pattern(pattern)
    out: list[str] = []
    copied = at = 0
    while at <= len(text):
        match = compiled.search(text, at)
        if match is None:
            break
        start, end = match.span()
        out.append(text[copied:start])
        if end > copied or start == 0:
            out.append(_expand(replacement, match))
        copied = end
        at = max(end, at + 1)
    return "".join(out) + text[copied:]


def _expand(replacement: str, match: Any) -> str:
    def group(found: re.Match[str]) -> str:
        name = found.group(1) or found.group(2)
        if name is None:
            return "$"
        try:
            return match.group(int(name) if name.isdigit() else name) or ""
        except (IndexError, KeyError):
            return ""

    return _GROUP.sub(group, replacement)


def _split_port(text: str) -> tuple[str, str] | None:
    """Go's net.SplitHostPort, None where it reports an error."""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]:")
        return (host, port) if bracket and not set(host + port) & set("[]:") - {":"} else None
    host, colon, port = text.rpartition(":")
    return (host, port) if colon and not set(host) & set(":[]") and "]" not in port else None


def _strip_port(text: str) -> str:
    parts = _split_port(text)
    return text if parts is None else parts[0]


def _strip_domain(text: str) -> str:
    host, port = _split_port(text) or (text, "")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        short = host.split(".")[0]
        return f"{short}:{port}" if port else short
    return text


def parse_duration(text: str) -> float:
    """Read ``1d2h`` as seconds."""
    match = _DURATION.fullmatch(text)
    if text == "0":
        return 0.0
    if not text:
        raise CallError("empty duration string")
    if match is None:
        raise CallError(sprintf("not a valid duration string: %q", text))
    return (
        sum(int(n or 0) * unit for n, unit in zip(match.groups(), _DURATION_MS, strict=True)) / 1e3
    )


def _link(tab: int) -> Callable[[str], str]:
    return lambda expr: f"/graph?g0.expr={quote_plus(expr)}&g0.tab={tab}"


def _first(result: Result) -> Sample:
    if not result:
        raise CallError("first() called on vector with no elements")
    return result[0]


def _sort(label: str, result: Result) -> Result:
    result.sort(key=lambda sample: sample.Labels.get(label, "").encode())
    return result


def _run(context: Context, text: str) -> Result:
    return Result(Sample(LabelMap(labels), value) for labels, value in context.query(text))


_STRING = ("string",)
_FUNCTIONS: dict[str, Signature] = {
    "first": Signature(_first, ("template.queryResult",)),
    "label": Signature(
        lambda name, sample: sample.Labels.get(name, ""), ("string", "*template.sample")
    ),
    "value": Signature(lambda sample: sample.Value, ("*template.sample",)),
    "strvalue": Signature(lambda sample: sample.Labels.get("__value__", ""), ("*template.sample",)),
    "sortByLabel": Signature(_sort, ("string", "template.queryResult")),
    "args": Signature(
        lambda *args: ArgMap({f"arg{i}": arg for i, arg in enumerate(args)}), rest="any"
    ),
    "reReplaceAll": Signature(_replace_all, ("string", "string", "string")),
    "match": Signature(_match, ("string", "string")),
    "safeHtml": Signature(lambda text: text, _STRING),
    "title": Signature(_title, _STRING),
    "toUpper": Signature(_upper, _STRING),
    "toLower": Signature(_lower, _STRING),
    "graphLink": Signature(_link(0), _STRING),
    "tableLink": Signature(_link(1), _STRING),
    "stripPort": Signature(_strip_port, _STRING),
    "stripDomain": Signature(_strip_domain, _STRING),
    "parseDuration": Signature(parse_duration, _STRING),
    "humanize": Signature(humanize, ("any",)),
    "humanize1024": Signature(humanize1024, ("any",)),
    "humanizeDuration": Signature(humanize_duration, ("any",)),
    "humanizePercentage": Signature(humanize_percentage, ("any",)),
    "humanizeTimestamp": Signature(humanize_timestamp, ("any",)),
    "toTime": Signature(lambda given: to_time(to_float(given)), ("any",)),
    "toDuration": Signature(lambda given: to_duration(to_float(given)), ("any",)),
}
NAMES = frozenset(Context().functions)
