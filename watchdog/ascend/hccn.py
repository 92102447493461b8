"""Outputs of ``hccn_tool``: which command's output a text is, whose, and the series in it.

A text may be a transcript of several calls, each begun by its command line. ``-i`` is the physical
id here, not the NPU id of ``npu-smi``; it is the ``device`` label. It must not judge: a link that
is down, a refused ping and an unset address are all told as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..errors import SourceError
from ..model import Labels, Sample
from . import hccn_counters, hccn_links, hccn_optics, hccn_ping
from .answers import HEAD
from .hccn_place import Place
from .refusals import refuse

_CALL = re.compile(r"^(?:\S*[#$>] ?)?\S*hccn_tool\s+(-.*)$")
_VERB = re.compile(r"-([a-z]\w+)")
_SKIPPED = frozenset({"time", "address", "pkt", "src_eid", "dst_eid", "cnt", "interval"})

Reader = Callable[[str, Place], Iterator[Sample]]

_READERS: dict[str, Reader] = {
    "link": hccn_links.link,
    "link_stat": hccn_links.history,
    "net_health": hccn_links.net_health,
    "dev_info": hccn_links.ports,
    "vnic": hccn_links.vnic,
    "speed": hccn_links.speed,
    "status": hccn_links.speed,
    "bandwidth": hccn_links.bandwidth,
    "peak_bw": hccn_links.bandwidth,
    "fec": hccn_links.fec,
    "ip": hccn_links.addresses,
    "gateway": hccn_links.gateways,
    "netdetect": hccn_links.detection,
    "route": hccn_links.routes,
    "lldp": hccn_links.neighbours,
    "tls": hccn_links.tls,
    "ping": hccn_ping.ping,
    "hccs_ping": hccn_ping.ping,
    "ub_ping": hccn_ping.ping,
    "stat": hccn_counters.counters,
    "hw_stats": hccn_counters.counters,
    "bit_err": hccn_counters.counters,
    "series": hccn_counters.series,
    "optical": hccn_optics.optics,
}
_SHAPES = (
    ("series", r"^timestamp,npu_index,"),
    ("link_stat", r"\blink (?:up|down) count[ \t]*:"),
    ("vnic", r"^vnic (?:link status|ipaddr)[ \t]*:"),
    ("link", r"^link status[ \t]*:"),
    ("net_health", r"^net[ _]health status[ \t]*:"),
    ("ping", r"^recv (?:seq|time out)|\bpackets transmitted,"),
    ("optical", r"^optical info:|^(?:Tx|Rx) Power ?\d?[ \t]*:"),
    ("bit_err", r"\bst_fec_\w+[ \t]*:"),
    ("hw_stats", r"\bpd_alloc[ \t]*:"),
    ("stat", r"^packet statistics:|^(?:mac|roce|nic|ub|unic)_\w+[ \t]*:[ \t]*\d"),
    ("bandwidth", r"\bBandwidth [TR]X[ \t]*:"),
    ("fec", r"^fec mode[ \t]*:|\brs_mode\b"),
    ("tls", r"\btls switch\["),
    ("gateway", r"^default gateway[ \t]*:"),
    ("netdetect", r"^netdetect address[ \t]*:"),
    ("route", r"^Routing table:|^Destination\s+Gateway"),
    ("dev_info", r"\|[ \t]*UDie ?ID[ \t]*\|"),
    ("status", r"^[ \t]*Speed[ \t]*:|^[ \t]*Link detected[ \t]*:|\|[ \t]*Speed[ \t]*\|"),
    ("lldp", r"\bTLV[ \t\r]*$|^[ \t]*Ifname:"),
    ("ip", r"^ipaddr[ \t]*:"),
)
MAY_BE_EMPTY = frozenset({"ip", "gateway", "netdetect", "lldp", "route"})
"""Commands that print nothing when nothing is configured."""
MAY_SAY_NOTHING = MAY_BE_EMPTY | {"speed", "status"}
"""Commands whose answer may be without any value: the speed of a link that is down."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call in a text: its verb (``""``: not told), whom it asks, what it printed."""

    verb: str
    place: Place
    body: str


def read_output(
    text: str, command: str | None = None, cards: Mapping[str, str] | None = None
) -> list[Sample]:
    """Samples of an output or a transcript, each series once (the last one told). ``cards`` are
    names by physical id.

    Raises NotSupported and SourceError as ``refuse`` does, SourceError for an output that is not
    known, is empty where something must be, or holds the command line alone.
    """
    found: dict[Labels, Sample] = {}
    calls = _calls(text, command, Place(cards=cards or {}))
    for call in calls:
        verb = call.verb or recognise(call.body)
        if verb not in _READERS or not recognise(call.body):
            refuse(call.body)
        if verb in MAY_BE_EMPTY and not call.body.strip():
            continue
        if verb not in _READERS:
            raise SourceError(_unknown(call.body))
        if not call.body.strip():
            raise SourceError(f"hccn_tool -{verb}: no answer")
        found |= {sample.key: sample for sample in _READERS[verb](call.body, call.place)}
    verbs = {call.verb or recognise(call.body) for call in calls}
    if not found and not verbs <= MAY_SAY_NOTHING:
        raise SourceError("nothing can be read in this output of hccn_tool")
    return list(found.values())


def recognise(text: str) -> str:
    """The command whose output a text is, or ``""``."""
    found = (verb for verb, pattern in _SHAPES if re.search(pattern, text[:HEAD], re.MULTILINE))
    return next(found, "")


def _calls(text: str, command: str | None, place: Place) -> list[_Call]:
    line = re.sub(r"^\s*\S*hccn_tool\b", "", command or "")
    calls = [_call(line, place)]
    bodies: list[list[str]] = [[]]
    for row in text.splitlines():
        found = _CALL.match(row.strip()[:300]) if "hccn_tool" in row else None
        if found:
            calls.append(_call(found[1], place))
            bodies.append([])
        else:
            bodies[-1].append(row)
    done = [replace(call, body="\n".join(body)) for call, body in zip(calls, bodies, strict=True)]
    return [call for call in done if call.body.strip() or call is not done[0] or len(done) == 1]


def _call(line: str, place: Place) -> _Call:
    ids = dict(re.findall(r"\s-([iup])\s+(\d{1,6})\b", f" {line}"))
    verbs = [verb for verb in _VERB.findall(line) if verb not in _SKIPPED]
    return _Call(
        next((verb for verb in verbs if verb in _READERS), verbs[0] if verbs else ""),
        replace(place, device=ids.get("i", ""), udie=ids.get("u", ""), port=ids.get("p", "")),
        "",
    )


def _unknown(body: str) -> str:
    if not body.strip():
        return "empty output: nothing is configured, or nothing was read"
    return "not a known output of hccn_tool"
