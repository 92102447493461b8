"""The plain text of ``nvidia-smi -q``, whole or one of its sections, by indentation.

It exists for captures; a daemon asks for XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .card import Card, Instance, Process
from .fields import REASONS
from .values import card_name, is_uuid

MAX_LINES = 200_000

_CARD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*\Z", re.ASCII)
_PAIR = re.compile(r"( *)(\S.*?)\s+: ?(.*)\Z")

_ECC_PARTS = {
    "sram correctable": "corrected.{}.sram",
    "dram correctable": "corrected.{}.dram",
    "sram uncorrectable": "uncorrected.{}.sram",
    "dram uncorrectable": "uncorrected.{}.dram",
    "sram uncorrectable parity": "uncorrected.{}.sram.parity",
    "sram uncorrectable sec-ded": "uncorrected.{}.sram.secded",
    "single bit/total": "corrected.{}.total",
    "double bit/total": "uncorrected.{}.total",
    "sram threshold exceeded": "uncorrected.{}.sram.thresholdExceeded",
}
_REASON_WORDS = {
    "idle": "gpu_idle",
    "hw slowdown/hw thermal slowdown": "hw_thermal_slowdown",
    "hw slowdown/hw power brake slowdown": "hw_power_brake_slowdown",
    "hw slowdown/hw power brake": "hw_power_brake_slowdown",
    "display clock setting": "display_clocks_setting",
    **{reason.replace("_", " "): reason for reason in REASONS},
}
_COUNTER_WORDS = {
    "sw power capping": "sw_power_cap",
    "sw power cap": "sw_power_cap",
    "sync boost": "sync_boost",
    "sw thermal slowdown": "sw_thermal_slowdown",
    "hw thermal slowdown": "hw_thermal_slowdown",
    "hw power braking": "hw_power_brake_slowdown",
}
_POWER_WORDS = {
    "power draw": "power.draw",
    "average power draw": "power.draw.average",
    "instantaneous power draw": "power.draw.instant",
    "power limit": "power.limit",
    "current power limit": "power.limit",
    "enforced power limit": "enforced.power.limit",
    "default power limit": "power.default_limit",
}

_NAMES: dict[str, str] = {
    "product name": "name",
    "serial number": "serial",
    "gpu uuid": "uuid",
    "minor number": "minor_number",
    "vbios version": "vbios_version",
    "persistence mode": "persistence_mode",
    "gpu recovery action": "gpu_recovery_action",
    "gpu reset status/reset required": "reset_required",
    "gpu reset status/drain and reset recommended": "drain_and_reset_recommended",
    "mig mode/current": "mig.mode.current",
    "ecc mode/current": "ecc.mode.current",
    "pci/bus id": "pci.bus_id",
    "pci/gpu link info/pcie generation/max": "pcie.link.gen.max",
    "pci/gpu link info/pcie generation/current": "pcie.link.gen.current",
    "pci/gpu link info/link width/max": "pcie.link.width.max",
    "pci/gpu link info/link width/current": "pcie.link.width.current",
    "pci/replays since reset": "pcie.replays",
    "pci/tx throughput": "pcie.tx",
    "pci/rx throughput": "pcie.rx",
    "fan speed": "fan.speed",
    "performance state": "pstate",
    "utilization/gpu": "utilization.gpu",
    "utilization/memory": "utilization.memory",
    "utilization/encoder": "utilization.encoder",
    "utilization/decoder": "utilization.decoder",
    "utilization/jpeg": "utilization.jpeg",
    "utilization/ofa": "utilization.ofa",
    "temperature/gpu current temp": "temperature.gpu",
    "temperature/memory current temp": "temperature.memory",
    "temperature/gpu t.limit temp": "temperature.gpu.tlimit",
    "gpu memory power readings/average power draw": "memory.power.draw.average",
    "module power readings/average power draw": "module.power.draw.average",
    "module power readings/power draw": "module.power.draw.average",
    "clocks/graphics": "clocks.current.graphics",
    "clocks/sm": "clocks.current.sm",
    "clocks/memory": "clocks.current.memory",
    "clocks/video": "clocks.current.video",
    "max clocks/graphics": "clocks.max.graphics",
    "max clocks/sm": "clocks.max.sm",
    "max clocks/memory": "clocks.max.memory",
    "retired pages/single bit ecc": "retired_pages.single_bit_ecc.count",
    "retired pages/double bit ecc": "retired_pages.double_bit.count",
    "retired pages/pending page blacklist": "retired_pages.pending",
    "retired pages/pending": "retired_pages.pending",
    "remapped rows": "remapped_rows",
    "remapped rows/correctable error": "remapped_rows.correctable",
    "remapped rows/uncorrectable error": "remapped_rows.uncorrectable",
    "remapped rows/pending": "remapped_rows.pending",
    "remapped rows/remapping failure occurred": "remapped_rows.failure",
    "ecc errors/channel repair pending": "ecc.channel_repair_pending",
    "ecc errors/tpc repair pending": "ecc.tpc_repair_pending",
    "ecc errors/unrepairable memory": "ecc.unrepairable_memory",
    "fabric/state": "fabric.state",
    "fabric/status": "fabric.status",
    "fabric/cliqueid": "fabric.cliqueId",
    "fabric/clusteruuid": "fabric.clusterUuid",
    "fabric/health/summary": "fabric.health.summary",
    "fabric/health/bandwidth": "fabric.health.bandwidth",
    "fabric/health/route unhealthy": "fabric.health.route_unhealthy",
    "fabric/health/access timeout recovery": "fabric.health.access_timeout_recovery",
    "fabric/health/incorrect configuration": "fabric.health.incorrect_configuration",
    **{
        f"ecc errors/{counter}/{words}": "ecc.errors." + name.format(counter)
        for words, name in _ECC_PARTS.items()
        for counter in ("volatile", "aggregate")
    },
    **{
        f"{section}/{words}": f"clocks_event_reasons.{reason}"
        for section in ("clocks throttle reasons", "clocks event reasons")
        for words, reason in _REASON_WORDS.items()
    },
    **{
        f"clocks event reasons counters/{words}": f"clocks_event_reasons_counters.{reason}"
        for words, reason in _COUNTER_WORDS.items()
    },
    **{
        f"{section}/{words}": name
        for section in ("power readings", "gpu power readings")
        for words, name in _POWER_WORDS.items()
    },
    **{
        f"fb memory usage/{word}": f"memory.{word}"
        for word in ("total", "used", "free", "reserved")
    },
    **{
        f"remapped rows/bank remap availability histogram/{word}": f"remapped_rows.histogram.{word}"
        for word in ("low", "none")
    },
}
"""Path of labels in lower case -> reading."""


@dataclass(frozen=True, slots=True)
class Text:
    """What a plain log says. ``attached`` None: it does not say how many GPUs there are."""

    attached: int | None
    cards: tuple[Card, ...]


@dataclass(slots=True)
class _Part:
    """One card's lines while they are read."""

    address: str
    fields: dict[str, str] = field(default_factory=dict)
    processes: list[dict[str, str]] | None = None
    instances: list[dict[str, str]] = field(default_factory=list)
    place: dict[str, str] = field(default_factory=dict)
    doubled: bool = False
    ended: bool = False


def known(text: str) -> bool:
    """Whether a text is a plain log or a section of one."""
    return any(path in _NAMES for path, _ in _pairs(text.splitlines()[:400]))


def _pairs(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Path of labels and value of each line; a card's first line has path ``gpu``."""
    stack: list[tuple[int, str]] = []
    for line in lines:
        card = _CARD.match(line)
        if card:
            stack = []
            yield "gpu", card[1]
            continue
        pair = _PAIR.match(line)
        label = pair[2] if pair else line.strip()
        if not label:
            continue
        indent = len(line) - len(line.lstrip(" "))
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, " ".join(label.lower().split())))
        yield "/".join(name for _, name in stack[-6:]), pair[3].strip() if pair else ""


def parse(text: str) -> Text:
    """Read a plain log or a part of one; without a card's line it speaks of one nameless card."""
    driver, attached = "", None
    parts: list[_Part] = []
    for path, value in _pairs(text.splitlines()[:MAX_LINES]):
        if path == "gpu":
            parts.append(_Part(value))
        elif path == "driver version" and not parts:
            driver = value
        elif path == "attached gpus" and value.isdecimal() and len(value) < 6:
            attached = int(value)
        else:
            if not parts and path in _NAMES:
                parts.append(_Part(""))
            if parts:
                _take(parts[-1], path, value)
    short = attached is not None and attached > len(parts)
    cards = [_card(part, i, driver, short and part is parts[-1]) for i, part in enumerate(parts)]
    names = [card.name for card in cards]
    return Text(attached, tuple(c for c in cards if names.count(c.name) == 1))


def _take(part: _Part, path: str, value: str) -> None:
    top, _, rest = path.partition("/")
    if top == "processes":
        part.ended = True
        if part.processes is None:
            part.processes = []
        _take_process(part, rest.rpartition("/")[2], value)
    elif top == "mig device":
        _take_instance(part, rest, value)
    elif path in _NAMES:
        name = _NAMES[path]
        if name in part.fields:
            part.doubled = True
        elif name != "remapped_rows" or value:
            part.fields[name] = value


def _take_process(part: _Part, label: str, value: str) -> None:
    if label in ("gpu instance id", "compute instance id"):
        part.place[label] = value
    elif label == "process id":
        assert part.processes is not None
        part.processes.append({"pid": value, **part.place})
        part.place = {}
    elif label and part.processes:
        part.processes[-1].setdefault(label, value)


def _take_instance(part: _Part, rest: str, value: str) -> None:
    if rest == "index":
        part.instances.append({})
    if part.instances and rest:
        part.instances[-1].setdefault(rest, value)


def _card(part: _Part, index: int, driver: str, last_of_short: bool) -> Card:
    fields = {"index": str(index), "driver_version": driver, **part.fields}
    name = card_name(part.address)
    if part.address:
        fields.setdefault("pci.bus_id", part.address)
    damage = ""
    if part.doubled:
        damage = "a line stands there twice"
    elif last_of_short or not part.ended:
        damage = "its part is not whole"
    elif name != card_name(fields.get("pci.bus_id", "")) or not is_uuid(fields.get("uuid", "")):
        damage = "its identity is damaged"
    return Card(
        name or f"gpu{index}",
        fields,
        None if part.processes is None else tuple(_process(row) for row in part.processes),
        tuple(_instance(row) for row in part.instances),
        damage,
    )


def _process(row: dict[str, str]) -> Process:
    return Process(
        row["pid"],
        row.get("name", ""),
        row.get("type", ""),
        row.get("used gpu memory", ""),
        row.get("gpu instance id", ""),
        row.get("compute instance id", ""),
    )


def _instance(row: dict[str, str]) -> Instance:
    memory = (
        "shared fb memory usage" if "shared fb memory usage/total" in row else "fb memory usage"
    )
    fields = {
        f"memory.{word}": row[f"{memory}/{word}"]
        for word in ("total", "used", "free", "reserved")
        if f"{memory}/{word}" in row
    }
    errors = row.get("ecc errors/volatile/sram uncorrectable")
    if errors is not None:
        fields["ecc.errors.uncorrected.volatile.sram"] = errors
    return Instance(
        row.get("index", ""),
        row.get("gpu instance id", ""),
        row.get("compute instance id", ""),
        row.get("mig uuid", row.get("uuid", "")),
        fields=fields,
    )
