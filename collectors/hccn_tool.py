"""The network ports of Ascend cards by ``hccn_tool``: link, net health, link changes, counters.

One call at a time, for the tool refuses concurrent ones; each device by its physical id. Formats
are read in ``watchdog/ascend``. Every series carries ``vendor="ascend"``, ``card`` (by the id map
of ``npu_smi``, else ``npuN`` of the physical id), ``device`` (the physical id) and, where told,
``udie`` and ``port``. Ping, addresses and the rest are read from captures only.

============================================ ======================================================
accelerator_link_up                          1 or 0; link: roce, ub, eth, vnic
accelerator_network_healthy                  1: the address to detect answers; 0: it does not;
                                             absent: not set yet, or unknown
accelerator_network_health_info              1; status: success, fault, init, socket_fail …
accelerator_link_changes_total               link, direction: up, down (down by the last records
                                             where the tool does not count it)
accelerator_link_last_change_timestamp_seconds link, direction; the device's clock taken as UTC
accelerator_link_counter_total               counter: the tool's own name (mac_…, roce_…)
accelerator_link_counter_rate                counter; per second, of a captured time series
accelerator_rdma_objects                     object: pd, mr, cq, qp
accelerator_link_speed_bytes_per_second      also accelerator_link_max_speed_…, _speed_info
accelerator_link_transmit_bytes_per_second   also _receive_, _peak_transmit_, _peak_receive_
accelerator_link_fec_info                    1; mode, change, interleave
accelerator_ping_round_trip_seconds          peer, path: roce, hccs, ub; seq
accelerator_ping_first_round_trip_seconds    the first packet, with the address resolution in it
accelerator_ping_loss_ratio                  0-1; also accelerator_ping_packets_sent
accelerator_ping_summary_seconds             statistic: min, max, average, tp95
accelerator_optical_present                  1 or 0; values are told even for 0
accelerator_optical_power_watts              direction: tx, rx; lane; also _bias_amperes
accelerator_optical_power_limit_watts        direction, bound: high, low; also _supply_limit_volts,
                                             _temperature_limit_celsius
accelerator_optical_supply_volts             also accelerator_optical_temperature_celsius
accelerator_optical_snr_decibels             side: host, media; lane
accelerator_optical_loss_of_signal           1 or 0; direction; also _loss_of_lock
accelerator_network_info                     1; address, netmask, interface
accelerator_network_gateway_info             1; gateway, interface; also _default_route
accelerator_network_detect_info              1; address
accelerator_network_neighbour_info           1; switch_port
accelerator_tls_enabled                      1 or 0
============================================ ======================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..watchdog.ascend.hccn import read_output
from ..watchdog.ascend.known import Known, renewed
from ..watchdog.ascend.queries import ask
from ..watchdog.ascend.words import numbered
from ..watchdog.contracts import Yield
from ..watchdog.errors import CommandTimeout, NotSupported, SourceError
from ..watchdog.model import Checkpoint, Event, Page, Sample, labelset
from ..watchdog.system import System

MAX_TEXT = 4 * 1024 * 1024  # bytes of a capture; one answer is below 10 KiB
VERB_LAST = "-i N -VERB -g"  # the form that a newer tool, with ports (950), refuses


@dataclass(frozen=True, slots=True)
class HccnTool:
    """``verbs`` are asked of every device in each run; ``slow`` ones of one device in turn, and
    their last answers stay until asked again. ``interval``, ``timeout`` and ``limit`` (of one
    call) in seconds; ``cards_of`` is the collector instance whose id map names the cards.
    ``pings`` are addresses of other nodes' NPU ports by peer name, asked of one device in turn."""

    verbs: tuple[str, ...] = ("link", "net_health")
    slow: tuple[str, ...] = ("link_stat", "stat", "optical")
    interval: float = 30.0
    timeout: float = 25.0
    limit: float = 5.0
    cards_of: str = "npu_smi"
    pings: Mapping[str, str] = field(default_factory=dict)
    name: str = "hccn_tool"
    scope: Mapping[str, str] = field(default_factory=dict)

    @property
    def instance(self) -> str:
        """One per node."""
        return self.name

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield the samples of all devices that answered, and a checkpoint when something is new.

        Raises NotSupported without device files or tool, or when the devices have no port of
        their own; the last error when no device answered.
        """
        devices = _devices(system)
        now = system.clock.wall()
        old = system.checkpoints.get(self.instance)
        run = _Run(
            system,
            system.clock.mono() + 0.9 * self.timeout,  # done before the run counts as stalled
            self.limit,
            (system.checkpoints.get(self.cards_of) or {}).get("phy", {}),
            Known.read(old, now),
        )
        turn = int(now // self.interval) % len(devices)
        for device in devices[turn:] + devices[:turn]:
            yield from run.device(device, self.verbs)
        for verb in self.slow:
            run.keep(devices[turn], verb)
        for peer, address in self.pings.items():
            yield from run.ping(devices[turn], peer, address)
        if run.failed and not run.answered:
            raise run.failed
        for device in devices:
            for verb in self.slow:
                yield from run.kept(device, verb)
        doc = renewed(run.known, old, now)
        if doc:
            yield Checkpoint(doc)


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:
    """Samples of a captured output or transcript. Raises SourceError when the tool reports failure
    or nothing can be read, NotSupported when the device has no such thing."""
    return list(read_output(data[:MAX_TEXT].decode("utf-8", "replace"), command))


@dataclass
class _Run:
    """One run: whom it asked, what was kept, what went wrong last."""

    system: System
    deadline: float
    limit: float
    cards: Mapping[str, str]
    known: Known
    answered: bool = False
    failed: Exception | None = None

    def device(self, device: str, verbs: Sequence[str]) -> Iterator[Sample]:
        """What a device answers to the verbs of each run."""
        if VERB_LAST not in self.known.refused:
            for verb in verbs:
                yield from self._answer(device, verb, ("-i", device, f"-{verb}", "-g"))
        if VERB_LAST in self.known.refused or not self.answered:
            ports = self._answer(device, "dev_info", ("-g", "-dev_info", "-i", device))
            if ports and VERB_LAST not in self.known.refused:
                self.known = self.known.refusing(VERB_LAST)
            yield from ports

    def keep(self, device: str, verb: str) -> None:
        """Ask a slow verb and keep its answer in place of the last one."""
        if VERB_LAST in self.known.refused or verb in self.known.refused:
            return
        found = self._answer(device, verb, ("-i", device, f"-{verb}", "-g"))
        self.known = self.known.with_answer(self._card(device), verb, found or None)

    def ping(self, device: str, peer: str, address: str) -> Iterator[Sample]:
        """Round trips to a peer's port; ``peer`` in the labels is the peer's own name."""
        if "ping" in self.known.refused:
            return
        words = ("-i", device, "-ping", "-g", "address", address, "pkt", "3")
        for sample in self._answer(device, "ping", words):
            labels = labelset({**dict(sample.labels), "peer": peer})
            yield replace(sample, labels=labels)

    def kept(self, device: str, verb: str) -> Iterator[Sample]:
        """The last answer to a slow verb, but for what each run asks anew."""
        for sample in self.known.samples(self._card(device), verb):
            if sample.name != "accelerator_link_up":
                yield sample

    def _answer(self, device: str, verb: str, words: tuple[str, ...]) -> list[Sample]:
        command = ("hccn_tool", *words)
        try:
            text = self._ask(command)
            if "is busy" in text:  # another caller holds the tool's lock: once more, then leave it
                text = self._ask(command)
            found = read_output(text, f"hccn_tool -{verb} -i {device}", self.cards)
        except NotSupported as absent:
            if self.system.runner.which("hccn_tool") is None:
                raise
            self.failed = absent
        except CommandTimeout as late:
            if late.stuck:
                raise
            self.failed = late
        except SourceError as error:
            self.failed = error
        else:
            self.answered = True
            return found
        return []

    def _ask(self, command: tuple[str, ...]) -> str:
        left = self.deadline - self.system.clock.mono()
        if left < 0.2:
            raise CommandTimeout("no time is left to ask further devices")
        return ask(self.system, command, min(left, self.limit))

    def _card(self, device: str) -> str:
        return self.cards.get(device) or numbered(int(device))


def _devices(system: System) -> list[str]:
    """Physical ids: the numbers of the device files, smallest first."""
    names = system.files.glob("/dev/davinci*")
    found = [match[1] for name in names if (match := re.fullmatch(r"/dev/davinci(\d{1,5})", name))]
    if not found:
        raise NotSupported("no Ascend device files on this node")
    return sorted(found, key=int)
