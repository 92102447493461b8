"""``label_replace``, ``label_join``, and the labels that ``absent`` gives."""

from __future__ import annotations

import re
from typing import Any

from ..model import NAME, Labels, labelset
from .errors import EvaluationError
from .matchers import compile_regex, is_label_name
from .nodes import MatrixSelector, Node, Paren, VectorSelector
from .plan import Context, Renaming, VectorOp
from .values import Columns

_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})")


class Relabelled(VectorOp):
    """Gives each element the label set that a function makes of its own."""

    def __init__(self, inner: VectorOp, names: Renaming) -> None:
        self._inner = inner
        self._names = names

    def vector(self, now: int, context: Context) -> Columns:
        """The same values under the new label sets."""
        labels, values = self._inner.vector(now, context)
        return self._names(labels), values


def replace(inner: VectorOp, target: str, template: str, source: str, pattern: str) -> VectorOp:
    """``label_replace``. Raises EvaluationError for a bad pattern or label name."""
    try:
        match = compile_regex(pattern).fullmatch
    except ValueError as error:
        raise EvaluationError(
            f"invalid regular expression in label_replace(): {pattern}"
        ) from error
    if not is_label_name(target):
        raise EvaluationError(f"invalid destination label name in label_replace(): {target}")

    def derive(labels: Labels) -> Labels:
        found = match(dict(labels).get(source, ""))
        return labels if found is None else with_label(labels, target, expand(template, found))

    return Relabelled(inner, Renaming(derive))


def join(inner: VectorOp, target: str, separator: str, sources: list[str]) -> VectorOp:
    """``label_join``. Raises EvaluationError for a bad label name."""
    for source in sources:
        if not is_label_name(source):
            raise EvaluationError(f"invalid source label name in label_join(): {source}")
    if not is_label_name(target):
        raise EvaluationError(f"invalid destination label name in label_join(): {target}")

    def derive(labels: Labels) -> Labels:
        values = dict(labels)
        return with_label(
            labels, target, separator.join(values.get(source, "") for source in sources)
        )

    return Relabelled(inner, Renaming(derive))


def with_label(labels: Labels, name: str, value: str) -> Labels:
    """The label set with one label set, or removed if the value is empty."""
    return labelset({**dict(labels), name: value})


def expand(template: str, found: Any) -> str:
    """Fill in ``$1``, ``$name``, ``${name}`` and ``$$`` as Go's Regexp.Expand does: the longest
    name counts, an unknown one is empty, any other ``$`` stands for itself."""
    groups = found.re.groupindex

    def text(reference: re.Match[str]) -> str:
        name = reference.group(1) or reference.group(2)
        if name is None:
            return "$"
        if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0"):
            index = int(name) if len(name) < 9 else -1
            return found.group(index) or "" if 0 <= index <= found.re.groups else ""
        return found.group(groups[name]) or "" if name in groups else ""

    return _REFERENCE.sub(text, template)


def absent_labels(node: Node) -> Labels:
    """The labels of an absent selector: each that exactly one matcher gives, by equality."""
    while isinstance(node, Paren):
        node = node.expr
    if isinstance(node, MatrixSelector):
        node = node.vector
    labels: dict[str, str] = {}
    seen: set[str] = set()
    for matcher in node.matchers if isinstance(node, VectorSelector) else ():
        if matcher.name == NAME:
            continue
        if matcher.op == "=" and matcher.name not in seen:
            labels[matcher.name] = matcher.value
            seen.add(matcher.name)
        else:
            labels.pop(matcher.name, None)
    return labelset(labels)
