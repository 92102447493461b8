"""The page of a real daemon under the names of the official exporters, beside our own."""

from __future__ import annotations

import csv
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.daemon import daemon, wait_for
from tests.support.gpus import ScriptedGpus

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
LISTS = (
    DATA / "nvidia-smi" / "dcgm-exporter-metrics.tsv",
    DATA / "npu-smi" / "npu_exporter_metrics.tsv",
)
TABLE = Path(__file__).parents[1] / "collectors" / "fixtures" / "npu_smi" / "normal" / "910b.txt"
GPU_LABELS = {
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "Hostname",
    "DCGM_FI_DRIVER_VERSION",
}
NPU_LABELS = {"id", "vdie_id", "model_name", "pcie_bus_info"}
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def page(url: str, accept: str = "text/plain") -> str:
    asked = urllib.request.Request(url + "/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Both forms of the page of a daemon with cards of both vendors."""
    folder = tmp_path_factory.mktemp("foreign")
    tools = folder / "tools"
    ScriptedGpus.install(tools, ["0000:53:00", "0000:64:00"], load=50)
    npu_smi = tools / "npu-smi"
    npu_smi.write_text(f'#!/bin/sh\n[ "$*" = info ] && exec cat {TABLE}\nexit 1\n')
    npu_smi.chmod(0o755)
    config = {"interval": "250ms", "compat": ["npu-exporter", "dcgm-exporter"]}
    with daemon(folder / "node", config, path=[tools]) as node:
        wait_for(lambda: all(w in page(node.url) for w in ("DCGM_FI_DEV_", "npu_chip_info_")))
        return {"text": page(node.url), "openmetrics": page(node.url, OPENMETRICS)}


def foreign(text: str) -> dict[str, tuple[str, list[tuple[dict[str, str], float]]]]:
    """Name → type and samples of the metrics that are not our own."""
    return {
        family.name: (family.type, [(sample.labels, sample.value) for sample in family.samples])
        for family in text_string_to_metric_families(text)
        if family.name.startswith(("DCGM_", "npu_chip_", "machine_"))
    }


def test_both_exporters_names_stand_beside_our_own(pages: dict[str, str]) -> None:
    found = foreign(pages["text"])

    assert [value for _, value in found["DCGM_FI_DEV_GPU_UTIL"][1]] == [50.0, 50.0]
    assert [value for _, value in found["DCGM_FI_DEV_GPU_TEMP"][1]] == [52.0, 52.0]
    assert 'accelerator_utilization_ratio{card="0000:53:00",vendor="nvidia"} 0.5' in pages["text"]


def test_series_have_the_labels_of_their_exporter(pages: dict[str, str]) -> None:
    for name, (_, samples) in foreign(pages["text"]).items():
        for labels, _ in samples:
            if name.startswith("DCGM_"):
                assert set(labels) == GPU_LABELS, name
            elif name.startswith("npu_chip_info_temperature"):
                assert {"id", "pcie_bus_info"} <= set(labels) <= NPU_LABELS, name


@pytest.mark.skipif(not LISTS[0].exists(), reason="shared/data is not here")
def test_names_and_types_are_those_of_the_official_lists(pages: dict[str, str]) -> None:
    types = {}
    for path in LISTS:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            types.update((row["metric"], row["type"]) for row in rows)
    found = foreign(pages["text"])

    assert len(found) > 25
    for name, (kind, _) in found.items():
        plain = re.sub(r"_power_[0-3]$", "_power_X", re.sub(r"code_\d+$", "code_X", name))
        assert kind == (types.get(name) or types[plain]), name


def test_the_openmetrics_page_bears_the_same_names(pages: dict[str, str]) -> None:
    samples = {
        line.split("{")[0].split(" ")[0]
        for line in pages["openmetrics"].splitlines()
        if line.startswith(("DCGM_", "npu_chip_", "machine_"))
    }

    assert samples == set(foreign(pages["text"]))
