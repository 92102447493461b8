"""From a YAML document to groups of rules: every key known, every value checked, every error told.

The checks are those of ``promtool check rules``, and some that only a load can make: templates
outside the subset, queries in annotations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..documents import Path
from ..promql import Expr, PromqlError
from ..promql import load as load_expr
from ..templates import Template, TemplateError, parse_template
from .reach import Needs, needs_of
from .strict import Strict
from .values import Group, Rule

GROUP_KEYS = ("name", "interval", "query_offset", "limit", "labels", "rules")
RULE_KEYS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_OLD = "Prometheus 2.x refuses it"


class Reading(Strict):
    """One rule file being read: what it holds so far and what is wrong with it."""

    def groups(self) -> list[Group]:
        """Return the groups; ``problems`` holds all that is wrong."""
        if self.raw in (None, ""):
            return []
        root = self.mapping((), self.raw, ("groups",), "the file")
        entries = self.items(("groups",), (root or {}).get("groups"), "groups")
        found: dict[str, Group] = {}
        for i, entry in enumerate(entries):
            self.where = ""
            group = self._group(("groups", i), entry)
            if group is None:
                continue
            if group.name in found:
                self.error(("groups", i, "name"), f"group {group.name!r} is repeated in this file")
            found[group.name] = group
        return list(found.values())

    def _group(self, path: Path, value: Any) -> Group | None:
        entry = self.mapping(path, value, GROUP_KEYS, "a group")
        if entry is None:
            return None
        name = self.text((*path, "name"), entry.get("name"))
        if not name:
            self.error(path, "a group must have a name")
        self.where = f"group {name!r}: "
        interval = self.duration((*path, "interval"), entry)
        offset = self.duration((*path, "query_offset"), entry)
        limit = self._limit((*path, "limit"), entry.get("limit"))
        labels = self._labels((*path, "labels"), entry.get("labels"), self._constant)
        rules = [
            self._rule((*path, "rules", i), rule, name, i + 1, labels)
            for i, rule in enumerate(self.items((*path, "rules"), entry.get("rules"), "rules"))
        ]
        kept = tuple(rule for rule in rules if rule is not None)
        self.where = f"group {name!r}: "
        self._duplicates(path, kept)
        place = self.document.place(path)
        file = self.document.file
        return Group(name, file, kept, interval or None, limit, offset or 0.0, place)

    def _limit(self, path: Path, value: Any) -> int:
        text = self.text(path, value)
        if text and not re.fullmatch(r"-?\d{1,9}", text):
            self.error(path, f"limit: {text!r} is no whole number")
            return 0
        return max(0, int(text or 0))

    def _duplicates(self, path: Path, rules: tuple[Rule, ...]) -> None:
        """Told, not refused: two alerts of one name are two proofs, unless they ask the same."""
        seen: dict[object, int] = {}
        for rule in rules:
            labels = tuple((name, value.text) for name, value in rule.labels)
            identity = (rule.kind, rule.name, labels, rule.text if rule.kind == "alert" else "")
            if identity in seen:
                message = f"rule {rule.number} ({rule.name}) repeats rule {seen[identity]}"
                self.warn((*path, "rules", rule.number - 1), message)
            seen.setdefault(identity, rule.number)

    def _rule(
        self, path: Path, value: Any, group: str, number: int, shared: Mapping[str, Template]
    ) -> Rule | None:
        self.where = f"group {group!r}, rule {number}: "
        entry = self.mapping(path, value, RULE_KEYS, "a rule")
        if entry is None:
            return None
        alert = self.text((*path, "alert"), entry.get("alert"))
        record = self.text((*path, "record"), entry.get("record"))
        if alert or record:
            self.where = f"group {group!r}, rule {number} ({alert or record}): "
        if bool(alert) == bool(record):
            which = "only one" if alert else "one"
            self.error(path, f"{which} of 'record' and 'alert' must be set")
        expr = self._expr((*path, "expr"), entry)
        kind: Literal["alert", "record"] = "alert" if alert else "record"
        if kind == "record":
            self._recording(path, entry, record)
        for_ = self.duration((*path, "for"), entry) or 0.0
        keep = self.duration((*path, "keep_firing_for"), entry) or 0.0
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
            self.text((*path, "expr"), entry["expr"]),
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
        text = self.text(path, entry.get("expr"))
        if not text:
            if not isinstance(entry.get("expr"), dict | list):
                self.error(path, "'expr' must be set")
            return None
        try:
            expr = load_expr(text)
        except PromqlError as error:
            message = f"could not parse expression: {error.message}"
            self.in_text(path, text, error.offset, message, "error")
            return None
        if expr.type not in ("vector", "scalar"):
            self.error(path, f"a rule needs an instant vector or a scalar, not a {expr.type}")
        return expr

    def _recording(self, path: Path, entry: Mapping[str, Any], name: str) -> None:
        for key in ("for", "keep_firing_for", "annotations"):
            if key in entry and entry[key] not in (None, "", "0", "0s", {}):
                self.error((*path, key), f"{key!r} has no place in a recording rule", key=True)
        if not name:
            return
        if "{" in name or "}" in name:
            hint = "should it be in expr?"
            self.error((*path, "record"), f"braces in the name of a recording rule: {name!r}", hint)
        elif not _METRIC.fullmatch(name):
            self.warn((*path, "record"), f"{name!r} is no classic metric name: {_OLD}")

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
            self.error(path, f"{what}s must be a mapping")
            return {}
        found: dict[str, Template] = {}
        for name, text in value.items():
            here = (*path, name)
            if not name or (what == "label" and name == "__name__"):
                self.error(here, f"{name!r} is no {what} name", key=True)
                continue
            if not _LABEL.fullmatch(name):
                self.warn(here, f"{name!r} is no classic {what} name: {_OLD}")
            template = make(here, self.text(here, text), what)
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
                self.in_text(path, text, error.offset, message, "error")
                return None
            for remark in remarks:
                message = f"{what} {name!r}: {remark.message}"
                self.in_text(path, text, remark.offset, message, "warning")
            for query in template.queries:
                self._query(path, query, f"{what} {name!r}", needs)
            return template

        return make

    def _query(self, path: Path, text: str, what: str, needs: Needs) -> None:
        try:
            needs.also(load_expr(text))
        except PromqlError as error:
            self.warn(path, f"{what}: query {text!r}: {error}")
