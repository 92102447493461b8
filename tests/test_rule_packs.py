"""The rule files beside the documented thresholds: complete, tested, told, and fed by collectors."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_watchdog.watchdog.rulepack import load

REPOSITORY = Path(__file__).parents[1]
PACKS = ("hardware", "serving", "network", "host", "slo")
SHIPPED = [REPOSITORY / f"rules/{name}.yaml" for name in ("documented", *PACKS)]


def rules(pack: str) -> list[tuple[str, dict[str, Any]]]:
    """The rules of a pack with the names of their groups."""
    groups = yaml.safe_load((REPOSITORY / f"rules/{pack}.yaml").read_text())["groups"]
    return [(group["name"], rule) for group in groups for rule in group["rules"]]


def alerts(pack: str) -> list[dict[str, Any]]:
    return [rule for _, rule in rules(pack) if "alert" in rule]


def test_group_names_are_unique_over_all_files() -> None:
    groups = [
        group["name"] for path in SHIPPED for group in yaml.safe_load(path.read_text())["groups"]
    ]

    assert [name for name, count in Counter(groups).items() if count > 1] == []


def test_no_alert_name_stands_in_two_files() -> None:
    names = [
        {rule["alert"] for group in yaml.safe_load(path.read_text())["groups"]
         for rule in group["rules"] if "alert" in rule}
        for path in SHIPPED
    ]  # fmt: skip

    assert [name for name, count in Counter(n for s in names for n in s).items() if count > 1] == []


@pytest.mark.parametrize("pack", PACKS)
def test_every_alert_tells_a_person_what_to_do_in_two_languages(pack: str) -> None:
    for rule in alerts(pack):
        texts = rule["annotations"]

        assert list(texts) == ["summary", "description", "summary_zh"], rule["alert"]
        assert re.search(r"[\u4e00-\u9fff]", texts["summary_zh"]), rule["alert"]
        assert texts["description"].rstrip().endswith("."), rule["alert"]
        assert rule["labels"]["severity"] in ("info", "warning", "critical"), rule["alert"]


def moments(alert: str) -> list[dict[str, Any]]:
    """The moments at which an alert's own test file looks for it."""
    document = yaml.safe_load((REPOSITORY / f"tests/rules/{alert}.yaml").read_text())
    return [
        moment
        for test in document["tests"]
        for moment in test["alert_rule_test"]
        if moment["alertname"] == alert
    ]


@pytest.mark.parametrize("pack", PACKS)
def test_every_alert_is_seen_firing_with_each_of_its_severities(pack: str) -> None:
    seen = {
        (rule["alert"], alert["exp_labels"]["severity"])
        for rule in alerts(pack)
        for moment in moments(rule["alert"])
        for alert in moment["exp_alerts"]
    }

    assert {(rule["alert"], rule["labels"]["severity"]) for rule in alerts(pack)} - seen == set()


@pytest.mark.parametrize("pack", PACKS)
def test_every_alert_is_seen_silent_as_well(pack: str) -> None:
    loud = [
        rule["alert"]
        for rule in alerts(pack)
        if all(moment["exp_alerts"] for moment in moments(rule["alert"]))
    ]

    assert loud == []


def test_every_alert_is_described_with_its_group() -> None:
    page = (REPOSITORY / "docs/rule-packs.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w-]+) \|", page, re.M)

    wanted = {
        (rule["alert"], group) for pack in PACKS for group, rule in rules(pack) if "alert" in rule
    }
    assert set(rows) == wanted
    assert len(rows) == len(wanted)


def test_rules_read_only_series_that_the_node_gives() -> None:
    recorded = {
        rule["record"] for path in SHIPPED for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"] if "record" in rule
    }  # fmt: skip
    sources = "\n".join(
        path.read_text()
        for folder in ("collectors", "watchdog")
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    )
    packs = load([REPOSITORY / f"rules/{pack}.yaml" for pack in PACKS])
    read = {name for group in packs.groups for rule in group.rules for name in rule.inputs}

    own = {name for name in read - recorded if not name.startswith(("vllm:", "http_requests_"))}
    assert {name for name in own if name not in sources} == set()
