"""What there is on this node: cards and servers, looked at once, as a configuration to save.

It reads and asks tools; it keeps nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..collectors import collector_class
from ..remediations.adapters.environment import path_of
from .assembly import CARD_TOOLS, discovered, node_collectors, service_collectors
from .config import Config, Service, default_state, load
from .contracts import Collector
from .inventory import Info, infos
from .model import NAME, Batch
from .scheduler import run_once
from .system import System


@dataclass(frozen=True, slots=True)
class Found:
    """Cards (the labels of their ``accelerator_info``), services, and what each card tool said."""

    cards: tuple[Info, ...]
    services: Mapping[str, Service]
    tools: Mapping[str, str]

    def doc(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "cards": [{k: v for k, v in card.items() if k != NAME} for card in self.cards],
            "services": {
                name: {"url": service.url, "cards": list(service.cards)}
                for name, service in self.services.items()
            },
            "tools": dict(self.tools),
        }

    def yaml(self) -> str:
        """As a configuration that can be saved, with comments."""
        lines = ["# What vllm-watchdog found on this node; without this file it uses the same.", ""]
        for tool, word in self.tools.items():
            lines.append(f"# {tool}: {_one_line(word)}")
        for card in self.cards:
            model = _one_line(card.get("model", "unknown model"))
            lines.append(f"# card {card.get('card')}: {card.get('vendor')} {model}")
        lines += ["", "mode: observe    # observe | confirm | act"]
        if not self.services:
            lines += ["", "# No vLLM server runs here. Name one like this:", *_EXAMPLE]
            return "\n".join(lines) + "\n"
        services = {
            name: {
                "url": service.url,
                **({"cards": list(service.cards)} if service.cards else {}),
            }
            for name, service in self.services.items()
        }
        text = yaml.safe_dump({"services": services}, sort_keys=False, default_flow_style=None)
        return "\n".join([*lines, *_environment_files(sorted(services))]) + "\n" + text


def _environment_files(services: Sequence[str]) -> Iterator[str]:
    """What a unit must hold so that acts can give it a profile or other cards."""
    yield ""
    yield "# Where a unit of systemd runs one (manager: {systemd: UNIT}), acts give it a profile or"
    yield "# other cards by a file that must be the last one which the unit reads:"
    for name in services:
        yield f"#   EnvironmentFile=-{path_of(default_state(), name)}"


_EXAMPLE = (
    "# services:",
    "#   my-model:",
    "#     url: http://127.0.0.1:8000",
    '#     cards: ["0000:c1:00"]    # or "npu 7", "gpu 0"',
    "#     logs: [/var/log/vllm/my-model*.log]",
)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def look(system: System) -> Found:
    """Ask the card tools and the process table once."""
    batches = {name: run_once(collector_class(name)(), system) for name in CARD_TOOLS}
    keys = [key for batch in batches.values() for page in batch.pages for key in page.keys]
    cards = tuple(infos(keys))
    tools = {name: _word(batch) for name, batch in batches.items()}
    return Found(cards, discovered(system, cards), tools)


def _word(batch: Batch) -> str:
    if batch.absent:
        return "not on this node"
    if batch.error:
        return batch.error
    count = sum(1 for page in batch.pages for key in page.keys if (NAME, "accelerator_info") in key)
    return f"{count} card{'' if count == 1 else 's'}"


def collectors_for(system: System, config: Path | None) -> Sequence[Collector]:
    """All collectors that `run` would start with this configuration (or with none)."""
    settings = load(config) if config is not None else Config()
    services = settings.services
    if not services:
        services = dict(discovered(system, ()))
    return [*node_collectors(settings, system.runner), *service_collectors(settings, services)]
