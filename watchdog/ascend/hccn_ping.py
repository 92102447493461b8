"""Round trips in outputs of ``hccn_tool``: ``-ping`` and ``-ub_ping`` in milliseconds,
``-hccs_ping`` in microseconds. The first packet includes the address resolution and is told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..model import Sample
from .hccn_place import MAX_LINE, Place

UNITS = {"ms": 1e3, "us": 1e6}  # in a second

_REPLY = re.compile(
    r"recv seq *[=: ] *(\d{1,9}) *, *time *[=:] *(\d{1,9}(?:\.\d{1,9})?) *(ms|us)\b"
)
_SUMMARY = re.compile(
    r"(\d{1,9}) packets transmitted, (\d{1,9}) received, ([\d.]{1,12})% packets? "
)
_STATISTIC = re.compile(r"(max|min|average|TP95) time *[=:]? *(\d{1,9}(?:\.\d{1,9})?) *(ms|us)\b")
_HEAD = re.compile(r"device (\d{1,5}) (?:PING (\S+)|.*\bEID \S+ to (\S+))")


def ping(text: str, place: Place) -> Iterator[Sample]:
    """The samples of one or more pings, one device after the other."""
    path = "hccs" if "packets loss" in text or "us," in text else "ub" if "EID" in text else "roce"
    home, peer = place, ""
    for line in text.splitlines():
        row = line.strip()[:MAX_LINE]
        if head := _HEAD.match(row):
            home, peer = replace(place, device=head[1]), head[2] or head[3]
        labels = {"path": path, "peer": peer}
        if reply := _REPLY.match(row):
            seconds = float(reply[2]) / UNITS[reply[3]]
            if int(reply[1]) == 0:
                name = "accelerator_ping_first_round_trip_seconds"
                yield Sample(name, seconds, home.labels(**labels))
            else:
                name = "accelerator_ping_round_trip_seconds"
                yield Sample(name, seconds, home.labels(seq=str(int(reply[1])), **labels))
        if (found := _SUMMARY.match(row)) and int(found[2]) <= int(found[1]) > 0:
            lost = 1 - int(found[2]) / int(found[1])
            yield Sample("accelerator_ping_loss_ratio", lost, home.labels(**labels))
            yield Sample("accelerator_ping_packets_sent", float(found[1]), home.labels(**labels))
        if found := _STATISTIC.match(row):
            name = "accelerator_ping_summary_seconds"
            seconds = float(found[2]) / UNITS[found[3]]
            yield Sample(name, seconds, home.labels(statistic=found[1].lower(), **labels))
