"""Which acts answer which alert: the policies of a configuration, made ready to be matched.

Reads rules/policies.yaml for the shipped ones; whether an act may start is not decided here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

from . import documents
from .config import Config, Mode, Policy, checked
from .diagnosis import CAUSES
from .errors import ConfigError, Place, Problem
from .promql import PromqlError, load
from .promql.nodes import Matcher, VectorSelector
from .rulepack import Group
from .series import predicate

FILE = "policies.yaml"
PAGE = "page"
ALERTNAME, CAUSE = "alertname", "cause"
OFTEN = (ALERTNAME, CAUSE, "holder", "service", "card", "severity")  # labels that selectors name
STRICTNESS: Mapping[str, int] = {"observe": 0, "confirm": 1, "act": 2}

Test = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Bound:
    """A policy ready for use. ``ladder`` ends with ``page``; times in seconds.

    ``services`` None means all; ``tests`` hold the labels of a case against each selector.
    """

    name: str
    ladder: tuple[str, ...]
    tests: tuple[Test, ...]
    services: frozenset[str] | None = None
    mode: Mode | None = None
    within: float | None = None
    at_most: float | None = None

    def matches(self, labels: Mapping[str, str], service: str) -> bool:
        """Whether a case with these labels, of this service, is one of the policy's."""
        if self.services is not None and service not in self.services:
            return False
        return any(test(labels) for test in self.tests)


def first_match(policies: Sequence[Bound], labels: Mapping[str, str], service: str) -> Bound | None:
    """The policy that answers a case, if any."""
    return next((policy for policy in policies if policy.matches(labels, service)), None)


def effective(*modes: Mode | None) -> Mode:
    """The strictest of the modes given; ``observe`` when none is."""
    given = [mode for mode in modes if mode is not None]
    return min(given, key=STRICTNESS.__getitem__, default="observe")


def bind(config: Config, file: str = "") -> tuple[Bound, ...]:
    """The policies in force under a configuration, in order. Raises ConfigError.

    ``file`` names the configuration in errors.
    """
    if config.policies is None:
        return shipped()
    bound: list[Bound] = []
    problems: list[Problem] = []
    for i, policy in enumerate(config.policies):
        place = Place(f"{file}: policies.{i}" if file else f"policies.{i}")
        try:
            bound.append(_bind(_taken_over(policy, place), place, f"policies.{i}"))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(bound)


def check(config: Config, alerts: Collection[str], file: str = "") -> list[Problem]:
    """What is wrong with a configuration's own policies: selectors and unknown names.

    ``alerts`` are the names of all alerting rules that are loaded.
    """
    try:
        bind(config, file)
    except ConfigError as error:
        return error.problems
    problems: list[Problem] = []
    for i, policy in enumerate(config.policies or ()):
        where = f"{file}: policies.{i}" if file else f"policies.{i}"
        problems += [
            _unknown(f"{where}.services", "service", name, config.services)
            for name in policy.services or ()
            if name not in config.services
        ]
        for text in policy.when or ():
            problems += _never(_matchers(text, Place()), text.strip(), f"{where}.when", alerts)
    return problems


def _never(
    matchers: Sequence[Matcher], text: str, where: str, alerts: Collection[str]
) -> Iterable[Problem]:
    """Why these matchers fit no alert at all."""
    named = [each for each in matchers if each.name == ALERTNAME]
    spelt = [each.value for each in named if each.op == "=" and each.value not in alerts]
    yield from (_unknown(where, "alert", name, alerts) for name in spelt)
    if named and not spelt:
        test = _test(named)
        if not any(test({ALERTNAME: name}) for name in alerts):
            yield Problem(Place(where), f"{text!r} fits no alert that is loaded")
    for each in matchers:
        if each.name == "__name__":
            hint = f"write {ALERTNAME}"
            yield Problem(Place(where), f"{text!r}: alerts have no metric name", hint)
        close = difflib.get_close_matches(each.name, OFTEN, 1, 0.75)
        if close and each.name not in OFTEN:
            message = f"no alert carries a label {each.name!r}"
            yield Problem(Place(where), message, f"did you mean {close[0]!r}?", "warning")
        if each.name == CAUSE and not any(predicate(each.op, each.value)(c) for c in CAUSES):
            yield _unknown(where, CAUSE, each.value, CAUSES)


def alert_names(groups: Iterable[Group]) -> frozenset[str]:
    """The names of all alerting rules, and of the alerts that the daemon raises by itself."""
    rules = (rule for group in groups for rule in group.rules)
    return frozenset({rule.name for rule in rules if rule.kind == "alert"} | {"InputsUnknown"})


def _unknown(where: str, what: str, name: str, known: Collection[str]) -> Problem:
    close = difflib.get_close_matches(name, known, 1)
    listed = f"known: {', '.join(sorted(known))}" if known else f"no {what} is configured"
    hint = f"did you mean {close[0]!r}?" if close else listed
    return Problem(Place(where), f"no such {what}: {name!r}", hint)


@lru_cache(maxsize=1)
def shipped() -> tuple[Bound, ...]:
    """The policies of rules/policies.yaml, in its order."""
    return tuple(
        _bind(policy, Place(FILE), f"policies.{i}") for i, policy in enumerate(_shipped_policies())
    )


@lru_cache(maxsize=1)
def _shipped_policies() -> tuple[Policy, ...]:
    package = __package__.rpartition(".")[0] + ".rules"
    text = (resources.files(package) / FILE).read_text(encoding="utf-8")
    document = documents.parse(text, FILE)
    return checked(document.value, document).policies or ()


def _taken_over(policy: Policy, place: Place) -> Policy:
    """The policy with what it takes over from a shipped one by ``use``."""
    if policy.use is None:
        return policy
    known = {each.name: each for each in _shipped_policies() if each.name}
    base = known.get(policy.use)
    if base is None:
        raise ConfigError(_unknown(f"{place}.use", "policy", policy.use, known))
    own = policy.model_dump(exclude_none=True, exclude={"use"})
    return base.model_copy(update=own)


def _bind(policy: Policy, place: Place, fallback: str) -> Bound:
    assert policy.when is not None
    assert policy.do is not None
    ladder = tuple(act for act in dict.fromkeys(policy.do) if act != PAGE)
    return Bound(
        policy.name or fallback,
        (*ladder, PAGE),
        tuple(_test(_matchers(text, place)) for text in policy.when),
        None if policy.services is None else frozenset(policy.services),
        policy.mode,
        policy.within,
        policy.at_most,
    )


def _matchers(text: str, place: Place) -> tuple[Matcher, ...]:
    """The matchers of an alert's name or of ``{…}``. Raises ConfigError."""
    stripped = text.strip()
    if not stripped:
        raise ConfigError(Problem(Place(f"{place}.when"), "holds an empty name"))
    if not stripped.startswith("{"):
        return (Matcher(ALERTNAME, "=", stripped),)
    try:
        node = load(stripped).node
    except PromqlError as error:
        problem = Problem(Place(f"{place}.when"), f"{stripped!r}: {error}")
        raise ConfigError(problem) from error
    if not isinstance(node, VectorSelector) or node.offset or node.at is not None:
        raise ConfigError(Problem(Place(f"{place}.when"), f"{stripped!r} is no set of matchers"))
    return node.matchers


def _test(matchers: Sequence[Matcher]) -> Test:
    tests = [(each.name, predicate(each.op, each.value)) for each in matchers]
    return lambda labels: all(test(labels.get(name, "")) for name, test in tests)
