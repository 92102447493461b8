"""Every captured output of nvidia-smi in the shared data gives the values that its index names, by
`collect nvidia_smi --from`.

The index lists raw texts with units; they are converted here once more, on purpose without the
project's own parser.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import collect
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.model import Event, Sample

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "nvidia-smi"
INDEX = DATA / "INDEX.tsv"
SKIPPED = ("kmsg/",)  # kernel log lines are classified, not collected

pytestmark = pytest.mark.skipif(not INDEX.exists(), reason="shared/data/nvidia-smi is not here")

FACTORS = {"%": 0.01, "MiB": 1048576.0, "C": 1.0, "W": 1.0, "": 1.0}
REFUSED = {
    "driver-library-version-mismatch-535.txt": "version mismatch",
    "driver-library-version-mismatch-old.txt": "version mismatch",
    "driver-not-loaded.txt": "couldn't communicate",
    "fabricmanager-nothing-to-do.txt": "Nothing to do",
    "gpu-reset-in-use.txt": "In use by another client",
    "invalid-query-field.txt": "device_minor",
    "mismatch-smi-vs-nvml.txt": "Mismatch in versions",
    "no-devices-were-found.txt": "No devices were found",
    "nvml-insufficient-permissions.txt": "Insufficient Permissions",
    "nvml-unknown-error.txt": "Unknown Error",
    "topo-m-rtx2080s-591.86-windows.txt": "Option -m",
}

Row = dict[str, str]


@lru_cache
def index() -> tuple[tuple[str, str, str], ...]:
    """File, driver and expected values of each row that is ours."""
    with INDEX.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return tuple((r[0], r[2], r[5]) for r in rows if not r[0].startswith(SKIPPED))


def number(text: str) -> float | None:
    """A text of the index in base units; None where it says that there is no value."""
    match = re.fullmatch(r" *(-?[0-9.]+) *(%|MiB|C|W|)", text)
    return float(match[1]) * FACTORS[match[2]] if match else None


class Found:
    """What a capture gave, and how many of the expected values were looked up in it."""

    def __init__(self, file: str) -> None:
        self.items = collect("nvidia_smi", DATA / file)
        self.samples = [item for item in self.items if isinstance(item, Sample)]
        self.checked = 0

    def values(self, name: str, **labels: str) -> list[float]:
        wanted = {"vendor": "nvidia", **labels}.items()
        return [
            s.value for s in self.samples if s.name == name and wanted <= dict(s.labels).items()
        ]

    def labels(self, name: str, key: str, **labels: str) -> list[str]:
        wanted = labels.items()
        every = [dict(s.labels) for s in self.samples if s.name == name]
        return [found[key] for found in every if wanted <= found.items() and key in found]

    def expect(self, name: str, value: float | None, **labels: str) -> None:
        """Exactly this value (None: no sample at all)."""
        self.checked += 1
        expected = [] if value is None else [pytest.approx(value, rel=1e-12)]
        assert expected == self.values(name, **labels), f"{name} {labels}"

    def same(self, expected: object, got: object) -> None:
        self.checked += 1
        assert expected == got


def pairs(text: str) -> Row:
    """``key=value`` pairs; a value reaches to the next key."""
    return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", text))


def card_of(bus_id: str) -> str:
    domain, bus, rest = bus_id.split(":")
    return f"{int(domain, 16):04x}:{bus}:{rest.split('.')[0]}".lower()


def flag(text: str) -> float | None:
    return {"Yes": 1.0, "No": 0.0, "Enabled": 1.0, "Disabled": 0.0}.get(text)


def xml(found: Found, driver: str, expected: str) -> None:
    head, *cards = expected.split(" | ")
    counts = pairs(head)
    found.expect("accelerators_listed", float(counts["gpus"]))
    found.expect("accelerators_attached", float(counts["attached"]))
    for at, text in enumerate(cards):
        xml_card(found, driver, at, text)


def xml_card(found: Found, driver: str, at: int, text: str) -> None:
    model = re.match(r"g\d+\[(.*?)\]", text)
    instances = re.findall(r"mig(\d+)\(gi=(\d+) ci=(\d+) mem=(.*?)/(.*?)\)", text)
    row = pairs(re.sub(r"mig\d+\(.*?\)", "", text))
    card = card_of(row["id"])
    info = {"card": card, "bus_id": row["id"], "driver": driver, "index": str(at)}
    assert model
    found.same([model[1]], found.labels("accelerator_info", "model", **info))
    xml_figures(found, card, row)
    xml_faults(found, card, row)
    for number_, gi, ci, used, total in instances:
        (name,) = found.labels("accelerator_info", "card", parent=card, index=number_)
        found.same([gi], found.labels("accelerator_info", "gi", card=name))
        found.same([ci], found.labels("accelerator_info", "ci", card=name))
        found.expect("accelerator_memory_used_bytes", number(used), card=name)
        found.expect("accelerator_memory_total_bytes", number(total), card=name)
    if "mig_devices" in row:
        named = found.labels("accelerator_info", "card", parent=card)
        found.same(int(row["mig_devices"]), len(named))
    if "procs" in row and "mem" in row and not row["mem"].startswith("-"):
        found.expect("accelerator_processes", float(row["procs"]), card=card)


def xml_figures(found: Found, card: str, row: Row) -> None:
    used, total = row["mem"].split("/")
    draw = dict(part.split(":") for part in row["power"].split(","))
    best = next(
        (v for v in map(number, (draw["draw"], draw["avg"], draw["inst"])) if v is not None), None
    )
    for name, value in (
        ("accelerator_utilization_ratio", number(row["util"])),
        ("accelerator_sm_utilization_ratio", number(row["util"])),
        ("accelerator_memory_used_bytes", number(used)),
        ("accelerator_memory_total_bytes", number(total)),
        ("accelerator_temperature_celsius", number(row["temp"])),
        ("accelerator_memory_temperature_celsius", number(row["memtemp"])),
        ("accelerator_power_watts", best),
        ("accelerator_power_average_watts", number(draw["avg"])),
        ("accelerator_power_instant_watts", number(draw["inst"])),
        ("accelerator_power_limit_watts", number(row["limit"])),
    ):
        found.expect(name, value, card=card)


def xml_faults(found: Found, card: str, row: Row) -> None:
    found.expect("accelerator_ecc_enabled", flag(row["ecc_mode"]), card=card)
    for key, metric, kind in (
        ("vol_unc", "accelerator_ecc_errors_total", "uncorrectable"),
        ("agg_unc", "accelerator_ecc_lifetime_errors_total", "uncorrectable"),
        ("vol_cor", "accelerator_ecc_errors_total", "correctable"),
        ("agg_cor", "accelerator_ecc_lifetime_errors_total", "correctable"),
        ("remap_cor", "accelerator_remapped_rows_total", "correctable"),
        ("remap_unc", "accelerator_remapped_rows_total", "uncorrectable"),
    ):
        found.expect(metric, number(row.get(key, "-")), card=card, kind=kind)
    for key, metric in (
        ("remap_pending", "accelerator_remapped_rows_pending"),
        ("remap_fail", "accelerator_remapped_rows_failed"),
        ("mig", "accelerator_mig_enabled"),
    ):
        found.expect(metric, flag(row.get(key, "-")), card=card)
    active = {
        dict(s.labels)["reason"]
        for s in found.samples
        if s.name == "accelerator_throttle_active" and s.value and dict(s.labels)["card"] == card
    }
    found.same(set(row["throttle"].split(",")) - {"none"}, active)
    state, status = row.get("fabric", "-/-").replace("N/A", "-").split("/")
    for key, text in (("state", state), ("status", status)):
        known = [] if text in ("-", "GPU is lost") else [text.lower()]
        found.same(known, found.labels("accelerator_fabric_info", key, card=card))
    known = [] if row.get("recovery", "N/A") == "N/A" else [row["recovery"].lower()]
    found.same(known, found.labels("accelerator_recovery_action", "action", card=card))
    lost = row["util"] == "GPU is lost"
    found.expect("accelerator_present", 0.0 if lost else 1.0, card=card)
    sick = lost or row.get("remap_fail") == "Yes" or (number(row["vol_unc"]) or 0.0) > 0
    intact = None not in (number(row["temp"]), number(row["mem"].split("/")[0]))
    found.expect("accelerator_healthy", 0.0 if sick else 1.0 if intact else None, card=card)


def query_all(found: Found, driver: str, expected: str) -> None:
    row = pairs(expected.partition("; g0 ")[2])
    (card,) = found.labels("accelerator_info", "card", driver=driver)
    used, total = row["mem"].split("/")
    power, average, instant = re.split(r"/avg |/inst ", row["power"])
    for name, text in (
        ("accelerator_utilization_ratio", row["util"]),
        ("accelerator_memory_used_bytes", used),
        ("accelerator_memory_total_bytes", total),
        ("accelerator_temperature_celsius", row["temp"]),
        ("accelerator_memory_temperature_celsius", row["memtemp"]),
        ("accelerator_power_watts", power),
        ("accelerator_power_average_watts", average),
        ("accelerator_power_instant_watts", instant),
    ):
        found.expect(name, number(text), card=card)
    found.expect("accelerator_performance_state", float(row["pstate"][1:]), card=card)
    found.same([row["recovery"].lower()], found.labels("accelerator_recovery_action", "action"))
    errors = number(row["unc_vol"])
    found.expect("accelerator_ecc_errors_total", errors, card=card, kind="uncorrectable")
    found.expect("accelerator_remapped_rows_pending", flag(row["remap_pending"]), card=card)
    for reason in ("sw_power_cap", "hw_slowdown"):
        active = float(row[reason] == "Active")
        found.expect("accelerator_throttle_active", active, card=card, reason=reason)
    found.expect("accelerator_healthy", 1.0, card=card)


def rows_of(listing: str) -> Callable[[Found, str, str], None]:
    def check(found: Found, driver: str, expected: str) -> None:
        count = re.search(r"(?:rows|lines)=(\d+)", expected)
        assert count
        found.expect("accelerators_rows", float(count[1]), listing=listing)

    return check


def dmon(found: Found, driver: str, expected: str) -> None:
    rows_of("dmon")(found, driver, expected)
    words = expected.partition("first row: ")[2].split()
    card = f"gpu{words[0]}"
    first = [s for s in found.samples if "row" not in dict(s.labels)]
    columns = (
        ("accelerator_power_watts", 1.0, {}),
        ("accelerator_temperature_celsius", 1.0, {}),
        ("accelerator_memory_temperature_celsius", 1.0, {}),
        ("accelerator_sm_utilization_ratio", 0.01, {}),
        ("accelerator_memory_utilization_ratio", 0.01, {}),
        *(
            ("accelerator_engine_utilization_ratio", 0.01, {"engine": engine})
            for engine in ("encoder", "decoder", "jpeg", "ofa")
        ),
        ("accelerator_clock_hertz", 1e6, {"domain": "memory"}),
        ("accelerator_clock_hertz", 1e6, {"domain": "graphics"}),
    )
    for (name, factor, more), word in zip(columns, words[1:], strict=True):
        labels = {"card": card, **more}.items()
        got = [s.value for s in first if s.name == name and labels <= dict(s.labels).items()]
        value = number(word)
        found.same([] if value is None else [pytest.approx(value * factor)], got)


def version(found: Found, driver: str, expected: str) -> None:
    found.same(
        [expected.removeprefix("driver=")], found.labels("accelerators_driver_info", "driver")
    )


def listing(found: Found, driver: str, expected: str) -> None:
    counts = re.findall(r"\d+", expected)
    every = found.labels("accelerator_info", "card")
    migs = found.labels("accelerator_info", "parent")
    found.same([int(c) for c in counts], [len(every) - len(migs), len(migs)])


def nvlink(found: Found, driver: str, expected: str) -> None:
    several = re.search(r"(\d+) GPUs, (\d+) links each, (\d+) GB/s", expected)
    links = re.search(r"links=(\d+)|(\d+) links(?!=)", expected)
    speed = re.search(r"Link 0: ([0-9.]+) GB/s", expected)
    if several:
        found.same(int(several[1]), len(found.labels("accelerator_info", "card")))
        up = found.values("accelerator_link_up")
        found.same([1.0] * int(several[1]) * int(several[2]), up)
        speeds = set(found.values("accelerator_link_bandwidth_bytes_per_second"))
        found.same({float(several[3]) * 1e9}, speeds)
    elif links:
        found.same(float(links[1] or links[2]), sum(found.values("accelerator_link_up")))
    if speed:
        metric = "accelerator_link_bandwidth_bytes_per_second"
        found.expect(metric, float(speed[1]) * 1e9, link="0")
    assert several or links


def topo(found: Found, driver: str, expected: str) -> None:
    """The word of the index is the way between every two cards (or to the network card)."""
    word = re.match(r"[A-Z]+\d*", expected)
    exit_only = expected == "exit=0"
    ways = [
        dict(s.labels)
        for s in found.samples
        if s.name in ("accelerator_topology", "accelerator_peer_access")
    ]
    gpus = [w for w in ways if w["peer"].startswith("gpu")] or ways
    if exit_only:
        found.same([], ways)
        found.same(1, len(found.values("accelerator_numa_node", card="gpu0")))
    else:
        assert word
        told = "status" if word[0] == "GNS" else "path"
        found.same({word[0]}, {w.get(told) for w in gpus})
    if "NUMA 0 for 0-3" in expected:
        for gpu in range(8):
            found.expect("accelerator_numa_node", float(gpu // 4), card=f"gpu{gpu}")


def mig_lgi(found: Found, driver: str, expected: str) -> None:
    for card in ("gpu0", "gpu1"):
        found.same(4, len(found.values("accelerator_mig_instance_info", card=card)))


def retirement(found: Found, driver: str, expected: str) -> None:
    counts = re.findall(r"(\d+)/(\d+)", expected)
    pending = {2, 4, 6, 8}
    assert "GPUs 2,4,6,8" in expected
    for at, (single, double) in enumerate(counts, 1):
        card = f"{at:04x}:00:00"
        metric = "accelerator_retired_pages_total"
        found.expect(metric, float(single), card=card, kind="correctable")
        found.expect(metric, float(double), card=card, kind="uncorrectable")
        found.expect("accelerator_retired_pages_pending", float(at in pending), card=card)


def plain(found: Found, driver: str, expected: str) -> None:
    attached = re.search(r"attached=(\d+)", expected)
    assert attached
    found.expect("accelerators_attached", float(attached[1]))
    found.expect("accelerators_listed", float(attached[1]))
    found.same(
        [1.0] * int(attached[1]),
        found.values("accelerator_healthy", driver=driver)
        or [
            v
            for s in found.samples
            for v in [s.value]
            if s.name == "accelerator_healthy" and not dict(s.labels)["card"].startswith("MIG")
        ],
    )


def active_cards(found: Found, reason: str) -> list[str]:
    return [
        dict(s.labels)["card"]
        for s in found.samples
        if s.name == "accelerator_throttle_active"
        and s.value
        and dict(s.labels)["reason"] == reason
    ]


def plain_remap(found: Found, driver: str, expected: str) -> None:
    plain(found, driver, expected)
    found.expect("accelerator_remapped_rows_total", 4.0, kind="uncorrectable")
    found.expect("accelerator_remapped_rows_pending", 1.0)


def plain_brake(found: Found, driver: str, expected: str) -> None:
    plain(found, driver, expected)
    found.same(8, len(active_cards(found, "hw_slowdown")))
    found.same(8, len(active_cards(found, "hw_power_brake_slowdown")))


def plain_thermal(found: Found, driver: str, expected: str) -> None:
    plain(found, driver, expected)
    third = found.labels("accelerator_info", "card", index="2")
    for reason in ("sw_power_cap", "hw_power_brake_slowdown", "sw_thermal_slowdown"):
        found.same(third, active_cards(found, reason))


def plain_cap(found: Found, driver: str, expected: str) -> None:
    plain(found, driver, expected)
    found.same(2, len(active_cards(found, "sw_power_cap")))


def human_table(found: Found, driver: str, expected: str) -> None:
    cards = re.search(r"gpus=(\d+)", expected)
    drivers = found.labels("accelerator_info", "driver")
    found.same([driver] * (int(cards[1]) if cards else 1), drivers)
    for name in ("accelerator_temperature_celsius", "accelerator_memory_used_bytes"):
        addressed = [s for s in found.samples if s.name == name and ":" in dict(s.labels)["card"]]
        per_card = [s for s in addressed if "/" not in dict(s.labels)["card"]]
        found.same(len(drivers), len(per_card))


def table_fan(found: Found, driver: str, expected: str) -> None:
    card = "0000:01:00"
    found.expect("accelerator_fan_ratio", None, card=card)
    found.expect("accelerator_temperature_celsius", 38.0, card=card)
    found.expect("accelerator_power_watts", 49.0, card=card)
    found.expect("accelerator_power_limit_watts", 450.0, card=card)
    found.expect("accelerator_memory_used_bytes", 2021 * 1048576.0, card=card)
    found.expect("accelerator_memory_total_bytes", 23028 * 1048576.0, card=card)
    found.expect("accelerator_healthy", None, card=card)


def table_power(found: Found, driver: str, expected: str) -> None:
    card = "8ed0:00:00"
    found.expect("accelerator_power_watts", None, card=card)
    found.expect("accelerator_temperature_celsius", 29.0, card=card)
    found.expect("accelerator_healthy", None, card=card)


def handle(card: str) -> Callable[[Found, str, str], None]:
    def check(found: Found, driver: str, expected: str) -> None:
        found.expect("accelerator_present", 0.0, card=card)
        found.expect("accelerator_healthy", 0.0, card=card)

    return check


def inforom(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_inforom_valid", 0.0, card="0000:b3:00")
    found.expect("accelerator_memory_used_bytes", 701 * 1048576.0, card="0000:b3:00")


def reset_ok(found: Found, driver: str, expected: str) -> None:
    found.same(["gpu_reset"], [item.kind for item in found.items if isinstance(item, Event)])


def links_down(found: Found, driver: str, expected: str) -> None:
    found.same([0.0], found.values("accelerator_links_active"))


def links_some(found: Found, driver: str, expected: str) -> None:
    up = found.values("accelerator_link_up", card="gpu3")
    found.same((4, 2), (up.count(1.0), up.count(0.0)))


def fabric_error(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_fabric_healthy", 0.0)
    found.expect("accelerator_healthy", 0.0)


def reset_deprecated(found: Found, driver: str, expected: str) -> None:
    found.same(["none"], found.labels("accelerator_recovery_action", "action"))
    found.expect("accelerator_reset_required", 0.0)  # by the action, not by the deprecated flag


def gtx_three(found: Found, driver: str, expected: str) -> None:
    found.same([1.0] * 3, found.values("accelerator_utilization_ratio"))
    found.same([213.07, 187.04, 206.44], found.values("accelerator_power_watts"))


def gtx_two(found: Found, driver: str, expected: str) -> None:
    found.same([1.0] * 2, found.values("accelerator_utilization_ratio"))
    found.same([217.24, 208.30], found.values("accelerator_power_watts"))


def gtx_nounits(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_utilization_ratio", 0.02)
    found.expect("accelerator_memory_used_bytes", 1279 * 1048576.0)
    found.expect("accelerator_memory_total_bytes", 3072 * 1048576.0)
    found.expect("accelerator_power_watts", 10.08)


def bus_mixed(found: Found, driver: str, expected: str) -> None:
    found.same(5, len(found.values("accelerator_info")))
    models = found.labels("accelerator_info", "model", index="1")
    found.same(["GeForce GTX 1080 Ti"], models)


def mig_na(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_mig_enabled", None)


def mig_two(found: Found, driver: str, expected: str) -> None:
    found.same([0.0, 0.0], found.values("accelerator_mig_enabled"))


def requires_reset(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_temperature_celsius", None)
    found.expect("accelerator_utilization_ratio", None)
    found.expect("accelerator_memory_used_bytes", 0.0)
    found.expect("accelerator_healthy", 0.0)
    found.expect("accelerator_reset_required", 1.0)


def unknown_error(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_utilization_ratio", 1.0)
    found.expect("accelerator_power_watts", 228.82)
    found.expect("accelerator_power_limit_watts", 210.0)
    found.expect("accelerator_power_default_limit_watts", None)


def v100_nounits(found: Found, driver: str, expected: str) -> None:
    found.expect("accelerator_fan_ratio", None)
    found.expect("accelerator_memory_used_bytes", 0.0)
    found.expect("accelerator_memory_total_bytes", 32510 * 1048576.0)
    found.expect("accelerator_temperature_celsius", 35.0)
    found.expect("accelerator_utilization_ratio", 0.0)
    found.same(["3"], found.labels("accelerator_info", "index"))


def vbios(found: Found, driver: str, expected: str) -> None:
    found.same(["96.00.89.00.01"] * 2, found.labels("accelerator_info", "vbios"))
    found.same(["0000:04:00", "0000:8b:00"], found.labels("accelerator_info", "card"))


CHECKS: tuple[tuple[str, Callable[[Found, str, str], None]], ...] = (
    (r"xml/", xml),
    (r"csv/query-gpu-all-", query_all),
    (r"csv/compute-apps-", rows_of("compute_apps")),
    (r"csv/retired-pages-", rows_of("retired_pages")),
    (r"csv/dmon-", dmon),
    (r"csv/pmon-", rows_of("pmon")),
    (r"csv/version-", version),
    (r"csv/query-gpu-gtx-x3-long", gtx_three),
    (r"csv/query-gpu-gtx1060-nounits", gtx_nounits),
    (r"csv/query-gpu-gtx1080-x2-short", gtx_two),
    (r"csv/query-gpu-index-bus-mixed", bus_mixed),
    (r"csv/query-gpu-mig-mode-na", mig_na),
    (r"csv/query-gpu-mig-mode-two", mig_two),
    (r"csv/query-gpu-requires-reset", requires_reset),
    (r"csv/query-gpu-unknown-error", unknown_error),
    (r"csv/query-gpu-v100-nounits", v100_nounits),
    (r"csv/query-gpu-vbios", vbios),
    (r"qtext/q-a10-", plain_remap),
    (r"qtext/.*power-brake", plain_brake),
    (r"qtext/.*thermal", plain_thermal),
    (r"qtext/.*sw-power-cap", plain_cap),
    (r"qtext/q-page-retirement", retirement),
    (r"qtext/q-", plain),
    (r"qtext/table-525", table_fan),
    (r"qtext/table-", human_table),
    (r"topo/list-", listing),
    (r"topo/mig-lgi", mig_lgi),
    (r"topo/nvlink-", nvlink),
    (r"topo/topo-", topo),
    (r"errors/device-handle-gpu-is-lost", handle("0000:02:00")),
    (r"errors/device-handle-.*new", handle("0000:91:00")),
    (r"errors/device-handle-.*old", handle("0000:0b:00")),
    (r"errors/inforom", inforom),
    (r"errors/gpu-reset-ok", reset_ok),
    (r"errors/nvlink-all", links_down),
    (r"errors/nvlink-some", links_some),
    (r"errors/q-fabric", fabric_error),
    (r"errors/q-reset-status", reset_deprecated),
    (r"errors/table-power", table_power),
)


def check(file: str, driver: str, expected: str) -> int:
    """Check a row of the index; the number of values looked up."""
    refused = REFUSED.get(file.removeprefix("errors/"))
    if refused:
        with pytest.raises(SourceError, match=re.escape(refused)) as caught:
            collect("nvidia_smi", DATA / file)
        assert "\n" not in str(caught.value)
        return 1
    found = Found(file)
    checks: Iterable[Any] = (does for pattern, does in CHECKS if re.match(pattern, file))
    next(iter(checks))(found, driver, expected)
    return found.checked


@pytest.mark.parametrize(("file", "driver", "expected"), index() if INDEX.exists() else [])
def test_a_captured_output_gives_the_values_of_the_index(
    file: str, driver: str, expected: str
) -> None:
    assert check(file, driver, expected) > 0


def test_no_row_of_the_index_is_left_out() -> None:
    counts = [check(*row) for row in index()]

    assert all(counts), f"{len(counts)} files, {sum(counts)} values"
    print(f"{len(counts)} files, {sum(counts)} values")
    listed = {row[0] for row in index()}
    there = {
        str(path.relative_to(DATA))
        for folder in ("xml", "csv", "qtext", "topo", "errors")
        for path in (DATA / folder).iterdir()
    }
    assert listed == there
