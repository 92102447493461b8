"""A configuration with all that is read along with it, every error of it told at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .assembly import check_names, rule_files
from .config import Config
from .engine import EngineSettings
from .errors import ConfigError, Problem
from .policies import alert_names
from .policies import check as check_policies
from .rulepack import Group
from .rulepack import load as load_rules


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with all that is read along with it."""

    config: Config
    groups: tuple[Group, ...]
    files: tuple[Path, ...]
    text: str = ""
    warnings: tuple[Problem, ...] = ()


def prepare(config: Config, text: str = "") -> Loaded:
    """Read the rule files of a configuration. Raises ConfigError with every error."""
    problems = check_names(config)
    try:
        pack = load_rules(rule_files(config), config.rules.groups)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    problems += check_policies(config, alert_names(pack.groups))
    if any(problem.severity == "error" for problem in problems):
        raise ConfigError(problems)
    files = tuple(dict.fromkeys(Path(group.file) for group in pack.groups))
    return Loaded(config, pack.groups, files, text, (*problems, *pack.warnings))


def static_labels(config: Config, host: str) -> dict[str, str]:
    """``job`` and ``instance`` as the central scrape gives them."""
    name, port = config.listen
    shown = host if name in ("0.0.0.0", "::", "127.0.0.1", "localhost", "::1") else name  # noqa: S104
    return {"job": "vllm-watchdog", "instance": f"{shown}:{port}", **config.labels}


def engine_settings(config: Config, labels: Mapping[str, str]) -> EngineSettings:
    """What the engine needs of a configuration."""
    return EngineSettings(
        config.interval,
        config.rules.stale_after,
        config.rules.urgent,
        labels,
        config.external_labels,
    )
