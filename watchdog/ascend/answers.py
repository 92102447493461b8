"""Key and value answers of ``npu-smi``: which command's answer a text is, and its blocks.

A block is what is told of one chip. ``Chip ID`` opens a block in some answers and closes it in
others; ``Chip Name : mcu`` opens a block of the board's controller, which repeats keys of the chip.
It must not name series: that is ``readings.py``'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_LINE = 2000  # characters
HEAD = 65536  # characters that are looked at to tell what a text is

_ID = re.compile(r"\s-([ic])\s+(\d{1,6})\b")
_TYPE = re.compile(r"\s-t\s+([A-Za-z][\w-]*)")

CLOSING = frozenset({"usages", "ecc"})
"""Answers in which ``Chip ID`` stands at the end of what is told of the chip."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks for: the kind of answer (``""``: not told), NPU and chip."""

    kind: str = ""
    npu: int | None = None
    chip: int | None = None


@dataclass(slots=True)
class Block:
    """What is told of one chip: keys in lower case without blanks before a unit. A key that is
    told twice with different values is in ``torn``, and has no value."""

    npu: int | None = None
    chip: int | None = None
    board: bool = False
    fields: dict[str, str] = field(default_factory=dict)
    torn: set[str] = field(default_factory=set)

    def add(self, key: str, value: str) -> None:
        if key in self.fields and self.fields[key] != value:
            self.torn.add(key)
        self.fields[key] = "" if key in self.torn else value


def asked(command: str | None) -> Asked:
    """Read a command line such as ``npu-smi info -t common -i 1 -c 0``."""
    line = command or ""
    ids = {letter: int(value) for letter, value in _ID.findall(line)}
    kind = ""
    if found := _TYPE.search(line):
        kind = "reset" if re.search(r"\bset\b", line) else found[1]
    else:
        words = line.split()
        kinds = {"-l": "list", "-m": "map", "watch": "watch", "-h": "help", "--help": "help"}
        kind = next((kinds[word] for word in words if word in kinds), "")
    return Asked(kind, ids.get("i"), ids.get("c"))


def pairs(text: str) -> list[tuple[str, str]]:
    """Keys and values in order; a line with an empty key goes on with the value before it."""
    found: list[tuple[str, str]] = []
    for line in text.splitlines():
        head, colon, tail = line[:MAX_LINE].partition(":")
        key, value = _key(head), tail.strip()
        if colon and key:
            found.append((key, value))
        elif colon and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {value}".strip())
    return found


def blocks(kind: str, text: str) -> list[Block]:
    """What an answer tells, chip by chip."""
    done: list[Block] = []
    block = Block()
    for key, value in pairs(text):
        if key == "npu id":
            if block.fields:
                done.append(block)
            block = Block(npu=_id(value))
        elif key == "chip id":
            if kind in CLOSING:
                block.chip = _id(value)
                done.append(block)
                block = Block(npu=block.npu)
            else:
                if block.fields.keys() - {"chip count"}:
                    done.append(block)
                block = Block(npu=block.npu, chip=_id(value))
        elif key == "chip name" and value.lower() == "mcu":
            done.append(block)
            block = Block(npu=block.npu, board=True)
        else:
            block.add(key, value)
    return [one for one in [*done, block] if one.fields]


def recognise(text: str) -> str:
    """The kind of answer that a text is: the word after ``-t``, or list, map, watch, help, reset;
    ``""`` for none."""
    text = text[:HEAD]
    keys = {key for key, _ in pairs(text)}
    for kind, pattern in _SHAPES:
        if re.search(pattern, text, re.MULTILINE):
            return kind
    return next((kind for kind, wanted in _KEYS if wanted <= keys), "")


_SHAPES = (
    ("help", r"^Usage: npu-smi "),
    ("watch", r"^[ \t]*NpuID\(Idx\)"),
    ("map", r"^[ \t]*NPU ID[ \t]{2,}.*Chip Name[ \t\r]*$"),
    ("proc-mem", r"Process id: *\d{1,10}[ \t]+Process name:"),
    ("topo", r"^[ \t]*NPU\d+[ \t]+(?:X|HCCS|SYS|PHB|PIX|PXB|SIO|HCCS_SW)[ \t]"),
)
_KEYS = (  # the first line whose keys are all there tells the kind
    ("list", {"total count"}),
    ("health", {"health status"}),
    ("health", {"health"}),
    ("health", {"error code"}),
    ("current-fault-event", {"fault event count"}),
    ("spod-info", {"sdid"}),
    ("board", {"pcie bus info"}),
    ("board", {"firmware version"}),
    ("phyid-remap", {"chip phy-id", "npu id"}),
    ("ecc", {"hbm single bit error count"}),
    ("ecc", {"ddr single bit error count"}),
    ("ecc", {"hbm double bit error count"}),
    ("reset", {"message", "status"}),
    ("common", {"aicore curfreq(mhz)"}),
    ("common", {"aicore count"}),
    ("common", {"aicore usage rate(%)", "temperature(c)"}),
    ("memory", {"hbm clock speed(mhz)"}),
    ("memory", {"ddr clock speed(mhz)"}),
    ("usages", {"aicore usage rate(%)"}),
    ("usages", {"hbm usage rate(%)"}),
    ("usages", {"ddr usage rate(%)"}),
    ("temp", {"temperature(c)"}),
    ("temp", {"npu temperature(c)"}),
    ("power", {"npu real-time power(w)"}),
    ("power", {"power dissipation(w)"}),
    ("volt", {"voltage(v)"}),
    ("volt", {"npu voltage(v)"}),
)


def _key(head: str) -> str:
    key = re.sub(r"\s+", " ", head.strip().lower()).replace(" (", "(")
    return re.sub(r"^on-chip memory\b", "hbm", key)


def _id(value: str) -> int | None:
    return int(value) if re.fullmatch(r"\d{1,6}", value) else None
