"""How an nginx front is told where requests go: its include, its flags, as paths and texts.

Nothing is read or written here; the adapter of the acts and the set-up of the server share it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from .config import Service
from .errors import Permanent

Target = Literal["primary", "standby", "drained"]
Pointed = Literal["primary", "standby", "drained", "unknown"]

CACHE_LIMIT = 600.0  # seconds after which answers from the cache end, whoever is still alive

_SERVER = re.compile(r"^[ \t]*server[ \t]+([^\s;]+)([^;\n]*);", re.M)
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")


def address(url: str) -> str:
    """The address of a server as nginx's ``server`` takes it: ``127.0.0.1:8000``, ``[::1]:8000``.

    Raises Permanent for one that nginx cannot go to or that would not stay one word.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    if parts.username is not None or not _HOST.fullmatch(host):
        raise Permanent(f"{host or url!r} is no host that nginx can be pointed at")
    if parts.path.strip("/") or parts.query:
        raise Permanent(f"{url}: nginx is pointed at a host and a port, not at a path")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def include_text(target: Target, service: Service) -> str:
    """What the include inside the ``upstream`` holds, so that new requests go to ``target``.

    Raises Permanent where there is no such instance.
    """
    if target == "standby":
        if service.standby is None:
            raise Permanent("there is no standby to point the front at")
        server = address(service.standby.url)
    else:
        server = address(service.url) + (" down" if target == "drained" else "")
    head = f"# Written by vllm-watchdog: {target}. Changes are lost at the next switch."
    return f"{head}\nserver {server};\n"


def pointed(text: str, service: Service) -> Pointed:
    """Where an include sends new requests; ``unknown`` when it names anything else."""
    servers = _SERVER.findall(re.sub(r"#.*", "", text))
    if not servers:
        return "unknown"
    live = {name for name, options in servers if "down" not in options.split()}
    if not live:
        return "drained"
    if live == {address(service.url)}:
        return "primary"
    if service.standby is not None and live == {address(service.standby.url)}:
        return "standby"
    return "unknown"


def cache_flag(service: Service) -> Path:
    """The file that makes nginx answer from its cache only, for CACHE_LIMIT from its mtime."""
    return _flag(service, "cache-only")


def shed_flag(service: Service) -> Path:
    """The file that makes nginx refuse a share of the new requests."""
    return _flag(service, "shed")


def flag_text(seconds: float, percent: int, owner: str) -> str:
    """What a flag holds: for how long it counts from its mtime, for which share, whose it is."""
    return f"seconds={max(1, round(seconds))}\npercent={percent}\nowner={owner}\n"


def flag_owner(text: str) -> str:
    """Whose a flag is; empty for one that a person made."""
    found = re.search(r"^owner=(\S+)$", text, re.M)
    return found[1] if found else ""


def _flag(service: Service, kind: str) -> Path:
    """Beside the include, unless the configuration names a folder: nginx's workers must be able
    to look there. No name of a flag ends in ``.conf``."""
    front = service.front
    assert front is not None
    return (front.flags or front.nginx.parent) / f"{front.nginx.stem}.{kind}"
