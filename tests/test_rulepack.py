"""Rule files are read whole, and every error is told with its place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import peers
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.rulepack import Group, Rule, load, read_text

GOOD = """\
groups:
  - name: cards
    interval: 30s
    limit: 7
    rules:
      - record: card:temperature:max
        expr: max by (card) (accelerator_temperature_celsius)
        labels: {site: "{{ not expanded }}", flag: yes}
      - alert: CardHot
        expr: |
          card:temperature:max > 90
            and on (card) rate(accelerator_power_watts[10m] offset 1m) > 0
        for: 1m30s
        keep_firing_for: 5m
        labels: {severity: page}
        annotations:
          summary: Card {{ $labels.card }} is at {{ $value }} °C
          others: '{{ query "max_over_time(card:temperature:max[20m])" | first | value }}'
  - name: serving
    rules: []
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        read_text(text, "r.yaml")
    return [str(problem) for problem in refused.value.problems]


def rule(body: str) -> Rule:
    text = "groups:\n- name: g\n  rules:\n  - " + body.replace("\n", "\n    ")
    (group,) = read_text(text, "r.yaml")
    return group.rules[0]


def test_groups_and_rules_hold_what_the_file_says() -> None:
    cards, serving = read_text(GOOD, "r.yaml")
    record, alert = cards.rules

    assert (
        cards.name, cards.interval, cards.limit, serving.name, serving.interval, serving.limit,
    ) == ("cards", 30.0, 7, "serving", None, 0)  # fmt: skip
    assert (alert.id, alert.for_, alert.keep_firing_for) == ("cards/CardHot", 90.0, 300.0)
    assert record.kind == "record"


def test_text_stays_as_it_is_written() -> None:
    record = read_text(GOOD)[0].rules[0]

    assert {n: t.text for n, t in record.labels} == {"site": "{{ not expanded }}", "flag": "yes"}


def test_rule_tells_which_metrics_it_reads_and_how_far_back() -> None:
    alert = read_text(GOOD)[0].rules[1]

    assert {"card:temperature:max", "accelerator_power_watts"} == alert.inputs
    assert alert.ranges == {"card:temperature:max": 0, "accelerator_power_watts": 660_000}
    assert alert.reach == {"card:temperature:max": 1_200_000, "accelerator_power_watts": 660_000}
    assert alert.reach_ms == 1_200_000


@pytest.mark.peer
@pytest.mark.parametrize("program", ["promtool", "promtool-2.42"])
def test_promtool_accepts_the_good_file(program: str, tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)

    done = subprocess.run(
        [str(peers.require(program)), "check", "rules", str(path)], capture_output=True, check=False
    )

    assert done.returncode == 0


# (rule, what is told); the rule begins at line 4, column 5
WRONG = [
    ("alert: A\nexpr: up +", "r.yaml:5:15: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: sum(up))", "r.yaml:5:18: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: |\n  up\n    and foo(1)", "r.yaml:7:13: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: >-\n  up\n  and foo(1)", "r.yaml:7:11: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: \"up{a=\\\"b\\\"} and foo(1)\"", "r.yaml:5:28: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: 'up{a=\"it''s\"} and foo(1)'", "r.yaml:5:30: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: up and\n  foo(1)", "r.yaml:6:7: group 'g', rule 1 (A): could not parse expression: "),
    ("alert: A\nexpr: up[5m]", "r.yaml:5:11: group 'g', rule 1 (A): a rule needs an instant vector or a scalar, not a matrix"),
    ("alert: A\nexpr: '\"text\"'", "r.yaml:5:11: group 'g', rule 1 (A): a rule needs an instant vector or a scalar, not a string"),
    ("alert: A", "r.yaml:4:5: group 'g', rule 1 (A): 'expr' must be set"),
    ("expr: up", "r.yaml:4:5: group 'g', rule 1: one of 'record' and 'alert' must be set"),
    ("alert: A\nrecord: b\nexpr: up", "r.yaml:4:5: group 'g', rule 1 (A): only one of 'record' and 'alert' must be set"),
    ("alert: A\nexpr: up\nfro: 5m", "r.yaml:6:5: group 'g', rule 1: unknown key 'fro' (known: record, alert, expr, for, keep_firing_for, labels, annotations)"),
    ("alert: A\nexpr: up\nfor: 5 m", "r.yaml:6:10: group 'g', rule 1 (A): for: '5 m' is no duration (write 30s, 5m or 1h30m)"),
    ("alert: A\nexpr: up\nkeep_firing_for: 5", "r.yaml:6:22: group 'g', rule 1 (A): keep_firing_for: '5' is no duration (write 30s, 5m or 1h30m)"),
    ("record: a\nexpr: up\nfor: 5m", "r.yaml:6:5: group 'g', rule 1 (a): 'for' has no place in a recording rule"),
    ("record: a\nexpr: up\nannotations: {b: c}", "r.yaml:6:5: group 'g', rule 1 (a): 'annotations' has no place in a recording rule"),
    ("record: sum{a}\nexpr: up", "r.yaml:4:13: group 'g', rule 1 (sum{a}): braces in the name of a recording rule: 'sum{a}' (should it be in expr?)"),
    ("alert: A\nexpr: up\nlabels: {__name__: b}", "r.yaml:6:14: group 'g', rule 1 (A): '__name__' is no label name"),
    ("alert: A\nexpr: up\nlabels: [a]", "r.yaml:6:13: group 'g', rule 1 (A): labels must be a mapping"),
    ("alert: A\nexpr: up\nlabels: {a: \"{{ nope }}\"}", "r.yaml:6:21: group 'g', rule 1 (A): label 'a': function \"nope\" not defined"),
    ("alert: A\nexpr: up\nannotations:\n  a: |\n    one\n    two {{ $x }}", "r.yaml:9:16: group 'g', rule 1 (A): annotation 'a': undefined variable \"$x\""),
    ("alert: A\nexpr: [up]", "r.yaml:5:11: group 'g', rule 1 (A): expr must be text"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "expected"), WRONG, ids=[row[0].replace("\n", "; ") for row in WRONG]
)
def test_wrong_rule_is_told_with_its_place(body: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        rule(body)

    told = [str(problem) for problem in refused.value.problems]
    assert len(told) == 1
    assert told[0].startswith(expected)


@pytest.mark.peer
@pytest.mark.parametrize(
    "body", [row[0] for row in WRONG], ids=[row[0].replace("\n", "; ") for row in WRONG]
)
def test_promtool_refuses_the_wrong_rule_too(body: str, tmp_path: Path) -> None:
    if body in ("alert: A\nexpr: up[5m]", "alert: A\nexpr: '\"text\"'"):
        pytest.skip("promtool leaves this type error to the first evaluation")
    path = tmp_path / "wrong.yaml"
    path.write_text("groups:\n- name: g\n  rules:\n  - " + body.replace("\n", "\n    "))

    done = subprocess.run(
        [str(peers.require("promtool")), "check", "rules", str(path)],
        capture_output=True,
        check=False,
    )

    assert done.returncode == 1


WRONG_FILES = [
    ("groups:\n- name: a\n- name: a\n", "r.yaml:3:9: group 'a': group 'a' is repeated in this file"),
    ("groups:\n- rules: []\n", "r.yaml:2:3: a group must have a name"),
    ("groups:\n- name: a\n  interval: x\n", "r.yaml:3:13: group 'a': interval: 'x' is no duration (write 30s, 5m or 1h30m)"),
    ("groups:\n- name: a\n  limit: x\n", "r.yaml:3:10: group 'a': limit: 'x' is no whole number"),
    ("groups: {}\n", "r.yaml:1:9: groups must be a list"),
    ("groups:\n- name: a\n  rules: {a: b}\n", "r.yaml:3:10: group 'a': rules must be a list"),
    ("groups:\n- name: a\n  colour: red\n", "r.yaml:3:3: unknown key 'colour' (known: name, interval, query_offset, limit, labels, rules)"),
    ("group: []\n", "r.yaml:1:1: has no key 'groups': this is no rule file"),
    ("groups: [\n", "r.yaml:2:1: broken YAML: did not find expected node content while parsing a flow node"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), WRONG_FILES)
def test_wrong_file_is_told_with_its_place(text: str, expected: str) -> None:
    assert [expected] == problems(text)


def test_all_errors_of_a_file_are_told_at_once() -> None:
    text = "groups:\n- name: a\n  rules:\n  - {alert: A}\n  - {record: b, expr: 1 +}\n- {}\n"

    assert [told.partition(": ")[0] for told in problems(text)] == [
        "r.yaml:4:5",
        "r.yaml:5:26",
        "r.yaml:6:3",
    ]


def test_empty_file_has_no_groups() -> None:
    assert read_text("# nothing\n") == []


def test_group_labels_stand_under_the_labels_of_each_rule() -> None:
    text = """
groups:
- name: g
  labels: {site: north, severity: info}
  rules: [{alert: A, expr: up, labels: {severity: page}}]
"""
    labels = {name: template.text for name, template in read_text(text)[0].rules[0].labels}

    assert labels == {"site": "north", "severity": "page"}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def group_text(name: str, expr: str = "up") -> str:
    return f"groups:\n- name: {name}\n  rules:\n  - {{alert: A, expr: '{expr}'}}\n"


def names(groups: tuple[Group, ...]) -> list[str]:
    return [group.name for group in groups]


def test_configuration_chooses_groups_by_pattern(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", group_text("node-cards"))
    write(tmp_path, "b.yaml", group_text("cluster"))

    pack = load([f"{tmp_path}/*.yaml"], ["node-*"])

    assert names(pack.groups) == ["node-cards"]


def test_pattern_that_chooses_no_group_is_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", group_text("cards"))

    pack = load([path], ["cards", "crads"])

    assert [str(told) for told in pack.warnings] == ["groups: no rule group is named 'crads'"]


def test_pattern_without_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no rule file matches this pattern"):
        load([f"{tmp_path}/*.yaml"])


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read rule file: No such file or directory"):
        load([tmp_path / "a.yaml"])


def test_file_without_groups_is_skipped_when_a_pattern_found_it(tmp_path: Path) -> None:
    other = write(tmp_path, "faults.yaml", "faults: []\n")
    write(tmp_path, "rules.yaml", group_text("cards"))

    pack = load([f"{tmp_path}/*.yaml"])

    assert (["cards"], (str(other),)) == (names(pack.groups), pack.skipped)


def test_file_found_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", group_text("cards"))

    pack = load([path, f"{tmp_path}/*.yaml"])

    assert names(pack.groups) == ["cards"]


def test_rule_that_looks_back_too_far_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", group_text("cards", "rate(x_total[7h]) > 0"))

    with pytest.raises(ConfigError) as refused:
        load([path])

    assert (
        f"{path}:4:5: group 'cards', rule 1 (A): looks back 7h, the node keeps at most 6h (record "
        "the series in a group with a longer interval, or evaluate the rule centrally)"
    ) == str(refused.value)


def test_rule_at_a_fixed_time_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", group_text("cards", "x @ 1700000000 > 0"))

    with pytest.raises(
        ConfigError, match=r"looks at a fixed time \(@\), the node keeps at most 6h"
    ):
        load([path])


def test_reach_of_a_group_that_does_not_run_here_does_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", group_text("central", "rate(x_total[30d]) > 0"))

    assert load([path], ["cards"]).groups == ()


def test_pack_tells_how_long_each_metric_must_be_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", group_text("a", "rate(x_total[1h]) > y"))
    write(tmp_path, "b.yaml", group_text("b", "rate(x_total[2h]) > 0"))

    pack = load([f"{tmp_path}/*.yaml"])

    assert pack.reach == {"x_total": 7_200_000, "y": 300_000}


def test_repeated_rule_is_a_warning(tmp_path: Path) -> None:
    text = "groups:\n- name: g\n  rules:\n  - {record: a, expr: 1}\n  - {record: a, expr: 2}\n"

    pack = load([write(tmp_path, "a.yaml", text)])

    assert [told.message for told in pack.warnings] == ["group 'g': rule 2 (a) repeats rule 1"]


def test_two_proofs_of_one_alert_name_are_no_repetition(tmp_path: Path) -> None:
    text = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: x}\n  - {alert: A, expr: y}\n"

    assert load([write(tmp_path, "a.yaml", text)]).warnings == ()


def test_query_in_an_annotation_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    text = """groups:
- name: g
  rules:
  - alert: A
    expr: x
    annotations: {a: '{{ query "sum(" | first | value }}'}
"""
    (told,) = load([write(tmp_path, "a.yaml", text)]).warnings

    assert "group 'g', rule 1 (A): annotation 'a': query 'sum(': 1:5: parse error: " in str(told)
    assert (told.place.line, told.place.column) == (6, 22)


def test_rules_are_equal_by_what_they_say() -> None:
    assert read_text(GOOD, "r.yaml") == read_text("# a comment\n" + GOOD, "r.yaml")


def test_fingerprint_changes_with_name_expression_and_labels_only() -> None:
    same = rule("alert: A\nexpr: up\nfor: 5m").fingerprint
    others = [rule(body).fingerprint for body in (
        "alert: B\nexpr: up", "alert: A\nexpr: up > 0", "alert: A\nexpr: up\nlabels: {a: b}",
    )]  # fmt: skip

    assert rule("alert: A\nexpr: up\nannotations: {x: y}").fingerprint == same
    assert same not in others
