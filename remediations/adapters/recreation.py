"""A container's settings as the engine tells them, made into those of its successor. Pure.

The successor differs in its environment and bears our labels; everything that the engine itself
gave the old one (addresses, its id as a name) is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .managers import Settings

MARK = "vllm-watchdog.request"
PROFILE = "vllm-watchdog.profile"
KEYS = "vllm-watchdog.keys"  # names of the variables that we set, parted by commas

Doc = Mapping[str, Any]


def settings_of(container: Doc) -> Settings:
    """What an act gave a container, as it stands in its labels and its environment."""
    labels = (container.get("Config") or {}).get("Labels") or {}
    own = [key for key in str(labels.get(KEYS, "")).split(",") if key]
    env = dict(_pairs(container))
    values = {key: env[key] for key in own if key in env}
    return Settings(values, str(labels.get(MARK, "")), str(labels.get(PROFILE, "")))


def sees_all_cards(container: Doc) -> bool:
    """Whether the container is given every card of the node."""
    host = container.get("HostConfig") or {}
    if host.get("Privileged"):
        return True
    for request in host.get("DeviceRequests") or []:
        if request.get("Count") == -1 and not request.get("DeviceIDs"):
            return True
    env = dict(_pairs(container))
    return env.get("NVIDIA_VISIBLE_DEVICES") == "all" and not host.get("DeviceRequests")


def body_of(container: Doc, settings: Settings) -> dict[str, Any]:
    """The body of ``POST /containers/create`` for the successor."""
    config = dict(container.get("Config") or {})
    env = {key: value for key, value in _pairs(container) if key not in _former(container)}
    env.update(settings.values)
    labels = dict(config.get("Labels") or {})
    labels.update({MARK: settings.mark, KEYS: ",".join(sorted(settings.values))})
    labels[PROFILE] = settings.profile
    config["Env"] = [f"{key}={value}" for key, value in env.items()]
    config["Labels"] = labels
    config["Image"] = container.get("Image") or config.get("Image")
    if str(container.get("Id", "")).startswith(config.get("Hostname") or "-"):
        config.pop("Hostname", None)  # the engine's own choice
    config["HostConfig"] = {**(container.get("HostConfig") or {}), "Binds": _binds(container)}
    config["NetworkingConfig"] = {"EndpointsConfig": _endpoints(container)}
    return config


def _pairs(container: Doc) -> Iterator[tuple[str, str]]:
    for entry in (container.get("Config") or {}).get("Env") or []:
        key, _, value = str(entry).partition("=")
        yield key, value


def _former(container: Doc) -> frozenset[str]:
    """The variables that an earlier act of ours set."""
    return frozenset(settings_of(container).values)


def _binds(container: Doc) -> list[str]:
    """The mounts as written, and the volumes that the engine made up names for."""
    host = container.get("HostConfig") or {}
    binds = [str(bind) for bind in host.get("Binds") or []]
    known = {bind.split(":")[1] for bind in binds if ":" in bind}
    known |= {str(mount.get("Target")) for mount in host.get("Mounts") or []}
    for mount in container.get("Mounts") or []:
        if mount.get("Type") == "volume" and mount.get("Destination") not in known:
            tail = "" if mount.get("RW", True) else ":ro"
            binds.append(f"{mount['Name']}:{mount['Destination']}{tail}")
    return binds


def _endpoints(container: Doc) -> dict[str, Any]:
    networks = (container.get("NetworkSettings") or {}).get("Networks") or {}
    mode = str((container.get("HostConfig") or {}).get("NetworkMode", ""))
    if mode in ("host", "none") or mode.startswith("container:"):
        return {}
    own = str(container.get("Id", ""))[:12]
    found: dict[str, Any] = {}
    for name, network in networks.items():
        aliases = [alias for alias in network.get("Aliases") or [] if alias != own]
        found[name] = {
            "IPAMConfig": network.get("IPAMConfig"),
            "Links": network.get("Links"),
            "Aliases": aliases,
            "DriverOpts": network.get("DriverOpts"),
        }
    return found
