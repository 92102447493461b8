"""The XML of ``nvidia-smi -q -x`` of any driver, recognised by its elements, never its DOCTYPE.

It refuses what is not whole: a log without its end says nothing about the cards that it lacks. It
does not decide which cards ought to be there.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import SourceError
from .card import Card, Instance, Process
from .values import ABSENT, card_name, is_uuid, trouble

MAX_BYTES = 16 * 1024 * 1024
MAX_CARDS = 256

_END = b"</nvidia_smi_log>"
_START = re.compile(rb"<\?xml|<!DOCTYPE|<nvidia_smi_log")
_BULKY = (b"supported_clocks", b"accounted_processes")  # most of the log, and nothing we read

_ECC_OLD = {
    "total": "total",
    "device_memory": "device_memory",
}


def _ecc(counter: str) -> dict[str, Any]:
    right, wrong = f"ecc.errors.corrected.{counter}", f"ecc.errors.uncorrected.{counter}"
    return {
        "single_bit": {tag: f"{right}.{name}" for tag, name in _ECC_OLD.items()},
        "double_bit": {tag: f"{wrong}.{name}" for tag, name in _ECC_OLD.items()},
        "sram_correctable": f"{right}.sram",
        "dram_correctable": f"{right}.dram",
        "sram_uncorrectable": f"{wrong}.sram",
        "dram_uncorrectable": f"{wrong}.dram",
        "sram_uncorrectable_parity": f"{wrong}.sram.parity",
        "sram_uncorrectable_secded": f"{wrong}.sram.secded",
        "sram_threshold_exceeded": "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    }


_REASONS = {
    name: f"clocks_event_reasons.{name}"
    for name in (
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "hw_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sw_thermal_slowdown",
        "sync_boost",
        "display_clocks_setting",
        "unknown",
    )
}
_COUNTERS = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "sw_thermal_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_thermal_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake_slowdown",
}
_POWER = {
    "power_draw": "power.draw",
    "average_power_draw": "power.draw.average",
    "instant_power_draw": "power.draw.instant",
    "power_limit": "power.limit",
    "current_power_limit": "power.limit",
    "enforced_power_limit": "enforced.power.limit",
    "default_power_limit": "power.default_limit",
}
_CLOCKS = {"graphics_clock": "graphics", "sm_clock": "sm", "mem_clock": "memory"}
_MEMORY = {name: f"memory.{name}" for name in ("total", "used", "free", "reserved")}

_TREE: dict[str, Any] = {
    "product_name": "name",
    "serial": "serial",
    "uuid": "uuid",
    "minor_number": "minor_number",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "gpu_recovery_action": "gpu_recovery_action",
    "fan_speed": "fan.speed",
    "performance_state": "pstate",
    "mig_mode": {"current_mig": "mig.mode.current"},
    "ecc_mode": {"current_ecc": "ecc.mode.current"},
    "gpu_reset_status": {
        "reset_required": "reset_required",
        "drain_and_reset_recommended": "drain_and_reset_recommended",
    },
    "pci": {
        "pci_bus_id": "pci.bus_id",
        "pci_domain": "pci.domain",
        "pci_bus": "pci.bus",
        "pci_device": "pci.device",
        "pci_gpu_link_info": {
            "pcie_gen": {
                "max_link_gen": "pcie.link.gen.max",
                "current_link_gen": "pcie.link.gen.current",
            },
            "link_widths": {
                "max_link_width": "pcie.link.width.max",
                "current_link_width": "pcie.link.width.current",
            },
        },
        "replay_counter": "pcie.replays",
        "tx_util": "pcie.tx",
        "rx_util": "pcie.rx",
    },
    "clocks_throttle_reasons": {f"clocks_throttle_reason_{k}": v for k, v in _REASONS.items()},
    "clocks_event_reasons": {f"clocks_event_reason_{k}": v for k, v in _REASONS.items()},
    "clocks_event_reasons_counters": {
        f"clocks_event_reasons_counters_{k}": f"clocks_event_reasons_counters.{v}"
        for k, v in _COUNTERS.items()
    },
    "fb_memory_usage": _MEMORY,
    "memory_usage": _MEMORY,  # before driver 340
    "utilization": {
        "gpu_util": "utilization.gpu",
        "memory_util": "utilization.memory",
        "encoder_util": "utilization.encoder",
        "decoder_util": "utilization.decoder",
        "jpeg_util": "utilization.jpeg",
        "ofa_util": "utilization.ofa",
    },
    "ecc_errors": {
        "volatile": _ecc("volatile"),
        "aggregate": _ecc("aggregate"),
        "channel_repair_pending": "ecc.channel_repair_pending",
        "tpc_repair_pending": "ecc.tpc_repair_pending",
        "unrepairable_memory": "ecc.unrepairable_memory",
    },
    "retired_pages": {
        "multiple_single_bit_retirement": {"retired_count": "retired_pages.single_bit_ecc.count"},
        "double_bit_retirement": {"retired_count": "retired_pages.double_bit.count"},
        "pending_retirement": "retired_pages.pending",
        "pending_blacklist": "retired_pages.pending",
    },
    "remapped_rows": {
        "remapped_row_corr": "remapped_rows.correctable",
        "remapped_row_unc": "remapped_rows.uncorrectable",
        "remapped_row_pending": "remapped_rows.pending",
        "remapped_row_failure": "remapped_rows.failure",
        "row_remapper_histogram": {
            f"row_remapper_histogram_{name}": f"remapped_rows.histogram.{name}"
            for name in ("low", "none")
        },
    },
    "temperature": {
        "gpu_temp": "temperature.gpu",
        "memory_temp": "temperature.memory",
        "gpu_temp_tlimit": "temperature.gpu.tlimit",
    },
    "power_readings": _POWER,
    "gpu_power_readings": _POWER,
    "gpu_memory_power_readings": {"average_power_draw": "memory.power.draw.average"},
    "module_power_readings": {
        "average_power_draw": "module.power.draw.average",
        "power_draw": "module.power.draw.average",
    },
    "clocks": {
        **{tag: f"clocks.current.{name}" for tag, name in _CLOCKS.items()},
        "video_clock": "clocks.current.video",
    },
    "max_clocks": {tag: f"clocks.max.{name}" for tag, name in _CLOCKS.items()},
    "fabric": {
        "state": "fabric.state",
        "status": "fabric.status",
        "cliqueId": "fabric.cliqueId",
        "clusterUuid": "fabric.clusterUuid",
        "health": {
            name: f"fabric.health.{name}"
            for name in (
                "summary",
                "bandwidth",
                "route_unhealthy",
                "access_timeout_recovery",
                "incorrect_configuration",
            )
        },
    },
}
"""Element path -> reading. One name may stand under several parents; never search without it."""

_INSTANCE_TREE: dict[str, Any] = {
    "fb_memory_usage": _MEMORY,
    "ecc_error_count": {
        "volatile_count": {"sram_uncorrectable": "ecc.errors.uncorrected.volatile.sram"}
    },
}
_TWINS = frozenset({"retired_pages.pending"})  # two elements of one meaning: Yes wins


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log. ``attached`` is the driver's own count, None where it does not say."""

    driver: str
    cuda: str
    attached: int | None
    cards: tuple[Card, ...]


def parse(data: bytes) -> Log:
    """Read a whole ``nvidia-smi -q -x``. Raises SourceError when it is cut, doubled or no XML."""
    body = _body(data)
    root = _root(body)
    lost = b"GPU is lost" in body
    driver = _text(root, "driver_version")
    attached = _text(root, "attached_gpus")
    elements = root.findall("gpu")[:MAX_CARDS]
    cards = [_card(element, str(i), driver, lost) for i, element in enumerate(elements)]
    return Log(
        driver if not trouble(driver) else "",
        _text(root, "cuda_version"),
        int(attached) if attached.isdecimal() and len(attached) < 6 else None,
        tuple(_distrust_twins(cards)),
    )


def _body(data: bytes) -> bytes:
    """The log alone: without text around it and without the bulky parts that nobody reads."""
    if len(data) > MAX_BYTES:
        raise SourceError(f"nvidia-smi: an XML log of more than {MAX_BYTES} bytes is not believed")
    start = _START.search(data)
    if not start:
        raise SourceError("nvidia-smi: not an XML log")
    end = data.find(_END, start.start())
    if end < 0:
        raise SourceError("nvidia-smi: the XML log is cut, its end is missing")
    if b"<nvidia_smi_log" in data[end:]:
        raise SourceError("nvidia-smi: two XML logs in one answer")
    body = data[start.start() : end + len(_END)]
    if b"<!ENTITY" in body or b"\0" in body:
        raise SourceError("nvidia-smi: the XML log declares entities or holds NUL bytes")
    for name in _BULKY:
        body = _without(body, name)
    return body


def _without(body: bytes, name: bytes) -> bytes:
    """Leave out every ``<name>…</name>``; what is not closed stays for the parser to refuse."""
    first, last = b"<" + name + b">", b"</" + name + b">"
    kept, at = [], 0
    while (begin := body.find(first, at)) >= 0:
        end = body.find(last, begin)
        if end < 0:
            break
        kept.append(body[at:begin])
        at = end + len(last)
    kept.append(body[at:])
    return b"".join(kept)


def _root(body: bytes) -> ET.Element:
    """The root element: of the log without its indentation (each blank costs the parser time),
    else as it was printed, else with process names mended.
    """
    for attempt in (_squeezed(body), body):
        root = _element(attempt)
        if isinstance(root, ET.Element):
            return root
    root = _element(_mended(body))
    if isinstance(root, ET.Element):
        return root
    raise SourceError(f"nvidia-smi: the XML log cannot be read: {root}")


def _element(body: bytes) -> ET.Element | str:
    """The root element, or why there is none."""
    try:
        return ET.fromstring(body)  # noqa: S314 - no entity declarations are left in it
    except (ET.ParseError, ValueError, LookupError) as error:
        return str(error)


def _squeezed(body: bytes) -> bytes:
    return body[body.find(b"<nvidia_smi_log") :].translate(None, b"\t\r\n")


def _mended(body: bytes) -> bytes:
    """Process names are printed as they are: bytes of any encoding, and markup."""

    def escape(match: re.Match[bytes]) -> bytes:
        name = match[1].decode("utf-8", "replace").replace("\ufffd", "?")
        name = "".join(c if c.isprintable() and c not in "<>&" else "?" for c in name)
        return b"<process_name>" + name.encode() + b"</process_name>"

    return re.sub(rb"<process_name>(.*?)</process_name>", escape, body, flags=re.DOTALL)


def _text(parent: ET.Element, tag: str) -> str:
    return (parent.findtext(tag) or "").strip()


def _walk(element: ET.Element, tree: dict[str, Any], found: dict[str, str]) -> bool:
    """Collect readings below ``element``; True when one stands there twice."""
    doubled = False
    for child in element:
        target = tree.get(child.tag)
        if target is None:
            continue
        text = child.text or ""
        if isinstance(target, str):
            if target in found and not (target in _TWINS and _twin(found, target, text)):
                doubled = True
            else:
                found.setdefault(target, text.strip())
        elif len(child):
            doubled = _walk(child, target, found) or doubled
        elif trouble(text) != ABSENT:
            found[child.tag] = text.strip()  # a whole section replaced by one text
    return doubled


def _twin(found: dict[str, str], name: str, text: str) -> bool:
    if found[name].lower() != "yes":
        found[name] = text.strip()
    return True


def _card(element: ET.Element, index: str, driver: str, look: bool) -> Card:
    found: dict[str, str] = {"index": index, "driver_version": driver}
    doubled = _walk(element, _TREE, found)
    address = element.get("id", "")
    found.setdefault("pci.bus_id", address)
    processes = element.find("processes")
    instances = element.find("mig_devices")
    name = card_name(address) or card_name(found["pci.bus_id"])
    return Card(
        name or f"gpu{index}",
        found,
        tuple(_processes(processes)) if processes is not None else None,
        tuple(_instances(instances)) if instances is not None else (),
        "an element stands there twice" if doubled else _contradiction(address, found),
        look and any("GPU is lost" in text for text in element.itertext()),
    )


def _contradiction(address: str, found: dict[str, str]) -> str:
    """Why the card's own words about who it is do not fit together, or ""."""
    name = card_name(address)
    if not name or name != card_name(found["pci.bus_id"]):
        return "its addresses differ"
    parts = [found.get(f"pci.{part}") for part in ("domain", "bus", "device")]
    if all(parts) and card_name(":".join(str(part) for part in parts)) != name:
        return "its address and its bus differ"
    if not is_uuid(found.get("uuid", "")) or trouble(found.get("name", "")):
        return "its identity is damaged"
    return ""


def _distrust_twins(cards: list[Card]) -> Iterator[Card]:
    """A card that stands in the log twice is in doubt, and so is one whose uuid does."""
    names = Counter(card.name for card in cards)
    seen: set[str] = set()
    for card in cards:
        if names[card.name] == 1:
            yield card
        elif card.name not in seen:
            seen.add(card.name)
            yield Card(
                card.name,
                card.fields,
                damage="it stands in the log twice",
                lost=any(other.lost for other in cards if other.name == card.name),
            )


def _processes(element: ET.Element) -> Iterator[Process]:
    for info in element.findall("process_info"):
        yield Process(
            _text(info, "pid"),
            _text(info, "process_name"),
            _text(info, "type"),
            _text(info, "used_memory"),
            _text(info, "gpu_instance_id"),
            _text(info, "compute_instance_id"),
        )


def _instances(element: ET.Element) -> Iterator[Instance]:
    for device in element.findall("mig_device"):
        found: dict[str, str] = {}
        _walk(device, _INSTANCE_TREE, found)
        yield Instance(
            _text(device, "index"),
            _text(device, "gpu_instance_id"),
            _text(device, "compute_instance_id"),
            _text(device, "uuid"),
            fields=found,
        )
