"""L3 hit ratio and memory traffic of each CPU die, from the counters beside the cores.

Which counters there are is read in ``watchdog/cachecounters``. A counter that cannot be had is one
of four things, told apart: absent or unsupported (not on this node), not permitted, held by another
program.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..watchdog.cachecounters import Pair, choices, traffic
from ..watchdog.contracts import Yield
from ..watchdog.errors import NotSupported, SourceError
from ..watchdog.model import Checkpoint, Sample
from ..watchdog.system import Files, System

PARANOID = "/proc/sys/kernel/perf_event_paranoid"
DDR_BYTES = 32.0  # bytes that one count of a DDRC's flux stands for

NOT_PERMITTED = (errno.EACCES, errno.EPERM)
BUSY = (errno.EAGAIN, errno.EBUSY)
UNSUPPORTED = (errno.ENOENT, errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV, errno.ENOSYS)


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
    for pairs in choices(system.files):
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
    wanted = traffic(system.files)
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
