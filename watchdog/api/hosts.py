"""Whom a request was meant for: a page from elsewhere whose name leads to this listener by a
changed DNS record (rebinding) may not read what only this machine may.
"""

from __future__ import annotations

import ipaddress

REFUSAL = (
    "this listener is for its own machine and goes by localhost or an address, not by the name in "
    "Host: a proxy before it must send Host: 127.0.0.1"
)


def own(host: str, listening: object, name: str) -> bool:
    """Whether a request with this Host header may be meant for a listener. One that others reach
    goes by any name; one on a loopback address (``listening``) by addresses, localhost and
    ``name``."""
    if not _loopback(listening):
        return True
    given = host.strip().rpartition("@")[2]
    bare = given[1:].partition("]")[0] if given.startswith("[") else given.partition(":")[0]
    bare = bare.rstrip(".").lower()
    known = ("", "localhost", name.lower(), name.partition(".")[0].lower())
    return bare in known or bare.endswith(".localhost") or _address(bare) is not None


def _loopback(listening: object) -> bool:
    address = _address(listening) if isinstance(listening, str) else None
    return address is not None and address.is_loopback


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
