"""Rule tests give promtool's verdict, and say clearly what is otherwise."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import peers
from vllm_watchdog.watchdog import seriesnotation as notation
from vllm_watchdog.watchdog.errors import ConfigError, Place
from vllm_watchdog.watchdog.rulepack import read_text
from vllm_watchdog.watchdog.rules import RuleEngine, Settings
from vllm_watchdog.watchdog.ruletests import Finding, run
from vllm_watchdog.watchdog.window import Window

RULES = """
groups:
  - name: first
    interval: 3m
    rules:
      - record: job:requests:rate5m
        expr: sum by (job) (rate(requests_total[5m]))
      - alert: Slow
        expr: latency_seconds > 0.5
        for: 2m
        keep_firing_for: 2m
        labels: {severity: page, value: "{{ $value }}"}
        annotations:
          summary: "{{ $labels.job }} at {{ $value | humanizeDuration }}"
          url: "{{ $externalURL }} {{ $externalLabels.dc }} {{ $labels.none }}"
  - name: second
    rules:
      - {alert: Slow, expr: latency_seconds > 5, labels: {severity: critical}}
      - {alert: Pair, expr: latency_seconds > 0.5 and on (job) job:requests:rate5m >= 0}
      - {alert: Absent, expr: 'absent(nothing{job="x"})'}
      - {record: copy, expr: "pair * 2"}
"""
# Name -> (the body of a test file after rule_files and tests:, whether it passes).
CASES: dict[str, tuple[str, bool]] = {
    "an alert that fires, with labels and annotations": (
        """
  - interval: 1m
    external_labels: {dc: north}
    external_url: http://prom.example
    input_series: [{series: 'latency_seconds{job="a"}', values: "0.1 0.7x5"}]
    alert_rule_test:
      - {eval_time: 2m, alertname: Slow}
      - eval_time: 3m
        alertname: Slow
        exp_alerts:
          - exp_labels: {severity: page, job: a, value: 0.7}
            exp_annotations: {summary: "a at 700ms", url: "http://prom.example north "}
""",
        True,
    ),
    "an alert that is only pending does not count": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "0.7x5"}]
    alert_rule_test:
      - eval_time: 1m
        alertname: Slow
        exp_alerts: [{exp_labels: {severity: page, job: a, value: 0.7}}]
""",
        False,
    ),
    "an annotation that differs": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "0.7x5"}]
    alert_rule_test:
      - eval_time: 3m
        alertname: Slow
        exp_alerts:
          - exp_labels: {severity: page, job: a, value: 0.7}
            exp_annotations: {summary: "a at 0.7s", url: "  "}
""",
        False,
    ),
    "a label that is missing": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "6x5"}]
    alert_rule_test: [{eval_time: 0m, alertname: Slow, exp_alerts: [{exp_labels: {job: a}}]}]
""",
        False,
    ),
    "rules of one name are united": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "6x5"}]
    alert_rule_test:
      - eval_time: 2m
        alertname: Slow
        exp_alerts:
          - exp_labels: {job: a, severity: critical}
          - exp_labels: {job: a, severity: page, value: 6}
            exp_annotations: {summary: a at 6s, url: "  "}
""",
        True,
    ),
    "a moment between evaluations sees the one before": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "1 9x5"}]
    alert_rule_test:
      - {eval_time: 59s, alertname: Slow}
      - eval_time: 61s
        alertname: Slow
        exp_alerts: [{exp_labels: {job: a, severity: critical}}]
""",
        True,
    ),
    "an alert keeps firing": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "1x2 0x9"}]
    promql_expr_test:
      - expr: count(ALERTS{alertname="Slow"})
        eval_time: 4m
        exp_samples: [{labels: "{}", value: 1}]
      - {expr: 'count(ALERTS{alertname="Slow"})', eval_time: 5m}
""",
        True,
    ),
    "a stale series ends an alert": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "9 9 stale"}]
    alert_rule_test:
      - {eval_time: 1m, alertname: Slow, exp_alerts: [{exp_labels: {job: a, severity: critical}}]}
      - {eval_time: 2m, alertname: Slow}
""",
        True,
    ),
    "a gap in a series is bridged by the lookback": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "9 _x9"}]
    alert_rule_test:
      - {eval_time: 4m, alertname: Slow, exp_alerts: [{exp_labels: {job: a, severity: critical}}, {exp_labels: {job: a, severity: page, value: 9}, exp_annotations: {summary: a at 9s, url: "  "}}]}
      - {eval_time: 5m, alertname: Slow, exp_alerts: [{exp_labels: {job: a, severity: page, value: 9}, exp_annotations: {summary: a at 9s, url: "  "}}]}
""",
        True,
    ),
    "samples of a recorded series and of a scalar": (
        """
  - interval: 30s
    input_series: [{series: 'requests_total{job="a", i="0"}', values: "0+30x40"}]
    promql_expr_test:
      - expr: job:requests:rate5m
        eval_time: 10m
        exp_samples: [{labels: 'job:requests:rate5m{job="a"}', value: 1}]
      - {expr: 1 + 1, eval_time: 1m, exp_samples: [{value: 2}]}
      - {expr: time(), eval_time: 90s, exp_samples: [{labels: "{}", value: 90}]}
""",
        True,
    ),
    "a sample whose value differs in the last digit": (
        """
  - interval: 1m
    input_series: [{series: x, values: "0.1"}]
    promql_expr_test: [{expr: x + 0.2, eval_time: 0m, exp_samples: [{labels: "{}", value: 0.3}]}]
""",
        False,
    ),
    "a sample too many": (
        """
  - interval: 1m
    input_series: [{series: 'x{a="1"}', values: "1"}, {series: 'x{a="2"}', values: "1"}]
    promql_expr_test: [{expr: x, eval_time: 0m, exp_samples: [{labels: 'x{a="1"}', value: 1}]}]
""",
        False,
    ),
    "NaN equals nothing": (
        """
  - interval: 1m
    promql_expr_test: [{expr: vector(NaN), eval_time: 0m, exp_samples: [{labels: "{}", value: .nan}]}]
""",
        False,
    ),
    "an expression that cannot be read": (
        """
  - interval: 1m
    promql_expr_test: [{expr: x +, eval_time: 0m}]
""",
        False,
    ),
    "an expression that is a range": (
        """
  - interval: 1m
    promql_expr_test: [{expr: "x[5m]", eval_time: 0m}]
""",
        False,
    ),
    "a rule that fails": (
        """
  - interval: 1m
    input_series: [{series: 'latency_seconds{job="a"}', values: "1"}, {series: 'job:requests:rate5m{job="a", x="1"}', values: "1"}, {series: 'job:requests:rate5m{job="a", x="2"}', values: "1"}, {series: 'pair{x="1", __name__="pair"}', values: "1"}]
    alert_rule_test: [{eval_time: 0m, alertname: Pair}]
""",
        False,
    ),
    "an alert that no rule has": (
        """
  - interval: 1m
    alert_rule_test: [{eval_time: 0m, alertname: Nobody, exp_alerts: [{exp_labels: {}}]}]
""",
        False,
    ),
    "absent gives the labels of its matchers": (
        """
  - interval: 1m
    alert_rule_test: [{eval_time: 0m, alertname: Absent, exp_alerts: [{exp_labels: {job: x}}]}]
""",
        True,
    ),
    "subqueries step by the evaluation interval": (
        """
  - interval: 1m
    input_series: [{series: x, values: "0+1x20"}]
    promql_expr_test: [{expr: "count_over_time(x[10m:])", eval_time: 15m, exp_samples: [{labels: "{}", value: 10}]}]
""",
        True,
    ),
    "unknown keys": ("\n  - {interval: 1m, colour: red}\n", False),
    "a series that cannot be read": (
        "\n  - {interval: 1m, input_series: [{series: 'x{', values: '1'}], alert_rule_test: [{eval_time: 0s, alertname: A}]}\n",
        False,
    ),
    "values that cannot be read": (
        "\n  - {interval: 1m, input_series: [{series: x, values: '1y3'}], alert_rule_test: [{eval_time: 0s, alertname: A}]}\n",
        False,
    ),
    "a value that YAML does not take for a number": (
        "\n  - {interval: 1m, promql_expr_test: [{expr: x, eval_time: 0m, exp_samples: [{value: NaN}]}]}\n",
        False,
    ),
    "an alert test without a name": ("\n  - {interval: 1m, alert_rule_test: [{eval_time: 1m}]}\n", False),
    "no test at all": (" []\n", True),
}  # fmt: skip


def write(folder: Path, body: str, head: str = "") -> Path:
    (folder / "rules.yaml").write_text(RULES)
    path = folder / "test.yaml"
    path.write_text(f"rule_files: [rules.yaml]\n{head}tests:{body}")
    return path


def passes(path: Path) -> bool:
    try:
        return run([path]) == []
    except ConfigError:
        return False


@pytest.mark.parametrize("name", CASES)
def test_verdict_is_as_expected(name: str, tmp_path: Path) -> None:
    body, expected = CASES[name]

    assert passes(write(tmp_path, body)) is expected


@pytest.mark.peer
def test_promtool_gives_the_same_verdicts(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{number}.yaml" for number, name in enumerate(CASES)}
    for name, path in paths.items():
        write(tmp_path, CASES[name][0]).rename(path)

    done = subprocess.run(
        [str(peers.require("promtool")), "test", "rules", *(path.name for path in paths.values())],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    verdicts = re.findall(r"^  (SUCCESS|FAILED)", done.stdout, re.MULTILINE)

    expected = ["SUCCESS" if passes else "FAILED" for _, passes in CASES.values()]
    assert expected == verdicts


FUZZY = """
  - interval: 1m
    input_series: [{series: x, values: "0.1"}]
    promql_expr_test: [{expr: x + 0.2, eval_time: 0m, exp_samples: [{labels: "{}", value: 0.3}]}]
"""


def test_fuzzy_compare_forgives_the_last_digit(tmp_path: Path) -> None:
    assert passes(write(tmp_path, FUZZY, "fuzzy_compare: true\n"))


def promtool(path: Path) -> bool:
    done = subprocess.run(
        [str(peers.require("promtool")), "test", "rules", path.name],
        cwd=path.parent,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.peer
def test_promtool_is_as_forgiving(tmp_path: Path) -> None:
    assert promtool(write(tmp_path, FUZZY, "fuzzy_compare: true\n"))


ORDER = """
  - interval: 1m
    input_series: [{series: x, values: "1x5"}]
    promql_expr_test: [{expr: late, eval_time: 0m, exp_samples: [{labels: late, value: 1}]}]
"""
ORDERED = """
groups:
  - {name: a, rules: [{record: late, expr: early}]}
  - {name: b, rules: [{record: early, expr: x}]}
"""


@pytest.mark.parametrize(("order", "expected"), [("[b, a]", True), ("[a, b]", False)])
def test_groups_are_evaluated_in_the_order_that_is_asked_for(
    order: str, expected: bool, tmp_path: Path
) -> None:
    path = write(tmp_path, ORDER, f"group_eval_order: {order}\n")
    (tmp_path / "rules.yaml").write_text(ORDERED)

    assert passes(path) is expected


@pytest.mark.peer
def test_promtool_orders_groups_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, ORDER, "group_eval_order: [b, a]\n")
    (tmp_path / "rules.yaml").write_text(ORDERED)

    assert promtool(path)


def test_evaluation_interval_sets_the_pace(tmp_path: Path) -> None:
    body = """
  - interval: 10s
    input_series: [{series: 'latency_seconds{job="a"}', values: "1x60"}]
    alert_rule_test:
      - {eval_time: 119s, alertname: Slow}
      - eval_time: 120s
        alertname: Slow
        exp_alerts: [{exp_labels: {job: a, severity: page, value: 1}, exp_annotations: {summary: a at 1s, url: "  "}}]
"""

    assert passes(write(tmp_path, body, "evaluation_interval: 10s\n"))


@pytest.mark.parametrize("start", ["1700000000", "2023-11-14T22:13:20Z"])
def test_start_timestamp_moves_time_zero(start: str, tmp_path: Path) -> None:
    body = f"""
  - interval: 1m
    start_timestamp: {start}
    input_series: [{{series: x, values: "1x9"}}]
    promql_expr_test:
      - {{expr: time(), eval_time: 1m, exp_samples: [{{value: 1700000060}}]}}
      - {{expr: timestamp(x), eval_time: 1m, exp_samples: [{{labels: "{{}}", value: 1700000060}}]}}
"""

    assert passes(write(tmp_path, body))


def test_finding_tells_place_moment_expected_and_got(tmp_path: Path) -> None:
    path = write(tmp_path, CASES["a label that is missing"][0])

    (finding,) = run([path])

    assert (
        str(finding)
        == f"""\
{path}:5:23: test 1, at 0s: alert Slow
  expected:
    {{alertname="Slow", job="a"}} annotations {{}}
  got:
    {{alertname="Slow", job="a", severity="critical"}} annotations {{}}"""
    )


def test_finding_of_an_expression_shows_samples(tmp_path: Path) -> None:
    body = "\n  - {name: n, interval: 1m, promql_expr_test: [{expr: vector(1), eval_time: 1m}]}\n"
    path = write(tmp_path, body)

    assert run([path]) == [
        Finding(Place(str(path), 3, 48), "n", 60.0, "expression 'vector(1)'", "", "{} 1.0")
    ]


def test_unreadable_files_are_told_all_at_once(tmp_path: Path) -> None:
    one = tmp_path / "one.yaml"
    one.write_text("rule_files: [gone.yaml]\nfoo: 1\ntests:\n- {interval: x}\n")

    with pytest.raises(ConfigError) as refused:
        run([one, tmp_path / "two.yaml"])

    assert [str(problem).removeprefix(f"{tmp_path}/") for problem in refused.value.problems] == [
        "one.yaml:2:1: unknown key 'foo' (known: rule_files, evaluation_interval, group_eval_order, fuzzy_compare, tests)",
        "one.yaml:4:14: test 1: interval: 'x' is no duration (write 30s, 5m or 1h30m)",
        "one.yaml:1:14: no rule file matches 'gone.yaml'",
        "two.yaml: cannot read test file: No such file or directory",
    ]  # fmt: skip


def test_broken_rule_file_is_unreadable(tmp_path: Path) -> None:
    path = write(tmp_path, " []\n")
    (tmp_path / "rules.yaml").write_text("groups:\n- name: g\n  rules:\n  - {alert: A}\n")

    with pytest.raises(ConfigError, match="'expr' must be set"):
        run([path])


def test_rule_may_look_back_further_in_tests_than_on_a_node(tmp_path: Path) -> None:
    body = """
  - interval: 1h
    input_series: [{series: x, values: "0+1x48"}]
    promql_expr_test: [{expr: day, eval_time: 48h, exp_samples: [{labels: day, value: 24}]}]
"""
    path = write(tmp_path, body, "evaluation_interval: 1h\n")
    (tmp_path / "rules.yaml").write_text(
        "groups:\n- name: g\n  rules:\n  - {record: day, expr: 'x - x offset 24h'}\n"
    )

    assert passes(path)


def random_rules(pick: random.Random) -> dict[str, Any]:
    """Alerts over one metric, with random durations, and recordings of them."""
    rules: list[dict[str, Any]] = []
    for number in range(4):
        rules.append({"record": f"r{number}", "expr": f"x > {pick.randint(0, 6)}"})
        rule = {
            "alert": f"A{pick.randint(0, 2)}",
            "expr": pick.choice(["x > {}", "r{} > 2", "sum by (a) (x) > {}", "absent(r{})", "max_over_time(x[3m]) > {}"]).format(pick.randint(0, 3)),
            "labels": {"rule": str(number), "v": pick.choice(["", "{{ $value }}", "{{ $labels.b }}"])},
            "annotations": {"s": "{{ $labels.a }} {{ $value }} {{ with query \"sum(x)\" }}{{ . | first | value }}{{ end }}"},
        }  # fmt: skip
        for key in ("for", "keep_firing_for"):
            if pick.random() < 0.6:
                rule[key] = f"{pick.randint(0, 4)}m"
        rules.append(rule)
    return {"groups": [{"name": "g", "rules": rules}]}


def random_series(pick: random.Random) -> list[dict[str, str]]:
    """Series of x that rise, fall, end and pause."""
    words = ["_", "_x3", "stale", "0x2", "5x4", "9", "1+1x6", "3-1x3"]
    return [
        {"series": f'x{{a="{a}",b="{b}"}}', "values": " ".join(pick.choices(words, k=8))}
        for a in "pq"
        for b in "12"
    ]


def firing(
    rules: dict[str, Any], series: list[dict[str, str]], minutes: int
) -> list[dict[str, Any]]:
    """The alert tests that this engine would pass, one a minute and alert name."""
    window = Window(86_400_000)
    engine = RuleEngine(read_text(yaml.safe_dump(rules)), window, Settings(interval=60.0))
    rows = {notation.series(s["series"]): notation.values(s["values"]) for s in series}
    tests = []
    for minute in range(minutes):
        for key, values in rows.items():
            value = values[minute] if minute < len(values) else None
            if value is not None:
                window.write(key, minute * 60_000, value, "input")
        assert engine.evaluate(minute * 60_000).errors == ()
        for name in ("A0", "A1", "A2"):
            alerts = [alert for alert in engine.rule_alerts(name) if alert.state == "firing"]
            expected = [
                {
                    "exp_labels": {k: v for k, v in alert.labels if k != "alertname"},
                    "exp_annotations": dict(alert.annotations),
                }
                for alert in alerts
            ]
            tests.append({"eval_time": f"{minute}m", "alertname": name, "exp_alerts": expected})
    return tests


@pytest.mark.peer
def test_promtool_sees_the_same_alerts_in_random_histories(tmp_path: Path) -> None:
    names = []
    for seed in range(12):
        pick = random.Random(seed)
        rules, series = random_rules(pick), random_series(pick)
        test = {
            "interval": "1m",
            "input_series": series,
            "alert_rule_test": firing(rules, series, 25),
        }
        (tmp_path / f"rules-{seed}.yaml").write_text(yaml.safe_dump(rules))
        doc = {"rule_files": [f"rules-{seed}.yaml"], "tests": [test]}
        (tmp_path / f"test-{seed}.yaml").write_text(yaml.safe_dump(doc))
        names.append(f"test-{seed}.yaml")

    done = subprocess.run(
        [str(peers.require("promtool")), "test", "rules", *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr[:2000]) == (0, "")
