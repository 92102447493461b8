"""Prometheus' own conformance scripts, where they are at hand (they are not part of the project)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPTS = REPOSITORY / "../shared/promql"

pytestmark = pytest.mark.skipif(
    not (SCRIPTS / "run_promqltest.py").exists(),
    reason="the conformance scripts are not beside the repository (../shared/promql)",
)


def verdict(cases: str, *options: str) -> str:
    """The runner's last line for the cases of a list."""
    files = sorted(str(path) for path in (SCRIPTS / "v3.5").glob("*.test"))
    argv = [
        sys.executable,
        str(SCRIPTS / "run_promqltest.py"),
        "--adapter",
        "tests.promql.adapter:Adapter",
        "--cases",
        str(SCRIPTS / "v3.5" / cases),
        *options,
        *files,
    ]
    done = subprocess.run(
        argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False
    )
    return done.stdout.strip().splitlines()[-1] if done.stdout else done.stderr


def test_every_core_case_passes() -> None:
    assert verdict("core.cases").startswith("TOTAL: passed 719, failed 0,")


def test_every_case_that_holds_without_histogram_samples_passes() -> None:
    told = verdict("floatsafe.cases", "--drop-histograms")

    assert told.startswith("TOTAL: passed 68, failed 0,")
