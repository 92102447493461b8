"""Damaged outputs of the Ascend tools: no surprise leaves ``capture``, no damaged card is healthy.

``N`` and ``SEED`` in the environment give the number of cases and where to begin.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest

from tests.support import mutations
from vllm_watchdog.collectors import hccn_tool, npu_smi
from vllm_watchdog.watchdog.errors import NoData, NotSupported, SourceError

HERE = Path(__file__).parent / "fixtures"
SHARED = Path(__file__).parents[2] / ".." / "shared" / "data" / "npu-smi"
ALLOWED = (SourceError, NotSupported, NoData)
CASES = mutations.size(2000)

ANSWERS = (
    "\tNPU ID : 0\n\tChip ID : 0\n\tHealth Status : Alarm\n\tError Code : 80E01801 8C084E00\n",
    (
        "NPU ID : 1\nChip Count : 1\nHBM Single Bit Error Count : 3\nHBM Double Bit Error Count : 1\n"
        "Chip ID : 0\n"
    ),
    "link up count : 2\n[devid 0]    Tue Nov 14 22:13:20 2023    LINK UP\n",
    (
        "device 0 PING 192.0.2.1\nrecv seq=0,time=0.1ms\nrecv seq=1,time=0.05ms\n"
        "2 packets transmitted, 2 received, 0.00% packet loss\n"
    ),
    "packet statistics:\nroce_rx_err_pkt_num:1\nroce_tx_err_pkt_num:2\n",
    "timestamp,npu_index,report_time,a,b\n1,0,x,5,6\n3,0,x,7,8\n",
    "| NPU | UDie | Port | rs_mode |\n| 0 | 0 | 4 | 128 |\n",
)


def corpus() -> list[str]:
    """Own fixtures and, where they are beside the repository, the captures."""
    files = [*sorted((HERE / "npu_smi").glob("*/*.txt"))]
    for folder in ("info", "subcommands", "hccn_tool", "errors", "synthetic"):
        files += sorted((SHARED / folder).glob("*")) if SHARED.exists() else []
    return [*ANSWERS, *(file.read_text(encoding="utf-8") for file in files)]


def tables(texts: list[str]) -> list[str]:
    return [text for text in texts if "Bus-Id" in text]


TEXTS = corpus()
TABLES = tables(TEXTS)


def read(reader: Callable[..., list], text: str) -> list:
    try:
        return reader(text.encode("utf-8", "replace"))
    except ALLOWED as refused:
        assert "\n" not in str(refused)
        return []


@pytest.mark.parametrize("reader", [npu_smi.capture, hccn_tool.capture], ids=["npu", "hccn"])
def test_no_damage_makes_a_reader_raise_or_invent(reader: Callable[..., list]) -> None:
    for case in range(mutations.seed(), mutations.seed() + CASES // 4):
        rng = random.Random(case)
        text = mutations.mutated(rng, rng.choice(TEXTS))

        found = read(reader, text)

        assert all(math.isfinite(sample.value) for sample in found), f"SEED={case}"
        assert len(found) == len({sample.key for sample in found}), f"SEED={case}"


def test_no_damage_makes_a_table_of_sick_cards_healthy() -> None:
    for case in range(mutations.seed(), mutations.seed() + CASES // 4):
        rng = random.Random(case)
        sick = re.sub(r"\| (OK|Warning) ", "| Alarm ", rng.choice(TABLES))
        assert "OK" not in sick

        found = read(npu_smi.capture, mutations.mutated(rng, sick))

        assert not healthy(found), f"SEED={case}"


def healthy(found: list) -> set[str]:
    return {
        dict(sample.labels)["card"]
        for sample in found
        if sample.name == "accelerator_healthy" and sample.value == 1
    }


def pairs(text: str) -> dict[str, tuple[int, int]]:
    """Card -> the lines of its two rows, of every healthy card in an undamaged table."""
    lines = text.split("\n")
    found: dict[str, tuple[int, int]] = {}
    for at, line in enumerate(lines):
        address = re.search(r"\| *(0000:[0-9A-F]{2}:00)\.0 *\|", line)
        if (
            address
            and text.count(address[0]) == 1
            and re.search(r"\| (OK|Warning) ", lines[at - 1])
        ):
            found[address[1].lower()] = (at - 1, at)
    return {
        card: rows for card, rows in found.items() if card in healthy(read(npu_smi.capture, text))
    }


def damaged(rng: random.Random, lines: list[str], rows: tuple[int, int]) -> list[str]:
    """Something happens to one of a card's two rows after which it cannot be trusted."""
    at = rng.choice(rows)
    line = lines[at]
    cells = line.split("|")
    values = cells[-2].split()
    kind = rng.randrange(7)
    if kind == 0 and at == rows[0]:  # without its upper row a card is there with unknown health
        return lines[:at] + lines[at + 1 :]
    if kind == 1:
        return [*lines[: at + 1], *lines[at:]]
    if kind == 2:
        one, other = rng.sample(range(1, len(cells) - 1), 2)
        if cells[one].strip() == cells[other].strip():
            other = len(cells) - 2
        cells[one], cells[other] = cells[other], cells[one]
    elif kind == 3:
        return [*lines[:at], line[: rng.randrange(len(line.rstrip()) - 1)], *lines[at + 1 :]]
    elif kind == 4:
        cells[-2] = "  ".join(values[:-1])
    elif kind == 5:
        values[rng.randrange(len(values))] = rng.choice(("x1", "12a", "?", "1e5", "--5"))
        cells[-2] = "  ".join(values)
    else:
        cells[1] = cells[1].replace(cells[1].split()[0] if cells[1].split() else " ", "#", 1)
    return [*lines[:at], "|".join(cells), *lines[at + 1 :]]


def test_a_card_with_a_damaged_row_is_never_healthy() -> None:
    known = [(text, pairs(text)) for text in TABLES]
    known = [(text, found) for text, found in known if found]
    for case in range(mutations.seed(), mutations.seed() + CASES // 4):
        rng = random.Random(case)
        text, found = rng.choice(known)
        card = rng.choice(sorted(found))
        lines = damaged(rng, text.split("\n"), found[card])

        assert card not in healthy(read(npu_smi.capture, "\n".join(lines))), f"SEED={case}"


@pytest.mark.parametrize("reader", [npu_smi.capture, hccn_tool.capture], ids=["npu", "hccn"])
@pytest.mark.parametrize(
    "data",
    [
        b"\n" * 8_000_000,
        b" " * 8_000_000,
        b"|" * 8_000_000,
        b"+" + b"-" * 8_000_000,
        b"\x00" * 8_000_000,
        b"timestamp,npu_index,a\n1,0," + b"9" * 8_000_000,
        b"key: value\n" * 700_000,
        b"recv seq=" * 800_000,
    ],
    ids=["newlines", "blanks", "bars", "ruler", "nul", "csv", "keys", "ping"],
)
def test_a_flood_is_refused_in_bounded_time(reader: Callable[..., list], data: bytes) -> None:
    begin = process_time()

    assert reads_nothing(reader, data)
    assert process_time() - begin < 5


def reads_nothing(reader: Callable[..., list], data: bytes) -> bool:
    try:
        return reader(data) == []
    except ALLOWED:
        return True
