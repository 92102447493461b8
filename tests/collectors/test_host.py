"""Host figures and NUMA placement from fixture trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system import FakeHost, fake_system
from vllm_watchdog.collectors.host import HostFigures
from vllm_watchdog.collectors.numa import Numa, capture
from vllm_watchdog.watchdog.errors import NotSupported, SourceError

NUMASTAT = (
    "numa_hit 100\nnuma_miss 3\nnuma_foreign 0\ninterleave_hit 5\nlocal_node 90\nother_node 13\n"
)
MEMINFO = "Node 0 MemTotal:       2048 kB\nNode 0 MemFree:        1024 kB\nNode 0 Active: 7 kB\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_host_figures_have_base_units_and_modes() -> None:
    host = FakeHost(figures={"cpu:user": 12.5, "memory_total": 4096.0, "load1": 0.5, "cpus": 2.0})

    samples = {(s.name, s.labels): s.value for s in HostFigures().collect(fake_system(host=host))}

    assert samples == {
        ("host_cpu_seconds_total", (("mode", "user"),)): 12.5,
        ("host_memory_total_bytes", ()): 4096.0,
        ("host_load", (("window", "1m"),)): 0.5,
        ("host_cpus", ()): 2.0,
    }


def test_memory_pressure_is_a_ratio(tmp_path: Path) -> None:
    text = "some avg10=25.00 avg60=1.00 avg300=0.00 total=99\nfull avg10=2.50 avg60=0 avg300=0 total=1\n"
    root = tree(tmp_path, {"proc/pressure/memory": text})

    samples = {s.labels: s.value for s in HostFigures().collect(fake_system(root=root))}

    assert samples == {(("kind", "some"),): 0.25, (("kind", "full"),): 0.025}


def test_each_numa_node_gives_counters_and_memory(tmp_path: Path) -> None:
    base = "sys/devices/system/node/node0"
    files = {
        f"{base}/numastat": NUMASTAT,
        f"{base}/meminfo": MEMINFO,
        "proc/sys/kernel/numa_balancing": "1\n",
    }

    samples = {
        (s.name, dict(s.labels).get("event")): s.value
        for s in Numa().collect(fake_system(root=tree(tmp_path, files)))
    }

    assert samples[("numa_allocations_total", "miss")] == 3.0
    assert samples[("numa_memory_free_bytes", None)] == 1024 * 1024.0
    assert (samples[("numa_nodes", None)], samples[("numa_balancing_enabled", None)]) == (1.0, 1.0)


def test_a_kernel_without_numa_is_not_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotSupported):
        list(Numa().collect(fake_system(root=tmp_path)))


def test_a_numastat_without_counters_is_a_failure_of_the_source() -> None:
    with pytest.raises(SourceError):
        capture(b"\x00garbage\xff")
