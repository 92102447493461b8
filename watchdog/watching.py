"""What a daemon watches: services, cards, the collectors of both, as they come, go and change
places. It judges nothing; what is read goes into the inbox.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .assembly import discovered, node_collectors, service_collectors, service_facts
from .config import Config, Service
from .contracts import Collector
from .engine import Engine
from .inventory import Info, Pins, devices, infos
from .model import Batch, Page, ServiceMode
from .roles import STANDBY, watched
from .scheduler import Inbox, Scheduler
from .system import System

LOG_COLLECTOR = "vllm_log/"
_INFO = ("__name__", "accelerator_info")

Modes = Mapping[str, ServiceMode]
Tell = Callable[[str, str, str], None]
"""An own event: kind, message, severity."""


@dataclass(slots=True)
class Seen:
    """What discovery and the card tools last showed."""

    services: dict[str, Service] = field(default_factory=dict)
    cards: tuple[Info, ...] = ()
    cards_generation: int = -1


class Watching:
    """The collectors of one node. ``modes`` says which instance of a service users reach."""

    def __init__(
        self,
        system: System,
        inbox: Inbox,
        labels: Mapping[str, str],
        log: Callable[..., object],
        tell: Tell,
        services: Mapping[str, Service],
    ) -> None:
        self._system, self._inbox, self._log, self._tell = system, inbox, log, tell
        self.scheduler = Scheduler(system, inbox, labels, log)
        self.seen = Seen(dict(services))
        self.pins = Pins()
        self.modes: dict[str, ServiceMode] = {}
        self._devices: dict[str, str] = {}  # shared with the log collectors
        self._told: dict[str, str] = {}
        self._finding: threading.Thread | None = None

    def start(self, config: Config, modes: Modes) -> None:
        """Start the collectors."""
        self.modes = dict(modes)
        self.scheduler.start()
        collectors = self._collectors(config, config.services, modes)
        node = [each for each in collectors if "/" not in each.instance]
        self.scheduler.add(node)
        self.scheduler.add([each for each in collectors if each not in node])

    def reload(self, before: Config, after: Config) -> None:
        """Take over another configuration: what did not change runs on."""
        services = after.services or self.seen.services
        self._exchange(
            self._collectors(before, self.seen.services, self.modes),
            self._collectors(after, services, self.modes),
        )
        self.seen.services = dict(services)

    def follow(self, config: Config, modes: Modes) -> None:
        """Watch services where their users are now, if an act moved them."""
        if modes == self.modes:
            return
        before = self._collectors(config, self.seen.services, self.modes)
        after = self._collectors(config, self.seen.services, modes)
        for name in self.seen.services:
            self._carry_over(name, self.modes.get(name), modes.get(name))
        self.modes = dict(modes)
        if self.scheduler.instances:
            self._exchange(before, after)

    def _carry_over(self, name: str, before: ServiceMode | None, after: ServiceMode | None) -> None:
        """Log files stay with their instance: so does the place up to which they were read."""
        old, new = before or ServiceMode(), after or ServiceMode()
        if old.serving == new.serving:
            return
        here, there = LOG_COLLECTOR + name, LOG_COLLECTOR + name + STANDBY
        if new.serving == "primary":
            here, there = there, here
        place = self._system.checkpoints.get(here)
        if place is not None:
            self._system.checkpoints.put(there, place)

    def watch(self, config: Config, services: Mapping[str, Service]) -> None:
        """Watch these discovered services from now on: start what is new, drop what is gone."""
        self._exchange(
            service_collectors(config, self.seen.services), service_collectors(config, services)
        )
        for name in sorted(set(services) ^ set(self.seen.services)):
            word = "found" if name in services else "gone"
            self._tell(f"service_{word}", f"vLLM server {name} {word}", "info")
            self._log(f"vLLM server {word}", service=name)
        self.seen.services = dict(services)

    def _collectors(
        self, config: Config, services: Mapping[str, Service], modes: Modes
    ) -> list[Collector]:
        now = watched(services, modes)
        return [
            *node_collectors(config, self._system.runner, self._devices, now),
            *service_collectors(config, now),
        ]

    def _exchange(self, before: list[Collector], after: list[Collector]) -> None:
        """Stop the collectors that are gone or changed, start what is new or changed."""
        old = {each.instance: each for each in before}
        new = {each.instance: each for each in after}
        for name, collector in old.items():
            if new.get(name) != collector:
                self.scheduler.remove(name)
                if name not in new:
                    self._inbox.put(Batch(name, absent=True, error="is no longer watched"))
        self.scheduler.add([each for name, each in new.items() if old.get(name) != each])

    def facts(self) -> Page:
        """What is known of the services without asking them."""
        return service_facts(self.seen.services, self.seen.cards, self.pins, self.modes)

    def look_at_cards(self, engine: Engine) -> None:
        """Take over what the cards' tools showed, if it changed."""
        generation = engine.window.generation("accelerator_info")
        if generation == self.seen.cards_generation:
            return
        self.seen.cards_generation = generation
        live = [key for key, _, _ in engine.window.latest(engine.ms) if _INFO in key]
        self.seen.cards = tuple(infos(live))
        self._devices.update(devices(self.seen.cards))

    def tell_moved(self) -> None:
        """Tell, once, of a name that came to mean another card."""
        for name, card in self.pins.moved.items():
            if self._told.get(name) != card:
                text = f"{name} is pinned to {self.pins.kept[name]} but now means {card}"
                self._tell("card_moved", text, "warning")
        self._told = dict(self.pins.moved)

    def look_for_servers(self, config: Config) -> None:
        """Look for servers beside the loop; the process table may be long."""
        if self._finding is None or not self._finding.is_alive():
            self._finding = threading.Thread(
                target=self._find, args=(config,), name="discovery", daemon=True
            )
            self._finding.start()

    def _find(self, config: Config) -> None:
        try:
            found = discovered(self._system, self.seen.cards)
        except OSError as error:
            self._log("the process table cannot be read", reason=str(error))
            return
        self.watch(config, found)
