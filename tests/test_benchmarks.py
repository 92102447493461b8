"""Each benchmark runs and ends with the figures that it promises. How large they are is no test's
matter: a small load on a busy machine tells nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import peers

FOLDER = Path(__file__).parents[1] / "benchmarks"

SMALL = {
    "backlog": (("--gib", "0.01"), (), {"events", "grown_mib", "mib_per_cpu_second"}),
    "collect": ((), (), {"npu_smi_ms", "nvidia_smi_ms"}),
    "logs": (
        ("--mib", "1", "--peer-mib", "1", "--runs", "1", "--lines", "3"),
        ("mtail", "fail2ban-regex", "rg"),
        {"ratio_grep", "ratio_mtail", "ratio_fail2ban", "event_latency_p99_ms"},
    ),
    "promql": (
        ("--runs", "1", "--cycles", "2", "--seconds", "2"),
        ("prometheus",),
        {"cpu_ratio_prometheus", "bytes_per_series", "ingest_ms", "growth_series", "growth_rules"},
    ),
    "shipping": (("--events", "2000", "--ticks", "5"), (), {"events_per_cpu_second"}),
}
"""Arguments of a small run, the real programs beside which it measures, keys of its last line."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_ends_with_the_figures_that_it_promises(name: str, tmp_path: Path) -> None:
    words, beside, keys = SMALL[name]
    for program in beside:
        peers.require(program)
    if name == "collect" and not (FOLDER.parents[1] / "shared/data").exists():
        pytest.skip("the captures that it reads (../shared/data) are not here")
    ended = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        check=False,
    )

    assert ended.returncode in (0, 1), ended.stdout + ended.stderr  # 1: an aim was missed
    assert "Traceback" not in ended.stderr, ended.stderr
    figures = json.loads(ended.stdout.splitlines()[-1])
    assert keys <= figures.keys()
    assert all(isinstance(value, int | float) for value in figures.values())


def test_every_benchmark_is_tried_or_needs_a_node_or_minutes_of_its_own() -> None:
    others = {"failover", "overhead"}

    assert {path.stem for path in FOLDER.glob("*.py")} == SMALL.keys() | others
