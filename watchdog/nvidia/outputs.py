"""Any captured output of nvidia-smi: which command's it is, and what it says.

The text itself decides; a command line that was given decides where two could be meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import SourceError
from ..model import Event, Sample
from . import links, messages, monitors, plain, rows, summary, xml_log
from .card import VENDOR, Card, labels_of
from .metrics import samples

MAX_BYTES = 16 * 1024 * 1024

_VERSIONS = {
    "nvidia-smi version": "tool",
    "nvml version": "nvml",
    "driver version": "driver",
    "cuda version": "cuda",
}
_NVLINK = re.compile(r"^\s*Link [0-9]+:|nvlink", re.IGNORECASE | re.MULTILINE)

Said = Sample | Event


def read(data: bytes, command: str = "") -> list[Said]:
    """Samples and events of an output. Raises SourceError, in one line, when the tool reports its
    own failure or nothing can be read.
    """
    if len(data) > MAX_BYTES:
        raise SourceError(f"nvidia-smi: an output of more than {MAX_BYTES} bytes is not believed")
    if b"<nvidia_smi_log" in data:
        text = data[data.rfind(b">") :].decode("utf-8", "replace")
        return [*report(xml_log.parse(data)), *warnings(text)]
    if not data.strip():
        raise SourceError("nvidia-smi: no output")
    if b"\0" in data:
        raise SourceError("nvidia-smi: the output is binary")
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    found: list[Said] = list(_text(text, f" {command.strip()} "))
    found += warnings(text)
    if not found:
        raise SourceError("nvidia-smi: nothing in the output can be read")
    return found


def report(log: xml_log.Log | plain.Text) -> Iterator[Sample]:
    """The samples of a whole log: each card's, and how many the driver and the log count."""
    vendor = (("vendor", VENDOR),)
    if log.attached is not None:
        yield Sample("accelerators_attached", float(log.attached), vendor)
    yield Sample("accelerators_listed", float(len(log.cards)), vendor)
    yield from _all(log.cards)


def _all(cards: Iterable[Card]) -> Iterator[Sample]:
    for card in cards:
        yield from samples(card)


def gone(name: str) -> Iterator[Sample]:
    """The samples of a card that ought to be there and is not."""
    yield Sample("accelerator_present", 0.0, labels_of(name))
    yield Sample("accelerator_healthy", 0.0, labels_of(name))


def warnings(text: str) -> Iterator[Said]:
    """What the tool says besides its data."""
    for name in messages.corrupt_inforoms(text):
        yield Sample("accelerator_inforom_valid", 0.0, labels_of(name))


def _text(text: str, command: str) -> Iterable[Said]:  # noqa: C901, PLR0911 - one line a format
    lost = messages.lost_cards(text)
    if lost:
        return [sample for card in lost for sample in gone(card.card)]
    first = next(line for line in text.splitlines() if line.strip())
    if first.startswith("#"):
        return monitors.parse(text)
    if summary.known(text):
        return _all(summary.parse(text))
    if "NVSMI LOG" in text:
        return report(plain.parse(text))
    if "GPU instances:" in text:
        return links.instances(text)
    if links.is_matrix(text):
        return links.matrix(text)
    if links.GPU_LINE.search(text):
        linked = _NVLINK.search(text) or " nvlink " in command
        return links.nvlinks(text) if linked else links.listing(text)
    if messages.all_links_down(text):
        return links.nvlinks(text)
    failed = messages.failure(text)
    if failed:
        raise SourceError(f"nvidia-smi: {failed}")
    done = messages.cards_reset(text)
    if done:
        return [_was_reset(name) for name in done]
    if rows.columns(first):
        return rows.table(text, [])
    versions = _versions(text)
    if versions:
        return [versions]
    fields = rows.asked(command) or rows.order_by_heart(first)
    if fields:
        return rows.table(text, fields)
    if plain.known(text):
        return _all(plain.parse(text).cards)
    raise SourceError("nvidia-smi: no output of a command that is known")


def _was_reset(name: str) -> Event:
    return Event("gpu_reset", f"{name} was reset", labels_of(name))


def _versions(text: str) -> Sample | None:
    pairs = []
    for line in text.splitlines()[:16]:
        label, found, value = line.partition(":")
        word = _VERSIONS.get(" ".join(label.lower().split()))
        if found and word and re.fullmatch(r"[0-9.]+", value.strip()):
            pairs.append((word, value.strip()))
    if len(pairs) < 2:
        return None
    return Sample("accelerators_driver_info", 1.0, tuple(sorted((*pairs, ("vendor", VENDOR)))))
