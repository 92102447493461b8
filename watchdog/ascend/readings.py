"""The series in an answer of ``npu-smi`` other than the table; the list stands in the collector.

``read_answer`` finds out by itself which command's answer it has; the command line decides where it
is given, and gives the ids that many answers lack. It must not say more than the answer: a word
that means "no value", or a damaged one, gives no sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ..errors import SourceError
from ..model import Sample, labelset
from .answers import Asked, asked, pairs, recognise
from .cards import MIB, VENDOR, Cards, Home, labels_of
from .health import faults, health, memory_errors
from .identities import board, listed, mapped, remapped, superpod, topology
from .measures import values, watched
from .refusals import refuse


def read_answer(text: str, command: str | None = None, cards: Cards | None = None) -> list[Sample]:
    """Samples of one answer, each series once (the last one told).

    Raises SourceError when it is no answer that is known, or nothing in it can be read; a refusal
    as ``refuse`` does.
    """
    ask = asked(command)
    shape = recognise(text)
    if shape in {"", "help"}:  # answers have texts and words of their own, such as "not supported"
        refuse(text)
    kind = ask.kind or shape
    if kind not in _READERS:
        raise SourceError("not a readable output of npu-smi" if text.strip() else "empty output")
    found = {sample.key: sample for sample in _READERS[kind](text, ask, cards or {})}
    if not found:
        raise SourceError(f"nothing can be read in this answer of npu-smi ({kind})")
    return list(found.values())


def _processes(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    home = Home(ask, cards)
    npu: int | None = None
    pattern = re.compile(
        r"Process id: *(\d{1,10})\s+Process name:(.*?)Process memory\(MB\): *(\d+)"
    )
    for line in text.splitlines():
        if found := re.match(r"\s*NPU ID *: *(\d{1,6})\s*$", line):
            npu = int(found[1])
        for pid, name, memory in pattern.findall(line[:2000]):
            labels = labels_of(home.card(npu), pid=pid, process=name.strip())
            yield Sample("accelerator_process_memory_bytes", float(memory) * MIB, labels)


def _help(text: str, _ask: Asked, _cards: Cards) -> Iterator[Sample]:
    verb = re.search(r"Usage: npu-smi (\w+)", text)
    if verb and (found := re.search(r"type: *([\w\s,.-]+?)(?:\.\s|\n\s*\n|\nOptions|\Z)", text)):
        for kind in re.findall(r"[\w-]+", found[1]):
            labels = {"vendor": VENDOR, "tool": "npu-smi", "verb": verb[1], "type": kind}
            yield Sample("accelerator_query_supported", 1.0, labelset(labels))


def _reset(text: str, ask: Asked, cards: Cards) -> Iterator[Sample]:
    told = dict(pairs(text))
    if "status" in told:
        done = told["status"].upper() == "OK" and "successfully" in told.get("message", "")
        yield Sample(
            "accelerator_reset_success", float(done), labels_of(Home(ask, cards).card(None))
        )


_READERS: dict[str, Callable[[str, Asked, Cards], Iterator[Sample]]] = {
    "list": listed,
    "map": mapped,
    "watch": watched,
    "help": _help,
    "reset": _reset,
    "health": health,
    "current-fault-event": faults,
    "ecc": memory_errors,
    "board": board,
    "proc-mem": _processes,
    "spod-info": superpod,
    "phyid-remap": remapped,
    "topo": topology,
    **{kind: values(kind) for kind in ("common", "usages", "memory", "temp", "power", "volt")},
}
