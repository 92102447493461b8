"""A real wire of 140 µs and one of 240 µs there and back: the verdict is never wrong.

``WINDOWS`` (default 20) sets how many windows each wire is judged in; ``make latency`` sets it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
WINDOWS = int(os.environ.get("WINDOWS") or 20)
BUSY = max((os.cpu_count() or 1) - 1, 1)  # a burner for each CPU that the wire leaves
OWN = 3.0  # microseconds that a packet needs on the wire besides its delay, one way


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wire's program; skips where it cannot be built or laid."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the wire with")
    if not Path("/dev/net/tun").exists():
        pytest.skip("no /dev/net/tun to lay the wire with")
    program = tmp_path_factory.mktemp("wire") / "wire"
    source = SUPPORT / "wire.c"
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    trial = subprocess.run([str(program), "0", "true"], capture_output=True, text=True, check=False)
    if trial.returncode == 125:
        pytest.skip(f"no network namespaces for this user: {trial.stderr.strip()}")
    return program


@contextmanager
def burners(count: int) -> Iterator[None]:
    """So many processes that want a CPU all the time."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def windows(wire: Path, microseconds: float, count: int) -> list[dict[str, float]]:
    one_way = microseconds / 2 - OWN
    probing = [sys.executable, str(SUPPORT / "latency.py"), str(count)]
    ended = subprocess.run(
        [str(wire), f"{one_way}", *probing],
        capture_output=True,
        text=True,
        timeout=60 + 5 * count,  # 0.02 s a window on a quiet machine
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize("load", [0, BUSY], ids=["quiet", "loaded"])
@pytest.mark.parametrize(("microseconds", "high"), [(140, 0.0), (240, 1.0)])
def test_no_verdict_is_wrong(wire: Path, microseconds: float, high: float, load: int) -> None:
    with burners(load):
        found = windows(wire, microseconds, WINDOWS + 2)  # a first verdict needs two windows

    verdicts = [window["peer_latency_high"] for window in found if "peer_latency_high" in window]
    times = sorted(w["peer_round_trip_seconds"] for w in found if "peer_round_trip_seconds" in w)
    print(f"{microseconds} µs, load {load}: {len(verdicts)} verdicts; estimates in µs:")
    print(" ".join(f"{time * 1e6:.0f}" for time in times))
    assert verdicts.count(1.0 - high) == 0, (microseconds, times)
    assert len(verdicts) >= WINDOWS * 0.95
    assert all(window["peer_reachable"] == 1.0 for window in found)
