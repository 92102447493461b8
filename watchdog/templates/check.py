"""What can be told about a template without expanding it: what it asks, what cannot work.

Refused is what lies outside the subset; remarked is what Prometheus would load and then expand to
an error text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .functions import compile_pattern
from .signature import CallError
from .tree import (
    Action,
    Branch,
    Chain,
    Command,
    Field,
    Function,
    Literal,
    Node,
    Pipe,
    TemplateError,
)
from .values import METHODS, AlertData, Duration, Time

_PATTERNS = ("match", "reReplaceAll")
_MAKERS: dict[str, type[Time] | type[Duration]] = {"toTime": Time, "toDuration": Duration}


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that will not work, and the character offset that is to blame."""

    message: str
    offset: int


@dataclass(slots=True)
class Findings:
    """What was found in a tree."""

    queries: tuple[str, ...] = ()
    asks: bool = False
    remarks: list[Remark] = field(default_factory=list)


def remarks(tree: tuple[Node, ...]) -> Findings:
    """Look through a tree. TemplateError: something outside the subset."""
    found = Findings()
    for node, root in _nodes(tree, True):
        if isinstance(node, Command):
            _command(node, found)
        elif isinstance(node, Chain):
            _chain(node)
        elif root and isinstance(node, Field) and node.names[0] not in AlertData.__slots__:
            message = f"an alert has no field .{node.names[0]} (Labels, ExternalLabels, Value …)"
            found.remarks.append(Remark(message, node.at))
    return found


def _nodes(nodes: tuple[Node, ...], root: bool) -> Iterator[tuple[Node, bool]]:
    """Every node below, with whether the cursor there is still the alert itself."""
    for node in nodes:
        yield node, root
        if isinstance(node, Action):
            yield from _nodes((node.pipe,), root)
        elif isinstance(node, Pipe):
            yield from _nodes(node.commands, root)
        elif isinstance(node, Command):
            yield from _nodes(node.words, root)
        elif isinstance(node, Chain):
            yield from _nodes((node.node,), root)
        elif isinstance(node, Branch):
            yield from _nodes((node.pipe,), root)
            yield from _nodes(node.body, root and node.word == "if")
            yield from _nodes(node.otherwise or (), root)


def _command(node: Command, found: Findings) -> None:
    first = node.words[0]
    if not isinstance(first, Function):
        return
    constant = node.words[1] if len(node.words) > 1 else None
    text = constant.value if isinstance(constant, Literal) else None
    if first.name == "query":
        found.asks = True
        if isinstance(text, str):
            found.queries += (text,)
    if first.name in _PATTERNS and isinstance(text, str) and constant is not None:
        try:
            compile_pattern(text)
        except CallError as error:
            found.remarks.append(Remark(str(error), constant.at))


def _chain(node: Chain) -> None:
    """A method of a time or duration that is not in the subset."""
    pipe = node.node
    if not isinstance(pipe, Pipe):
        return
    last = pipe.commands[-1].words[0]
    kind = _MAKERS.get(last.name) if isinstance(last, Function) else None
    if kind is not None and node.names[0] not in METHODS[kind]:
        known = ", ".join(sorted(METHODS[kind]))
        raise TemplateError(
            f"method {node.names[0]} of {kind.go_type} is not supported (supported: {known})",
            node.at,
        )
