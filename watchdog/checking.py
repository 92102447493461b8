"""Checks a configuration and its rule files without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .assembly import check_names, rule_files
from .config import Config, load
from .errors import ConfigError, Place, Problem
from .policies import alert_names
from .policies import check as check_policies
from .reachable import look
from .rulepack import Group
from .rulepack import load as load_rules
from .system import System


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked and what is wrong with it."""

    problems: tuple[Problem, ...]
    groups: int
    rules: int

    @property
    def failed(self) -> bool:
        """Whether any problem forbids loading."""
        return any(problem.severity == "error" for problem in self.problems)


def check_all(config_file: Path | None, rules: Sequence[Path]) -> Report:
    """Check the configuration (if given), the rule files it names, and further rule files.

    Without both, the shipped rules are checked.
    """
    problems: list[Problem] = []
    config = Config()
    if config_file is not None:
        try:
            config = load(config_file)
        except ConfigError as error:
            problems += error.problems
        problems += [
            Problem(Place(f"{config_file}: {p.place.file}"), p.message, p.hint, p.severity)
            for p in check_names(config)
        ]
        problems += look(config, System(), str(config_file))
    files = list(rules)
    if config_file is not None or not rules:
        files = [*rule_files(config), *files]
    groups: tuple[Group, ...] = ()
    try:
        pack = load_rules(files, config.rules.groups)
    except ConfigError as error:
        problems += error.problems
    else:
        groups = pack.groups
        problems += pack.warnings
        problems += check_policies(config, alert_names(groups), str(config_file or ""))
    return Report(tuple(problems), len(groups), sum(len(group.rules) for group in groups))
