"""Templates in alert labels and annotations: a subset of Go's, with Prometheus' functions.

``Template`` is parsed once, at load, where everything outside the subset is refused with its
place; ``expand`` gives the text that Prometheus would give. No PromQL is evaluated here: the
context brings a function for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .check import Remark, remarks
from .execute import execute
from .functions import NAMES, Context, Query, parse_duration
from .parser import parse
from .signature import CallError
from .tree import Node, TemplateError, Text
from .values import AlertData, LabelMap

__all__ = [
    "CallError",
    "Context",
    "Query",
    "Remark",
    "Template",
    "TemplateError",
    "parse_duration",
    "parse_template",
]

# The variables of an alert are declared by text that stands before the annotation's own, as
# Prometheus does it; the columns in its error messages count that text.
_PREFIX = (
    "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}"
    "{{$externalURL := .ExternalURL}}{{$value := .Value}}"
)
_DECLARATIONS = 4  # actions in the prefix; an expansion starts with their variables set


@dataclass(frozen=True, slots=True)
class Template:
    """One label or annotation, ready to be expanded. ``constant``: it holds no action at all."""

    text: str
    name: str
    tree: tuple[Node, ...]
    constant: bool
    queries: tuple[str, ...] = ()
    asks: bool = False  # whether it calls query

    @classmethod
    def plain(cls, text: str) -> Template:
        """A text that is never expanded, whatever is in it."""
        return cls(text, "", (Text(0, text),), constant=True)

    def expand(self, labels: Mapping[str, str], value: float, context: Context) -> str:
        """Return the text for one alert; an error while expanding becomes the text, as there."""
        if self.constant:
            return self.text
        external = LabelMap(context.external_labels)
        data = AlertData(LabelMap(labels), external, context.external_url, value)
        declared: list[list[object]] = [
            ["$", data],
            ["$labels", data.Labels],
            ["$externalLabels", external],
            ["$externalURL", data.ExternalURL],
            ["$value", value],
        ]
        try:
            return execute(self.tree, declared, context.functions)
        except TemplateError as error:
            return (
                f"<error expanding template: error executing template {self.name}: "
                f"template: {self._place(error)}: executing {_quoted(self.name)} {error.message}>"
            )

    def _place(self, error: TemplateError) -> str:
        before = (_PREFIX + self.text)[: error.offset]
        column = len(before.rpartition("\n")[2].encode("utf-8", "surrogatepass"))
        return f"{self.name}:{before.count(chr(10)) + 1}:{column}"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_template(text: str, alert: str) -> tuple[Template, tuple[Remark, ...]]:
    """Parse a label or annotation of the alert named ``alert``.

    Returns it with remarks on what will not work. TemplateError (offset in ``text``) names
    what is wrong or not supported.
    """
    name = f"__alert_{alert}"
    if "{{" not in text:
        return Template(text, name, (Text(0, text),), constant=True), ()
    try:
        tree = parse(_PREFIX + text, NAMES)
        found = remarks(tree)
    except TemplateError as error:
        raise TemplateError(error.message, max(0, error.offset - len(_PREFIX))) from None
    notes = tuple(
        Remark(note.message, max(0, note.offset - len(_PREFIX))) for note in found.remarks
    )
    return Template(text, name, tree[_DECLARATIONS:], False, found.queries, found.asks), notes
