"""The Grafana dashboard: loadable, and every expression in it is PromQL over series that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_watchdog.watchdog.api.metrics import own
from vllm_watchdog.watchdog.promql import load

REPOSITORY = Path(__file__).parents[1]
BOARD: dict[str, Any] = json.loads((REPOSITORY / "deploy/grafana/vllm-watchdog.json").read_text())
OTHERS = {"ALERTS", "http_requests_total"}  # what Prometheus and the server itself write
METRIC = re.compile(r"(?<![\w:\"$])([a-zA-Z_][\w:]*)\{")
VARIABLES = re.compile(r"\$(\w+)")


def expressions() -> Iterator[str]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    yield from (each["expr"] for each in BOARD["annotations"]["list"])


def documented() -> set[str]:
    text = (REPOSITORY / "docs/series.md").read_text()
    return set(re.findall(r"`([a-zA-Z_][\w:]*)`", text))


@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_each_expression_is_promql_over_documented_series(expression: str) -> None:
    load(VARIABLES.sub("x", expression))
    names = set(METRIC.findall(expression))
    ours = {name for name in names if not name.startswith("vllm:")} - OTHERS

    assert names
    assert {name for name in ours if not own(name)} <= documented()


def test_each_variable_that_is_used_is_defined() -> None:
    text = json.dumps(BOARD)
    defined = {each["name"] for each in BOARD["templating"]["list"]}

    assert {name for name in VARIABLES.findall(text) if name != "__all"} <= defined | {"source"}
    assert "${source}" in text


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    places = set()
    for panel in BOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        places |= cells
    ids = [panel["id"] for panel in BOARD["panels"]]

    assert len(set(ids)) == len(ids)
    assert (BOARD["uid"], BOARD["schemaVersion"] >= 36) == ("vllm-watchdog", True)


def test_each_row_has_its_panels() -> None:
    rows: dict[str, int] = {}
    for panel in BOARD["panels"]:
        if panel["type"] == "row":
            rows[panel["title"]] = 0
        else:
            rows[list(rows)[-1]] += 1

    assert rows == {
        "At a glance": 4, "Services": 3, "Requests": 6, "Cards": 7, "CPU and links": 3, "Acts": 3,
        "The daemon itself": 5,
    }  # fmt: skip


def test_every_panel_asks_the_source_that_the_reader_chose() -> None:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            assert panel["datasource"] == target["datasource"] == {
                "type": "prometheus", "uid": "${source}",
            }, panel["title"]  # fmt: skip
