"""Links, addresses and neighbours in outputs of ``hccn_tool``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from ..model import Sample
from .hccn_place import Place, lines, rows, told

MEGA = 1e6
UP = {"UP": 1.0, "DOWN": 0.0}
HEALTHY = {
    "success": 1.0,
    "socket fail": 0.0,
    "socket failed": 0.0,
    "receive timeout": 0.0,
    "unreachable": 0.0,
    "time exceeded": 0.0,
    "fault": 0.0,
    "thread error": 0.0,
}
"""Net health words that are a verdict; init, detect ip set and unknown are none."""
UNDECIDED = frozenset({"init", "detect ip set", "unknown"})

_STAMP = re.compile(r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \d{4}\b")
_RATE = re.compile(r"([\d.]{1,15}) *([KMG]?)(b/s|bps|bits?/s)", re.IGNORECASE)
_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}


def link(text: str, place: Place) -> Iterator[Sample]:
    """``-link``: is the port up."""
    for key, value, here in told(text, place):
        if key == "link status" and value.upper() in UP:
            kind = "ub" if place.port else "roce"
            yield Sample("accelerator_link_up", UP[value.upper()], here.labels(link=kind))
    yield from ports(text, place)


def net_health(text: str, place: Place) -> Iterator[Sample]:
    """``-net_health``: does the address to be detected answer."""
    for key, value, here in told(text, place):
        word = value.lower()
        if key in {"net health status", "net_health status"}:
            if word in HEALTHY:
                yield Sample("accelerator_network_healthy", HEALTHY[word], here.labels())
            if word in HEALTHY or word in UNDECIDED:
                labels = here.labels(status=word.replace("failed", "fail").replace(" ", "_"))
                yield Sample("accelerator_network_health_info", 1.0, labels)


def history(text: str, place: Place) -> Iterator[Sample]:
    """``-link_stat``: how often the link changed, and its latest changes (newest first)."""
    records: list[tuple[str, float, Place]] = []
    counts: dict[str, float] = {}
    home = place
    for line, here in lines(text, place):
        home = here
        if found := re.search(r"link (up|down) count\s*:\s*(\d{1,9})\s*$", line, re.IGNORECASE):
            counts[found[1].lower()] = float(found[2])
        word = re.search(r"\bLINK[ _](UP|DOWN)\b", line)
        moment = _STAMP.search(line)
        if word and moment and (seconds := _seconds(moment[0])) is not None:
            records.append((word[1], seconds, here))
    table = [here for _, here in rows(text, place)]
    home = table[0] if table else records[0][2] if records else home
    kind = "ub" if home.port else "roce"
    if records:
        yield Sample("accelerator_link_up", UP[records[0][0]], home.labels(link=kind))
    if "up" in counts:
        counts.setdefault("down", float(sum(word == "DOWN" for word, _, _ in records)))
    for direction, count in counts.items():
        labels = home.labels(link=kind, direction=direction)
        yield Sample("accelerator_link_changes_total", count, labels)
    for state, seconds, _ in reversed(records):
        labels = home.labels(link=kind, direction=state.lower())
        yield Sample("accelerator_link_last_change_timestamp_seconds", seconds, labels)


def ports(text: str, place: Place) -> Iterator[Sample]:
    """``-dev_info``: all ports of a device in a table, and its network interfaces."""
    for row, here in rows(text, place):
        state = row.get("linkstatus", "").upper()
        labels = here.labels(link=row.get("porttype", "ub").lower(), media=row.get("mediatype", ""))
        if state in UP:
            yield Sample("accelerator_link_up", UP[state], labels)
        ability = row.get("speedabilitygbps", "")
        if re.fullmatch(r"\d{1,6}", ability):
            name = "accelerator_link_max_speed_bytes_per_second"
            yield Sample(name, float(ability) * 1e9 / 8, labels)
        if row.get("ipaddress"):
            own = here.labels(interface=row.get("interfacename", ""), address=row["ipaddress"])
            yield Sample("accelerator_network_info", 1.0, own)


def vnic(text: str, place: Place) -> Iterator[Sample]:
    """``-vnic``: the virtual interface between dies."""
    found = {key: value for key, value, _ in told(text, place)}
    state = found.get("vnic link status", "").upper()
    if state in UP:
        yield Sample("accelerator_link_up", UP[state], place.labels(link="vnic"))
    if found.get("vnic ipaddr"):
        address = {"address": found["vnic ipaddr"], "netmask": found.get("vnic netmask", "")}
        yield Sample("accelerator_network_info", 1.0, place.labels(interface="vnic", **address))


def speed(text: str, place: Place) -> Iterator[Sample]:
    """``-speed`` and ``-status``: the rate of the link, and whether it is detected."""
    for key, value, here in told(text, place):
        if key.endswith("speed") and (found := _RATE.search(value)):
            yield Sample("accelerator_link_speed_bytes_per_second", _bytes(found), here.labels())
        if key == "link detected" and value.lower() in {"yes", "no"}:
            labels = here.labels(link="roce")
            yield Sample("accelerator_link_up", float(value.lower() == "yes"), labels)
    for row, here in rows(text, place):
        if found := _RATE.search(row.get("speed", "")):
            yield Sample("accelerator_link_speed_bytes_per_second", _bytes(found), here.labels())
        if row.get("status"):
            labels = here.labels(status=row["status"], width=row.get("width", ""))
            yield Sample("accelerator_link_speed_info", 1.0, labels)


def bandwidth(text: str, place: Place) -> Iterator[Sample]:
    """``-bandwidth`` and ``-peak_bw``: what went over the link in the time of measuring; a MB is
    10^6 bytes."""
    pattern = r"(Peak )?Bandwidth ([TR])X[ \t]*: *([\d.]{1,15}) *MB/s"
    for peak, direction, word in re.findall(pattern, text):
        name = ("peak_" if peak else "") + ("transmit" if direction == "T" else "receive")
        number = _number(word)
        if number is not None:
            yield Sample(f"accelerator_link_{name}_bytes_per_second", number * MEGA, place.labels())


def fec(text: str, place: Place) -> Iterator[Sample]:
    """``-fec``: the mode of forward error correction."""
    for key, value, here in told(text, place):
        if key == "fec mode":
            mode = value.removesuffix("FEC mode").strip()
            labels = here.labels(mode="none" if mode == "no" else mode)
            yield Sample("accelerator_link_fec_info", 1.0, labels)
    for row, here in rows(text, place):
        labels = here.labels(
            mode=row.get("rsmode", ""),
            change=row.get("autochangemode", ""),
            interleave=row.get("itlvmode", ""),
        )
        yield Sample("accelerator_link_fec_info", 1.0, labels)


def addresses(text: str, place: Place) -> Iterator[Sample]:
    """``-ip``: the address of the port."""
    found = {key: value for key, value, _ in told(text, place)}
    if found.get("ipaddr"):
        labels = place.labels(address=found["ipaddr"], netmask=found.get("netmask", ""))
        yield Sample("accelerator_network_info", 1.0, labels)


def gateways(text: str, place: Place) -> Iterator[Sample]:
    """``-gateway``: gateway and interface, two pairs on one line."""
    for address, interface in re.findall(r"default gateway: *([^\s,]+), *Iface: *(\S+)", text):
        labels = place.labels(gateway=address, interface=interface)
        yield Sample("accelerator_network_gateway_info", 1.0, labels)


def detection(text: str, place: Place) -> Iterator[Sample]:
    """``-netdetect``: the address that net health asks."""
    for key, value, here in told(text, place):
        if key == "netdetect address" and value:
            yield Sample("accelerator_network_detect_info", 1.0, here.labels(address=value))


def routes(text: str, place: Place) -> Iterator[Sample]:
    """``-route``: the default routes."""
    for line in text.splitlines():
        words = line[:2000].split()
        if len(words) >= 8 and words[0] in {"default", "0.0.0.0"}:  # noqa: S104 - a route, no bind
            labels = place.labels(gateway=words[1], interface=words[-1])
            yield Sample("accelerator_network_default_route", 1.0, labels)


def neighbours(text: str, place: Place) -> Iterator[Sample]:
    """``-lldp``: the switch port at the other end."""
    for key, value, here in told(text, place):
        if key == "ifname" and value:
            yield Sample("accelerator_network_neighbour_info", 1.0, here.labels(switch_port=value))


def tls(text: str, place: Place) -> Iterator[Sample]:
    """``-tls``: is the encryption of the control channel on."""
    for line, here in lines(text, place):
        who = re.match(r"\s*dev_id: *(\d{1,5})\b", line)
        home = replace(here, device=who[1]) if who else here
        if found := re.search(r"tls switch\[([01])\]", line):
            yield Sample("accelerator_tls_enabled", float(found[1]), home.labels())


def _seconds(stamp: str) -> float | None:
    try:
        moment = datetime.strptime(f"{stamp} +0000", "%a %b %d %H:%M:%S %Y %z")
    except ValueError:
        return None
    return moment.timestamp()


def _number(word: str) -> float | None:
    return float(word) if re.fullmatch(r"\d+(\.\d*)?", word) else None


def _bytes(found: re.Match[str]) -> float:
    return (_number(found[1]) or 0.0) * _FACTORS[found[2].lower()] / 8
