"""Loads, sizes, clocks, temperatures and power: answers that are lists of numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..model import Sample
from .answers import Asked, Block, blocks
from .cards import MIB, Cards, Home, labels_of
from .words import reading

PERCENT = 0.01
ENGINE = "accelerator_engine_utilization_ratio"

# key -> series, factor to base units, lowest and highest believable value, label
_Value = tuple[str, float, float, float, dict[str, str]]
_VALUES: dict[str, _Value] = {
    "temperature(c)": ("accelerator_temperature_celsius", 1, -60, 200, {}),
    "npu temperature(c)": ("accelerator_temperature_celsius", 1, -60, 200, {}),
    "npu real-time power(w)": ("accelerator_power_watts", 1, 0.1, 5000, {}),
    "power dissipation(w)": ("accelerator_power_watts", 1, 0.1, 5000, {}),
    "voltage(v)": ("accelerator_supply_volts", 1, 0.01, 100, {}),
    "npu voltage(v)": ("accelerator_supply_volts", 1, 0.01, 100, {}),
    "aicore usage rate(%)": ("accelerator_utilization_ratio", PERCENT, 0, 100, {}),
    "npu utilization(%)": ("accelerator_overall_utilization_ratio", PERCENT, 0, 100, {}),
    "aivector usage rate(%)": (ENGINE, PERCENT, 0, 100, {"engine": "vector"}),
    "aicube usage rate(%)": (ENGINE, PERCENT, 0, 100, {"engine": "cube"}),
    "aicpu usage rate(%)": (ENGINE, PERCENT, 0, 100, {"engine": "ai_cpu"}),
    "ctrlcpu usage rate(%)": (ENGINE, PERCENT, 0, 100, {"engine": "control_cpu"}),
    "aicore freq(mhz)": ("accelerator_max_clock_hertz", 1e6, 1, 1e5, {"domain": "core"}),
    "aicore curfreq(mhz)": ("accelerator_clock_hertz", 1e6, 1, 1e5, {"domain": "core"}),
    "aicore count": ("accelerator_cores", 1, 1, 1e4, {}),
    "chip count": ("accelerator_chips", 1, 0, 64, {}),
    "hbm usage rate(%)": ("accelerator_memory_used_ratio", PERCENT, 0, 100, {}),
    "hbm capacity(mb)": ("accelerator_memory_total_bytes", MIB, 1, 1e8, {}),
    "hbm bandwidth usage rate(%)": ("accelerator_memory_utilization_ratio", PERCENT, 0, 100, {}),
    "hbm clock speed(mhz)": ("accelerator_clock_hertz", 1e6, 1, 1e5, {"domain": "memory"}),
    "hbm temperature(c)": ("accelerator_memory_temperature_celsius", 1, -60, 200, {}),
    "memory usage rate(%)": ("accelerator_ddr_used_ratio", PERCENT, 0, 100, {}),
    "ddr usage rate(%)": ("accelerator_ddr_used_ratio", PERCENT, 0, 100, {}),
    "ddr capacity(mb)": ("accelerator_ddr_total_bytes", MIB, 1, 1e8, {}),
    "ddr bandwidth usage rate(%)": ("accelerator_ddr_utilization_ratio", PERCENT, 0, 100, {}),
    "ddr clock speed(mhz)": ("accelerator_clock_hertz", 1e6, 1, 1e5, {"domain": "ddr"}),
    "ddr hugepages total(page)": ("accelerator_hugepages_configured", 1, 0, 1e9, {}),
    "ddr hugepages usage rate(%)": ("accelerator_hugepages_used_ratio", PERCENT, 0, 100, {}),
}
_WATCHED = {
    "pwr(w)": "npu real-time power(w)",
    "temp(c)": "temperature(c)",
    "ai core(%)": "aicore usage rate(%)",
    "ai cpu(%)": "aicpu usage rate(%)",
    "ctrl cpu(%)": "ctrlcpu usage rate(%)",
    "memory(%)": "hbm usage rate(%)",
    "memory bw(%)": "hbm bandwidth usage rate(%)",
    "npu util(%)": "npu utilization(%)",
    "ai cube(%)": "aicube usage rate(%)",
}


def values(kind: str) -> Callable[[str, Asked, Cards], Iterator[Sample]]:
    def read(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
        home = Home(ask, cards)
        for block in blocks(kind, text):
            card = home.card(block.npu, block.chip)
            yield from _board(block, card) if block.board else block_samples(block, card)

    return read


def block_samples(block: Block, card: str) -> Iterator[Sample]:
    # A card with one memory (310P) calls it memory or DDR; beside HBM that is a second one.
    only = not any(key.startswith("hbm") for key in block.fields)
    none = block.fields.get("ddr capacity(mb)") == "0"
    for key, value in block.fields.items():
        if key not in _VALUES or (none and key.startswith("ddr")):
            continue
        name, factor, low, high, labels = _VALUES[key]
        found = reading(value, low, high)
        if found is not None:
            name = name.replace("_ddr_", "_memory_") if only else name
            base = found / 100 if factor == PERCENT else found * factor
            yield Sample(name, base, labels_of(card, **labels))


def _board(block: Block, card: str) -> Iterator[Sample]:
    found = reading(block.fields.get("temperature(c)", ""), -60, 200)
    if found is not None:
        yield Sample("accelerator_board_temperature_celsius", found, labels_of(card))


def watched(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    columns: list[str] = []
    for line in text.splitlines():
        words = line[:2000].split()
        if words and words[0] == "NpuID(Idx)":
            titles = re.findall(r"([A-Za-z][A-Za-z ]*\([^()]*\))", line)
            columns = [title.strip().lower() for title in titles]
        elif columns and len(words) == len(columns) and words[0].isdigit():
            row = dict(zip(columns, words, strict=True))
            chip = row.get("chipid(idx)", "0")
            told = {_WATCHED[title]: word for title, word in row.items() if title in _WATCHED}
            block = Block(int(words[0]), int(chip) if chip.isdigit() else 0, fields=told)
            yield from block_samples(block, home.card(block.npu, block.chip))
