"""Captured outputs of real tools: a card with a process, or full of memory, is never free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.system import fake_system
from vllm_watchdog.remediations.adapters.cards import fit, holders
from vllm_watchdog.remediations.adapters.cardview import look
from vllm_watchdog.watchdog.system import System

DATA = Path(__file__).parents[2] / "../shared/data"
TABLES = sorted((DATA / "npu-smi/info").glob("*.txt"))
LOGS = sorted((DATA / "nvidia-smi/xml").glob("*.xml"))
pytestmark = pytest.mark.skipif(not TABLES, reason="the captured outputs are not here")
GIB = 1024.0**3
BUSY = 8 * GIB  # more than any driver keeps


def of_table(path: Path) -> System:
    text = path.read_text(encoding="utf-8", errors="replace")
    script: dict[str, str] = {"npu-smi info": text, "npu-smi info -m": "no map\n"}
    for npu in set(re.findall(r"^\| *(\d+) ", text, re.M)):
        for chip in range(4):
            script[f"npu-smi info -t proc-mem -i {npu} -c {chip}"] = "Error parameter of -t\n"
    return fake_system(script)


def of_log(path: Path) -> System:
    text = path.read_text(encoding="utf-8", errors="replace")
    return fake_system({"nvidia-smi -q -x": text, "nvidia-smi -L": ""})


CAPTURES = [(of_table, path, "ascend") for path in TABLES]
CAPTURES += [(of_log, path, "nvidia") for path in LOGS]


@pytest.mark.parametrize(
    ("make", "path", "vendor"), CAPTURES, ids=[path.name for _, path, _ in CAPTURES]
)
def test_no_busy_card_of_a_capture_is_free(make: object, path: Path, vendor: str) -> None:
    assert callable(make)
    system = make(path)
    cards = list(look(system, ["any"], {"any": vendor}).cards)

    for card, held in holders(system, cards, dict.fromkeys(cards, vendor)).items():
        busy = bool(held.pids) or (held.used_bytes or 0.0) > BUSY
        assert not (busy and held.free == "yes"), card
        if held.free != "yes":
            assert fit(system, [card], {card: vendor})[card] != ""


def free_in(path: Path, vendor: str) -> list[str]:
    system = of_table(path) if vendor == "ascend" else of_log(path)
    cards = list(look(system, ["any"], {"any": vendor}).cards)
    held = holders(system, cards, dict.fromkeys(cards, vendor))
    return [card for card, one in held.items() if one.free == "yes"]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("24.1.rc3.7_A3_8npu_idle.txt", 16),  # 2.9 to 3.4 GB in use, no process on any chip
        ("24.1.0_910ProB_8card_idle.txt", 8),
        ("24.1.rc1.b030_910B3_8card_no_proc_section.txt", 0),  # it does not say who is there
        ("26.x_950DT_8npu_idle_no_banner.txt", 8),
        ("24.1.1_910B4_2card_multi_proc.txt", 1),
    ],
)
def test_idle_npus_of_a_capture_are_free(name: str, count: int) -> None:
    assert len(free_in(DATA / "npu-smi/info" / name, "ascend")) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("h100-80g-sxm-x8-580.105.08-idle.xml", 8),
        ("l40s-595.91.07-idle.xml", 1),
        ("v100s-x8-460.73.01-load.xml", 0),
        ("k80-x4-430.26-out-of-order.xml", 2),  # two of four work
    ],
)
def test_idle_gpus_of_a_capture_are_free(name: str, count: int) -> None:
    assert len(free_in(DATA / "nvidia-smi/xml" / name, "nvidia")) == count
