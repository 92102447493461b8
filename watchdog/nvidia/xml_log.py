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
from .elements import INSTANCE_TREE, TREE
from .values import ABSENT, card_name, is_uuid, trouble

MAX_BYTES = 16 * 1024 * 1024
MAX_CARDS = 256

_END = b"</nvidia_smi_log>"
_START = re.compile(rb"<\?xml|<!DOCTYPE|<nvidia_smi_log")
_BULKY = (b"supported_clocks", b"accounted_processes")  # most of the log, and nothing we read

_TWINS = frozenset({"retired_pages.pending"})  # two elements of one meaning: Yes wins


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log. ``attached`` is the driver's own count, None where it does not say."""

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
    doubled = _walk(element, TREE, found)
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
        _walk(device, INSTANCE_TREE, found)
        yield Instance(
            _text(device, "index"),
            _text(device, "gpu_instance_id"),
            _text(device, "compute_instance_id"),
            _text(device, "uuid"),
            fields=found,
        )
