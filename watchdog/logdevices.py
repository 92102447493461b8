"""What drivers and the host's kernel say of cards, links and memory beyond the named groups.

Codes are looked up in the vocabulary of faults; nothing is kept between lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from .faults import vocabulary
from .logpatterns import Pattern
from .logrecords import Found, number


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


_STATES = {0: "recover", 1: "occur", 2: "notice"}
_ASSERTION = re.compile(r"(?i)(?:assertion|event_state)\"?\s?[=:]\s?(?:0x)?(\d)")
_DEVICE = re.compile(r"(?i)\b(?:devid|device_id|dev_id|device id|deviceid)\"?\s?[-=:]\s?(\d+)")


def _npu_event(found: Found) -> None:
    fields = found.fields
    fault = vocabulary().ascend(fields["code"])
    fields["code"], found.kind, found.severity = fault.code, fault.kind, fault.severity
    fields["action"] = fault.action
    state = _ASSERTION.search(found.text)
    assertion = str(fields.pop("assertion", state[1] if state is not None else ""))
    if assertion:
        fields["state"] = _STATES.get(int(assertion, 16), "notice")
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


def raw_kind(pattern: Pattern, match: re.Match[bytes]) -> str:
    """The kind of a line of which only the kind is asked."""
    if pattern.finish == "xid":
        return vocabulary().xid(int(match["xid"])).kind
    if pattern.finish == "npu_event":
        return vocabulary().ascend(match["code"].decode()).kind
    if pattern.finish == "opens":
        return vocabulary().cann(match["code"].decode()).kind
    return pattern.kind


FINISHERS: Mapping[str, Callable[[Found], None]] = {
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
