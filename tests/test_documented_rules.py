"""Each documented rule fires at the right virtual second, and not one evaluation before.

The table holds, for every alerting rule of rules/documented.yaml, input series in promtool's
notation and the second at which the alert must fire. It runs on promtool 3.5 and 2.42 and on this
engine alike.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import peers
from vllm_watchdog.watchdog import ruletests

REPOSITORY = Path(__file__).parents[1]
RULES = REPOSITORY / "rules"
DOCUMENTED = RULES / "documented.yaml"
RULE_TESTS = REPOSITORY / "tests/rules"
RULE_FILES = [
    path for path in sorted(RULES.glob("*.yaml")) if re.search(r"^groups:", path.read_text(), re.M)
]
PROMTOOLS = ["promtool", "promtool-2.42"]
JUDGES = [*PROMTOOLS, "ours"]

CARD = 'vendor="nvidia",card="0000:53:00"'
SERVICE = 'service="deepseek"'


@dataclass(frozen=True)
class Row:
    """One alerting rule: what goes in, and at which second it fires with which labels.

    ``rule`` are the labels that the rule itself sets; ``interval`` (of samples) and ``every`` (of
    evaluations) are seconds. The groups with an interval of a minute are evaluated each minute.
    """

    alert: str
    rule: dict[str, str]
    series: dict[str, str]
    fires: int
    labels: dict[str, str]
    interval: int = 5
    every: int = 5
    name: str = ""

    @property
    def id(self) -> str:
        return "-".join([self.alert, *self.rule.values(), *filter(None, [self.name])])


CRITICAL, WARNING, INFO = ({"severity": word} for word in ("critical", "warning", "info"))
OF_CARD = {"vendor": "nvidia", "card": "0000:53:00"}
OF_SERVICE = {"service": "deepseek"}
OF_BOTH = OF_SERVICE | OF_CARD


def proof(word: str) -> dict[str, str]:
    return CRITICAL | {"proof": word}


def http(status: str) -> str:
    return f'http_requests_total{{{SERVICE},handler="/v1/completions",method="POST",status="{status}"}}'


def log(kind: str) -> str:
    return f'log_events_total{{{SERVICE},kind="{kind}"}}'


def latency(name: str, *buckets: tuple[str, str]) -> dict[str, str]:
    """A histogram's series; the last bucket is also its count."""
    series = {f'{name}_bucket{{{SERVICE},le="{le}"}}': values for le, values in buckets}
    return series | {f"{name}_count{{{SERVICE}}}": buckets[-1][1]}


E2E, TTFT = "vllm:e2e_request_latency_seconds", "vllm:time_to_first_token_seconds"
SLOW_FROM_60 = (("0.25", "0+10x11 110x100"), ("0.5", "0+10x111"), ("+Inf", "0+10x111"))

TABLE = [
    # A value is over its threshold from second 60 on (twelve samples before), and `for` follows.
    Row(
        "AcceleratorBusy",
        INFO,
        {f"accelerator_utilization_ratio{{{CARD}}}": "0.5x11 0.9x100"},
        60 + 300,
        OF_CARD,
    ),
    Row(
        "GpuSmOutOfRange",
        INFO,
        {
            f"accelerator_sm_utilization_ratio{{{CARD}}}": "0.8x11 0.95x200",
            f"service_card{{{SERVICE},{CARD}}}": "1x250",
            f"vllm:num_requests_running{{{SERVICE}}}": "4x250",
        },
        60 + 600,
        OF_BOTH,
        name="above",
    ),
    Row(
        "GpuSmOutOfRange",
        INFO,
        {
            f"accelerator_sm_utilization_ratio{{{CARD}}}": "0.5x250",
            f"service_card{{{SERVICE},{CARD}}}": "1x250",
            f"vllm:num_requests_running{{{SERVICE}}}": "0x11 4x250",
        },
        60 + 600,
        OF_BOTH,
        name="below-once-requests-run",
    ),
    Row(
        "MemoryFragmented",
        WARNING,
        {f"memory_fragmentation_ratio{{{SERVICE},{CARD}}}": "0.1x11 0.35x100"},
        60 + 300,
        OF_BOTH,
    ),
    Row(
        "PeerLatencyHigh",
        WARNING,
        {'peer_round_trip_seconds{peer="node-2"}': "0.00014x11 0.00024x50"},
        60 + 60,
        {"peer": "node-2"},
    ),
    Row(
        "L3HitRatioLow",
        WARNING,
        {'l3_cache_hit_ratio{die="0"}': "0.95x11 0.8x200"},
        60 + 600,
        {"die": "0"},
    ),
    Row(
        "LowLoadNight",
        INFO,
        {
            f"accelerator_utilization_ratio{{{CARD}}}": "0.05x300",
            'schedule_active{name="night"}': "0x11 1x300",
        },
        60 + 900,
        OF_CARD,
    ),
    # One failing request in twelve; then errors that bear their own counter.
    Row(
        "RequestFailuresHigh",
        WARNING,
        {http("2xx"): "0+10x100", http("5xx"): "0x11 5x100"},
        60,
        OF_SERVICE,
        name="counted",
    ),
    Row(
        "RequestFailuresHigh",
        WARNING,
        {http("2xx"): "0+10x100", http("5xx"): "_x72 15x100"},
        72 * 5,
        OF_SERVICE,
        name="first-of-their-kind",
    ),
    Row(
        "RequestFailuresHigh",
        WARNING,
        {f"service_probe_success{{{SERVICE}}}": "1x59 0x50"},
        300 + 5,
        OF_SERVICE,
        name="two-probes",
    ),
    # The first slow answers lift the 95th percentile at once.
    Row(
        "ResponseSlow",
        WARNING | {"target": "p95"},
        latency(E2E, *SLOW_FROM_60),
        60 + 300,
        OF_SERVICE,
    ),
    Row(
        "ResponseSlow",
        WARNING | {"target": "ttft"},
        latency(TTFT, *SLOW_FROM_60) | {f'service_target{{{SERVICE},target="ttft"}}': "0.3x111"},
        60 + 300,
        OF_SERVICE,
    ),
    Row(
        "ResponseSlow",
        WARNING | {"target": "tokens_per_second"},
        {
            f"vllm:generation_tokens_total{{{SERVICE}}}": "0+500x111",
            f"vllm:num_requests_running{{{SERVICE}}}": "4x111",
            f'service_target{{{SERVICE},target="tokens_per_second"}}': "_x24 1000x111",
        },
        120 + 300,
        OF_SERVICE,
    ),
    # From 0.099 s to 0.199 s between seconds 600 and 660.
    Row(
        "LatencySwingHigh",
        WARNING,
        latency(
            E2E,
            ("0.1", "0+15x40 600x40"),
            ("0.2", "0+15x80"),
            ("1", "0+15x80"),
            ("+Inf", "0+15x80"),
        ),
        660,
        OF_SERVICE,
        interval=15,
        every=60,
    ),
    # 400 requests a minute. In the eleventh 50 fail (1.1 % of all), or 22 (0.5 %).
    Row(
        "AvailabilityBurn",
        CRITICAL,
        {http("2xx"): "0+100x60", http("5xx"): "0x41 50x20"},
        660,
        OF_SERVICE,
        interval=15,
        every=60,
    ),
    Row(
        "AvailabilityBurn",
        WARNING,
        {http("2xx"): "0+100x60", http("5xx"): "0x41 22x20"},
        660,
        OF_SERVICE,
        interval=15,
        every=60,
    ),
    # Cards: the first complete reading, or the driver's word, is enough to tell.
    Row("CardLost", proof("tool"), {f"accelerator_present{{{CARD}}}": "1x11 0x20"}, 60, OF_CARD),
    Row(
        "CardLost",
        proof("driver"),
        {
            f'accelerator_fault{{{CARD},code="79",kind="device_lost",severity="critical"}}': "_x12 1x20"
        },
        60,
        OF_CARD,
    ),
    Row(
        "CardUncorrectable",
        proof("tool"),
        {f'accelerator_ecc_errors_total{{{CARD},kind="uncorrectable"}}': "3x11 5x20"},
        60,
        OF_CARD,
    ),
    Row(
        "CardUncorrectable",
        proof("driver"),
        {
            f'accelerator_fault{{{CARD},code="95",kind="device_ecc",severity="critical"}}': "_x12 1x20"
        },
        60,
        OF_CARD,
    ),
    Row(
        "CardResetRequired",
        proof("tool"),
        {f"accelerator_reset_required{{{CARD}}}": "0x11 1x20"},
        60,
        OF_CARD,
    ),
    Row(
        "CardResetRequired",
        proof("driver"),
        {
            f'accelerator_fault{{{CARD},code="119",kind="driver_fault",severity="critical"}}': "_x12 1x20"
        },
        60,
        OF_CARD,
    ),
    # The last token came at second 55; the probe failed at 80.
    Row(
        "EngineStalled",
        proof("progress"),
        {
            f"vllm:num_requests_running{{{SERVICE}}}": "4x100",
            f"vllm:generation_tokens_total{{{SERVICE}}}": "0+100x11 1100x100",
            f"service_probe_success{{{SERVICE}}}": "1x15 0x100",
        },
        55 + 60,
        OF_SERVICE,
    ),
    Row(
        "EngineStalled",
        proof("probe"),
        {
            f"vllm:num_requests_running{{{SERVICE}}}": "0x100",
            f"vllm:generation_tokens_total{{{SERVICE}}}": "1000x100",
            f"service_up{{{SERVICE}}}": "1x100",
            f"service_probe_success{{{SERVICE}}}": "1x11 0x100",
        },
        60 + 30,
        OF_SERVICE,
    ),
    Row(
        "EngineDead",
        proof("process"),
        {f"service_process_up{{{SERVICE}}}": "1x11 0x20"},
        60,
        OF_SERVICE,
    ),
    Row("EngineDead", proof("log"), {log("engine_dead"): "_x12 1x20"}, 60, OF_SERVICE),
    Row(
        "OutputCorrupt",
        proof("canary"),
        {f"service_canary_success{{{SERVICE}}}": "1x11 0x20"},
        60 + 15,
        OF_SERVICE,
    ),
    Row(
        "OutputCorrupt",
        proof("counter"),
        {f"vllm:corrupted_requests_total{{{SERVICE}}}": "0x11 1x20"},
        60,
        OF_SERVICE,
    ),
    Row(
        "MemoryOverflow",
        CRITICAL,
        {
            log("oom_device"): "0x11 1x20",
            log("engine_dead"): "0x12 1x20",
            f"service_card{{{SERVICE},{CARD}}}": "1x40",
        },
        65,
        OF_SERVICE | {"vendor": "nvidia"},
        name="kills",
    ),
    Row(
        "MemoryOverflow",
        CRITICAL,
        {log("oom_device"): "0x11 1 2 3x20", f"service_card{{{SERVICE},{CARD}}}": "1x40"},
        70,
        OF_SERVICE | {"vendor": "nvidia"},
        name="keeps-rejecting",
    ),
    Row(
        "MemoryHeldByOther",
        CRITICAL,
        {log("oom_foreign_process"): "0x11 1x20", f"service_card{{{SERVICE},{CARD}}}": "1x40"},
        60,
        OF_SERVICE | {"vendor": "nvidia"},
    ),
    Row(
        "MemoryHeldByOther",
        CRITICAL,
        {log("oom_device"): "0x11 1x20", f"service_orphan_processes{{{SERVICE}}}": "1x40"},
        60,
        OF_SERVICE,
        name="orphan",
    ),
    Row(
        "NetworkOutage",
        CRITICAL,
        {
            f"service_probe_success{{{SERVICE}}}": "1x11 0x20",
            f'service_needs{{{SERVICE},peer="node-2"}}': "1x40",
            'peer_reachable{peer="node-2"}': "1x5 0x40",
        },
        60 + 15,
        OF_SERVICE,
    ),
]


def alerting_rules() -> list[tuple[str, dict[str, str]]]:
    groups = yaml.safe_load(DOCUMENTED.read_text())["groups"]
    return [
        (rule["alert"], rule["labels"])
        for group in groups
        for rule in group["rules"]
        if "alert" in rule
    ]


def promtool_test(row: Row) -> dict[str, Any]:
    """The row as a promtool test: nothing one evaluation before, the alert at its second."""
    fired = {"exp_labels": row.labels | row.rule}
    moments = [(row.fires - row.every, []), (row.fires, [fired])]
    return {
        "name": row.id,
        "interval": f"{row.interval}s",
        "input_series": [
            {"series": series, "values": values} for series, values in row.series.items()
        ],
        "promql_expr_test": [
            {
                "eval_time": f"{seconds}s",
                "expr": _firing(row),
                "exp_samples": [{"labels": _series(row), "value": 1}] if alerts else [],
            }
            for seconds, alerts in moments
        ],
    }


def _firing(row: Row) -> str:
    pairs = {"alertname": row.alert, "alertstate": "firing"} | row.rule
    return "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in pairs.items()) + "}"


def _series(row: Row) -> str:
    pairs = {"alertname": row.alert, "alertstate": "firing"} | row.rule | row.labels
    return "ALERTS{" + ",".join(f'{key}="{value}"' for key, value in pairs.items()) + "}"


def written(folder: Path, rows: list[Row]) -> Path:
    """A promtool test file of rows that are evaluated alike."""
    document = {
        "rule_files": [str(DOCUMENTED)],
        "evaluation_interval": f"{rows[0].every}s",
        "tests": [promtool_test(row) for row in rows],
    }
    path = folder / "table.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def judged(judge: str, *paths: Path) -> str:
    """What a promtool, or this engine, finds wrong in rule test files; nothing if all is right."""
    if judge == "ours":
        return "\n".join(str(finding) for finding in ruletests.run(paths))
    return promtool(judge, "test", "rules", *paths)


def promtool(name: str, *words: str | Path) -> str:
    """Run promtool; its words on failure, else nothing."""
    argv = [str(peers.require(name)), *map(str, words)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    return "" if ended.returncode == 0 else ended.stdout + ended.stderr


@pytest.mark.parametrize("every", [5, 60])
@pytest.mark.parametrize("judge", JUDGES)
def test_rule_fires_at_its_second_and_not_one_evaluation_before(
    judge: str, every: int, tmp_path: Path
) -> None:
    rows = [row for row in TABLE if row.every == every]

    assert judged(judge, written(tmp_path, rows)) == ""


def test_the_table_holds_every_alerting_rule() -> None:
    tabled = {(row.alert, *sorted(row.rule.items())) for row in TABLE}

    assert {(name, *sorted(labels.items())) for name, labels in alerting_rules()} == tabled


@pytest.mark.parametrize("tool", PROMTOOLS)
def test_rule_files_are_loadable(tool: str) -> None:
    assert promtool(tool, "check", "rules", *RULE_FILES) == ""


@pytest.mark.parametrize("judge", JUDGES)
def test_rule_tests_pass(judge: str) -> None:
    assert judged(judge, *sorted(RULE_TESTS.glob("*.yaml"))) == ""


def test_two_rules_of_one_alert_name_are_told_apart_by_a_label() -> None:
    counted = Counter((name, *sorted(labels.items())) for name, labels in alerting_rules())

    assert max(counted.values()) == 1
