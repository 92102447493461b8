"""What evaluating rules costs: our engine beside a Prometheus 3.x, on one load and in one run.

Load: 60 alerting rules over a page of 2,000 series under 111 names, 181 samples each (15 minutes at
5 s). The rules: 15 thresholds and ratios, 12 of rate and increase, 3 over 512 CPU series, 6
``histogram_quantile`` over 80 buckets each and a mean latency, 10 ``_over_time``, 3 trends, absent,
topk, and 8 joins. Some 50 alerts are active. Both engines get the page again every 5 s of load
time and evaluate all rules after each page; alert states, ``for`` clocks and the ``ALERTS`` series
are part of both.

    python benchmarks/promql.py [--runs 3] [--cycles 40] [--seconds 20]

CPU of our engine is this thread's processor time around one evaluation. CPU of Prometheus is its
process's user and system time with the rules, per evaluation, less that of the same process
without them (it scrapes the page all the while). Medians over the runs. The last line is one JSON
object: ``cpu_ratio_prometheus`` (ours ÷ Prometheus'), ``bytes_per_series`` (growth of resident
memory ÷ series at 181 samples), ``ingest_ms`` (reading and storing the page again), and
``growth_series``, ``growth_rules`` (the largest cost(2n) ÷ cost(n) over five doublings).
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.promql import remote_write
from tests.support import servers
from vllm_watchdog.watchdog import rulepack
from vllm_watchdog.watchdog.exposition import Exposition
from vllm_watchdog.watchdog.model import Batch, Labels, Page, labelset
from vllm_watchdog.watchdog.rules import RuleEngine
from vllm_watchdog.watchdog.window import Window

STEP = 5_000
SAMPLES = 181
MODES = ("idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user")
BOUNDS = (*(f"{0.001 * 1.6**n:.4g}" for n in range(19)), "+Inf")
MODELS = ("deepseek", "qwen", "llama", "glm")
HISTOGRAMS = ("ttft", "e2e", "tpot", "queue", "prefill", "decode")


class Load:
    """The page: its series, and their values as time goes on. ``scale`` multiplies the series."""

    def __init__(self, scale: float = 1.0) -> None:
        self._random = random.Random(7)
        self._keys: list[Labels] = []
        self._steps: list[float] = []
        self._values: list[float] = []
        self._digits: list[int] = []
        for cpu in range(round(64 * scale)):
            for mode in MODES:
                self._add("node_cpu_seconds_total", {"cpu": str(cpu), "mode": mode}, 5.0, 2)
        for name in HISTOGRAMS:
            for model in range(max(1, round(len(MODELS) * scale))):
                labels = {"model_name": MODELS[model % 4] + str(model // 4)}
                for at, le in enumerate(BOUNDS):
                    self._add(f"{name}_seconds_bucket", {**labels, "le": le}, 2.0 * (at + 1), 0)
                self._add(f"{name}_seconds_sum", labels, 7.0, 3)
                self._add(f"{name}_seconds_count", labels, 40.0, 0)
        left = round(2000 * scale) - len(self._keys)
        for number in range(left):
            name, card = number % 92, number // 92
            kind = "gauge" if name < 46 else "counter"
            suffix = "" if name < 46 else "_total"
            labels = {"card": str(card), "vendor": "nvidia" if card % 2 else "ascend"}
            self._add(
                f"{kind}_{name}{suffix}", labels, 0.0 if name < 46 else 12.5, 3 * (number % 2)
            )
        self.keys = tuple(self._keys)

    def _add(self, name: str, labels: dict[str, str], step: float, digits: int) -> None:
        """A counter that rises by up to ``step`` a page, or a gauge (step 0)."""
        self._keys.append(labelset(labels, name))
        self._steps.append(step)
        self._digits.append(digits)
        self._values.append(round(self._random.uniform(0, 100), digits))

    def advance(self) -> Page:
        """The page 5 s later: counters rise and gauges wander, as real pages write them: counts
        and every other gauge in whole numbers, seconds with two or three digits after the point."""
        pick = self._random
        values = self._values
        for at, (step, digits) in enumerate(zip(self._steps, self._digits, strict=True)):
            move = step * pick.random() if step else pick.uniform(-2, 2)
            values[at] = round(values[at] + move, digits)
        return Page(self.keys, tuple(values))

    def text(self, page: Page) -> bytes:
        """The page as a server would tell it."""
        lines = []
        for key, value in zip(page.keys, page.values, strict=True):
            labels = ",".join(f'{k}="{v}"' for k, v in key if k != "__name__")
            lines.append(f"{dict(key)['__name__']}{{{labels}}} {value!r}")
        return ("\n".join(lines) + "\n").encode()


def expressions() -> list[str]:
    """The 60 rules' expressions."""
    found = [f"gauge_{n} > {95 if n % 3 else 60}" for n in range(9)]
    found += [f"gauge_{n} / gauge_{n + 1} > 50" for n in range(9, 15)]
    found += [f"rate(counter_{46 + n}_total[{'1m' if n % 2 else '5m'}]) > 3" for n in range(8)]
    found += [f"increase(counter_{54 + n}_total[10m]) > 790" for n in range(4)]
    found += [
        "sum by (mode) (rate(node_cpu_seconds_total[5m])) > 100",
        'avg by (cpu) (rate(node_cpu_seconds_total{mode!="idle"}[5m])) > 0.9',
        "1 - avg(rate(node_cpu_seconds_total[1m])) > 0.999",
    ]
    found += [
        f"histogram_quantile(0.99, sum by (le, model_name) (rate({name}_seconds_bucket[5m]))) > 4.7"
        for name in HISTOGRAMS
    ]
    found.append("rate(ttft_seconds_sum[5m]) / rate(ttft_seconds_count[5m]) > 0.5")
    over = ["avg", "max", "min", "sum", "stddev", "count", "avg", "max", "quantile", "last"]
    for n, name in enumerate(over):
        inner = f"gauge_{15 + n}[10m]"
        call = f"0.9, {inner}" if name == "quantile" else inner
        found.append(f"{name}_over_time({call}) > {11_000 if name == 'sum' else 125}")
    found += [
        "deriv(gauge_25[15m]) > 1",
        "predict_linear(gauge_26[15m], 3600) < -1e5",
        "delta(gauge_27[10m]) > 80",
        "absent(gauge_28)",
        "topk(3, gauge_29) > 90",
    ]
    found += [
        f"gauge_{n} * on (card) group_left (vendor) gauge_{n + 1} > 9e4" for n in range(30, 34)
    ]
    found += [f"gauge_{n} > 80 and on (card) gauge_{n + 1} > 80" for n in range(34, 38)]
    return found


def rule_file(found: list[str], interval: str) -> str:
    """A rule file with one alert an expression."""
    rules = [
        {"alert": f"Rule{n}", "expr": expr, "for": "30s", "labels": {"severity": "warning"}}
        for n, expr in enumerate(found)
    ]
    return json.dumps({"groups": [{"name": "bench", "interval": interval, "rules": rules}]})


def engine(window: Window, found: list[str]) -> RuleEngine:
    """Our engine with these rules."""
    return RuleEngine(rulepack.read_text(rule_file(found, "5s")), window)


def filled(load: Load, start: int = 0) -> tuple[Window, int]:
    """A window with 181 pages, and the time of the last one."""
    window = Window()
    for number in range(SAMPLES):
        window.append(Batch("page", (load.advance(),)), start + number * STEP)
    return window, start + (SAMPLES - 1) * STEP


def cost(load: Load, found: list[str], cycles: int) -> float:
    """Median processor milliseconds of one evaluation of all rules."""
    window, ms = filled(load, 1_700_000_000_000)
    rules = engine(window, found)
    spent = []
    for _ in range(cycles + 3):
        ms += STEP
        window.append(Batch("page", (load.advance(),)), ms)
        before = time.thread_time()
        rules.evaluate(ms)
        spent.append((time.thread_time() - before) * 1000)
    return statistics.median(spent[3:])


def ingest(cycles: int = 200) -> float:
    """Median processor milliseconds of reading and storing the page again."""
    load, window, parser = Load(), Window(), Exposition()
    pages = [load.text(load.advance()) for _ in range(20)]
    spent = []
    for number in range(cycles):
        before = time.thread_time()
        page = parser.read(pages[number % 20]).page
        window.append(Batch("page", (page,)), number * STEP)
        spent.append((time.thread_time() - before) * 1000)
    return statistics.median(spent[20:])


def memory() -> float:
    """Growth of resident memory per series, of a window with 2,000 series of 181 samples."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from benchmarks import promql; "
        "print(promql.measure_memory())"
    )
    root = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code, root], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def measure_memory() -> float:
    """To be run in a process of its own."""
    filled(Load(0.01))
    before = _resident()
    kept = filled(Load())
    grown = _resident() - before
    return grown / len(kept[0])


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# Prometheus


@contextlib.contextmanager
def page_server(load: Load) -> Iterator[str]:
    """Serves the page, a new one at each request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = load.text(load.advance())
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def prometheus_cost(seconds: float) -> float:
    """Processor milliseconds of one evaluation of all rules in Prometheus."""
    load = Load()
    with page_server(load) as target, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "global": {"scrape_interval": "5s", "evaluation_interval": "1s"},
            "scrape_configs": [{"job_name": "bench", "static_configs": [{"targets": [target]}]}],
            "rule_files": [f"{folder}/rules.yml"],
        }
        rules = folder / "rules.yml"
        rules.write_text('{"groups": []}')
        with servers.prometheus(folder) as server:
            _fill(server.url, load, target)
            (folder / "prometheus.yml").write_text(json.dumps(config))
            _reload(server)
            time.sleep(6)
            idle = _busy(server, seconds) / seconds
            rules.write_text(rule_file(expressions(), "1s"))
            _reload(server)
            time.sleep(6)
            before = _evaluations(server)
            busy = _busy(server, seconds)
            done = _evaluations(server) - before
    return (busy - idle * seconds) / done


def _reload(server: servers.Server) -> None:
    """Let the server read its configuration again."""
    request = urllib.request.Request(f"{server.url}/-/reload", method="POST")
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 200


def _fill(url: str, load: Load, target: str) -> None:
    """Write the last 15 minutes of the target's series."""
    now = round(time.time() * 1000)
    series: list[tuple[Labels, list[tuple[int, float]]]] = [
        (labelset({**dict(key), "job": "bench", "instance": target}), []) for key in load.keys
    ]
    for number in range(SAMPLES):
        at = now - (SAMPLES - number) * STEP
        for (_, samples), value in zip(series, load.advance().values, strict=True):
            samples.append((at, value))
    for first in range(0, len(series), 200):
        remote_write.write(url, series[first : first + 200])


def _busy(server: servers.Server, seconds: float) -> float:
    """Processor milliseconds that the server uses in so many seconds."""
    before = _processor(server)
    time.sleep(seconds)
    return _processor(server) - before


def _processor(server: servers.Server) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def _evaluations(server: servers.Server) -> float:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("prometheus_rule_evaluations_total{"):
                return float(line.rpartition(" ")[2]) / len(expressions())
    return math.nan


# Growth


def growth(costs: list[float]) -> float:
    """The largest cost(2n) ÷ cost(n)."""
    return max(after / before for before, after in itertools.pairwise(costs))


def variants(count: int) -> list[str]:
    """So many rules, no two alike, always the same mixture of 15 kinds."""
    base = expressions()[::4]
    return [f"{base[n % len(base)]} + {n // len(base)}" for n in range(count)]


def typical(load: Load, found: list[str], given: argparse.Namespace) -> float:
    """The median of several runs."""
    return statistics.median(cost(load, found, given.cycles // 2) for _ in range(given.runs))


def main() -> None:
    """Print the figures, and the last line as JSON."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--cycles", type=int, default=40)
    options.add_argument("--seconds", type=float, default=20.0)
    given = options.parse_args()
    assert len(expressions()) == 60 and len({dict(k)["__name__"] for k in Load().keys}) == 111
    mine, theirs = [], []
    for _ in range(given.runs):
        mine.append(cost(Load(), expressions(), given.cycles))
        theirs.append(prometheus_cost(given.seconds))
        print(f"60 rules: ours {mine[-1]:.2f} ms, Prometheus {theirs[-1]:.2f} ms")
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    sizes = [typical(Load(2.0**n / 8), expressions(), given) for n in range(6)]
    print("by series ", [f"{250 * 2**n}: {each:.2f} ms" for n, each in enumerate(sizes)])
    numbers = [typical(Load(), variants(15 * 2**n), given) for n in range(6)]
    print("by rules  ", [f"{15 * 2**n}: {each:.2f} ms" for n, each in enumerate(numbers)])
    figures = {
        "cpu_ratio_prometheus": round(statistics.median(ratios), 3),
        "bytes_per_series": round(memory()),
        "ingest_ms": round(statistics.median(ingest() for _ in range(given.runs)), 3),
        "growth_series": round(growth(sizes), 2),
        "growth_rules": round(growth(numbers), 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
