"""What watching costs: CPU and memory of the daemon beside its peers, in one run.

Load: 8 cards (a scripted ``nvidia-smi`` that plays a full answer), one stand-in vLLM server with
a page of 2,000 series, everything every 5 s. Beside it, at the same time on the same machine: a
Prometheus 3.x that evaluates the same rule files every 5 s over the same series (the stand-in
serves it those of cards and services, too, so that no exporter's cost is counted for either),
netdata with its defaults, and prometheus-node-exporter scraped every 5 s by that Prometheus. CPU is
what the kernel accounts to a process and its ended children, in per cent of one core; memory is
resident.

    python benchmarks/overhead.py [--seconds 60] [--rounds 3] [--warm 30]

Medians over the rounds. The last line is one JSON object: ``cpu_percent``, ``rss_mb``,
``cpu_ratio_prometheus`` and ``rss_ratio_netdata`` (ours ÷ the peer's).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.support import peers
from tests.support.daemon import daemon
from tests.support.gpus import ScriptedGpus
from tests.support.servers import free_port, running
from tests.support.vllm import fake_vllm
from vllm_watchdog.watchdog.assembly import shipped_rules

CARDS = [f"0000:{bus:02x}:00" for bus in (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)]
SERIES = 2000
EVERY = "5s"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """CPU in per cent of one core, resident memory in MB (10^6 bytes)."""

    cpu: float
    rss: float


def cpu_seconds(pid: int) -> float:
    """CPU of a process with its threads, its ended children, and its living descendants."""
    total = 0.0
    with contextlib.suppress(psutil.Error, FileNotFoundError):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(value) for value in fields[11:15]) / TICKS
    return total


def rss_mb(pid: int) -> float:
    """Resident memory of a process and its descendants."""
    process = psutil.Process(pid)
    sizes = []
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            sizes.append(one.memory_info().rss)
    return sum(sizes) / 1e6


def measure(pids: dict[str, int], seconds: float) -> dict[str, Cost]:
    """Costs of the processes over the next ``seconds``."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    start = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    return {
        name: Cost((cpu_seconds(pid) - before[name]) / took * 100, rss_mb(pid))
        for name, pid in pids.items()
    }


@contextlib.contextmanager
def prometheus(folder: Path, targets: dict[str, str]) -> Iterator[int]:
    """A Prometheus 3.x with our rules, scraping ``targets``; yields its pid."""
    folder.mkdir()
    rules = [str(path) for path in shipped_rules()]
    scrapes = [
        {
            "job_name": name,
            "metrics_path": "/beside" if name == "vllm" else "/metrics",
            "static_configs": [
                {"targets": [url.removeprefix("http://")], "labels": {"service": "tiny"}}
            ],
        }
        for name, url in targets.items()
    ]
    config = {
        "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
        "rule_files": rules,
        "scrape_configs": scrapes,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    url = f"http://127.0.0.1:{free_port()}"
    argv = [
        peers.require("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with running(argv, url=url, ready="/-/ready", folder=folder) as server:
        yield server.process.pid


@contextlib.contextmanager
def netdata(folder: Path) -> Iterator[int | None]:
    """netdata with its defaults on a loopback port; yields its pid, None where it is absent."""
    program = peers.find("netdata")
    if program is None:
        yield None
        return
    folder.mkdir()
    folder.chmod(0o777)  # it gives up root by itself
    port = free_port()
    argv = [program, "-D", "-i", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with running(argv, url=url, ready="/api/v1/info", folder=folder) as server:
        yield server.process.pid


@contextlib.contextmanager
def node_exporter(folder: Path) -> Iterator[tuple[int, str] | None]:
    """prometheus-node-exporter; yields pid and address, None where it is absent."""
    program = peers.find("prometheus-node-exporter")
    if program is None:
        yield None
        return
    folder.mkdir()
    url = f"http://127.0.0.1:{free_port()}"
    argv = [program, f"--web.listen-address={url.removeprefix('http://')}"]
    with running(argv, url=url, ready="/metrics", folder=folder) as server:
        yield server.process.pid, url


def card_series(url: str) -> bytes:
    """The daemon's series of cards and services, for the peer to have as well."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        lines = answer.read().splitlines(keepends=True)
    own = (b"accelerator_", b"service_", b"log_events_", b"host_", b"numa_")
    return b"".join(line for line in lines if line.startswith(own))


def run(seconds: float, rounds: int, warm: float) -> dict[str, list[Cost]]:
    """All daemons at once; costs by name, one a round."""
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    found: dict[str, list[Cost]] = {}
    try:
        with contextlib.ExitStack() as stack:
            fake = stack.enter_context(fake_vllm(padding=SERIES - 8, running=3.0))
            gpus = ScriptedGpus.install(folder / "bin", CARDS)
            config = {
                "interval": EVERY,
                "services": {"tiny": {"url": fake.url, "cards": CARDS[:2]}},
            }
            ours = stack.enter_context(daemon(folder / "ours", config, path=[gpus.folder]))
            pids = {"vllm-watchdog": ours.server.process.pid}
            fake.beside = card_series(ours.url)
            targets = {"vllm": fake.url}
            exporter = stack.enter_context(node_exporter(folder / "node"))
            if exporter:
                pids["node_exporter"], targets["node"] = exporter
            pids["prometheus"] = stack.enter_context(prometheus(folder / "prometheus", targets))
            other = stack.enter_context(netdata(folder / "netdata"))
            if other:
                pids["netdata"] = other
            print(f"warming up for {warm:g} s", flush=True)
            time.sleep(warm)
            for number in range(1, rounds + 1):
                fake.tokens += 1000
                for name, cost in measure(pids, seconds).items():
                    found.setdefault(name, []).append(cost)
                    print(
                        f"round {number}  {name:<14} {cost.cpu:6.2f} %  {cost.rss:6.1f} MB",
                        flush=True,
                    )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def summary(found: dict[str, list[Cost]]) -> dict[str, float | None]:
    """The medians and their ratios; None where a peer was absent."""
    cpu = {name: statistics.median(c.cpu for c in costs) for name, costs in found.items()}
    rss = {name: statistics.median(c.rss for c in costs) for name, costs in found.items()}
    return {
        "cpu_percent": round(cpu["vllm-watchdog"], 3),
        "rss_mb": round(rss["vllm-watchdog"], 1),
        "cpu_ratio_prometheus": round(cpu["vllm-watchdog"] / cpu["prometheus"], 3),
        "rss_ratio_netdata": (
            round(rss["vllm-watchdog"] / rss["netdata"], 3) if "netdata" in rss else None
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="cost of the daemon beside its peers")
    parser.add_argument("--seconds", type=float, default=60, help="length of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=30, help="seconds before the first round")
    given = parser.parse_args()
    print(json.dumps(summary(run(given.seconds, given.rounds, given.warm)), sort_keys=True))


if __name__ == "__main__":
    main()
