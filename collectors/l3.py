"""L3 hit ratio and memory traffic of each CPU die, from the counters beside the cores.

Which counters there are is read from sysfs, never guessed from the CPU's name: HiSilicon's L3 and
memory controllers of both generations, AMD's L3, else the cores' own last-level events. A counter
that cannot be had is one of four things, told apart: absent or unsupported (not on this node), not
permitted, held by another program.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..watchdog.contracts import Yield
from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.model import Checkpoint, Sample
from ..watchdog.perf import Counter
from ..watchdog.system import Files, System

DEVICES = "/sys/bus/event_source/devices"
CPUS = "/sys/devices/system/cpu"
PARANOID = "/proc/sys/kernel/perf_event_paranoid"

L3_EVENTS = (("rd_cpipe", "rd_hit_cpipe"), ("l3c_ref", "l3c_hit"))
"""References and hits of HiSilicon's L3C, first and second generation; its ``events`` decide."""
DDR_EVENTS = (("flux_rd", "read"), ("flux_wr", "write"))
DDR_BYTES = 32.0  # bytes that one count of a DDRC's flux stands for
AMD_L3 = ("event=0x4,umask=0xff", "event=0x4,umask=0x1")  # lookups, misses
HARDWARE_CACHE, HARDWARE = 3, 0  # PERF_TYPE_HW_CACHE, PERF_TYPE_HARDWARE
LAST_LEVEL = (2, 2 | 1 << 16)  # reads of the last level: accesses, misses
ARCHITECTURAL = (2, 3)  # cache-references, cache-misses: the last level on Intel only
MAX_NUMBER = 65_535  # of a CPU: no list is longer
CPUS_PER_DIE = 16  # of more cores so many are counted, evenly spread; bounds open descriptors

NOT_PERMITTED = (errno.EACCES, errno.EPERM)
BUSY = (errno.EAGAIN, errno.EBUSY)
UNSUPPORTED = (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two counters of one die: what was asked, and what was found (or not: ``misses``)."""

    die: str
    asked: Counter
    found: Counter
    misses: bool = False


@dataclass(frozen=True, slots=True)
class L3:
    """Counts L3 reads and hits of each die, and bytes through its memory controllers.

    Series: ``l3_cache_references_total{die}``, ``l3_cache_hits_total{die}`` (since the daemon
    opened the counters), ``l3_cache_hit_ratio{die}`` over the time since the last run, absent
    where fewer than ``minimum`` references fell into it; ``ddr_bytes_total{die,direction}`` and
    ``ddr_counters_state{state} 1`` (counting, not_permitted, busy, unsupported) on HiSilicon.
    """

    interval: float = 15.0
    timeout: float = 5.0
    minimum: float = 10_000.0
    name: str = field(default="l3", init=False)

    @property
    def instance(self) -> str:
        """The owner of the series."""
        return self.name

    @property
    def scope(self) -> Mapping[str, str]:
        """No labels besides the series' own."""
        return {}

    def collect(self, system: System) -> Iterator[Yield]:
        """Yield counts and ratios. Raises NotSupported (no such counter here) and SourceError (not
        permitted, or held by another program)."""
        token, totals = _totals(system)
        before = system.checkpoints.get(self.instance) or {}
        earlier = before.get("dies", {}) if before.get("token") == token else {}
        for die, (references, hits) in totals.items():
            label = (("die", die),)
            yield Sample("l3_cache_references_total", references, label)
            yield Sample("l3_cache_hits_total", hits, label)
            since = _since(earlier.get(die), references, hits)
            if since is not None and since[0] >= self.minimum:
                yield Sample("l3_cache_hit_ratio", min(since[1] / since[0], 1.0), label)
        yield from _memory(system)
        yield Checkpoint(
            {"token": token, "dies": {die: list(pair) for die, pair in totals.items()}}
        )


def _since(earlier: Sequence[float] | None, references: float, hits: float) -> list[float] | None:
    """References and hits since the earlier reading; None without one, or when it was not less."""
    if earlier is None:
        return None
    now = [references - earlier[0], hits - earlier[1]]
    return now if min(now) >= 0 else None


def _totals(system: System) -> tuple[str, dict[str, tuple[float, float]]]:
    """References and hits by die, with the token of the reading."""
    refusal: OSError | None = None
    for pairs in _choices(system.files):
        counters = [counter for pair in pairs for counter in (pair.asked, pair.found)]
        try:
            counts = system.perf.read("l3", counters)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise _told(error, system.files) from error
            refusal = error
            continue
        return counts.token, _summed(pairs, counts.values)
    if refusal is None:
        raise NotSupported("this node has no L3 counters: no PMU for them, no L3 cache in sysfs")
    raise NotSupported(f"this CPU cannot count its L3 cache ({refusal.strerror})")


def _summed(
    pairs: Sequence[Pair], values: Sequence[float | None]
) -> dict[str, tuple[float, float]]:
    totals: dict[str, tuple[float, float]] = {}
    for pair, asked, found in zip(pairs, values[::2], values[1::2], strict=True):
        if asked is None or found is None:
            raise SourceError("L3 counters are held by another program: they never ran")
        references, hits = totals.get(pair.die, (0.0, 0.0))
        hit = max(asked - found, 0.0) if pair.misses else found
        totals[pair.die] = (references + asked, hits + hit)
    return totals


def _told(error: OSError, files: Files) -> Exception:
    """One line for a refusal that a person can do something about."""
    if error.errno in NOT_PERMITTED:
        try:
            level = files.text(PARANOID).strip()
        except OSError:
            level = "unknown"
        return SourceError(
            "counting is not permitted: it needs CAP_PERFMON (and perf_event_open in the unit's "
            f"SystemCallFilter), or kernel.perf_event_paranoid at 0 or less; it is {level}"
        )
    if error.errno in BUSY:
        return SourceError("L3 counters are held by another program (a running perf?)")
    return error


def _memory(system: System) -> Iterator[Sample]:
    """Bytes through HiSilicon's memory controllers; a refusal here leaves the L3 alone."""
    wanted: list[tuple[str, str, Counter]] = []
    for die, device in _hisilicon(system.files, "ddrc"):
        names = system.files.names(f"{DEVICES}/{device}/events")
        for event, direction in DDR_EVENTS:
            if event in names:
                wanted.append((die, direction, _named(system.files, device, event)))
    if not wanted:
        return
    try:
        counts = system.perf.read("ddr", [counter for _, _, counter in wanted])
    except OSError as error:
        yield Sample("ddr_counters_state", 1.0, (("state", _state(error)),))
        return
    totals: dict[tuple[str, str], float] = {}
    for (die, direction, _), value in zip(wanted, counts.values, strict=True):
        if value is None:  # a sum that lacks a channel would be wrong
            yield Sample("ddr_counters_state", 1.0, (("state", "busy"),))
            return
        totals[die, direction] = totals.get((die, direction), 0.0) + value
    yield Sample("ddr_counters_state", 1.0, (("state", "counting"),))
    for (die, direction), value in totals.items():
        labels = (("die", die), ("direction", direction))
        yield Sample("ddr_bytes_total", value * DDR_BYTES, labels)


def _state(error: OSError) -> str:
    if error.errno in NOT_PERMITTED:
        return "not_permitted"
    if error.errno in BUSY:
        return "busy"
    if error.errno in UNSUPPORTED:
        return "unsupported"
    raise error


# ---- which counters there are ----


def _choices(files: Files) -> Iterator[list[Pair]]:
    """Ways to count, the best first; the next is for where the kernel knows no such event."""
    for choice in (_uncore(files), _amd(files)):
        if choice:
            yield choice
            return
    dies = list(_dies(files))
    kinds = [(HARDWARE_CACHE, LAST_LEVEL)]
    if _intel(files):
        kinds.append((HARDWARE, ARCHITECTURAL))
    for kind, (asked, missed) in kinds if dies else ():
        yield [
            Pair(die, Counter(kind, asked, cpu), Counter(kind, missed, cpu), misses=True)
            for die, cpus in dies
            for cpu in cpus[:: -(-len(cpus) // CPUS_PER_DIE)]
        ]


def _hisilicon(files: Files, unit: str) -> Iterator[tuple[str, str]]:
    """Die and name of each of HiSilicon's PMUs of a unit (``hisi_sccl3_l3c7``: die 3)."""
    for device in files.names(DEVICES):
        match = re.fullmatch(rf"hisi_sccl(\d+)_{unit}\d+(?:_\d+)?", device)
        if match:
            yield match[1], device


def _uncore(files: Files) -> list[Pair]:
    pairs = []
    for die, device in _hisilicon(files, "l3c"):
        names = files.names(f"{DEVICES}/{device}/events")
        for asked, found in L3_EVENTS:
            if asked in names and found in names:
                counters = [_named(files, device, event) for event in (asked, found)]
                pairs.append(Pair(die, counters[0], counters[1]))
                break
    return pairs


def _amd(files: Files) -> list[Pair]:
    """AMD's L3 PMU counts per L3; its cpumask holds one CPU of each."""
    if "amd_l3" not in files.names(DEVICES):
        return []
    pairs = []
    for cpu in _cpus(files.text(f"{DEVICES}/amd_l3/cpumask")):
        asked, missed = (_counter(files, "amd_l3", terms, cpu) for terms in AMD_L3)
        pairs.append(Pair(_die(files, cpu, str(cpu)), asked, missed, misses=True))
    return pairs


def _dies(files: Files) -> Iterator[tuple[str, list[int]]]:
    """Each L3 cache with its CPUs."""
    try:
        waiting = _cpus(files.text(f"{CPUS}/online"))
    except OSError:
        return
    position = 0
    while waiting:
        try:
            shared = _cpus(files.text(f"{CPUS}/cpu{waiting[0]}/cache/index3/shared_cpu_list"))
        except OSError:
            return
        yield _die(files, waiting[0], str(position)), [cpu for cpu in shared if cpu in waiting]
        waiting = [cpu for cpu in waiting[1:] if cpu not in shared]
        position += 1


def _die(files: Files, cpu: int, otherwise: str) -> str:
    try:
        return files.text(f"{CPUS}/cpu{cpu}/cache/index3/id").strip()
    except OSError:
        return otherwise


def _intel(files: Files) -> bool:
    try:
        return "GenuineIntel" in files.text("/proc/cpuinfo", 4096)
    except OSError:
        return False


def _named(files: Files, device: str, event: str) -> Counter:
    """A PMU's event by its name in sysfs, on the CPU that the PMU wants."""
    cpus = _cpus(files.text(f"{DEVICES}/{device}/cpumask"))
    if not cpus:
        raise SourceError(f"{device}: its cpumask is empty")
    terms = files.text(f"{DEVICES}/{device}/events/{event}")
    return _counter(files, device, terms, cpus[0])


def _counter(files: Files, device: str, terms: str, cpu: int) -> Counter:
    number = files.text(f"{DEVICES}/{device}/type").strip()
    if not number.isdigit():
        raise SourceError(f"{device}: its type is no number")
    formats = {
        name: files.text(f"{DEVICES}/{device}/format/{name}").strip()
        for name in files.names(f"{DEVICES}/{device}/format")
    }
    words = encoded(terms, formats)
    return Counter(int(number), words["config"], cpu, words["config1"], words["config2"])


def encoded(terms: str, formats: Mapping[str, str]) -> dict[str, int]:
    """``event=0x02,umask=1`` → the config words, each term's bits laid out as sysfs' ``format``
    says (``config:0-7,32``). Raises SourceError for a term that it does not name."""
    words = {"config": 0, "config1": 0, "config2": 0}
    for term in terms.strip().split(","):
        key, _, text = term.strip().partition("=")
        word, _, places = formats.get(key, f"{key}:0-63").partition(":")
        try:
            value = int(text, 0) if text else 1
            bits = [bit for bit in _ranges(places) if bit < 64]
        except ValueError:
            raise SourceError(f"event term {term!r} cannot be read") from None
        if word not in words:
            raise SourceError(f"event term {term!r} is not in the PMU's format")
        for position, bit in enumerate(bits):
            words[word] |= (value >> position & 1) << bit
    return words


def _cpus(text: str) -> list[int]:
    """``0-3,8`` → [0, 1, 2, 3, 8]. Raises SourceError."""
    try:
        return _ranges(text.strip()) if text.strip() else []
    except ValueError:
        raise SourceError(f"CPU list {text.strip()!r} cannot be read") from None


def _ranges(text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), min(int(last or first), MAX_NUMBER) + 1))
    return numbers
