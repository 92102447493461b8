"""The functions that every Go template has: comparing, indexing, printing, escaping.

``and`` and ``or`` decide which arguments are looked at, so they live in ``execute``.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote_plus

from .goformat import sprint, sprintln, type_name
from .printf import sprintf
from .signature import CallError, Signature
from .values import Result

_KINDS = {bool: "bool", int: "int", float: "float", str: "string"}
_HTML = {"\0": "�", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"'}


def truth(value: object) -> bool:
    """Whether Go takes a value for true: not zero, not empty, not nil."""
    if isinstance(value, bool | int | float | str | list | dict):
        return bool(value)
    return value is not None


def _equal(first: object, *others: object) -> bool:
    if not others:
        raise CallError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(first: object, other: object) -> bool:
    kind, second = _KINDS.get(type(first)), _KINDS.get(type(other))
    if kind != second:
        if first is None or other is None:
            return False
        raise CallError(_incompatible(first, other))
    if isinstance(first, dict | list) and first is not None and other is not None:
        raise CallError(f"non-comparable type {sprint(other)}: {type_name(other)}")
    return first == other


def _incompatible(first: object, other: object) -> str:
    return f"incompatible types for comparison: {type_name(first)} and {type_name(other)}"


def _less(first: object, other: object) -> bool:
    kinds = _KINDS.get(type(first)), _KINDS.get(type(other))
    if None in kinds:
        raise CallError("invalid type for comparison")
    if kinds[0] != kinds[1]:
        raise CallError(_incompatible(first, other))
    if isinstance(first, bool):
        raise CallError("invalid type for comparison")
    return bool(first < other)  # type: ignore[operator]


def _less_or_equal(first: object, other: object) -> bool:
    return _less(first, other) or _equal(first, other)


def _length(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, list | dict):
        return len(value)
    raise CallError("len of nil pointer" if value is None else f"len of type {type_name(value)}")


def _index(value: object, *keys: object) -> object:
    if value is None:
        raise CallError("index of untyped nil")
    for key in keys:
        if value is None:
            raise CallError("index of nil pointer")
        value = _item(value, key)
    return value


def _item(value: object, key: object) -> object:
    if isinstance(value, dict):
        if not isinstance(key, str):
            wanted = "value is nil; should be of type string"
            raise CallError(
                wanted if key is None else f"value has type {type_name(key)}; should be string"
            )
        return value.get(key, "" if type_name(value) == "map[string]string" else None)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        return data[_position(key, len(data), "string")]
    if isinstance(value, list):
        return value[_position(key, len(value), "slice")]
    raise CallError(f"can't index item of type {type_name(value)}")


def _position(key: object, size: int, kind: str, *, last: int = 0) -> int:
    if key is None:
        raise CallError("cannot index slice/array with nil")
    if not isinstance(key, int) or isinstance(key, bool):
        raise CallError(f"cannot index slice/array with type {type_name(key)}")
    if not 0 <= key < size + last:
        at_end = key == size and not last
        reason = f"reflect: {kind} index out of range" if at_end else f"index out of range: {key}"
        raise CallError(reason)
    return key


def _slice(value: object, *bounds: object) -> object:
    if value is None:
        raise CallError("slice of untyped nil")
    if not isinstance(value, str | list):
        raise CallError(f"can't slice item of type {type_name(value)}")
    if len(bounds) > 2:
        raise CallError("cannot 3-index slice a string")
    items: bytes | list[object]
    items = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    start, end = 0, len(items)
    if bounds:
        start = _position(bounds[0], len(items), "slice", last=1)
    if len(bounds) > 1:
        end = _position(bounds[1], len(items), "slice", last=1)
    if start > end:
        raise CallError(f"invalid slice index: {start} > {end}")
    part = items[start:end]
    return part.decode("utf-8", "replace") if isinstance(part, bytes) else Result(part)  # type: ignore[arg-type]


def _html(*args: object) -> str:
    return "".join(_HTML.get(char, char) for char in sprint(*args))


def _js(*args: object) -> str:
    def escape(char: str) -> str:
        if char in _JS:
            return _JS[char]
        if char in "<>&=" or char < " " or not char.isprintable():
            return f"\\u{ord(char):04X}"
        return char

    return "".join(map(escape, sprint(*args)))


def _urlquery(*args: object) -> str:
    return quote_plus(sprint(*args))


def _many(call: Callable[..., object], fixed: int = 0) -> Signature:
    return Signature(call, ("any",) * fixed, rest="any")


BUILTINS: dict[str, Signature] = {
    "and": _many(truth, 1),
    "or": _many(truth, 1),
    "not": Signature(lambda value: not truth(value), ("any",)),
    "eq": _many(_equal, 1),
    "ne": Signature(lambda first, other: not _equal(first, other), ("any", "any")),
    "lt": Signature(_less, ("any", "any")),
    "le": Signature(_less_or_equal, ("any", "any")),
    "gt": Signature(lambda first, other: not _less_or_equal(first, other), ("any", "any")),
    "ge": Signature(lambda first, other: not _less(first, other), ("any", "any")),
    "len": Signature(_length, ("any",)),
    "index": _many(_index, 1),
    "slice": _many(_slice, 1),
    "print": _many(sprint),
    "println": _many(sprintln),
    "printf": Signature(sprintf, ("string",), rest="any"),
    "html": _many(_html),
    "js": _many(_js),
    "urlquery": _many(_urlquery),
}
