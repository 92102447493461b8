"""NVIDIA GPUs by ``nvidia-smi -q -x``: what each says of itself, and which expected one is missing.

It runs one query at a time and decides nothing beyond what the tool states; formats are read in
``watchdog/nvidia``. Every series carries ``vendor="nvidia"`` and ``card`` (the lower-case PCI
address without function; ``gpu0`` where an output has none; the MIG uuid for an instance).
A reading that the tool does not have, or has damaged, gives no sample. A MIG instance is a card of
its own; its memory is counted in its parent's too.

With ``source`` "nvml" NVIDIA's library is asked instead of the tool, in a child process that may
hang or die: the same series, without those of accelerator_throttle_seconds_total and of the parts
of SRAM errors.

======================================== ==========================================================
accelerator_info                        1; uuid, bus_id, model, driver, index, minor, vbios;
                                        for a MIG instance also parent, gi, ci, profile
accelerator_present                     0: expected and gone, or the tool calls it lost
accelerator_healthy                     0: lost, reset wanted, remap failed, uncorrectable errors
                                        since driver load, fabric failed; 1: nothing of that and
                                        all key readings intact; absent: unknown
accelerator_utilization_ratio           share of time in which a kernel ran
accelerator_sm_utilization_ratio        the same figure: nvidia-smi has none per SM
accelerator_memory_utilization_ratio    share of time in which memory was read or written
accelerator_engine_utilization_ratio    engine: encoder, decoder, jpeg, ofa
accelerator_memory_*_bytes              used, free, reserved, total; used is without reserved
accelerator_temperature_celsius         also accelerator_memory_temperature_celsius
accelerator_temperature_margin_celsius  degrees left to the limit: smaller is hotter
accelerator_power_watts                 the draw; _average_, _instant_ where told apart
accelerator_power_limit_watts           also _enforced_limit_, _default_limit_
accelerator_memory_power_watts          also accelerator_module_power_watts, where measured
accelerator_clock_hertz                 domain: sm, graphics, memory, video
accelerator_max_clock_hertz             domain: sm, graphics, memory
accelerator_performance_state           number of the P-state, 0 fastest
accelerator_fan_ratio                   of nominal speed
accelerator_ecc_errors_total            kind: correctable, uncorrectable; since driver load
accelerator_ecc_lifetime_errors_total   kind; over the card's life
accelerator_ecc_memory_errors_total     kind, memory: sram, dram; also
                                        accelerator_ecc_lifetime_memory_errors_total
accelerator_ecc_enabled                 1 or 0; also accelerator_mig_enabled, _persistence_enabled
accelerator_ecc_sram_threshold_exceeded 1 asks for field diagnostics
accelerator_unrepairable_memory         1 or 0
accelerator_repair_pending              part: channel, tpc
accelerator_remapped_rows_total         kind; also _pending and _failed (1 or 0)
accelerator_row_banks                   spare: low, none; none above 0: no spare rows are left
accelerator_retired_pages_total         kind; also accelerator_retired_pages_pending
accelerator_throttle_active             reason: sw_power_cap, hw_slowdown …; 1 or 0
accelerator_throttle_seconds_total      reason; time spent so
accelerator_fabric_info                 1; state, status, clique, cluster, summary, bandwidth
accelerator_fabric_healthy              1 or 0 once registration has ended
accelerator_reset_required              1 or 0
accelerator_recovery_action             1; action: none, reset, reboot, drain_p2p, …
accelerator_inforom_valid               0: the tool calls it corrupted
accelerator_pcie_link_generation        also _max_generation, _lanes, _max_lanes
accelerator_pcie_replays_total          also _transmit_, _receive_bytes_per_second
accelerator_processes                   how many use the card
accelerator_process_info                1; pid, process (no arguments), type
accelerator_process_memory_bytes        pid, process
accelerators_attached                   vendor only: the driver's own count
accelerators_listed                     vendor only: how many the log lists
======================================== ==========================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ..watchdog.contracts import Yield
from ..watchdog.errors import CommandTimeout, NoData, NotSupported, SourceError
from ..watchdog.model import Checkpoint, Event, Page, Sample
from ..watchdog.nvidia import links, messages, nvml, outputs, xml_log
from ..watchdog.nvidia.card import Card
from ..watchdog.nvidia.inventory import gpus_of_driver, handed_away
from ..watchdog.nvidia.metrics import samples
from ..watchdog.nvidia.values import card_name
from ..watchdog.system import Finished, System

QUERY = ("nvidia-smi", "-q", "-x")
LIST = ("nvidia-smi", "-L")
MAX_SINGLE_QUERIES = 32  # one by one after one card has stopped the whole query


@dataclass(frozen=True)
class NvidiaSmi:
    """All NVIDIA GPUs of the node.

    ``expected`` are cards that must be there besides those seen before; ``interval`` and
    ``timeout`` are seconds (the timeout covers all queries of a run together). ``source`` is
    "nvidia-smi" or "nvml" (the library, by nvidia-ml-py, in a child process).
    """

    interval: float = 5.0
    timeout: float = 10.0
    expected: tuple[str, ...] = ()
    source: str = "nvidia-smi"

    name: ClassVar[str] = "nvidia_smi"

    @property
    def instance(self) -> str:
        """A node has one."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides those on the samples."""
        return {}

    def collect(self, system: System) -> Iterable[Yield]:
        """Query all cards; after a card has stopped the query, the others one by one.

        Raises SourceError when the driver or the tool fails as a whole or its answer is not
        whole; a time-out passes as it is.
        """
        seen = _seen(system.checkpoints.get(self.instance))
        expected = {card_name(name) or name for name in self.expected}
        if self.source == "nvml":
            return _by_library(system, self.timeout, seen, expected)
        deadline = system.clock.mono() + self.timeout
        answer = system.runner.run(QUERY, timeout=self.timeout)
        said = outputs.around(answer.stdout)
        found, gone = _read(answer, said), set(messages.lost_cards(said))
        if found:
            told = _told(system, deadline, found, seen, expected | gone)
            return [*told, *outputs.warnings(said)]
        if not gone:
            return _nothing({*seen, *expected})
        others = {*seen, *expected, *gpus_of_driver(system.files)} - gone
        lost = [sample for name in sorted(gone) for sample in outputs.gone(name)]
        return [*lost, *_one_by_one(system, deadline, sorted(others))]


def _nothing(wanted: Iterable[str]) -> Iterator[Yield]:
    """The driver works and has no GPU: all that are expected are gone."""
    missing = sorted(wanted)
    if not missing:
        raise NoData("nvidia-smi: no devices were found, and none is expected")
    return (sample for name in missing for sample in outputs.gone(name))


def _told(
    system: System,
    deadline: float,
    log: xml_log.Log,
    seen: Mapping[str, Any],
    expected: set[str],
) -> Iterator[Yield]:
    yield from outputs.report(_with_uuids(system, deadline, log))
    listed = {card.name for card in log.cards}
    missing = _missing(system, listed, seen, expected)
    if log.attached is not None and log.attached > len(log.cards):
        yield from _one_by_one(system, deadline, missing)
    else:
        yield from (sample for name in missing for sample in outputs.gone(name))
    yield from _remembered(seen, log.cards)


def _remembered(seen: Mapping[str, Any], cards: Iterable[Card]) -> Iterator[Yield]:
    known = {name: _without_index(seen[name]) for name in seen}
    known.update((card.name, _identity(card)) for card in cards)
    if known != seen:
        yield Checkpoint({"cards": known})


def _by_library(
    system: System, timeout: float, seen: Mapping[str, Any], expected: set[str]
) -> Iterable[Yield]:
    """Ask NVML. A node that never had a card may lack it; where there are some, that is a failure.

    A card that the answer lacks is gone when the driver does not count it, or calls so many lost.
    """
    answer = nvml.parse(system.runner.run(nvml.COMMAND, timeout=timeout))
    if answer.absent:
        if seen or expected:
            raise SourceError(f"NVML: {answer.absent}")
        raise NotSupported(answer.absent)
    if not answer.attached:
        return _nothing({*seen, *expected})
    listed = {card.name for card in answer.cards}
    missing = _missing(system, listed, seen, expected)
    unread = answer.attached - len(answer.cards)
    gone = missing if unread in (0, answer.lost) and len(missing) >= answer.lost else []
    told = outputs.report(xml_log.Log(answer.attached, answer.cards))
    lost = [sample for name in gone for sample in outputs.gone(name)]
    return [*told, *lost, *_remembered(seen, answer.cards)]


def _read(answer: Finished, said: str) -> xml_log.Log | None:
    """The log, or None where the tool says that it reaches no card. Raises SourceError.

    ``said`` is what the tool says around the log; one lost card spoils the exit status of all.
    """
    if answer.truncated:
        raise SourceError("nvidia-smi: its answer does not end, it was cut")
    lost = bool(messages.lost_cards(said))
    good = lost or answer.code in (0, messages.INFOROM)
    if good and outputs.is_whole_log(answer.stdout):
        return xml_log.parse(answer.stdout)
    if lost or answer.code == messages.NO_DEVICES or messages.no_devices(said):
        return None
    if answer.code == 0 and not messages.failure(said):
        return xml_log.parse(answer.stdout)  # which says what is wrong with it
    why = messages.failure(said) or messages.exit_words(answer.code)
    raise SourceError(f"nvidia-smi: {why} (exit status {answer.code})")


def _seen(doc: Mapping[str, Any] | None) -> dict[str, Any]:
    cards = (doc or {}).get("cards")
    return dict(cards) if isinstance(cards, Mapping) else {}


def _with_uuids(system: System, deadline: float, log: xml_log.Log) -> xml_log.Log:
    """The log with its MIG instances named as ``-L`` names them; -q -x lacks their uuids.

    Where the list fails the instances are left out: a made-up name would be another card.
    """
    if not any(item for card in log.cards for item in card.instances if not item.uuid):
        return log
    answer = _answer(system, LIST, max(deadline - system.clock.mono(), 0.1))
    named = links.mig_uuids(answer.text) if answer and answer.code == 0 else {}
    return replace(log, cards=tuple(_renamed(card, named) for card in log.cards))


def _renamed(card: Card, named: Mapping[tuple[str, str], str]) -> Card:
    uuid = card.fields.get("uuid", "")
    found = [(item, item.uuid or named.get((uuid, item.index), "")) for item in card.instances]
    return replace(card, instances=tuple(replace(item, uuid=name) for item, name in found if name))


def _without_index(identity: Any) -> dict[str, str]:
    """A gone card has no number: another bears it now."""
    return {**identity, "index": ""} if isinstance(identity, Mapping) else {}


def _identity(card: Card) -> dict[str, str]:
    return {label: card.fields.get(label, "") for label in ("uuid", "name", "index")}


def _missing(
    system: System, listed: set[str], seen: Mapping[str, Any], expected: set[str]
) -> list[str]:
    """What a complete log lacks: seen before or asked for, or held by the driver in PCI."""
    away = handed_away(system.files)
    wanted = {name for name in seen if name not in away} | expected
    if listed or seen:
        wanted |= gpus_of_driver(system.files)
    return sorted(wanted - listed)


def _one_by_one(system: System, deadline: float, names: Iterable[str]) -> Iterator[Yield]:
    """Ask each card by its address while time is left; what gives no answer stays unknown.

    Each gets its share of the time, so that one that hangs does not silence the others.
    """
    asked = [name for name in names if ":" in name][:MAX_SINGLE_QUERIES]
    for at, name in enumerate(asked):
        left = deadline - system.clock.mono()
        if left <= 0:
            return
        answer = _answer(system, (*QUERY, "-i", f"{name}.0"), left / (len(asked) - at))
        if answer is None or answer.truncated:
            continue
        if name in messages.lost_cards(outputs.around(answer.stdout)):
            yield from outputs.gone(name)
        elif answer.code in (0, messages.INFOROM):
            yield from _single(answer, name)


def _answer(system: System, command: tuple[str, ...], timeout: float) -> Finished | None:
    """What a further command says; None when it was too late but could be ended."""
    try:
        return system.runner.run(command, timeout=timeout)
    except CommandTimeout as late:
        if late.stuck:
            raise
        return None


def _single(answer: Finished, name: str) -> Iterator[Yield]:
    try:
        log = xml_log.parse(answer.stdout)
    except SourceError:
        return  # this one card stays unknown; the others are told
    for card in log.cards:
        if card.name == name:  # its place in this answer is not its index on the node
            texts = {key: text for key, text in card.fields.items() if key != "index"}
            yield from samples(replace(card, fields=texts))


def capture(data: bytes, command: str | None = None) -> list[Sample | Page | Event]:
    """Read a captured output of nvidia-smi, recognising which command's it is.

    ``command`` (what ``--as`` said) decides where two could be meant. Raises SourceError with one
    line when the tool reports its own failure, or nothing can be read.
    """
    return list(outputs.read(data, command or ""))
