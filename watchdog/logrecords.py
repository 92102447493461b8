"""Recognised log records, and what is worked out of a line beyond its pattern's named groups.

A finisher sees one line (and may look at the lines after it); it fills fields and may correct kind
and severity. It must not keep anything between lines: that is the classifier's work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .faults import vocabulary
from .logheads import Head, head, plain
from .logpatterns import Pattern

MAX_TEXT = 4096  # characters of a record's text
MAX_LINE = 16 * 1024  # bytes of a line that are read; the rest of a longer one is passed over
BEGUN = 8  # lines within which a traceback begins after the message that announces it


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One event as a log tells it. ``line`` counts from 1 and is the record's first one, ``text``
    that line without colour, ``time`` Unix seconds. ``fields`` are described by the patterns.
    """

    kind: str
    severity: str
    line: int
    text: str
    time: float | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The record as JSON, its time in RFC 3339."""
        moment = None
        if self.time is not None:
            moment = datetime.fromtimestamp(self.time, timezone.utc).isoformat()
            moment = moment.replace("+00:00", "Z")
        return {
            "kind": self.kind,
            "severity": self.severity,
            "line": self.line,
            "text": self.text,
            "time": moment,
            "fields": dict(self.fields),
        }


@dataclass(frozen=True, slots=True)
class Around:
    """The lines around the one from ``start`` to ``stop`` of a block, without colour."""

    block: bytes
    start: int
    stop: int

    def after(self, count: int) -> Iterator[str]:
        """At most ``count`` lines after it."""
        place = self.stop + 1
        while count > 0 and 0 <= place < len(self.block):
            end = self.block.find(b"\n", place)
            end = len(self.block) if end < 0 else end
            yield self._text(place, min(end, place + MAX_LINE))
            place, count = end + 1, count - 1

    def before(self) -> str:
        """The line before it."""
        begin = self.block.rfind(b"\n", 0, max(self.start - 1, 0)) + 1
        return self._text(begin, self.start)

    def _text(self, begin: int, end: int) -> str:
        return plain(self.block[begin:end].decode("utf-8", "replace"))


@dataclass(slots=True)
class Found:
    """A line that matched, while it is being read. ``marks`` tell events apart without becoming
    fields; ``around`` are its neighbours.
    """

    pattern: Pattern
    match: re.Match[str]
    text: str
    head: Head
    kind: str
    severity: str
    fields: dict[str, Any]
    around: Around
    marks: dict[str, Any] = field(default_factory=dict)

    def key(self, name: str) -> Any:
        """A field or mark that tells one event from another, or None."""
        return self.fields.get(name, self.marks.get(name))


_WORDS = frozenset(("code", "name", "comm", "detail", "unit", "error", "exit_word"))
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)$")
_DECIMAL = re.compile(r"-?\d+\.\d+$")


def number(text: str) -> int | float | str:
    """The number that the text spells, else the text."""
    if _INTEGER.match(text):
        return int(text)
    return float(text) if _DECIMAL.match(text) else text


def groups(match: re.Match[str]) -> dict[str, Any]:
    """The named groups that took part, numbers as numbers."""
    return {
        name: value if name in _WORDS else number(value)
        for name, value in match.groupdict().items()
        if value not in (None, "None")
    }


_EXCEPTION = re.compile(
    r"([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Timeout|Fault|Failure|Expired)\w*)(?::|$)"
)


def exception(lines: Iterable[str], pid: int | None, *, begun: bool = True) -> str | None:
    """The exception that ends the traceback in these lines, or None where it is not there yet.

    ``begun``: the lines before these were already of the traceback. Lines of other processes in
    between are passed over.
    """
    for count, line in enumerate(lines):
        begun = begun or "Traceback (most recent call last)" in line
        if not begun:
            if count >= BEGUN:
                return None
            continue
        begin = head(line)
        if pid is not None and begin.pid is not None and begin.pid != pid:
            continue
        body = line[begin.body :]
        if not body.strip() or body[0] in " \t~^|" or body.startswith("Traceback (most"):
            continue
        if _EXCEPTION.match(body):
            return body.strip()
        if begin.where or begin.level:
            continue
        return None
    return None


# ---- out of memory ----

_SIZE = r"([\d.]+) ([KMGT]?i?B|bytes)"
_SIZES = {
    "tried": re.compile(rf"Tried to allocate {_SIZE}"),
    "total": re.compile(rf"total capac?ity of {_SIZE}|; {_SIZE} total capacity"),
    "free": re.compile(rf"of which {_SIZE} is free|; {_SIZE} free"),
    "used": re.compile(rf"(?:this process|Process \d+) has {_SIZE} memory in use"),
    "allocated": re.compile(
        rf"Of the allocated memory {_SIZE} is allocated by PyTorch|; {_SIZE} already allocated"
    ),
    "active": re.compile(rf"; {_SIZE} current active"),
    "private_pools": re.compile(rf"with {_SIZE} allocated in private pools"),
    "reserved_unalloc": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved": re.compile(rf"; {_SIZE} reserved in total by PyTorch"),
}
_OOM_DEVICE = re.compile(r"GPU (\d+) has a total|\((?:GPU|NPU) (\d+); ")
_HOLDER = re.compile(r"Process (\d+) has ")
_UNITS = {"bytes": 0, "B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}


def _oom(found: Found) -> None:
    """Sizes as the text gives them, and from them fragmentation and cause where they suffice."""
    text, fields = found.text, found.fields
    device = _OOM_DEVICE.search(text)
    if device is not None:
        index = device[1] or device[2]
        fields["device"] = f"npu:{index}" if "NPU out of" in text else int(index)
    holder = _HOLDER.search(text)
    if holder is not None:
        fields["holder_pid"] = int(holder[1])
    size: dict[str, float] = {}
    for name, expression in _SIZES.items():
        match = expression.search(text)
        if match is None:
            continue
        amount, unit = (part for part in match.groups() if part is not None)
        unit = "bytes" if unit == "B" else unit
        if unit not in _UNITS:
            continue
        fields[f"{name}_{unit.lower()}"] = float(amount)
        size[name] = float(amount) * 1024.0 ** _UNITS[unit]
    found.marks["tried"] = size.get("tried")
    _oom_cause(fields, size)


def _oom_cause(fields: dict[str, Any], size: dict[str, float]) -> None:
    if "allocated" not in size:
        return
    allocated = size["allocated"]
    if "reserved" in size:
        unused, held = size["reserved"] - allocated, size["reserved"]
    elif "reserved_unalloc" in size:
        unused, held = size["reserved_unalloc"], size["reserved_unalloc"] + allocated
    else:
        return
    fields["fragmentation"] = round(max(unused, 0.0) / held, 4) if held else 0.0
    total, free = size.get("total"), size.get("free")
    if total is None or free is None:
        return
    outside = total - free - held
    cause = "capacity"
    if outside >= total / 2:
        fields["outside_pytorch_gib"] = round(outside / 1024**3, 1)
        cause = "foreign_process"
    elif size.get("tried", 0.0) <= free + unused and fields["fragmentation"] >= 0.01:
        cause = "fragmentation"
    fields["cause"] = cause


# ---- vLLM ----


def _engine_dead(found: Found) -> None:
    if "No heartbeat received" in found.text:
        found.fields["cause"] = "no_heartbeat"


_PROCS = re.compile(r"Failed core proc\(s\): (\{.*?\})")
_PROC = re.compile(r"'([^']+)': (-?\w+)")


def _init_failed(found: Found) -> None:
    procs = _PROCS.search(found.text)
    if procs is None:
        return
    found.fields["failed_procs"] = procs[1]
    named = _PROC.search(procs[1])
    if named is not None:
        found.fields.update(proc=named[1], exit=number(named[2]))


def _worker_died(found: Found) -> None:
    fields = found.fields
    if "worker" in fields:
        fields["name"] = fields.pop("worker")
    if "code" in fields:
        fields["exit"] = number(fields.pop("code"))


_RAY_FIELD = re.compile(r"^\s+(pid|ip|name|class_name): (\S+)")
_RAY_EXIT = re.compile(r"Worker exit type: (\w+)")


def _ray_actor(found: Found) -> None:
    """The actor's fields stand on indented lines below."""
    for line in found.around.after(12):
        named = _RAY_FIELD.match(line)
        exit_type = _RAY_EXIT.search(line)
        if named is not None:
            name = "actor_pid" if named[1] == "pid" else f"actor_{named[1]}"
            if named[1] != "class_name":
                found.fields[name] = number(named[2])
        elif exit_type is not None:
            found.fields["exit_type"] = exit_type[1]
            _ray_exit(found, line)
            break


def _ray_exit(found: Found, line: str = "") -> None:
    if "OOM" in (line or found.text):
        found.fields["hint"] = "host OOM or SIGSEGV"


def _rpc_timeout(found: Found) -> None:
    """A frame in the queue's reader is a time-out only when the traceback ends so."""
    if "in acquire_read" not in found.text or "TimeoutError: " in found.text:
        return
    ended = exception(found.around.after(60), found.head.pid)
    if ended is None or not ended.startswith("TimeoutError"):
        found.kind = ""


_RANK_WORD = re.compile(r"\[(?:PG \d+ )?Rank (\d+)\]")


def _rank_word(found: Found) -> None:
    rank = _RANK_WORD.search(found.text)
    if rank is not None:
        found.fields["rank"] = int(rank[1])


def _words(found: Found) -> None:
    found.fields["error"] = found.fields["error"].replace("-", "_").replace(" ", "_")


def _commas(found: Found) -> None:
    tokens = found.fields.get("kv_tokens")
    if isinstance(tokens, str):
        found.fields["kv_tokens"] = int(tokens.replace(",", ""))


def _tags(found: Found) -> None:
    names = sorted(re.findall(r"\w+", str(found.fields.get("tags", ""))), reverse=True)
    found.fields["tags"] = ",".join(names)


# ---- NVIDIA and the host's kernel ----


def bus_address(text: str) -> str:
    """A PCI address as cards are named: lower-case, four-digit domain, no function."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}".removesuffix(".0")


def _bus(found: Found) -> None:
    found.fields["bus_id"] = bus_address(str(found.fields["bus_id"]))


_NVLINK5 = re.compile(r"(?P<unit>\S+) +(?P<word>Fatal|Nonfatal) +XC\d+ i\d+ Link (?P<link>-?\d+)")
_RECOVERY = re.compile(r"from 0x([0-9a-f]+) .*? to 0x([0-9a-f]+)")
_RECOVERY_ACTIONS = {
    0: ("none", "info"),
    1: ("reset_card", "critical"),
    2: ("reboot_node", "critical"),
    3: ("drain_p2p", "warning"),
    4: ("drain_and_reset", "critical"),
}
_PREVIOUS = re.compile(r"caused by previous Xid (\d+)")


def _xid(found: Found) -> None:
    """Kind, severity and action from the vocabulary; some Xids say more in their text."""
    fields = found.fields
    _bus(found)
    if not isinstance(fields.get("pid"), int):
        fields.pop("pid", None)
    if fields.get("name") in ("<unknown>", ""):
        fields.pop("name")
    xid = int(fields["xid"])
    fault = vocabulary().xid(xid)
    found.kind, found.severity = fault.kind, fault.severity
    fields["action"] = fault.action
    detail = str(fields.pop("detail", ""))
    if 144 <= xid <= 150 and (unit := _NVLINK5.search(detail)):
        fields.update(unit=unit["unit"], link=int(unit["link"]), fatal=unit["word"] == "Fatal")
        found.severity = "critical" if fields["fatal"] else "warning"
    elif xid == 154 and (change := _RECOVERY.search(detail)):
        step = int(change[2], 16)
        fields["recovery"] = step
        fields["action"], found.severity = _RECOVERY_ACTIONS.get(step, ("support", "warning"))
    elif previous := _PREVIOUS.search(detail):
        fields["previous_xid"] = int(previous[1])


def _sxid(found: Found) -> None:
    _bus(found)
    fault = vocabulary().sxid(int(found.fields["sxid"]))
    found.severity = fault.severity
    found.fields["action"] = fault.action
    found.fields.pop("detail", None)
    word = found.fields.pop("word", None)
    if word is not None:
        found.fields["fatal"] = word.lower() == "fatal"
        found.severity = "critical" if found.fields["fatal"] else "warning"


def _fallen_off(found: Found) -> None:
    """The sentence may run over three lines."""
    text = " ".join(
        [found.text, *(line.split("NVRM:")[-1].strip() for line in found.around.after(3))]
    )
    if not re.search(r"fallen off the\s+bus", text):
        found.kind = ""
    _bus(found)


def _host_oom(found: Found) -> None:
    scope = found.fields.get("scope")
    if scope is not None:
        found.fields["scope"] = "memcg" if scope.startswith("Memory") else "global"


def _oom_constraint(found: Found) -> None:
    constraint = found.fields.pop("constraint")
    found.fields["scope"] = "memcg" if constraint == "CONSTRAINT_MEMCG" else "global"


# ---- Ascend's driver ----

_STATES = {0: "recover", 1: "occur", 2: "notice"}
_ASSERTION = re.compile(r"(?i)(?:assertion|event_state)\"?\s?[=:]\s?(?:0x)?(\d)")
_DEVICE = re.compile(r"(?i)\b(?:devid|device_id|dev_id|device id|deviceid)\"?\s?[-=:]\s?(\d+)")


def _npu_event(found: Found) -> None:
    fields = found.fields
    fault = vocabulary().ascend(fields["code"])
    fields["code"], found.kind, found.severity = fault.code, fault.kind, fault.severity
    fields["action"] = fault.action
    state = _ASSERTION.search(found.text)
    fields.pop("assertion", None)
    if state is not None:
        fields["state"] = _STATES.get(int(state[1]), "notice")
        if fields["state"] == "recover":
            found.severity = "info"
    device = _DEVICE.search(found.text)
    if device is not None:
        fields["device"] = int(device[1])
    if "state" in fields:
        found.marks["once"] = object()  # occur, recover, occur: each is an event


def _bmc_event(found: Found) -> None:
    found.fields["code"] = "0x" + found.fields["code"].lower()


def _link_event(found: Found) -> None:
    fields = found.fields
    if not (fields["mac_link"] and fields["pcs_link"]):
        found.severity = "warning"


_APEI = {
    "address": re.compile(r"physical_address: (0x[0-9a-f]+)"),
    "severity_word": re.compile(r"event severity: (\w+)"),
    "node": re.compile(r"\bnode: ?(\d+)"),
    "module": re.compile(r"\bmodule: ?(\d+)"),
}


def _apei(found: Found) -> None:
    """A memory error that firmware reports, over several lines. A device's own log means the
    device's memory; the host's kernel its own."""
    lines = [found.text, *found.around.after(14)]
    text = "\n".join(line for line in lines if "[Hardware Error]" in line)
    if "section_type: memory error" not in text:
        found.kind = ""
        return
    for name, expression in _APEI.items():
        match = expression.search(text)
        if match is not None:
            found.fields[name] = number(match[1])
    if "address" in found.fields:
        found.fields["address"] = hex(int(found.fields["address"], 16))
    word = found.fields.pop("severity_word", "recoverable")
    found.severity = "critical" if word == "fatal" else "warning"
    found.fields["error"] = "apei_memory"
    if "sklogd" not in found.text:
        found.kind, found.fields["what"] = "context", "host_memory_error"


FINISHERS: Mapping[str, Callable[[Found], None]] = {
    "oom": _oom,
    "engine_dead": _engine_dead,
    "init_failed": _init_failed,
    "worker_died": _worker_died,
    "ray_actor": _ray_actor,
    "ray_exit": _ray_exit,
    "rpc_timeout": _rpc_timeout,
    "rank_word": _rank_word,
    "words": _words,
    "commas": _commas,
    "tags": _tags,
    "bus": _bus,
    "xid": _xid,
    "sxid": _sxid,
    "fallen_off": _fallen_off,
    "host_oom": _host_oom,
    "oom_constraint": _oom_constraint,
    "npu_event": _npu_event,
    "bmc_event": _bmc_event,
    "link_event": _link_event,
    "apei": _apei,
}
