"""Label matchers: making one from its parts, and whether it lets the empty value pass.

Regular expressions are RE2, matched against the whole value, dot matching newline.
"""

from __future__ import annotations

import re
from typing import Any

import re2

from .errors import ParseError, shown
from .literals import quote
from .nodes import Matcher, MatchOp

_MEMORY = 8 << 20
_ANY_BYTE = re.compile(r"(?:^|[^\\])(?:\\\\)*\\C")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def compile_regex(pattern: str) -> Any:
    """The compiled RE2 pattern; use its ``fullmatch``. Raises ValueError with RE2's reason."""
    if _ANY_BYTE.search(pattern):
        raise ValueError("\\C does not fit text")
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        raise ValueError("it is not valid Unicode") from None
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(text[:200]) from None


def matcher(name: str, op: MatchOp, value: str, at: int) -> Matcher:
    """A matcher. Raises ParseError at offset ``at`` when its regular expression is none."""
    if op in ("=~", "!~"):
        try:
            compile_regex(value)
        except ValueError as error:
            raise ParseError(f"{shown(value)} is no RE2 regular expression: {error}", at) from None
    return Matcher(name, op, value)


def matcher_text(item: Matcher) -> str:
    """The matcher as it stands inside braces, in the canonical spelling."""
    name = item.name if is_plain_name(item.name) else quote(item.name)
    return f"{name}{item.op}{quote(item.value)}"


def passes_empty(item: Matcher) -> bool:
    """Whether a series without the label passes."""
    if item.op == "=":
        return item.value == ""
    if item.op == "!=":
        return item.value != ""
    matched = compile_regex(item.value).fullmatch("") is not None
    return matched == (item.op == "=~")


def is_plain_name(name: str) -> bool:
    """Whether a label name can stand without quotes."""
    return _PLAIN_NAME.fullmatch(name) is not None


def is_label_name(name: str) -> bool:
    """Whether it can be a label name at all: not empty, and valid UTF-8."""
    return name != "" and not any("\ud800" <= char <= "\udfff" for char in name)
