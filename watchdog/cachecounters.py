"""Which counters of L3 caches and memory controllers a CPU has, as sysfs tells them.

Never guessed from the CPU's name: HiSilicon's L3 and memory controllers of both generations, AMD's
L3, else the cores' own last-level events. Nothing is counted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .errors import SourceError
from .perf import Counter
from .system import Files

DEVICES = "/sys/bus/event_source/devices"
CPUS = "/sys/devices/system/cpu"

L3_EVENTS = (("rd_cpipe", "rd_hit_cpipe"), ("l3c_ref", "l3c_hit"))
"""References and hits of HiSilicon's L3C, first and second generation; its ``events`` decide."""
DDR_EVENTS = (("flux_rd", "read"), ("flux_wr", "write"))
AMD_L3 = ("event=0x4,umask=0xff", "event=0x4,umask=0x1")  # lookups, misses
HARDWARE_CACHE, HARDWARE = 3, 0  # PERF_TYPE_HW_CACHE, PERF_TYPE_HARDWARE
LAST_LEVEL = (2, 2 | 1 << 16)  # reads of the last level: accesses, misses
ARCHITECTURAL = (2, 3)  # cache-references, cache-misses: the last level on Intel only
MAX_NUMBER = 65_535  # of a CPU: no list is longer
CPUS_PER_DIE = 16  # of more cores so many are counted, evenly spread; bounds open descriptors


@dataclass(frozen=True, slots=True)
class Pair:
    """Two counters of one die: what was asked, and what was found (or not: ``misses``)."""

    die: str
    asked: Counter
    found: Counter
    misses: bool = False


def choices(files: Files) -> Iterator[list[Pair]]:
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


def traffic(files: Files) -> list[tuple[str, str, Counter]]:
    """Die, direction and counter of each of HiSilicon's memory controllers."""
    found = []
    for die, device in _hisilicon(files, "ddrc"):
        names = files.names(f"{DEVICES}/{device}/events")
        for event, direction in DDR_EVENTS:
            if event in names:
                found.append((die, direction, _named(files, device, event)))
    return found


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
