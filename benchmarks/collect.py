"""CPU time of reading one answer of each vendor's tool on a node with eight accelerators.

``npu-smi info`` of eight cards and ``nvidia-smi -q -x`` of eight GPUs (about 210 KB, most of it
supported clocks), from bytes to samples. Written answers of real size are made here; where captured
ones lie beside the repository they are measured instead. The last line is one JSON object with the
medians in milliseconds; both are meant to stay below 5.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT.parent / "shared" / "data"
FIXTURES = ROOT / "tests" / "collectors" / "fixtures"
RUNS, REPEATS, AIM_MS = 9, 20, 5.0


def nvidia_answer() -> tuple[str, bytes]:
    """A log of eight GPUs: captured, or eight times the fixture's card with its bulk."""
    captured = CAPTURES / "nvidia-smi" / "xml" / "h100-80g-sxm-x8-580.105.08-idle.xml"
    if captured.exists():
        return captured.name, captured.read_bytes()
    text = (FIXTURES / "nvidia_smi" / "missing" / "one-of-two-cards.xml").read_text()
    start, end = text.index("\t<gpu id"), text.index("</nvidia_smi_log>")
    clock = "\t\t\t\t<supported_graphics_clock>1980 MHz</supported_graphics_clock>\n"
    card = text[start:end].replace(
        "\t\t\t</supported_mem_clock>", clock * 330 + "\t\t\t</supported_mem_clock>"
    )
    cards = [
        card.replace("1A", f"{16 + n:02X}").replace("GPU-0000000", f"GPU-{n}000000")
        for n in range(8)
    ]
    whole = (
        text[:start].replace("<attached_gpus>1", "<attached_gpus>8") + "".join(cards) + text[end:]
    )
    return "eight times a fixture", whole.encode()


def npu_answer() -> tuple[str, bytes]:
    """A table of eight cards: captured, or the fixture that holds most rows."""
    captured = CAPTURES / "npu-smi" / "info" / "24.1.0_910ProB_8card_idle.txt"
    if captured.exists():
        return captured.name, captured.read_bytes()
    fixtures = sorted((FIXTURES / "npu_smi").glob("**/*.txt"), key=lambda path: path.stat().st_size)
    return fixtures[-1].name, fixtures[-1].read_bytes()


def milliseconds(read: Callable[[bytes], Any], data: bytes) -> float:
    """Median over runs of the mean CPU time of one reading."""
    read(data)
    times = []
    for _ in range(RUNS):
        before = time.process_time()
        for _ in range(REPEATS):
            read(data)
        times.append((time.process_time() - before) / REPEATS * 1e3)
    return statistics.median(times)


def main() -> int:
    from vllm_watchdog.collectors import npu_smi, nvidia_smi

    result: dict[str, float] = {}
    for key, read, (name, data) in (
        ("npu_smi_ms", npu_smi.capture, npu_answer()),
        ("nvidia_smi_ms", nvidia_smi.capture, nvidia_answer()),
    ):
        result[key] = round(milliseconds(read, data), 3)
        print(
            f"{key:14} {result[key]:7.3f} ms of CPU   "
            f"{len(data)} bytes, {len(read(data))} samples, {name}"
        )
    print(json.dumps(result))
    return 0 if max(result.values()) < AIM_MS else 1


if __name__ == "__main__":
    sys.exit(main())
