"""The metrics of a card, its processes and its MIG instances; here alone texts become samples."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ..model import Labels, Sample
from .card import VENDOR, Card, Instance, Process, instance_name, labels_of
from .fields import FIELDS
from .health import fabric_healthy, health, reset_required
from .readings import Readings, ecc_total, readings_of, recovery, sram_split, word
from .values import process_name, read, trouble

MAX_PROCESSES = 256  # per card; more are counted and not listed

_KINDS = (("corrected", "correctable"), ("uncorrected", "uncorrectable"))
_COUNTERS = (
    ("volatile", "accelerator_ecc_errors_total"),
    ("aggregate", "accelerator_ecc_lifetime_errors_total"),
)


@lru_cache(maxsize=8192)
def _joined(base: Labels, extra: Labels) -> Labels:
    """Both label sets in one; the same object again for the same card and metric."""
    return tuple(sorted(base + extra))


def samples(card: Card) -> Iterator[Sample]:
    """All metrics of a card, its processes and its MIG instances."""
    readings = readings_of(card)
    base = labels_of(card.name)
    yield _info(card)
    healthy = health(card, readings)
    yield Sample("accelerator_present", 0.0 if readings.lost else 1.0, base)
    if healthy is not None:
        yield Sample("accelerator_healthy", healthy, base)
    yield from _plain(readings, base)
    yield from _derived(card, readings, base)
    yield from _fabric(card)
    yield from _processes(card)
    for instance in card.instances:
        yield from _instance(card, instance, healthy)


def _info(card: Card) -> Sample:
    texts = card.fields
    pairs = [("card", card.name), ("vendor", VENDOR)]
    for label, name in (
        ("bus_id", "pci.bus_id"),
        ("driver", "driver_version"),
        ("index", "index"),
        ("minor", "minor_number"),
        ("model", "name"),
        ("uuid", "uuid"),
        ("vbios", "vbios_version"),
    ):
        text = texts.get(name, "")
        if text and not trouble(text):
            pairs.append((label, " ".join(text.split())[:200]))
    return Sample("accelerator_info", 1.0, tuple(sorted(pairs)))


def _plain(readings: Readings, base: Labels) -> Iterator[Sample]:
    for name, value in readings.values.items():
        spec = FIELDS[name]
        if spec.metric:
            labels = _joined(base, spec.labels) if spec.labels else base
            yield Sample(spec.metric, value, labels)


def _derived(card: Card, readings: Readings, base: Labels) -> Iterator[Sample]:
    values = readings.values
    if "utilization.gpu" in values:
        # nvidia-smi has no finer figure: the share of time in which a kernel ran on the SMs
        yield Sample("accelerator_sm_utilization_ratio", values["utilization.gpu"], base)
    for name in ("power.draw", "power.draw.average", "power.draw.instant"):
        if name in values:
            yield Sample("accelerator_power_watts", values[name], base)
            break
    for printed, kind in _KINDS:
        for counter, metric in _COUNTERS:
            total = ecc_total(readings, f"ecc.errors.{printed}.{counter}")
            if total is not None:
                yield Sample(metric, total, _joined(base, (("kind", kind),)))
            sram = sram_split(readings, f"ecc.errors.{printed}.{counter}.sram")
            if sram is not None:
                extra = (("kind", kind), ("memory", "sram"))
                parts = metric.replace("errors_total", "memory_errors_total")
                yield Sample(parts, sram, _joined(base, extra))
    reset = reset_required(card, readings)
    if reset is not None:
        yield Sample("accelerator_reset_required", reset, base)
    action = recovery(card.fields.get("gpu_recovery_action", ""))
    if action:
        yield Sample("accelerator_recovery_action", 1.0, _joined(base, (("action", action),)))


def _fabric(card: Card) -> Iterator[Sample]:
    fields = card.fields
    pairs = [
        (label, word(fields, f"fabric.{name}"))
        for label, name in (
            ("state", "state"),
            ("status", "status"),
            ("clique", "cliqueId"),
            ("cluster", "clusterUuid"),
            ("bandwidth", "health.bandwidth"),
            ("summary", "health.summary"),
        )
    ]
    if pairs[0][1] or pairs[1][1]:
        yield Sample("accelerator_fabric_info", 1.0, labels_of(card.name, *pairs))
    healthy = fabric_healthy(fields)
    if healthy is not None:
        yield Sample("accelerator_fabric_healthy", healthy, labels_of(card.name))


def _processes(card: Card) -> Iterator[Sample]:
    if card.processes is None:
        return
    homes = {item.gi: instance_name(card, item) for item in card.instances if item.gi}
    yield Sample("accelerator_processes", float(len(card.processes)), labels_of(card.name))
    for process in card.processes[:MAX_PROCESSES]:
        yield from process_samples(homes.get(process.gi, card.name), process)


def process_samples(home: str, process: Process) -> Iterator[Sample]:
    """A process on the card ``home``, and the memory that it holds, if that was printed."""
    if not process.pid.isdecimal():
        return
    who = (("pid", process.pid), ("process", process_name(process.name)))
    kind = "" if trouble(process.kind) else process.kind[:8]
    yield Sample("accelerator_process_info", 1.0, labels_of(home, *who, ("type", kind)))
    used = read("bytes", process.memory)[0]
    if used is not None:
        yield Sample("accelerator_process_memory_bytes", used, labels_of(home, *who))


def _instance(card: Card, instance: Instance, healthy: float | None) -> Iterator[Sample]:
    name = instance_name(card, instance)
    base = labels_of(name)
    model = " ".join(card.fields.get("name", "").split())
    yield Sample(
        "accelerator_info",
        1.0,
        labels_of(
            name,
            ("parent", card.name),
            ("gi", instance.gi),
            ("ci", instance.ci),
            ("index", instance.index),
            ("profile", instance.profile),
            ("model", model),
            ("uuid", name if name.startswith("MIG-") else ""),
        ),
    )
    yield Sample("accelerator_present", 1.0, base)
    readings = readings_of(Card(name, instance.fields))
    yield from _plain(readings, base)
    errors = ecc_total(readings, "ecc.errors.uncorrected.volatile")
    if errors is not None:
        kind = (("kind", "uncorrectable"),)
        yield Sample("accelerator_ecc_errors_total", errors, _joined(base, kind))
    memory = {"memory.used", "memory.total"} <= set(readings.values)
    if healthy == 0.0 or errors or readings.lost or readings.reset:
        yield Sample("accelerator_healthy", 0.0, base)
    elif healthy == 1.0 and memory and not readings.broken:
        yield Sample("accelerator_healthy", 1.0, base)
