"""From a YAML document to groups of rules: every key known, every value checked, every error told.

The checks are those of ``promtool check rules``, and some that only a load can make: templates
outside the subset, queries in annotations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..documents import Document, Path
from ..errors import Problem
from ..promql import Expr, PromqlError
from ..promql import load as load_expr
from ..templates import CallError, Template, TemplateError, parse_duration, parse_template
from .places import place_in
from .reach import Needs, needs_of
from .values import Group, Rule

GROUP_KEYS = ("name", "interval", "query_offset", "limit", "labels", "rules")
RULE_KEYS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OLD = "Prometheus 2.x refuses it"


@dataclass(slots=True)
class Reading:
    """One file being read: what it holds so far and what is wrong with it.

    ``raw`` is the document with every scalar as the text it was written as: Prometheus reads
    ``yes`` or ``1.0`` as text where text is wanted.
    """

    document: Document
    raw: Any
    lines: list[str]
    problems: list[Problem] = field(default_factory=list)
    where: str = ""  # the group and rule, for messages

    def groups(self) -> list[Group]:
        """Return the groups; ``problems`` holds all that is wrong."""
        if self.raw in (None, ""):
            return []
        root = self._mapping((), self.raw, ("groups",), "the file")
        entries = self._list(("groups",), (root or {}).get("groups"), "groups")
        found: dict[str, Group] = {}
        for i, entry in enumerate(entries):
            self.where = ""
            group = self._group(("groups", i), entry)
            if group is None:
                continue
            if group.name in found:
                self._error(("groups", i, "name"), f"group {group.name!r} is repeated in this file")
            found[group.name] = group
        return list(found.values())

    def _error(self, path: Path, message: str, hint: str = "", *, key: bool = False) -> None:
        place = self.document.place(path, key=key)
        self.problems.append(Problem(place, self.where + message, hint))

    def _warn(self, path: Path, message: str) -> None:
        place = self.document.place(path)
        self.problems.append(Problem(place, self.where + message, severity="warning"))

    def _in_text(self, path: Path, value: str, offset: int, message: str, severity: str) -> None:
        place = place_in(self.document, self.lines, path, value, offset)
        self.problems.append(Problem(place, self.where + message, severity=severity))

    def _mapping(
        self, path: Path, value: Any, keys: Collection[str], what: str
    ) -> Mapping[str, Any] | None:
        if not isinstance(value, dict):
            self._error(path, f"{what} must be a mapping")
            return None
        for key in value:
            if key not in keys:
                hint = f"known: {', '.join(keys)}"
                self._error((*path, key), f"unknown key {key!r}", hint, key=True)
        return value

    def _list(self, path: Path, value: Any, what: str) -> list[Any]:
        if value in (None, ""):
            return []
        if not isinstance(value, list):
            self._error(path, f"{what} must be a list")
            return []
        return value

    def _text(self, path: Path, value: Any) -> str:
        if isinstance(value, dict | list):
            self._error(path, f"{path[-1]} must be text")
            return ""
        written = "" if value is None else str(value)
        null = written in ("~", "null", "Null", "NULL") and path not in self.document.blocks
        return "" if null and self._value(path) is None else written

    def _value(self, path: Path) -> Any:
        """The value at ``path`` as YAML means it."""
        value = self.document.value
        for step in path:
            value = value[step]
        return value

    def _duration(self, path: Path, entry: Mapping[str, Any]) -> float | None:
        key = str(path[-1])
        if key not in entry or self._value(path) is None:
            return None
        text = self._text(path, entry[key])
        try:
            return parse_duration(text)
        except CallError:
            self._error(path, f"{key}: {text!r} is no duration", "write 30s, 5m or 1h30m")
            return None

    def _group(self, path: Path, value: Any) -> Group | None:
        entry = self._mapping(path, value, GROUP_KEYS, "a group")
        if entry is None:
            return None
        name = self._text((*path, "name"), entry.get("name"))
        if not name:
            self._error(path, "a group must have a name")
        self.where = f"group {name!r}: "
        interval = self._duration((*path, "interval"), entry)
        offset = self._duration((*path, "query_offset"), entry)
        limit = self._limit((*path, "limit"), entry.get("limit"))
        labels = self._labels((*path, "labels"), entry.get("labels"), self._constant)
        rules = [
            self._rule((*path, "rules", i), rule, name, i + 1, labels)
            for i, rule in enumerate(self._list((*path, "rules"), entry.get("rules"), "rules"))
        ]
        kept = tuple(rule for rule in rules if rule is not None)
        self.where = f"group {name!r}: "
        self._duplicates(path, kept)
        place = self.document.place(path)
        file = self.document.file
        return Group(name, file, kept, interval or None, limit, offset or 0.0, place)

    def _limit(self, path: Path, value: Any) -> int:
        text = self._text(path, value)
        if text and not re.fullmatch(r"\d+", text):
            self._error(path, f"limit: {text!r} is no whole number from 0 up")
            return 0
        return int(text or 0)

    def _duplicates(self, path: Path, rules: tuple[Rule, ...]) -> None:
        """Told, not refused: two alerts of one name are two proofs, unless they ask the same."""
        seen: dict[object, int] = {}
        for rule in rules:
            labels = tuple((name, value.text) for name, value in rule.labels)
            identity = (rule.kind, rule.name, labels, rule.text if rule.kind == "alert" else "")
            if identity in seen:
                message = f"rule {rule.number} ({rule.name}) repeats rule {seen[identity]}"
                self._warn((*path, "rules", rule.number - 1), message)
            seen.setdefault(identity, rule.number)

    def _rule(
        self, path: Path, value: Any, group: str, number: int, shared: Mapping[str, Template]
    ) -> Rule | None:
        self.where = f"group {group!r}, rule {number}: "
        entry = self._mapping(path, value, RULE_KEYS, "a rule")
        if entry is None:
            return None
        alert = self._text((*path, "alert"), entry.get("alert"))
        record = self._text((*path, "record"), entry.get("record"))
        self.where = f"group {group!r}, rule {number} ({alert or record}): "
        if bool(alert) == bool(record):
            which = "only one" if alert else "one"
            self._error(path, f"{which} of 'record' and 'alert' must be set")
        expr = self._expr((*path, "expr"), entry)
        kind: Literal["alert", "record"] = "alert" if alert else "record"
        if kind == "record":
            self._recording(path, entry, record)
        for_ = self._duration((*path, "for"), entry) or 0.0
        keep = self._duration((*path, "keep_firing_for"), entry) or 0.0
        needs = needs_of(expr) if expr is not None else Needs()
        make = self._template(alert, needs) if kind == "alert" else self._constant
        labels = {**shared, **self._labels((*path, "labels"), entry.get("labels"), make)}
        notes = self._labels((*path, "annotations"), entry.get("annotations"), make, "annotation")
        if expr is None:
            return None
        return Rule(
            kind,
            alert or record,
            group,
            number,
            self._text((*path, "expr"), entry["expr"]),
            expr,
            needs.reach,
            needs.ranges,
            for_,
            keep,
            tuple(sorted(labels.items())),
            tuple(sorted(notes.items())),
            self.document.place(path),
        )

    def _expr(self, path: Path, entry: Mapping[str, Any]) -> Expr | None:
        text = self._text(path, entry.get("expr"))
        if not text:
            self._error(path, "'expr' must be set")
            return None
        try:
            expr = load_expr(text)
        except PromqlError as error:
            message = f"could not parse expression: {error}"
            self._in_text(path, text, error.offset, message, "error")
            return None
        if expr.type not in ("vector", "scalar"):
            self._error(path, f"a rule needs an instant vector or a scalar, not a {expr.type}")
        return expr

    def _recording(self, path: Path, entry: Mapping[str, Any], name: str) -> None:
        for key in ("for", "keep_firing_for", "annotations"):
            if key in entry and entry[key] not in (None, "", "0", "0s", {}):
                self._error((*path, key), f"{key!r} has no place in a recording rule", key=True)
        if not name:
            return
        if "{" in name or "}" in name:
            hint = "should it be in expr?"
            self._error(
                (*path, "record"), f"braces in the name of a recording rule: {name!r}", hint
            )
        elif not _METRIC.fullmatch(name):
            self._warn((*path, "record"), f"{name!r} is no classic metric name: {_OLD}")

    def _labels(
        self,
        path: Path,
        value: Any,
        make: Callable[[Path, str, str], Template | None],
        what: str = "label",
    ) -> dict[str, Template]:
        if value in (None, ""):
            return {}
        if not isinstance(value, dict):
            self._error(path, f"{what}s must be a mapping")
            return {}
        found: dict[str, Template] = {}
        for name, text in value.items():
            here = (*path, name)
            if not name or (what == "label" and name == "__name__"):
                self._error(here, f"{name!r} is no {what} name", key=True)
                continue
            if not _LABEL.fullmatch(name):
                self._warn(here, f"{name!r} is no classic {what} name: {_OLD}")
            template = make(here, self._text(here, text), what)
            if template is not None:
                found[name] = template
        return found

    def _constant(self, _path: Path, text: str, _what: str) -> Template | None:
        return Template.plain(text)

    def _template(self, alert: str, needs: Needs) -> Callable[[Path, str, str], Template | None]:
        def make(path: Path, text: str, what: str) -> Template | None:
            name = path[-1]
            try:
                template, remarks = parse_template(text, alert)
            except TemplateError as error:
                message = f"{what} {name!r}: {error.message}"
                self._in_text(path, text, error.offset, message, "error")
                return None
            for remark in remarks:
                message = f"{what} {name!r}: {remark.message}"
                self._in_text(path, text, remark.offset, message, "warning")
            for query in template.queries:
                self._query(path, query, f"{what} {name!r}", needs)
            return template

        return make

    def _query(self, path: Path, text: str, what: str, needs: Needs) -> None:
        try:
            needs.also(load_expr(text))
        except PromqlError as error:
            self._warn(path, f"{what}: query {text!r}: {error}")
