"""The tree of a Go template, each piece printable as Go prints it in its error messages.

Only values: parsing is in ``parser``, meaning in ``execute``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import WatchdogError


class TemplateError(WatchdogError):
    """A template that cannot be used; ``offset`` is the character of its text that is to blame."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of the tree; ``at`` is its character offset in the text."""

    at: int


@dataclass(frozen=True, slots=True)
class Text(Node):
    """Literal output."""

    text: str


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A number, string, bool, ``nil`` or rune constant; ``source`` is how it was written.

    ``value`` is what it means where any type will do; a number that is also a float has ``real``,
    one that is also an integer ``whole``.
    """

    source: str
    value: object
    real: float | None = None
    whole: int | None = None

    def __str__(self) -> str:
        return self.source


@dataclass(frozen=True, slots=True)
class Dot(Node):
    """The cursor."""

    def __str__(self) -> str:
        return "."


@dataclass(frozen=True, slots=True)
class Field(Node):
    """``.A.B`` from the cursor."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """``$x`` or ``$x.A.B``."""

    name: str
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name + "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class Function(Node):
    """The name of a function."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """``(pipeline).A.B``."""

    node: Node
    names: tuple[str, ...]

    def __str__(self) -> str:
        base = f"({self.node})" if isinstance(self.node, Pipe) else str(self.node)
        return base + "".join(f".{name}" for name in self.names)


@dataclass(frozen=True, slots=True)
class Command(Node):
    """One stage of a pipeline: a function or value, and its arguments."""

    words: tuple[Node, ...]

    def __str__(self) -> str:
        return " ".join(f"({word})" if isinstance(word, Pipe) else str(word) for word in self.words)


@dataclass(frozen=True, slots=True)
class Pipe(Node):
    """Stages joined by ``|``, and the variables that take the result."""

    commands: tuple[Command, ...]
    variables: tuple[str, ...] = ()
    assign: bool = False

    def __str__(self) -> str:
        sign = "=" if self.assign else ":="
        head = f"{', '.join(self.variables)} {sign} " if self.variables else ""
        return head + " | ".join(map(str, self.commands))


@dataclass(frozen=True, slots=True)
class Action(Node):
    """``{{pipeline}}``."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class Branch(Node):
    """``if``, ``with`` or ``range`` (``word``) with its two lists."""

    word: str
    pipe: Pipe
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...] | None


@dataclass(frozen=True, slots=True)
class Leave(Node):
    """``break`` or ``continue``."""

    word: str
