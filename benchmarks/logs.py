"""What sorting logs costs: all shipped patterns beside grep, rg, mtail and fail2ban, in one run.

The log: lines as a busy vLLM server writes them (statistics, access lines, request lines), mixed
with 3 % fault lines: the examples of all patterns that stand on one line, their numbers varied.
A second log is clean. Each peer gets one expression a pattern (its literals) and must count the
same lines; each reads the log alone and is measured by its own CPU time (user and system).

    python benchmarks/logs.py [--mib 200] [--peer-mib 8] [--runs 3] [--lines 200]

mtail and fail2ban read the first ``--peer-mib`` MiB only: they need minutes for 200. Our classifier
runs as the collectors run it: 1-MiB blocks, the bound of a flood's detail renewed each 64 MiB.

Latency: the log collector as the scheduler runs it, and the engine with the shipped rules; from the
append of a line to the step of the engine that holds its event.

The last line is one JSON object: ``ratio_grep``, ``ratio_rg``, ``ratio_mtail``, ``ratio_fail2ban``
(our MiB per CPU second ÷ theirs, with faults), ``ratio_grep_clean``, ``event_latency_p99_ms`` and
``mib_per_cpu_second``. Medians of the runs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from vllm_watchdog.collectors.vllm_log import VllmLog
from vllm_watchdog.watchdog import rulepack
from vllm_watchdog.watchdog.assembly import LOG_WAIT, shipped_rules
from vllm_watchdog.watchdog.engine import Engine, EngineSettings
from vllm_watchdog.watchdog.logevents import DETAIL
from vllm_watchdog.watchdog.logpatterns import Pattern, shipped
from vllm_watchdog.watchdog.logs import BLOCK, Classifier
from vllm_watchdog.watchdog.logtail import BUDGET
from vllm_watchdog.watchdog.model import Inputs, Tick
from vllm_watchdog.watchdog.scheduler import Inbox, Scheduler
from vllm_watchdog.watchdog.system import System

MIB = 1024 * 1024
RATE = 0.03
STATISTICS = (
    "(APIServer pid=1) INFO 12-11 20:30:{s:02d} [loggers.py:236] Engine 000: Avg prompt"
    " throughput: {a}.8 tokens/s, Avg generation throughput: {b}.0 tokens/s, Running: {c} reqs,"
    " Waiting: 0 reqs, GPU KV cache usage: 0.3%, Prefix cache hit rate: 68.2%\n"
)
CLEAN = (
    STATISTICS,
    '(APIServer pid=1) INFO:     192.0.2.7:{a} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n',
    "(APIServer pid=1) INFO 12-11 20:30:{s:02d} [async_llm.py:270] Added request cmpl-{a}{b}.\n",
    'INFO:     192.0.2.8:{b} - "GET /metrics HTTP/1.1" 200 OK\n',
    "(EngineCore pid=7) INFO 12-11 20:30:{s:02d} [scheduler.py:{a}] scheduled {c} requests\n",
)
DEAD = (
    "(APIServer pid=1) ERROR 12-11 20:30:06 [core_client.py:9] Engine core proc EngineCore_DP{n}"
    " died unexpectedly, shutting down client.\n"
)


def single_line(pattern: Pattern) -> bool:
    """Whether the pattern's example alone is recognised, loudly, by this pattern's own literals."""
    if not pattern.kind or pattern.info:
        return False
    reader = Classifier(None)
    reader.feed(pattern.example.encode() + b"\n")
    return reader.recognised == 1


def make_log(size: int, rate: float, seed: int) -> bytes:
    """A log of about ``size`` bytes with ``rate`` fault lines."""
    chance = random.Random(seed)
    faults = [pattern.example for pattern in shipped() if single_line(pattern)]
    lines: list[bytes] = []
    made = 0
    while made < size:
        if chance.random() < rate:
            line = re.sub(
                r"pid=\d+", lambda _: f"pid={chance.randrange(2, 99999)}", chance.choice(faults)
            )
            line += "\n"
        else:
            line = chance.choice(CLEAN).format(
                s=chance.randrange(60),
                a=chance.randrange(999),
                b=chance.randrange(9999),
                c=chance.randrange(64),
            )
        lines.append(line.encode())
        made += len(line)
    return b"".join(lines)


def expressions() -> list[str]:
    """One expression a pattern, for tools that know no kinds: any of its literals."""
    made = []
    for pattern in shipped():
        literals = [re.sub(r"([\\.\[\]{}()*+?^$|])", r"\\\1", text) for text in pattern.literals]
        made.append("|".join(literals))
    return made


def ours(log: bytes) -> tuple[float, int]:
    """CPU seconds, and the lines that meant something."""
    reader = Classifier(None, detail=DETAIL)
    before = time.process_time()
    for place in range(0, len(log), BLOCK):
        reader.feed(log[place : place + BLOCK])
        if place % BUDGET == 0:
            reader.renew()
    reader.finish()
    return time.process_time() - before, reader.recognised


def child(argv: list[str], count: Callable[[str], int], **more: object) -> tuple[float, int]:
    """CPU seconds of a command, and the lines that it counted."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, count(done.stdout + done.stderr)


def first_number(text: str) -> int:
    found = re.search(r"\d+", text)
    return int(found[0]) if found else 0


def mtail(folder: Path, path: Path) -> tuple[float, int]:
    """mtail reads the log once; each line counts once, however many expressions it meets."""
    rules = (text.replace("/", ".") for text in expressions())
    blocks = "".join(f"/{text}/ {{\n  hits++\n  stop\n}}\n" for text in rules)
    program = f"counter hits\n{blocks}"
    (folder / "hits.mtail").write_text(program)
    argv = ["mtail", "--one_shot", "--progs", str(folder / "hits.mtail"), "--logs", str(path)]
    argv += ["--logtostderr", "--port", "0"]
    return child(argv, lambda text: int((re.findall(r'"Value": (\d+)', text) or ["0"])[-1]))


def fail2ban(folder: Path, path: Path) -> tuple[float, int]:
    rules = "\n            ".join(f"^.*<F-ID>(?:{text})</F-ID>" for text in expressions())
    text = f"[Definition]\nfailregex = {rules}\ndatepattern = {{NONE}}\n".replace("%", ".")
    (folder / "hits.conf").write_text(text)
    argv = ["fail2ban-regex", "--print-no-missed", str(path), str(folder / "hits.conf")]

    def matched(answer: str) -> int:
        found = re.search(r"(\d+) matched", answer)
        return int(found[1]) if found else 0

    return child(argv, matched)


Tool = tuple[bytes, Callable[[], tuple[float, int]]]


def speed(size: float, runs: list[tuple[float, int]]) -> float:
    """MiB per CPU second, the median of some runs."""
    return size / MIB / statistics.median(seconds for seconds, _ in runs)


def tools(folder: Path, name: str, log: bytes, part: bytes) -> Mapping[str, Tool]:
    """What reads a log, by name; the slow ones read a part of it."""
    path, small = folder / f"{name}.log", folder / f"{name}-small.log"
    path.write_bytes(log)
    small.write_bytes(part)
    union = "|".join(expressions())
    grep = ["grep", "-cE", union, str(path)]
    rg = ["rg", "-j1", "-c", union, str(path)]
    return {
        "ours": (log, lambda: ours(log)),
        "grep": (log, lambda: child(grep, first_number, env={"LC_ALL": "C"})),
        "rg": (log, lambda: child(rg, first_number)),
        "mtail": (part, lambda: mtail(folder, small)),
        "fail2ban-regex": (part, lambda: fail2ban(folder, small)),
    }


def measure(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Speeds in MiB per CPU second by tool and log; prints a table."""
    speeds: dict[str, float] = {}
    for name, rate in (("faults", RATE), ("clean", 0.0)):
        log = make_log(args.mib * MIB, rate, 1)
        part = log[: log.rfind(b"\n", 0, args.peer_mib * MIB) + 1]
        for tool, (data, work) in tools(folder, name, log, part).items():
            if tool != "ours" and shutil.which(tool) is None:
                print(f"{tool} is not on this machine (make peers installs it)")
                continue
            if data is part and name == "clean":
                continue
            runs = [work() for _ in range(args.runs)]
            key = f"{tool.split('-')[0]}_{name}"
            speeds[key] = speed(len(data), runs)
            expected = ours(data)[1]
            counts = sorted({count for _, count in runs})
            same = "equal" if counts == [expected] else f"NOT EQUAL to {expected}"
            print(f"{key:16} {speeds[key]:8.1f} MiB/CPU s, counts {counts} {same}")
    return speeds


def late(taken: list[float]) -> float:
    """The 99th percentile; prints it beside the median."""
    taken = sorted(taken)
    p99 = taken[min(len(taken) - 1, round(0.99 * len(taken)))]
    print(f"latency: median {statistics.median(taken):.1f} ms, p99 {p99:.1f} ms, n {len(taken)}")
    return p99


def latency(folder: Path, run: int, lines: int) -> list[float]:
    """Milliseconds from the append of a line to the engine's step that holds its event."""
    path = folder / f"live-{run}.log"
    path.write_text("")
    inbox = Inbox()
    engine = Engine(EngineSettings(), rulepack.load(shipped_rules()).groups)
    scheduler = Scheduler(System(), inbox, {}, lambda *_, **__: None)
    scheduler.start()
    scheduler.add([VllmLog("s", (str(path),), wait=LOG_WAIT)])
    time.sleep(1.0)  # the file has been seen, empty
    inbox.take()
    chance, taken = random.Random(2), []
    for number in range(lines):
        time.sleep(chance.uniform(0.02, 0.2))
        inbox.wake.clear()
        with path.open("a") as stream:
            stream.write(DEAD.format(n=number))
            begun = time.perf_counter()
        told = False
        while not told and inbox.wake.wait(10.0):
            mono = time.monotonic()
            tick = Tick(number + 1, mono, time.time(), True)
            decisions = engine.step(tick, Inputs(inbox.take()))
            told = any(
                event.fields.get("name") == f"EngineCore_DP{number}" for event in decisions.events
            )
        taken.append((time.perf_counter() - begun) * 1000 if told else 10_000.0)
    scheduler.stop()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=200)
    parser.add_argument("--peer-mib", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lines", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        speeds = measure(folder, args)
        tails = [late(latency(folder, run, args.lines)) for run in range(args.runs)]
    p99 = statistics.median(tails)
    result: dict[str, float | None] = {
        f"ratio_{tool}": round(speeds["ours_faults"] / speeds[f"{tool}_faults"], 2)
        if f"{tool}_faults" in speeds
        else None
        for tool in ("grep", "rg", "mtail", "fail2ban")
    }
    result["ratio_grep_clean"] = round(speeds["ours_clean"] / speeds["grep_clean"], 2)
    result["mib_per_cpu_second"] = round(speeds["ours_faults"], 1)
    result["event_latency_p99_ms"] = round(p99, 1)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
