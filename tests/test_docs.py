"""What the pages say exists, and what exists is on the pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from vllm_watchdog.collectors import COLLECTORS
from vllm_watchdog.watchdog.cli.app import app

REPOSITORY = Path(__file__).parents[1]
PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *sorted((REPOSITORY / "changelog.d").glob("*.md")),
]


def first_cells(page: str) -> list[str]:
    """The code words that open the rows of a page's tables."""
    return re.findall(r"^\| `([^`]+)` \|", (REPOSITORY / page).read_text(), re.M)


def test_the_readme_lists_every_command_and_no_other() -> None:
    group = get_command(app)
    commands = set(group.commands)  # type: ignore[attr-defined]

    listed = {cell for cell in first_cells("README.md") if not cell.endswith("/")}
    assert listed == commands


def test_every_command_says_in_a_sentence_what_it_does() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]

    assert [name for name, command in commands.items() if not command.help] == []


def test_the_readme_lists_every_folder() -> None:
    packages = {path.parent.name + "/" for path in REPOSITORY.glob("[a-z]*/__init__.py")}

    listed = {cell for cell in first_cells("README.md") if cell.endswith("/")}
    assert packages - listed == set()
    assert {folder for folder in listed if not (REPOSITORY / folder).is_dir()} == set()


def test_every_collector_is_described_and_no_other() -> None:
    described = set(first_cells("docs/collectors.md"))

    assert set(COLLECTORS) - described == set()
    assert {n for n in described if not (REPOSITORY / f"collectors/{n}.py").exists()} == set()


def test_every_documented_alert_is_described_with_its_group() -> None:
    groups = yaml.safe_load((REPOSITORY / "rules/documented.yaml").read_text())["groups"]
    rows = re.findall(
        r"^\| `(\w+)` \| ([\w-]+) \|", (REPOSITORY / "docs/rules.md").read_text(), re.M
    )

    wanted = {
        (r["alert"], group["name"]) for group in groups for r in group["rules"] if "alert" in r
    }
    assert set(rows) == wanted


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_make_targets_on_a_page_exist(page: Path) -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = set(re.findall(r"^([\w-]+):", makefile, re.M))
    named = set(re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.M))

    assert {
        name for name in named if name not in targets and not name.startswith("bench-")
    } == set()


def test_every_make_target_explains_itself() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: ([\w-]+)", makefile, re.M))
    explained = set(re.findall(r"^([\w-]+):.*## ", makefile, re.M))

    assert phony == explained
