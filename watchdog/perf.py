"""The door to the CPU's counters: perf_event_open, descriptors held open between readings.

It opens, reads and scales; which events there are and what they mean is for those who ask. An
uncore counter that is closed is lost to whoever opens it next, so what is open stays open.
"""

from __future__ import annotations

import errno
import os
import platform
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SYSCALL = {"x86_64": 298, "aarch64": 241}
"""The number of perf_event_open by machine."""

ATTR_SIZE = 64  # PERF_ATTR_SIZE_VER0: type, size, config … config1; every kernel takes it
ATTR_SIZE_2 = 72  # PERF_ATTR_SIZE_VER1 adds config2
READ_FORMAT = 3  # total time enabled, total time running
CLOEXEC = 8  # PERF_FLAG_FD_CLOEXEC


@dataclass(frozen=True, slots=True)
class Counter:
    """What to count on one CPU, for all processes: an event of a PMU (``type`` as in sysfs)."""

    type: int
    config: int
    cpu: int
    config1: int = 0
    config2: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading of all asked counters. ``values`` run from the opening on, scaled for the time in
    which another one had the hardware; None: it never ran. Two readings with the same ``token``
    were made of the same descriptors, so their difference means something.
    """

    token: str
    values: tuple[float | None, ...]


class Perf(Protocol):
    """Counters of the CPU and its surroundings."""

    def read(self, owner: str, counters: Sequence[Counter]) -> Counts:
        """Read ``counters``, opening them first where ``owner`` does not hold just these.

        Raises OSError: EACCES or EPERM (not permitted), EAGAIN or EBUSY (another one counts),
        ENOENT, EOPNOTSUPP, EINVAL or ENODEV (this PMU has no such event), ENOSYS (no such call).
        """
        ...

    def close(self, owner: str) -> None:
        """Give back what ``owner`` holds."""
        ...


class RealPerf:
    """The kernel's counters."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._generation = 0
        self._start = os.urandom(4).hex()  # a container's daemon has the same pid every time
        self._lock = threading.Lock()

    def read(self, owner: str, counters: Sequence[Counter]) -> Counts:
        """See Perf.read."""
        with self._lock:
            held = self._held.get(owner)
            if held is None or held.counters != tuple(counters):
                self._release(owner)
                held = self._open(tuple(counters))
                self._held[owner] = held
            try:
                return Counts(held.token, tuple(_value(fd) for fd in held.descriptors))
            except OSError:
                self._release(owner)  # a CPU went away: open anew next time
                raise

    def close(self, owner: str) -> None:
        """See Perf.close."""
        with self._lock:
            self._release(owner)

    def _open(self, counters: tuple[Counter, ...]) -> _Held:
        descriptors: list[int] = []
        try:
            descriptors.extend(_open(counter) for counter in counters)
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._generation += 1
        return _Held(counters, tuple(descriptors), f"{self._start}-{self._generation}")

    def _release(self, owner: str) -> None:
        held = self._held.pop(owner, None)
        for descriptor in held.descriptors if held else ():
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class _Held:
    counters: tuple[Counter, ...]
    descriptors: tuple[int, ...]
    token: str


def attributes(counter: Counter) -> bytes:
    """``struct perf_event_attr`` for a counter: no sampling, no exclusion (uncore drivers refuse
    both)."""
    size = ATTR_SIZE_2 if counter.config2 else ATTR_SIZE
    fields = (counter.type, size, counter.config, 0, 0, READ_FORMAT, 0, 0, 0, counter.config1)
    packed = struct.pack("=IIQQQQQIIQ", *fields)
    return packed + struct.pack("=Q", counter.config2) if counter.config2 else packed


def scaled(data: bytes) -> float | None:
    """A reading's value for the whole time; None when the counter never ran. Raises OSError."""
    if len(data) < 24:  # 0 bytes: the counter's CPU went off-line
        raise OSError(errno.ENODEV, "the counter is gone")
    value, enabled, running = struct.unpack("=QQQ", data[:24])
    if running == 0 and enabled:
        return None
    return float(value) if running >= enabled else value * enabled / running


def _value(descriptor: int) -> float | None:
    return scaled(os.read(descriptor, 24))


def _open(counter: Counter) -> int:
    call = SYSCALL.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, f"perf_event_open is not known on {platform.machine()}")
    import ctypes  # only where something is counted

    attr = ctypes.create_string_buffer(attributes(counter), ATTR_SIZE_2)
    library = ctypes.CDLL(None, use_errno=True)
    every, none = ctypes.c_long(-1), ctypes.c_long(-1)  # every process; no group
    cpu, flags = ctypes.c_long(counter.cpu), ctypes.c_ulong(CLOEXEC)
    descriptor = library.syscall(ctypes.c_long(call), attr, every, cpu, none, flags)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(descriptor)
