"""From tokens to the tree of a Go template, with Go's own rules and messages.

The subset is what alert annotations use: ``define``, ``template`` and ``block`` are refused, since
an annotation is one text with nothing to call. Nothing is executed here, and which functions there
are is told by the caller.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from .lexer import KEYWORDS, Token, lex
from .literals import literal
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

_DEEPEST = 200  # nested parentheses and blocks; Go allows 10,000 of the former


@dataclass(frozen=True, slots=True)
class _Stop(Node):
    """``end`` or ``else``; ``follow`` is the ``if`` or ``with`` after the latter."""

    word: str
    follow: str = ""


def parse(text: str, functions: Collection[str]) -> tuple[Node, ...]:
    """Parse a whole template; ``functions`` are the names that may be called.

    TemplateError names the first thing wrong: syntax, an unknown function or variable, an action
    outside the subset.
    """
    return _Parser(lex(text), functions).whole()


@dataclass(slots=True)
class _Parser:
    tokens: list[Token]
    functions: Collection[str]
    position: int = 0
    depth: int = 0
    ranges: int = 0
    variables: list[str] = field(default_factory=lambda: ["$"])

    def whole(self) -> tuple[Node, ...]:
        nodes: list[Node] = []
        while self._peek().kind != "eof":
            node = self._text_or_action()
            if isinstance(node, _Stop):
                raise TemplateError(f"unexpected {{{{{node.word}}}}}", node.at)
            nodes.append(node)
        return tuple(nodes)

    def _peek(self) -> Token:
        return self.tokens[self.position]

    def _next(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def _solid(self) -> Token:
        """The next token that is not space, left where it is."""
        if self._peek().kind == "space":
            self.position += 1
        return self._peek()

    def _unexpected(self, token: Token, where: str) -> TemplateError:
        shown = f"<{token.text}>" if token.kind in KEYWORDS else f'"{token.text}"'
        if token.kind == "eof":
            shown = "EOF"
        return TemplateError(f"unexpected {shown} in {where}", token.at)

    def _expect(self, kind: str, where: str) -> Token:
        token = self._solid()
        if token.kind != kind:
            raise self._unexpected(token, where)
        return self._next()

    def _text_or_action(self) -> Node:
        token = self._next()
        if token.kind == "text":
            return Text(token.at, token.text)
        word = self._solid()
        if word.kind in ("define", "template", "block"):
            raise TemplateError(f"action {word.text!r} is not supported in annotations", word.at)
        if word.kind not in ("if", "with", "range", "end", "else", "break", "continue"):
            return Action(word.at, self._pipeline("command", "right"))
        self._next()
        if word.kind in ("if", "with", "range"):
            return self._branch(word)
        if word.kind == "else":
            return self._else(word)
        self._expect("right", word.kind if word.kind == "end" else f"{{{{{word.kind}}}}}")
        if word.kind == "end":
            return _Stop(word.at, "end")
        if not self.ranges:
            raise TemplateError(f"{{{{{word.kind}}}}} outside {{{{range}}}}", word.at)
        return Leave(word.at, word.kind)

    def _else(self, word: Token) -> _Stop:
        follow = self._solid()
        if follow.kind in ("if", "with"):
            return _Stop(word.at, "else", follow.kind)
        self._expect("right", "else")
        return _Stop(word.at, "else")

    def _branch(self, word: Token) -> Branch:
        self._deeper(word)
        kept = len(self.variables)
        pipe = self._pipeline(word.kind, "right")
        self.ranges += word.kind == "range"
        body, stop = self._list()
        self.ranges -= word.kind == "range"
        otherwise: tuple[Node, ...] | None = None
        if stop.word == "else":
            otherwise = self._otherwise(word, stop)
        del self.variables[kept:]
        self.depth -= 1
        return Branch(pipe.at, word.kind, pipe, body, otherwise)

    def _otherwise(self, word: Token, stop: _Stop) -> tuple[Node, ...]:
        if stop.follow and stop.follow == word.kind:
            return (self._branch(self._next()),)
        nodes, stop = self._list()
        if stop.word != "end":
            raise TemplateError(f"expected end; found {{{{{stop.word}}}}}", stop.at)
        return nodes

    def _list(self) -> tuple[tuple[Node, ...], _Stop]:
        nodes: list[Node] = []
        while self._solid().kind != "eof":
            if self._peek().kind not in ("text", "left"):
                raise self._unexpected(self._peek(), "input")
            node = self._text_or_action()
            if isinstance(node, _Stop):
                return tuple(nodes), node
            nodes.append(node)
        raise TemplateError("unexpected EOF", self._peek().at)

    def _deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise TemplateError("max expression depth exceeded", token.at)

    def _pipeline(self, where: str, end: str) -> Pipe:
        at = self._solid().at
        names, assign = self._declarations(where)
        commands: list[Command] = []
        while True:
            token = self._solid()
            if token.kind == end:
                self._next()
                return self._checked(Pipe(at, tuple(commands), tuple(names), assign), where, token)
            if token.kind not in _OPERANDS:
                raise self._unexpected(token, where)
            commands.append(self._command())

    def _checked(self, pipe: Pipe, where: str, end: Token) -> Pipe:
        if not pipe.commands:
            raise TemplateError(f"missing value for {where}", end.at)
        for number, command in enumerate(pipe.commands[1:], start=2):
            if isinstance(command.words[0], Literal | Dot):
                raise TemplateError(
                    f"non executable command in pipeline stage {number}", command.at
                )
        return pipe

    def _declarations(self, where: str) -> tuple[list[str], bool]:
        names: list[str] = []
        while self._solid().kind == "variable":
            start, name = self.position, self._next()
            sign = self._solid()
            if sign.kind in ("assign", "declare"):
                self._next()
                names.append(name.text)
                self.variables.append(name.text)
                return names, sign.kind == "assign"
            if sign.text != ",":
                self.position = start
                break
            self._next()
            names.append(name.text)
            self.variables.append(name.text)
            if where != "range" or len(names) > 1:
                raise TemplateError(f"too many declarations in {where}", sign.at)
            if self._solid().kind not in ("variable", "right", "close"):
                raise TemplateError("range can only initialize variables", self._peek().at)
        return names, False

    def _command(self) -> Command:
        at = self._solid().at
        words: list[Node] = []
        while True:
            self._solid()
            operand = self._operand()
            if operand is not None:
                words.append(operand)
            token = self._peek()
            if token.kind == "space":
                continue
            if token.kind == "pipe":
                self._next()
            elif token.kind not in ("right", "close"):
                raise self._unexpected(token, "operand")
            break
        if not words:
            raise TemplateError("empty command", at)
        return Command(at, tuple(words))

    def _operand(self) -> Node | None:
        node = self._term()
        if node is None or self._peek().kind != "field":
            return node
        first = self._peek()
        names: list[str] = []
        while self._peek().kind == "field":
            names.append(self._next().text[1:])
        if isinstance(node, Field):
            return Field(first.at, (*node.names, *names))
        if isinstance(node, Variable):
            return Variable(first.at, node.name, (*node.names, *names))
        if isinstance(node, Literal | Dot):
            raise TemplateError(f'unexpected . after term "{node}"', first.at)
        return Chain(first.at, node, tuple(names))

    def _term(self) -> Node | None:
        token = self._peek()
        if token.kind not in _OPERANDS:
            return None
        self._next()
        if token.kind == "open":
            self._deeper(token)
            pipe = self._pipeline("parenthesized pipeline", "close")
            self.depth -= 1
            return pipe
        if token.kind == "word":
            if token.text not in self.functions:
                raise TemplateError(f'function "{token.text}" not defined', token.at)
            return Function(token.at, token.text)
        if token.kind == "variable":
            if token.text not in self.variables:
                raise TemplateError(f'undefined variable "{token.text}"', token.at)
            return Variable(token.at, token.text)
        if token.kind == "field":
            return Field(token.at, (token.text[1:],))
        return Dot(token.at) if token.kind == "dot" else literal(token)


_OPERANDS = {
    "bool", "char", "dot", "field", "word", "number", "nil", "raw", "string", "variable", "open",
}  # fmt: skip
