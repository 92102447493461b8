"""Every series that a collector can give is described, with its labels; and no other is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_watchdog.collectors import COLLECTORS, capture_function
from vllm_watchdog.watchdog.api.metrics import help_text, own
from vllm_watchdog.watchdog.errors import WatchdogError
from vllm_watchdog.watchdog.model import Sample

REPOSITORY = Path(__file__).parents[1]
SOURCES = [
    *(REPOSITORY / "collectors").glob("*.py"),
    *(REPOSITORY / "watchdog").rglob("*.py"),
]
ROWS = re.findall(
    r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|$", (REPOSITORY / "docs/series.md").read_text(), re.M
)
LABELS = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels, _ in ROWS}
BASE = {"vendor", "card", "device", "udie", "port", "row"}  # said in the text above the tables


def given(name: str) -> Iterator[Sample]:
    """What a collector reads from all the fixtures."""
    read = capture_function(name)
    for path in sorted((REPOSITORY / "tests/collectors/fixtures").rglob("*.*")):
        if read is None or not path.is_file():
            continue
        try:
            items = read(path.read_bytes())
        except WatchdogError:
            continue
        yield from (item for item in items if isinstance(item, Sample))


@pytest.mark.parametrize("name", sorted(set(COLLECTORS) - {"vllm_metrics"}))
def test_each_series_of_a_collector_stands_on_the_page_with_its_labels(name: str) -> None:
    for sample in given(name):
        assert sample.name in LABELS, sample.name
        more = {label for label, _ in sample.labels} - BASE - LABELS[sample.name]
        if sample.name != "accelerator_info":
            assert more == set(), sample.name


def test_each_series_named_in_the_code_stands_on_the_page() -> None:
    text = "\n".join(path.read_text() for path in SOURCES)
    named = set(re.findall(r'Sample\(\s*"(\w+)"', text)) - {"up"}

    assert {name for name in named - set(LABELS) if not name.startswith("watchdog_")} == set()


def test_each_series_on_the_page_is_one_of_ours_and_explained_as_such() -> None:
    ours = {name for name in LABELS if own(name)}

    assert set(LABELS) - ours == set()
    assert [name for name in ours if "Passed through" in help_text(name)] == []
