"""Damaged outputs of nvidia-smi: nothing but refusals leaves the parser, and no damaged card is
called healthy. ``N`` in the environment says how many mutations of all vendors are tried.
"""

from __future__ import annotations

import math
import random
import re
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support import mutations
from vllm_watchdog.collectors.nvidia_smi import capture
from vllm_watchdog.watchdog.errors import NoData, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Event, Page, Sample

FIXTURES = Path(__file__).parent / "fixtures" / "nvidia_smi"
SHARED = Path(__file__).parents[2] / ".." / "shared" / "data" / "nvidia-smi"
FOLDERS = ("xml", "csv", "qtext", "topo", "errors")

ROUNDS = 10
A = "0000:1a:00"
KEYS = {
    "accelerator_temperature_celsius",
    "accelerator_memory_used_bytes",
    "accelerator_memory_total_bytes",
}


@lru_cache
def texts() -> tuple[tuple[str, bytes], ...]:
    """Name and content of every output that is damaged here."""
    files = sorted(FIXTURES.glob("*/*"))
    files += [path for folder in FOLDERS for path in sorted((SHARED / folder).glob("*"))]
    return tuple((path.name, path.read_bytes()) for path in files)


def read(data: bytes) -> list[Sample | Page | Event]:
    try:
        return capture(data)
    except (SourceError, NotSupported, NoData) as refusal:
        assert "\n" not in str(refusal)
        return []


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The output after some mutations, now and then with a few bytes that are no text."""
    text = mutations.mutated(rng, data.decode("utf-8", "surrogateescape"))
    spoilt = bytearray(text.encode("utf-8", "surrogateescape"))
    if spoilt and rng.random() < 0.1:
        for _ in range(rng.choice((1, 3, 20))):
            spoilt[rng.randrange(len(spoilt))] = rng.choice(b"\x00\x07\x1b\x80\xff<>&")
    return bytes(spoilt)


def believable(found: list[Sample | Page | Event]) -> None:
    """Figures are finite and in their range; a healthy card has its key readings."""
    by_card: dict[str, dict[str, float]] = {}
    for item in found:
        if not isinstance(item, Sample):
            continue
        labels = dict(item.labels)
        assert math.isfinite(item.value)
        assert not item.name.endswith("_ratio") or 0.0 <= item.value <= 2.0
        assert labels["vendor"] == "nvidia"
        if "row" not in labels and "parent" not in labels:
            by_card.setdefault(labels.get("card", ""), {})[item.name] = item.value
    for card, values in by_card.items():
        if values.get("accelerator_healthy") == 1.0 and ":" in card and "/" not in card:
            assert set(values) >= KEYS, card
            assert values["accelerator_present"] == 1.0
            used = values["accelerator_memory_used_bytes"]
            assert used <= values["accelerator_memory_total_bytes"]


@pytest.mark.parametrize("part", range(ROUNDS))
def test_no_damage_makes_the_parser_fail_or_a_card_wrongly_healthy(part: int) -> None:
    for number in range(mutations.size(2000) // 2 // ROUNDS):
        seed = mutations.seed() + part * 1_000_003 + number
        rng = random.Random(seed)
        name, data = rng.choice(texts())
        try:
            believable(read(damaged(rng, data)))
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {error!r}") from error


def test_key_readings_of_the_whole_fixtures_make_both_cards_healthy() -> None:
    for name in ("two-cards.xml", "query-gpu.csv", "table.txt", "q.txt"):
        found = read((FIXTURES / "normal" / name).read_bytes())
        healthy = [
            s.value for s in found if isinstance(s, Sample) and s.name == "accelerator_healthy"
        ]
        assert healthy == [1.0, 1.0], name


# the first line of each fixture that holds key readings of the card A
KEY_LINES = (
    ("two-cards.xml", r".*<gpu_util>80 %.*"),
    ("two-cards.xml", r".*<gpu_temp>41 C.*"),
    ("two-cards.xml", r".*<used>30000 MiB.*"),
    ("two-cards.xml", r".*<total>40960 MiB.*"),
    ("query-gpu.csv", r"0, 00000000:1A.*"),
    ("table.txt", r"\| N/A   41C.*"),
    ("q.txt", r".*: 80 %"),
    ("q.txt", r".*: 41 C"),
    ("q.txt", r".*: 30000 MiB"),
    ("q.txt", r".*: 40960 MiB"),
)


def ruin(line: str, rng: random.Random) -> str:
    """The line with its readings gone, doubled, unreadable, absurd or in another unit."""
    numbers = list(re.finditer(r"(?<![\w:.-])(?:80|41|30000|40960)(?=\D)", line + "\n"))
    match = rng.choice(numbers)
    before, after = line[: match.start()], line[match.end() :]
    return rng.choice(
        (
            "",
            f"{line}\n{line}",
            before.rstrip(),
            f"{before}{rng.choice(('ERR!', 'x1', '4l', '', '?', 'Unknown Error', '--', '[N/A]'))}{after}",
            f"{before}{rng.choice(('-999', '99999999', '1e9', 'nan', '0x29'))}{after}",
            before + match[0] + re.sub(r"%|MiB|C\b|,", "QQ", after, count=1),
        )
    )


@pytest.mark.parametrize(("name", "pattern"), KEY_LINES)
def test_a_card_whose_key_line_is_damaged_is_never_healthy(name: str, pattern: str) -> None:
    text = (FIXTURES / "normal" / name).read_text()
    (line, *_) = re.findall(pattern, text)
    for seed in range(60):
        ruined = ruin(line, random.Random(seed))
        found = read(text.replace(line, ruined, 1).encode())

        healthy = [
            s.value
            for s in found
            if isinstance(s, Sample)
            and s.name == "accelerator_healthy"
            and dict(s.labels)["card"] == A
        ]
        assert 1.0 not in healthy, f"seed {seed}: {ruined!r}"


@pytest.mark.parametrize("name", ["two-cards.xml", "query-gpu.csv", "table.txt", "q.txt"])
def test_a_cut_output_never_calls_the_cut_card_healthy(name: str) -> None:
    data = (FIXTURES / "normal" / name).read_bytes()
    last_key = max(data.rfind(text) for text in (b">52 C", b", 52,", b"  52C", b": 52 C"))
    for end in range(0, last_key, 7):
        found = read(data[:end])

        healthy = [
            s
            for s in found
            if isinstance(s, Sample) and s.name == "accelerator_healthy" and s.value == 1.0
        ]
        assert all(dict(s.labels)["card"] == A for s in healthy), f"cut at {end}"


def test_hostile_outputs_are_refused_quickly() -> None:
    for data in (
        b"",
        b"\x00" * 1000,
        b"A" * 3_000_000,
        b"| " * 1_000_000,
        b"\n" * 1_000_000,
        (b"<nvidia_smi_log>" + b"<a>" * 100_000),
        b"<nvidia_smi_log>" + b"<gpu>" * 20_000 + b"</gpu>" * 20_000 + b"</nvidia_smi_log>",
        b"GPU 0: " + b"x (UUID: " * 50_000,
    ):
        assert [s for s in read(data) if getattr(s, "name", "") == "accelerator_healthy"] == []
