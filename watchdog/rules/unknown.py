"""Which rules are in the dark: what they read comes from a collector that fails just now.

Remembers which collector owns which metric, also after its series have left the window, and sees
through recording rules. Decides nothing about alerts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model import NAME, Labels
from ..promql.nodes import Matcher
from ..rulepack import Group, Rule
from ..window import Window

Scope = Mapping[str, str]
_TELLING = ("vendor", "service")  # labels that all series of one source share
_REFRESH_MS = 60_000


@dataclass(slots=True)
class Owners:
    """Who owns what: per metric name the collectors seen to own series of it.

    With each the labels, of those that tell sources apart, which all its series of that name share.
    """

    known: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    _generations: dict[str, int] = field(default_factory=dict)
    _next_ms: int = 0

    def refresh(self, window: Window, names: Iterable[str], ms: int, *, now: bool = False) -> None:
        """Look again at names whose series changed; at most once a minute unless ``now``."""
        if ms < self._next_ms and not now:
            return
        self._next_ms = ms + _REFRESH_MS
        for name in names:
            generation = window.generation(name)
            if name and generation != self._generations.get(name):
                self._generations[name] = generation
                self._look(window, name)

    def _look(self, window: Window, name: str) -> None:
        shared: dict[str, dict[str, str]] = {}
        for series in window.select((Matcher(NAME, "=", name),)):
            labels = {key: value for key, value in series.key if key in _TELLING}
            before = shared.get(series.owner)
            kept = labels if before is None else dict(before.items() & labels.items())
            shared[series.owner] = kept
        self.known.setdefault(name, {}).update(shared)

    def of(self, names: Iterable[str]) -> dict[str, list[dict[str, str]]]:
        """Per owner of any of the names the label sets that its series share, one a name."""
        found: dict[str, list[dict[str, str]]] = {}
        for name in names:
            for owner, shared in self.known.get(name, {}).items():
                found.setdefault(owner, []).append(shared)
        return found


def base_names(groups: Iterable[Group]) -> dict[str, frozenset[str]]:
    """Per recorded name every name that it is made of, itself included, through all recordings."""
    recorded: dict[str, set[str]] = {}
    for group in groups:
        for rule in group.rules:
            if rule.kind == "record":
                recorded.setdefault(rule.name, set()).update(rule.inputs)
    return {name: frozenset(_closure(name, recorded)) for name in recorded}


def _closure(name: str, recorded: Mapping[str, set[str]]) -> set[str]:
    found, waiting = {name}, [name]
    while waiting:
        for part in recorded.get(waiting.pop(), ()):
            if part not in found:
                found.add(part)
                waiting.append(part)
    return found


def inputs_of(rule: Rule, bases: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """All metric names that a rule depends on, through recording rules."""
    return frozenset().union(*(bases.get(name, frozenset({name})) for name in rule.inputs))


def darkness(
    names: frozenset[str], owners: Owners, failing: Mapping[str, Scope]
) -> Callable[[Labels], bool] | None:
    """Return the test whether a result with these labels rests on unknown inputs.

    None when nothing that the rule reads is unknown. Labels that contradict what all series of a
    failing collector carry speak of something else.
    """
    scopes: list[dict[str, str]] = []
    if "" in names:
        scopes = [dict(scope) for scope in failing.values()]
    else:
        for owner, shared in owners.of(names).items():
            if owner in failing:
                scopes += [{**each, **failing[owner]} for each in shared]
    if not scopes:
        return None

    def unknown(labels: Labels) -> bool:
        given: dict[str, Any] = dict(labels)
        return any(
            all(given.get(name, value) == value for name, value in scope.items())
            for scope in scopes
        )

    return unknown
