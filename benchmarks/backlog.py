"""A backlog after an outage: how fast a huge log is caught up, and that it takes no more memory.

    python benchmarks/backlog.py [--gib 2] [--folder /tmp] [--rate 0.03]

A log of so many GiB (lines of a busy vLLM server with ``--rate`` fault lines, one piece over and
over) is followed from its beginning by the collector as the daemon runs it: a budget a run, a
checkpoint after each. Peak memory is compared with that of a small log caught up first. The last
line is one JSON object: ``gib``, ``mib_per_second``, ``mib_per_cpu_second``, ``seconds``, ``runs``,
``events``, ``rss_small_mib`` (peak after the small log), ``rss_peak_mib`` (at the end) and
``grown_mib``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from logs import MIB, make_log

from vllm_watchdog.collectors.vllm_log import VllmLog
from vllm_watchdog.watchdog.logtail import BUDGET
from vllm_watchdog.watchdog.scheduler import run_once
from vllm_watchdog.watchdog.system import Checkpoints, System

PIECE = 16 * MIB
GROWTH_AIM = 32.0  # MiB; the whole log is far larger


def write(path: Path, size: int, piece: bytes) -> int:
    """Write the piece until the file has about this size; the size it got."""
    with path.open("wb", buffering=0) as stream:
        while stream.tell() < size:
            stream.write(piece)
        return stream.tell()


def peak() -> float:
    """The most memory this process ever held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def catch_up(path: Path, size: int) -> tuple[int, int]:
    """Follow the log from its beginning to its end: runs and events."""
    system = System(checkpoints=Checkpoints())
    collector = VllmLog("backlog", (str(path),), from_start=True)
    runs = events = 0
    while True:
        batch = run_once(collector, system)
        if batch.error is not None:
            raise SystemExit(f"the collector failed: {batch.error}")
        runs, events = runs + 1, events + len(batch.events)
        kept = system.checkpoints.get(collector.instance) or {}
        if kept["places"][str(path)][2] >= size:
            return runs, events


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--rate", type=float, default=0.03)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        path = Path(name) / "small.log"
        piece = make_log(PIECE, args.rate, 1)
        catch_up(path, write(path, 2 * BUDGET, piece))
        small = peak()
        path = Path(name) / "backlog.log"
        size = write(path, int(args.gib * 1024) * MIB, piece)
        os.sync()
        begun, used = time.monotonic(), time.process_time()
        runs, events = catch_up(path, size)
        seconds, cpu = time.monotonic() - begun, time.process_time() - used
    result = {
        "gib": round(size / MIB / 1024, 2),
        "mib_per_second": round(size / MIB / seconds, 1),
        "mib_per_cpu_second": round(size / MIB / cpu, 1),
        "seconds": round(seconds, 1),
        "runs": runs,
        "events": events,
        "rss_small_mib": round(small, 1),
        "rss_peak_mib": round(peak(), 1),
        "grown_mib": round(peak() - small, 1),
    }
    for key, value in result.items():
        print(f"{key:20} {value:>10}")
    print(json.dumps(result))
    return 0 if result["grown_mib"] < GROWTH_AIM else 1


if __name__ == "__main__":
    sys.exit(main())
