"""Runs a template's tree over its data, with Go's meaning and Go's words for what goes wrong.

Pure: what the functions may look at comes in with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .builtins import truth
from .goformat import sprint, type_name
from .signature import CallError, Signature
from .tree import (
    Action,
    Branch,
    Chain,
    Command,
    Dot,
    Field,
    Function,
    Leave,
    Literal,
    Node,
    Pipe,
    TemplateError,
    Text,
    Variable,
)
from .values import METHODS, AlertData, ArgMap, LabelMap, Method, Sample

_MOST = 1 << 20  # characters an expansion may have
_STEPS = 100_000  # nodes and rounds of a range that an expansion may go through


class _Missing:
    """No value came through the pipe (nil is a value)."""


_MISSING = _Missing()


class _Left(Exception):
    """``break`` or ``continue`` on its way to its range."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


def execute(
    tree: tuple[Node, ...], variables: list[list[object]], functions: Mapping[str, Signature]
) -> str:
    """Return the output; ``variables`` are pairs, the first of them ``$``, the data.

    TemplateError carries Go's message and the offset of the blamed node.

    Its text is ``executing at <node>: message`` without the template's name and place, which only
    the caller knows.
    """
    return _Run(functions, variables).whole(tree, variables[0][1])


def _shown(value: object) -> str:
    """The text of a value that an action prints: pointers are followed."""
    if value is None:
        return "<no value>"
    text = sprint(value)
    return text.removeprefix("&") if isinstance(value, Sample) else text


@dataclass(slots=True)
class _Run:
    functions: Mapping[str, Signature]
    variables: list[list[object]]
    node: Node = field(default_factory=lambda: Text(0, ""))
    out: list[str] = field(default_factory=list)
    size: int = 0
    steps: int = 0

    def whole(self, tree: tuple[Node, ...], data: object) -> str:
        self._walk(tree, data)
        return "".join(self.out)

    def _fail(self, message: str) -> TemplateError:
        return TemplateError(f"at <{self.node}>: {message}", self.node.at)

    def _write(self, text: str) -> None:
        self.size += len(text)
        if self.size > _MOST:
            raise self._fail("output too long")
        self.out.append(text)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _STEPS:
            raise self._fail("too many steps")

    def _walk(self, nodes: tuple[Node, ...], dot: object) -> None:
        for node in nodes:
            self._step()
            if isinstance(node, Text):
                self._write(node.text)
            elif isinstance(node, Action):
                value = self._pipe(dot, node.pipe)
                if not node.pipe.variables:
                    self._write(_shown(value))
            elif isinstance(node, Branch):
                kept = len(self.variables)
                self._range(node, dot) if node.word == "range" else self._choose(node, dot)
                del self.variables[kept:]
            elif isinstance(node, Leave):
                raise _Left(node.word)

    def _choose(self, node: Branch, dot: object) -> None:
        value = self._pipe(dot, node.pipe)
        if truth(value):
            self._walk(node.body, value if node.word == "with" else dot)
        elif node.otherwise is not None:
            self._walk(node.otherwise, dot)

    def _range(self, node: Branch, dot: object) -> None:
        value = self._pipe(dot, node.pipe)
        pairs = self._pairs(value, node)
        kept = len(self.variables)
        try:
            for index, item in pairs:
                self._step()
                self._bind(node.pipe, index, item)
                try:
                    self._walk(node.body, item)
                except _Left as left:
                    if left.word == "break":
                        raise
                finally:
                    del self.variables[kept:]
        except _Left:
            return
        if not pairs and node.otherwise is not None:
            self._walk(node.otherwise, dot)

    def _pairs(self, value: object, node: Branch) -> list[tuple[object, object]]:
        if isinstance(value, list):
            return list(enumerate(value))
        if isinstance(value, dict):
            return sorted(value.items())
        if value is None:
            return []
        if isinstance(value, int) and not isinstance(value, bool):
            if len(node.pipe.variables) > 1:
                raise self._fail(f"can't use {value} to iterate over more than one variable")
            return [(None, number) for number in range(min(value, _STEPS))]
        raise self._fail(f"range can't iterate over {sprint(value)}")

    def _bind(self, pipe: Pipe, index: object, item: object) -> None:
        """Give a range's variables their values; evaluating the pipe has pushed them."""
        if not pipe.variables:
            return
        last = pipe.variables[-1]
        self._set(last, item)
        if len(pipe.variables) > 1:
            self._set(pipe.variables[0], index)

    def _set(self, name: str, value: object) -> None:
        for pair in reversed(self.variables):
            if pair[0] == name:
                pair[1] = value
                return
        raise self._fail(f"undefined variable: {name}")

    def _pipe(self, dot: object, pipe: Pipe) -> object:
        self.node = pipe
        value: object = _MISSING
        for command in pipe.commands:
            value = self._command(dot, command, value)
        for name in pipe.variables:
            if pipe.assign:
                self._set(name, value)
            else:
                self.variables.append([name, value])
        return value

    def _command(self, dot: object, command: Command, final: object) -> object:
        first = command.words[0]
        if not isinstance(first, Pipe):
            self.node = first
        if isinstance(first, Function):
            return self._function(dot, first, command, command.words[1:], final)
        if isinstance(first, Field | Chain) or (isinstance(first, Variable) and first.names):
            return self._path(dot, first, command.words[1:], final)
        if len(command.words) > 1 or final is not _MISSING:
            raise self._fail(f"can't give argument to non-function {first}")
        if isinstance(first, Literal) and first.source == "nil":
            raise self._fail("nil is not a command")
        return self._plain(dot, first)

    def _plain(self, dot: object, node: Node) -> object:
        """The value of a word that takes no arguments."""
        self.node = node
        if isinstance(node, Dot):
            return dot
        if isinstance(node, Literal):
            return node.value
        if isinstance(node, Pipe):
            return self._pipe(dot, node)
        if isinstance(node, Function):
            return self._function(dot, node, node, (), _MISSING)
        if isinstance(node, Variable) and not node.names:
            return self._variable(node.name)
        return self._path(dot, node, (), _MISSING)

    def _variable(self, name: str) -> object:
        return next(pair[1] for pair in reversed(self.variables) if pair[0] == name)

    def _path(self, dot: object, node: Node, args: tuple[Node, ...], final: object) -> object:
        self.node = node
        if isinstance(node, Field):
            value, names = dot, node.names
        elif isinstance(node, Variable):
            value, names = self._variable(node.name), node.names
        else:
            assert isinstance(node, Chain)
            value, names = self._plain(dot, node.node), node.names
        for name in names[:-1]:
            value = self._field(dot, value, name, (), _MISSING)
        return self._field(dot, value, names[-1], args, final)

    def _field(
        self, dot: object, value: object, name: str, args: tuple[Node, ...], final: object
    ) -> object:
        if value is None:
            return None
        method = METHODS.get(type(value), {}).get(name)
        if method is not None:
            return self._method(dot, value, name, method, args, final)
        given = bool(args) or final is not _MISSING
        if isinstance(value, dict):
            if given:
                raise self._fail(f"{name} is not a method but has arguments")
            missing = None if isinstance(value, ArgMap) else ""
            return value.get(name, missing)
        if isinstance(value, AlertData | Sample) and name in type(value).__slots__:
            if given:
                raise self._fail(f"{name} has arguments but cannot be invoked as function")
            return getattr(value, name)
        raise self._fail(f"can't evaluate field {name} in type {type_name(value)}")

    def _method(
        self,
        dot: object,
        value: object,
        name: str,
        method: Method,
        args: tuple[Node, ...],
        final: object,
    ) -> object:
        bound = Signature(lambda *given: method.call(value, *given), method.takes)
        return self._call(dot, name, bound, self.node, args, final)

    def _function(
        self, dot: object, node: Function, whole: Node, args: tuple[Node, ...], final: object
    ) -> object:
        signature = self.functions[node.name]
        if node.name in ("and", "or"):
            return self._decide(dot, node, args, final)
        return self._call(dot, node.name, signature, whole, args, final)

    def _decide(self, dot: object, node: Function, args: tuple[Node, ...], final: object) -> object:
        if not args and final is _MISSING:
            raise self._fail(f"wrong number of args for {node.name}: want at least 1 got 0")
        value: object = None
        for arg in args:
            value = self._argument(dot, arg, "any")
            if truth(value) == (node.name == "or"):
                return value
        return value if final is _MISSING else final

    def _call(
        self,
        dot: object,
        name: str,
        signature: Signature,
        whole: Node,
        args: tuple[Node, ...],
        final: object,
    ) -> object:
        count = len(args) + (final is not _MISSING)
        if signature.rest is not None and count < len(signature.takes):
            least = len(signature.takes)
            raise self._fail(
                f"wrong number of args for {name}: want at least {least} got {len(args)}"
            )
        if signature.rest is None and count != len(signature.takes):
            raise self._fail(
                f"wrong number of args for {name}: want {len(signature.takes)} got {count}"
            )
        values = [self._argument(dot, arg, signature.type_of(i)) for i, arg in enumerate(args)]
        if final is not _MISSING:
            values.append(self._typed(final, signature.type_of(len(args))))
        return self._result(name, signature.call, whole, values)

    def _result(
        self, name: str, call: Callable[..., object], whole: Node, values: list[object]
    ) -> object:
        try:
            return call(*values)
        except CallError as error:
            self.node = whole
            raise self._fail(f"error calling {name}: {error}") from None

    def _argument(self, dot: object, node: Node, wanted: str) -> object:
        self.node = node
        if isinstance(node, Literal):
            return self._constant(node, wanted)
        return self._typed(self._plain(dot, node), wanted)

    def _constant(self, node: Literal, wanted: str) -> object:
        if node.source == "nil":
            if wanted == "string":
                raise self._fail("cannot assign nil to string")
            return None
        if wanted == "any" or (wanted == "string" and isinstance(node.value, str)):
            return node.value
        if wanted == "string":
            raise self._fail(f"expected string; found {node}")
        raise self._fail(f"can't handle {node} for arg of type {wanted}")

    def _typed(self, value: object, wanted: str) -> object:
        if wanted == "any" or (value is None and wanted != "string"):
            return LabelMap() if value is None and wanted == "map[string]string" else value
        if value is None:
            raise self._fail("invalid value; expected string")
        if type_name(value) != wanted:
            raise self._fail(f"wrong type for value; expected {wanted}; got {type_name(value)}")
        return value
