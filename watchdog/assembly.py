"""Builds what a configuration asks for: collectors, rule groups, services. It runs nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from ..collectors import COLLECTORS, PER_SERVICE, collector_class
from .config import CollectorSettings, Config, Mode, Service
from .contracts import Collector
from .discovery import Server, servers
from .errors import Place, Problem
from .inventory import Info, Pins, visible
from .model import Page, ServiceMode, labelset
from .roles import STANDBY, watched, words
from .system import Runner, System

CARD_TOOLS = {"npu_smi": "npu-smi", "nvidia_smi": "nvidia-smi"}
LOGS = frozenset({"kernel_log", "ascend_log"})
LOG_WAIT = 5.0  # seconds that a run waits for a line, so that one is known as soon as it is written
EVERY_TICK = frozenset(
    {
        "npu_smi",
        "nvidia_smi",
        "host",
        "vllm_metrics",
        "vllm_log",
        "vllm_process",
        "kernel_log",
        "peers",
    }
)


def shipped_rules() -> list[Path]:
    """The rule files of the package: those with a ``groups:`` key."""
    folder = resources.files(f"{__package__.rpartition('.')[0]}.rules")
    found = [Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".yaml")]
    return sorted(path for path in found if b"\ngroups:" in b"\n" + path.read_bytes())


def rule_files(config: Config) -> list[Path]:
    """The rule files or patterns that the configuration names; else the shipped files."""
    if config.rules.files is None:
        return shipped_rules()
    return [Path(pattern) for pattern in config.rules.files]


SERVICES_OWN = {
    "vllm_probe": {"interval": "probe.interval", "timeout": "probe.timeout"},
    "vllm_log": {"files": "logs"},
}
"""Settings of collectors that stand at each service, and their place there."""


def check_names(config: Config) -> list[Problem]:
    """What in the configuration means nothing here: collectors that do not exist, settings that a
    collector does not have; as warnings modes that let more be done than the top one does, one
    address for two servers, and services that acts could do nothing for."""
    problems: list[Problem] = [*_looser(config), *_shared(config), *_helpless(config)]
    for name, settings in config.collectors.items():
        if name in COLLECTORS:
            problems += _without_effect(name, settings)
            continue
        close = difflib.get_close_matches(name, COLLECTORS, 1)
        known = ", ".join(sorted(COLLECTORS))
        hint = f"did you mean {close[0]!r}?" if close else f"known: {known}"
        problems.append(Problem(Place(f"collectors.{name}"), "no such collector", hint))
    return problems


def _looser(config: Config) -> Iterator[Problem]:
    """Modes of services and policies that the top one does not let come true."""
    named = {f"services.{name}": each.mode for name, each in config.services.items()}
    named |= {f"policies.{i}": each.mode for i, each in enumerate(config.policies or ())}
    modes = get_args(Mode)
    for where, mode in named.items():
        if mode is not None and modes.index(mode) > modes.index(config.mode):
            text = f"{mode} has no effect: the top mode is {config.mode}, and the stricter counts"
            hint = f"write mode: {mode} at the top, and a stricter one where less is wanted"
            yield Problem(Place(f"{where}.mode"), text, hint, "warning")


def _shared(config: Config) -> Iterator[Problem]:
    """Addresses that two servers cannot both have."""
    seen: dict[str, str] = {}
    for name, each in config.services.items():
        urls = {f"services.{name}.url": each.url}
        if each.standby is not None:
            urls[f"services.{name}.standby.url"] = each.standby.url
        for where, url in urls.items():
            first = seen.setdefault(url.rstrip("/"), where)
            if first != where:
                text = f"{url} is the address of {first.removesuffix('.url')}, too"
                hint = "each server has its own; one server is one service"
                yield Problem(Place(where), text, hint, "warning")


def _helpless(config: Config) -> Iterator[Problem]:
    """Services for which acts are wanted and none can be done."""
    for name, each in config.services.items():
        mode = each.mode or config.mode
        if "observe" in (mode, config.mode) or each.manager is not None or each.front is not None:
            continue
        text = f"mode is {mode}, and nothing can be done for it: no manager, no front"
        hint = "say who starts it (manager:) or what stands before it (front:), or observe"
        yield Problem(Place(f"services.{name}"), text, hint, "warning")


def _without_effect(name: str, settings: CollectorSettings) -> Iterator[Problem]:
    """What is set and would be read by nobody."""
    elsewhere = SERVICES_OWN.get(name, {})
    for setting in sorted(settings.model_fields_set - {"enabled"}):
        place = Place(f"collectors.{name}.{setting}")
        if setting in elsewhere:
            where = f"services.NAME.{elsewhere[setting]}"
            yield Problem(place, "has no effect", f"write it at the service: {where}")
        elif setting not in _settings_of(name):
            yield Problem(place, f"{name} has no such setting")


def node_collectors(
    config: Config,
    runner: Runner,
    devices: Mapping[str, str] | None = None,
    services: Mapping[str, Service] | None = None,
) -> list[Collector]:
    """The collectors that run once on this node.

    Cards that services name must be there; with the tools of one vendor only, it is clear whose.
    ``devices`` leads from a driver's device number to its card; it may be filled later.
    ``services`` are those watched, where they are not as configured.
    """
    built = []
    tools = [name for name, program in CARD_TOOLS.items() if runner.which(program)]
    named = _named_cards(config) if len(tools) == 1 else ()
    for name in COLLECTORS:
        settings = config.collectors.get(name, CollectorSettings())
        if name in PER_SERVICE or not settings.enabled:
            continue
        options = _options(name, config, settings)
        if name in LOGS:
            options["wait"] = _wait(settings)
            options["cards"] = devices if devices is not None else {}
        expected = (*settings.expected, *(named if name in tools else ()))
        if expected:
            options["expected"] = tuple(dict.fromkeys(expected))
        if settings.files:
            options["files"] = settings.files
        if name == "nvidia_smi":
            options["source"] = settings.source
        if name == "peers":
            options["peers"] = {peer: (at.host, at.port) for peer, at in config.peers.items()}
        if name == "hccn_tool":
            options["pings"] = {p: at.roce for p, at in config.peers.items() if at.roce}
        if name == "fragmentation":
            known = config.services if services is None else services
            options["services"] = {
                service: at.url for service, at in known.items() if not service.endswith(STANDBY)
            }
            options["npus"] = devices if devices is not None else {}
        built.append(_build(name, options))
    return built


def _wait(settings: CollectorSettings) -> float:
    """Seconds that a log's run waits for a line: a waiting run must not count as stalled."""
    return LOG_WAIT if settings.timeout is None else min(LOG_WAIT, settings.timeout / 2)


def _named_cards(config: Config) -> tuple[str, ...]:
    """Every card that a service names by its address."""
    found: list[str] = []
    for service in config.services.values():
        standby = service.standby.cards if service.standby else ()
        found += [card for card in (*service.cards, *service.spares, *standby) if " " not in card]
    return tuple(found)


def service_collectors(config: Config, services: Mapping[str, Service]) -> list[Collector]:
    """The collectors of each service."""
    built = []
    for service, settings in services.items():
        for name in ("vllm_metrics", "vllm_probe", "vllm_log", "vllm_process"):
            how = config.collectors.get(name, CollectorSettings())
            options = _options(name, config, how)
            options["service"] = service
            if name != "vllm_log":
                options["url"] = settings.url.rstrip("/")
                if settings.api_key_file:
                    options["api_key_file"] = str(settings.api_key_file)
            if name == "vllm_probe":
                options.update(_probe(settings))
            if name == "vllm_log":
                options["files"] = settings.logs
                options["wait"] = _wait(how)
            if name == "vllm_process":
                options["unit"] = settings.manager.systemd if settings.manager else None
                options["whole_node"] = service == next(iter(services))
            skipped = (name == "vllm_log" and not settings.logs) or (
                name == "vllm_probe" and settings.probe.kind == "none"
            )
            if how.enabled and not skipped:
                built.append(_build(name, options))
    return built


def _probe(settings: Service) -> dict[str, Any]:
    probe = settings.probe
    return {
        "kind": probe.kind,
        "model": probe.model,
        "prompt": probe.prompt,
        "max_tokens": probe.max_tokens,
        "limit": probe.timeout,
        "expect": probe.expect,
        "interval": probe.interval,
    }


def _options(name: str, config: Config, settings: CollectorSettings) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.interval is not None:
        options["interval"] = settings.interval
    elif name in EVERY_TICK:
        options["interval"] = config.interval
    if settings.timeout is not None:
        options["timeout"] = settings.timeout
    return options


def _settings_of(name: str) -> set[str]:
    """The settings that a collector takes."""
    bases = collector_class(name).__mro__
    return {key for base in bases for key in getattr(base, "__annotations__", {})}


def _build(name: str, options: Mapping[str, Any]) -> Collector:
    known = _settings_of(name)
    collector: Collector = collector_class(name)(
        **{key: value for key, value in options.items() if key in known}
    )
    return collector


def discovered(system: System, cards: Sequence[Info]) -> dict[str, Service]:
    """The vLLM servers that run on this node, as services to watch."""
    return {server.name: _service(server, cards) for server in servers(system.host)}


def _service(server: Server, cards: Sequence[Info]) -> Service:
    found = visible(server.devices, server.vendor, cards) if server.vendor else []
    if not server.devices:
        vendors = sorted({info.get("vendor", "") for info in cards})
        if len(vendors) == 1:  # without the variable a server takes the first cards
            first = [str(number) for number in range(server.tensor_parallel)]
            found = visible(first, vendors[0], cards)
    return Service(url=server.url, cards=tuple(found))


def service_facts(
    services: Mapping[str, Service],
    cards: Sequence[Info],
    pins: Pins,
    modes: Mapping[str, ServiceMode] | None = None,
) -> Page:
    """What is known of the services without asking them: their cards, targets and modes.

    Series: ``service_card{service,card,vendor} 1``, ``service_needs{service,peer} 1``,
    ``service_target{service,target}`` in seconds or tokens per second,
    ``service_mode{service,mode} 1`` (normal unless ``modes`` says otherwise). Cards are those in
    use now; those of the instance that users do not reach stand under ``NAME/standby``.
    """
    rows: dict[tuple[tuple[str, str], ...], float] = {}
    vendors = {info.get("card", ""): info.get("vendor", "") for info in cards}
    for name, service in watched(services, modes or {}).items():
        for configured in service.cards:
            card = pins.card(configured, cards)
            if card is None:
                continue
            vendor = vendors.get(card) or ("ascend" if card.startswith("npu") else "")
            labels = {"service": name, "card": card, "vendor": vendor}
            rows[labelset(labels, "service_card")] = 1.0
    for name, service in services.items():
        for peer in service.needs:
            rows[labelset({"service": name, "peer": peer}, "service_needs")] = 1.0
        for target, value in service.targets.model_dump(exclude_none=True).items():
            rows[labelset({"service": name, "target": target}, "service_target")] = float(value)
        mode = (modes or {}).get(name, ServiceMode())
        for word in words(mode, service.start_profile):
            rows[labelset({"service": name, "mode": word}, "service_mode")] = 1.0
    return Page(tuple(rows), tuple(rows.values()))
