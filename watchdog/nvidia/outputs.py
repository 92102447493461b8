"""Any captured output of nvidia-smi: which command's it is, and what it says.

The text itself decides; a command line that was given decides where two could be meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import SourceError
from ..model import Event, Sample
from . import links, messages, monitors, plain, rows, summary, xml_log
from .card import VENDOR, Card, labels_of
from .metrics import samples

MAX_BYTES = 16 * 1024 * 1024
MAX_SAID = 65536  # bytes of messages around a log

_LOG_END = b"</nvidia_smi_log>"

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
        return [*report(xml_log.parse(data)), *warnings(around(data))]
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


def is_whole_log(data: bytes) -> bool:
    """Whether an output holds the end of an XML log."""
    return _LOG_END in data


def around(data: bytes) -> str:
    """What the tool says before and after an XML log (all of it where there is none)."""
    start, end = data.find(b"<nvidia_smi_log"), data.rfind(_LOG_END)
    before = data[: start if start >= 0 else MAX_SAID]
    after = data[end:] if end >= 0 else data[-MAX_SAID:] if start >= 0 else b""
    return (before[:MAX_SAID] + b"\n" + after[:MAX_SAID]).decode("utf-8", "replace")


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


@dataclass(frozen=True, slots=True)
class _Shown:
    """An output: its text, its first line that is not blank, the command line it came from."""

    text: str
    first: str
    command: str


def _text(text: str, command: str) -> Iterable[Said]:
    first = next(line for line in text.splitlines() if line.strip())
    shown = _Shown(text, first, command)
    for is_it, read_it in _FORMATS:
        if is_it(shown):
            return read_it(shown)
    raise SourceError("nvidia-smi: no output of a command that is known")


def _lost(shown: _Shown) -> Iterable[Said]:
    return [sample for card in messages.lost_cards(shown.text) for sample in gone(card)]


def _who(shown: _Shown) -> Iterable[Said]:
    linked = _NVLINK.search(shown.text) or " nvlink " in shown.command
    return links.nvlinks(shown.text) if linked else links.listing(shown.text)


def _refuse(shown: _Shown) -> Iterable[Said]:
    raise SourceError(f"nvidia-smi: {messages.failure(shown.text)}")


def _order(shown: _Shown) -> list[str]:
    return rows.asked(shown.command) or rows.order_by_heart(shown.first)


_FORMATS: tuple[tuple[Callable[[_Shown], Any], Callable[[_Shown], Iterable[Said]]], ...] = (
    (lambda shown: messages.lost_cards(shown.text), _lost),
    (lambda shown: shown.first.startswith("#"), lambda shown: monitors.parse(shown.text)),
    (lambda shown: summary.known(shown.text), lambda shown: _all(summary.parse(shown.text))),
    (lambda shown: "NVSMI LOG" in shown.text, lambda shown: report(plain.parse(shown.text))),
    (lambda shown: "GPU instances:" in shown.text, lambda shown: links.instances(shown.text)),
    (lambda shown: links.is_matrix(shown.text), lambda shown: links.matrix(shown.text)),
    (lambda shown: links.GPU_LINE.search(shown.text), _who),
    (lambda shown: messages.all_links_down(shown.text), lambda shown: links.nvlinks(shown.text)),
    (lambda shown: messages.failure(shown.text), _refuse),
    (
        lambda shown: messages.cards_reset(shown.text),
        lambda shown: [_was_reset(name) for name in messages.cards_reset(shown.text)],
    ),
    (lambda shown: rows.columns(shown.first), lambda shown: rows.table(shown.text, [])),
    (lambda shown: _versions(shown.text), lambda shown: _versions(shown.text)),
    (_order, lambda shown: rows.table(shown.text, _order(shown))),
    (
        lambda shown: plain.known(shown.text),
        lambda shown: _all(plain.parse(shown.text).cards),
    ),
)
"""What tells a format, and its reader; the first that fits reads."""


def _was_reset(name: str) -> Event:
    return Event("gpu_reset", f"{name} was reset", labels_of(name))


def _versions(text: str) -> list[Sample]:
    pairs = []
    for line in text.splitlines()[:16]:
        label, found, value = line.partition(":")
        word = _VERSIONS.get(" ".join(label.lower().split()))
        if found and word and re.fullmatch(r"[0-9.]+", value.strip()):
            pairs.append((word, value.strip()))
    if len(pairs) < 2:
        return []
    labels = tuple(sorted((*pairs, ("vendor", VENDOR))))
    return [Sample("accelerators_driver_info", 1.0, labels)]
