"""One GPU as some tool's output shows it, and the metrics that follow from it.

Here alone is said what makes a card sick (a fact that the tool states) and what lets it be called
healthy (its key readings are there, intact, and no fact speaks against it). Between the two lies
unknown: no ``accelerator_healthy`` sample at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from ..model import Labels, Sample
from .fields import FIELDS
from .values import ABSENT, ERROR, LOST, RESET, bare, process_name, read, trouble

VENDOR = "nvidia"
MAX_PROCESSES = 256  # per card; more are counted and not listed
_ROUNDING = 16.0 * 1024 * 1024  # bytes

_RECOVERIES = {
    "none": "none",
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "drain p2p": "drain_p2p",
    "drain and reset": "drain_and_reset",
}
_KINDS = (("corrected", "correctable"), ("uncorrected", "uncorrectable"))
_COUNTERS = (
    ("volatile", "accelerator_ecc_errors_total"),
    ("aggregate", "accelerator_ecc_lifetime_errors_total"),
)
_FATAL_FLAGS = (
    "remapped_rows.failure",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
    "ecc.unrepairable_memory",
)
_RESET_FLAGS = ("reset_required", "drain_and_reset_recommended")


@dataclass(frozen=True, slots=True)
class Process:
    """A process on a GPU. ``memory`` is the printed text; ``gi`` and ``ci`` its MIG place."""

    pid: str
    name: str = ""
    kind: str = ""
    memory: str = ""
    gi: str = ""
    ci: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance. ``uuid`` "" where the output does not say it."""

    index: str
    gi: str
    ci: str
    uuid: str = ""
    profile: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU's readings: printed texts under the names of --query-gpu.

    ``name`` is the card's name in all metrics. ``damage`` says why its part of the output cannot
    be trusted as a whole (doubled elements, contradicting addresses). ``lost``: the tool says so.
    ``processes`` is None where the output does not list any.
    """

    name: str
    fields: Mapping[str, str]
    processes: tuple[Process, ...] | None = None
    instances: tuple[Instance, ...] = ()
    damage: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class _Readings:
    """What could be read, and the worst that was said instead."""

    values: Mapping[str, float]
    troubles: Mapping[str, str]
    absent: frozenset[str]
    lost: bool
    reset: bool
    broken: bool


def labels_of(name: str, *extra: tuple[str, str]) -> Labels:
    """The labels of a card's series."""
    pairs = [("card", name), ("vendor", VENDOR), *(pair for pair in extra if pair[1])]
    return tuple(sorted(pairs))


@lru_cache(maxsize=8192)
def _joined(base: Labels, extra: Labels) -> Labels:
    """Both label sets in one; the same object again for the same card and metric."""
    return tuple(sorted(base + extra))


def samples(card: Card) -> Iterator[Sample]:
    """All metrics of a card, its processes and its MIG instances."""
    readings = _readings(card)
    base = labels_of(card.name)
    yield _info(card)
    healthy = _health(card, readings)
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


def _readings(card: Card) -> _Readings:
    values: dict[str, float] = {}
    troubles: dict[str, str] = {}
    absent: list[str] = []
    lost, reset, broken = card.lost, False, bool(card.damage)
    for name, text in card.fields.items():
        spec = FIELDS.get(name)
        value, why = read(spec.kind, text) if spec else (None, trouble(text))
        if value is not None:
            values[name] = value
        elif why == ABSENT:
            absent.append(name)
        elif why:
            troubles[name] = why
            lost = lost or why == LOST
            reset = reset or why == RESET
            broken = broken or why == ERROR or (spec is not None and spec.vital)
    broken = broken or _contradicts(values)
    return _Readings(values, troubles, frozenset(absent), lost, reset, broken)


def _contradicts(values: Mapping[str, float]) -> bool:
    """Whether the memory figures do not fit together; each is printed rounded to a MiB."""
    total, used = values.get("memory.total"), values.get("memory.used")
    if total is None or used is None:
        return False
    if used > total or total == 0.0:
        return True
    rest = total - used - values.get("memory.free", total - used)
    parts = (rest, rest - values.get("memory.reserved", 0.0))  # used may include reserved
    return min(abs(part) for part in parts) > _ROUNDING


def _plain(readings: _Readings, base: Labels) -> Iterator[Sample]:
    for name, value in readings.values.items():
        spec = FIELDS[name]
        if spec.metric:
            labels = _joined(base, spec.labels) if spec.labels else base
            yield Sample(spec.metric, value, labels)


def _derived(card: Card, readings: _Readings, base: Labels) -> Iterator[Sample]:
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
            total = _ecc_total(readings, f"ecc.errors.{printed}.{counter}")
            if total is not None:
                yield Sample(metric, total, _joined(base, (("kind", kind),)))
            sram = _sram_split(readings, f"ecc.errors.{printed}.{counter}.sram")
            if sram is not None:
                extra = (("kind", kind), ("memory", "sram"))
                parts = metric.replace("errors_total", "memory_errors_total")
                yield Sample(parts, sram, _joined(base, extra))
    reset = _reset_required(card, readings)
    if reset is not None:
        yield Sample("accelerator_reset_required", reset, base)
    action = recovery(card.fields.get("gpu_recovery_action", ""))
    if action:
        yield Sample("accelerator_recovery_action", 1.0, _joined(base, (("action", action),)))


def recovery(text: str) -> str:
    """The recovery action as one word, ``none`` included; "" when it is not known."""
    words = " ".join(bare(text).lower().split())
    if words in _RECOVERIES:
        return _RECOVERIES[words]
    if not trouble(text) and any(word in words for word in ("reset", "reboot", "drain")):
        return "_".join(words.split())[:40]
    return ""


def _reset_required(card: Card, readings: _Readings) -> float | None:
    if readings.reset:
        return 1.0
    known = [readings.values[name] for name in _RESET_FLAGS if name in readings.values]
    action = recovery(card.fields.get("gpu_recovery_action", ""))
    if action:
        known.append(1.0 if "reset" in action or "reboot" in action else 0.0)
    return max(known) if known else None


def _ecc_total(readings: _Readings, base: str) -> float | None:
    """The total where one is printed, else the sum of the parts; None once a part failed."""
    values = readings.values
    if f"{base}.total" in values or f"{base}.total" in readings.absent:
        return values.get(f"{base}.total")
    names = [f"{base}.total", f"{base}.dram", f"{base}.sram"]
    if f"{base}.sram" not in values:
        names += [f"{base}.sram.parity", f"{base}.sram.secded"]
    if any(name in readings.troubles for name in names):
        return None
    parts = [values[name] for name in names if name in values]
    return sum(parts) if parts else None


def _sram_split(readings: _Readings, base: str) -> float | None:
    """The sum of both kinds of SRAM errors, where the tool prints them apart."""
    values = readings.values
    if base in values or f"{base}.parity" not in values or f"{base}.secded" not in values:
        return None
    return values[f"{base}.parity"] + values[f"{base}.secded"]


def _health(card: Card, readings: _Readings) -> float | None:
    if _sick(card, readings):
        return 0.0
    action = card.fields.get("gpu_recovery_action", "")
    unsure = trouble(action) != ABSENT and not recovery(action)
    if readings.broken or unsure or not _intact(readings.values):
        return None
    return 1.0


def _sick(card: Card, readings: _Readings) -> bool:
    values = readings.values
    if readings.lost or readings.reset:
        return True
    if recovery(card.fields.get("gpu_recovery_action", "")) not in ("", "none"):
        return True
    if any(values.get(name) == 1.0 for name in (*_FATAL_FLAGS, *_RESET_FLAGS)):
        return True
    uncorrectable = _ecc_total(readings, "ecc.errors.uncorrected.volatile")
    return bool(uncorrectable) or _fabric_failed(card.fields)


def _intact(values: Mapping[str, float]) -> bool:
    """Whether the readings are there without which nobody may call a card healthy."""
    busy = "utilization.gpu" in values or values.get("mig.mode.current") == 1.0
    return busy and all(
        name in values for name in ("temperature.gpu", "memory.used", "memory.total")
    )


def _word(fields: Mapping[str, str], name: str) -> str:
    """A text reading in lower case, "" when it is none."""
    text = fields.get(name, "")
    return "" if trouble(text) else " ".join(bare(text).lower().split())


def _fabric_failed(fields: Mapping[str, str]) -> bool:
    """Registration with the fabric ended, and not well; or the fabric calls itself unhealthy."""
    ended = _word(fields, "fabric.state") == "completed"
    status = _word(fields, "fabric.status")
    return (ended and status not in ("", "success")) or (
        _word(fields, "fabric.health.summary") == "unhealthy"
    )


def _fabric_healthy(fields: Mapping[str, str]) -> float | None:
    if _fabric_failed(fields):
        return 0.0
    good = {
        "summary": ("healthy",),
        "bandwidth": ("full",),
        "route_unhealthy": ("false",),
        "access_timeout_recovery": ("false",),
        "incorrect_configuration": ("none", "false"),
    }
    for name, words in good.items():
        word = _word(fields, f"fabric.health.{name}")
        if word and word not in words:
            return 0.0
    done = _word(fields, "fabric.state") == "completed"
    return 1.0 if done and _word(fields, "fabric.status") == "success" else None


def _fabric(card: Card) -> Iterator[Sample]:
    fields = card.fields
    pairs = [
        (label, _word(fields, f"fabric.{name}"))
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
    healthy = _fabric_healthy(fields)
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


def instance_name(card: Card, instance: Instance) -> str:
    """The MIG uuid; where the output lacks it, its form before driver 470, else a place."""
    uuid = card.fields.get("uuid", "")
    if instance.uuid:
        return instance.uuid
    if uuid and not trouble(uuid):
        return f"MIG-{uuid}/{instance.gi}/{instance.ci}"
    return f"{card.name}/mig{instance.index}"


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
    readings = _readings(Card(name, instance.fields))
    yield from _plain(readings, base)
    errors = _ecc_total(readings, "ecc.errors.uncorrected.volatile")
    if errors is not None:
        kind = (("kind", "uncorrectable"),)
        yield Sample("accelerator_ecc_errors_total", errors, _joined(base, kind))
    memory = {"memory.used", "memory.total"} <= set(readings.values)
    if healthy == 0.0 or errors or readings.lost or readings.reset:
        yield Sample("accelerator_healthy", 0.0, base)
    elif healthy == 1.0 and memory and not readings.broken:
        yield Sample("accelerator_healthy", 1.0, base)
