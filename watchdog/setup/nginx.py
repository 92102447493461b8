"""The files that make an nginx the front of a service: its server, the njs script, the include.

Makes texts from deploy/nginx; whoever calls writes them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

from ..config import Service
from ..errors import ConfigError, Permanent, Place, Problem
from ..fronts import address, cache_flag, include_text, pointed

SCRIPT = "vllm_watchdog.js"
MARK = "Written by `vllm-watchdog setup nginx`, digest "
_SECTION = re.compile(r"^#<(\w+)>\n(.*?)^#</\1>\n", re.M | re.S)
_WORD = re.compile(r"[A-Za-z0-9._:/@%+=,\[\]-]+")


@dataclass(frozen=True, slots=True)
class Tls:
    """The certificate and key of a front whose url is https."""

    certificate: Path
    key: Path


def server_path(name: str) -> Path:
    """Where a service's server lies unless a person says otherwise."""
    return Path(f"/etc/nginx/conf.d/vllm-watchdog-{name}.conf")


def script_path(service: Service) -> Path:
    """Where the njs script lies: beside the include; fronts of one node share it."""
    assert service.front is not None
    return service.front.nginx.parent / SCRIPT


def server_text(name: str, service: Service, tls: Tls | None = None) -> str:
    """The nginx server of a service, to be included in the ``http`` block.

    Raises ConfigError where the configuration cannot be put into nginx's words.
    """
    front = service.front
    assert front is not None
    parts = urlsplit(front.url)
    if parts.scheme == "https" and tls is None:
        hint = "give --tls-certificate and --tls-key"
        raise _wrong(name, "front.url", "users come in by https and no certificate is named", hint)
    kinds = {"njs" if front.njs else "plain", "tls" if parts.scheme == "https" else "open"}
    values = {
        "SERVICE": name,
        "ID": identifier(name),
        "INCLUDE": str(front.nginx),
        "FLAGS": str(cache_flag(service).with_suffix("")),
        "SCRIPT": str(script_path(service)),
        "CACHE": str(front.cache or f"/var/cache/vllm-watchdog-{name}"),
        "LISTEN": front.listen or _address(name, "front.url", front.url),
        "HOST": parts.hostname or "_",
        "SCHEME": _scheme(name, service),
        "CERTIFICATE": str(tls.certificate) if tls else "-",
        "KEY": str(tls.key) if tls else "-",
    }
    for key, value in values.items():
        if not _WORD.fullmatch(value):
            what = f"{value!r} ({key.lower()}) is no plain word that nginx's configuration can hold"
            raise _wrong(name, "front", what, "use paths of letters, digits and ._-")
    text = _chosen(_shipped("server.conf"), kinds)
    values["TENANTS"] = " ".join(front.tenants)
    return marked(re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text), "#")


def script_text() -> str:
    """The njs script that the server imports."""
    return marked(_shipped(SCRIPT), "//")


def first_include(name: str, service: Service) -> str:
    """The include that points at the configured instance. Raises ConfigError."""
    _scheme(name, service)
    return include_text("primary", service)


def points(text: str, service: Service) -> str:
    """Where an include that is there already sends requests."""
    return pointed(text, service)


def identifier(name: str) -> str:
    """The service's name as a word of nginx's variables; two services never share one."""
    plain = re.sub(r"[^A-Za-z0-9]", "_", name)
    tail = "" if plain == name else "_" + hashlib.sha256(name.encode()).hexdigest()[:4]
    return f"front_{plain}{tail}"


def marked(text: str, comment: str) -> str:
    """The text under a line that tells later whether a person changed it."""
    return f"{comment} {MARK}{_digest(text)}.\n{text}"


def untouched(text: str) -> bool:
    """Whether a file is ours, as we wrote it."""
    head, _, rest = text.partition("\n")
    return f"{MARK}{_digest(rest)}." in head


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _shipped(name: str) -> str:
    return (resources.files("vllm_watchdog") / "deploy" / "nginx" / name).read_text("utf-8")


def _chosen(text: str, kinds: Collection[str]) -> str:
    """The template with the sections of these kinds, and without the others."""
    return _SECTION.sub(lambda found: found[2] if found[1] in kinds else "", text)


def _scheme(name: str, service: Service) -> str:
    """http or https, by which both instances are reached; their addresses are checked, too."""
    urls = [service.url] + ([service.standby.url] if service.standby else [])
    for url in urls:
        _address(name, "url", url)
    schemes = {urlsplit(url).scheme for url in urls}
    if len(schemes) > 1:
        raise _wrong(name, "standby.url", "one instance is reached by http, the other by https", "")
    return schemes.pop()


def _address(name: str, key: str, url: str) -> str:
    try:
        return address(url)
    except Permanent as error:
        raise _wrong(name, key, str(error), "") from error


def _wrong(name: str, key: str, what: str, hint: str) -> ConfigError:
    return ConfigError(Problem(Place(f"services.{name}.{key}"), what, hint))
