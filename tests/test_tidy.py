"""Lists that people keep by hand are complete: packages, rooms, rule tests, fixtures of commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parents[1]
SHIPPED = ("collectors", "remediations", "rules", "watchdog")
"""The folders that the wheel holds; the root itself is the package vllm_watchdog."""


def listed_packages() -> list[str]:
    """The names in ``packages = [...]`` of pyproject.toml (no TOML reader before Python 3.11)."""
    text = (REPOSITORY / "pyproject.toml").read_text()
    block = re.search(r"^packages = \[\n(.*?)^\]", text, re.M | re.S)
    assert block is not None
    return re.findall(r'"([\w.]+)"', block[1])


def packages_of_the_tree() -> list[str]:
    found = ["vllm_watchdog"]
    for top in SHIPPED:
        for path in (REPOSITORY / top).rglob("__init__.py"):
            found.append(".".join(["vllm_watchdog", *path.parent.relative_to(REPOSITORY).parts]))
    return sorted(found)


def test_every_package_is_listed_for_the_wheel() -> None:
    assert listed_packages() == packages_of_the_tree()


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for top in SHIPPED for path in (REPOSITORY / top).rglob("*.py")}

    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in (REPOSITORY / "tests").rglob("test_*.py")}

    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_floors_and_rooms_are_kept() -> None:
    command = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    ended = subprocess.run(
        [sys.executable, "-c", command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout


def alerts_of(path: Path) -> set[str]:
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict) or "groups" not in document:
        return set()
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    return {rule["alert"] for rule in rules if "alert" in rule}


RULE_FILES = [path for path in sorted((REPOSITORY / "rules").glob("*.yaml")) if alerts_of(path)]


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_every_alert_has_a_test_file(path: Path) -> None:
    tested = {test.stem for test in (REPOSITORY / "tests/rules").glob("*.yaml")}

    assert alerts_of(path) - tested == set()


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.name)
def test_every_alert_is_told_in_english_and_chinese_with_a_severity(path: Path) -> None:
    for group in yaml.safe_load(path.read_text())["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                assert {"summary", "description", "summary_zh"} <= rule["annotations"].keys()
                assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_no_rule_test_stands_without_its_alert() -> None:
    alerts = set().union(*map(alerts_of, RULE_FILES))

    assert {test.stem for test in (REPOSITORY / "tests/rules").glob("*.yaml")} - alerts == set()


def test_rule_tests_compare_exactly() -> None:
    fuzzy = [
        path.name
        for path in (REPOSITORY / "tests/rules").glob("*.yaml")
        if "fuzzy_compare" in path.read_text()
    ]

    assert fuzzy == []


def test_every_change_note_has_a_known_kind() -> None:
    kinds = ("added", "changed", "fixed", "removed")
    notes = [path for path in (REPOSITORY / "changelog.d").glob("*") if path.name != "README.md"]

    wrong = [note.name for note in notes if not re.fullmatch(r"[\w-]+\.\w+\.md", note.name)]
    assert wrong + [note.name for note in notes if note.name.split(".")[-2] not in kinds] == []
