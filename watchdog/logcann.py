"""CANN's and HCCL's error texts: one failure told over many lines, under several codes.

Lines of one failure are gathered into a Failure, which then says which code counts. Pure: lines in,
kind and fields out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .faults import vocabulary
from .logrecords import Found, number

_FACTS: Mapping[str, re.Pattern[str]] = {
    "text_pid": re.compile(r"\[PID: ?(\d+)\]|\(PID:(\d+)"),
    "device": re.compile(
        r"\bDevice:(\d+)|\bdevice_id=(\d+)|\bdevice\((\d+)\)|\bDevice\[(\d+)\]"
        r"|\bopen device (\d+)|\bdevice\[(\d+)\]"
    ),
    "chip": re.compile(r"\bchipId:([\d/]+)"),
    "rank": re.compile(r"\[rank(\d+)\]|\bRankID:(\d+)"),
    "drv_ret_code": re.compile(r"\bdrv_?[rR]et_?[cC]ode=(\d+)"),
}


def facts(text: str) -> dict[str, Any]:
    """What a line of such a text tells: pid, device, chip, rank, the driver's return code."""
    told: dict[str, Any] = {}
    for name, expression in _FACTS.items():
        match = expression.search(text)
        if match is not None:
            told[name] = number(next(part for part in match.groups() if part is not None))
    return told


@dataclass(slots=True)
class Failure:
    """The codes and facts of one failure, in the order in which they came."""

    runtime: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    told: dict[str, Any] = field(default_factory=dict)
    pid: int | None = None
    lost: bool = False

    @property
    def secondary(self) -> bool:
        """Whether nothing but torch_npu's own follow-up codes is known."""
        return not (self.runtime or self.named or self.lost)

    @property
    def empty(self) -> bool:
        """Whether no code at all is known: facts that nothing came to."""
        return self.secondary and not self.errors

    @property
    def owner(self) -> int | None:
        """The process that wrote it, as its line's head or its text says."""
        return self.pid if self.pid is not None else self.told.get("text_pid")

    def takes(self, found: Found) -> bool:
        """Whether the line can be one more of this failure."""
        told = facts(found.text)
        if self.pid is not None and found.head.pid is not None and self.pid != found.head.pid:
            return False
        mine, other = self.told.get("text_pid"), told.get("text_pid")
        if mine is not None and other is not None and mine != other:
            return False
        if found.pattern.finish != "opens" or not (self.named or self.runtime):
            return True
        # An exception's first line begins a failure; the line that ends one may name its code.
        ends = "ACL stream" in found.text and not found.head.ranks and not found.head.process
        return ends or found.fields.get("code") in self.runtime

    def add(self, found: Found) -> None:
        """Take a line's codes and facts."""
        for name, value in facts(found.text).items():
            self.told.setdefault(name, value)
        if found.head.pid is not None and self.pid is None:
            self.pid = found.head.pid
        for name, rank in found.head.ranks.items():
            self.told.setdefault(name, rank)
        code = found.fields.get("code")
        if found.pattern.finish == "heartbeat":
            self.lost = True
        elif code is not None and code.isdigit():
            _once(self.runtime, code)
        elif code is not None:
            _once(self.named, code)
        if "error" in found.fields:
            _once(self.errors, found.fields["error"])
        extra = re.search(r"runtime result = (\d{6})", found.text)
        if extra is not None:
            _once(self.runtime, extra[1])

    def verdict(self) -> tuple[str, str, dict[str, Any]]:
        """Kind, severity and fields of the failure."""
        known = vocabulary().cann
        runtime = [code for code in self.runtime if len(code) == 6] or self.runtime
        lost = [code for code in runtime if known(code).kind == "device_lost"]
        named = [code for code in self.named if known(code).category != "inner_error"]
        code, kind, severity = "", "npu_error", "critical"
        if self.lost or lost:
            code, kind = next(iter(lost + runtime + named), ""), "device_lost"
        elif named and (not runtime or named[0].startswith(("EI", "EJ", "EL"))):
            code = named[0]
        elif runtime:
            code = runtime[0]
        else:
            code = next(iter(self.named + self.errors), "")
        fault = known(code)
        if kind != "device_lost":
            kind, severity = fault.kind, fault.severity
        fields: dict[str, Any] = {"code": code} if code else {}
        if fault.category:
            fields["class"] = fault.category
        if runtime and runtime[0] != code and len(runtime[0]) == 6:
            fields["runtime"] = runtime[0]
        others = [other for other in self.named + self.errors if other != code]
        if others:
            fields["secondary"] = ",".join(others)
        fields.update(self._who())
        if self.secondary:
            fields["role"] = "secondary"
        return kind, severity, fields

    def _who(self) -> dict[str, Any]:
        told = dict(self.told)
        text_pid = told.pop("text_pid", None)
        who: dict[str, Any] = {}
        if self.owner is not None:
            who["pid"] = self.owner
        if text_pid is not None and text_pid != self.owner:
            who["worker_pid"] = text_pid
        return {**who, **told}


def _once(codes: list[str], code: str) -> None:
    if code not in codes:
        codes.append(code)


# ---- finishers of single lines ----


def _cann_facts(found: Found) -> None:
    told = facts(found.text)
    if found.head.pid is None and "text_pid" in told:
        found.fields["pid"] = told["text_pid"]
    told.pop("text_pid", None)
    found.fields.update(told)
    code = re.search(r":(E\d{5})", found.text)
    if code is not None:
        found.fields["code"] = code[1]


_FFTSPLUS: Mapping[str, re.Pattern[str]] = {
    "chips": re.compile(r"chipId:([\d/]+)"),
    "stream": re.compile(r"stream_id:(\d+)"),
    "task": re.compile(r"task_id:(\d+)"),
    "timeout_s": re.compile(r"timeout=(\d+)s"),
}


def _fftsplus(found: Found) -> None:
    """The sentence may be wrapped: its parts are on this line, the one before and those after."""
    text = "\n".join([found.text, found.around.before(), *found.around.after(3)])
    for name, expression in _FFTSPLUS.items():
        match = expression.search(text)
        if match is not None:
            value = match[1]
            found.fields[name] = value.replace("/", ",") if name == "chips" else int(value)


_TABLE_RANK = re.compile(r"\((\d+)\)")


def _link_table(found: Found) -> None:
    """Device, peer, role and status of the table's first row (two layouts)."""
    for line in found.around.after(8):
        device = re.search(r"comm error, device\[(\d+)\]", line)
        if device is not None:
            found.fields["device"] = int(device[1])
        _, _, row = line.partition("] ")
        cells = [cell.strip() for cell in row[row.find("|") :].split("|") if cell.strip()]
        roles = [place for place, cell in enumerate(cells) if cell in ("server", "client")]
        if not roles:
            continue
        ranks = [rank[1] for cell in cells if (rank := _TABLE_RANK.search(cell))]
        if ranks:
            found.fields["peer_rank"] = int(ranks[0])
        if len(ranks) > 1:
            found.fields.setdefault("rank", int(ranks[1]))
        found.fields["role"] = cells[roles[0]]
        found.fields["link_status"] = "".join(cells[roles[0] + 1 : roles[0] + 2])
        if len(cells) > roles[0] + 3:
            found.fields["tls"] = cells[roles[0] + 2]
        return


FINISHERS: Mapping[str, Callable[[Found], None]] = {
    "cann_facts": _cann_facts,
    "fftsplus": _fftsplus,
    "link_table": _link_table,
}
