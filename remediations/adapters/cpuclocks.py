"""The highest clock of the host's CPUs, by cpufreq: read, lowered, put back. In kHz as written."""

from __future__ import annotations

from ...watchdog.system import Files, System
from .privileged import Privileged

FOLDER = "/sys/devices/system/cpu/cpufreq"
LOWERED = 0.5  # of the highest clock


def policies(files: Files) -> list[str]:
    """The names of the groups of CPUs that share a clock; none where the kernel sets none."""
    return [name for name in files.names(FOLDER) if name.startswith("policy")]


def limit(files: Files, policy: str) -> int | None:
    """The limit that holds now; None where it cannot be read."""
    return _number(files, policy, "scaling_max_freq")


def lower_limit(files: Files, policy: str) -> int | None:
    """The limit to lower to; None where nothing is known or it is as low already."""
    low, high = (
        _number(files, policy, "cpuinfo_min_freq"),
        _number(files, policy, "cpuinfo_max_freq"),
    )
    now, least = limit(files, policy), _number(files, policy, "scaling_min_freq")
    if low is None or high is None or now is None:
        return None
    wanted = max(round(high * LOWERED), low, least or 0)
    steps = [step for step in _available(files, policy) if max(low, least or 0) <= step <= wanted]
    wanted = max(steps, default=wanted)
    return wanted if wanted < now else None


def set_limit(system: System, policy: str, value: int) -> int:
    """Write a limit; the one that holds then, as the kernel may round it. Raises OSError."""
    path = f"{FOLDER}/{policy}/scaling_max_freq"
    Privileged.write_in_place(system, path, str(value).encode())
    return limit(system.files, policy) or value


def _available(files: Files, policy: str) -> list[int]:
    try:
        words = files.text(f"{FOLDER}/{policy}/scaling_available_frequencies", 65536).split()
    except OSError:
        return []
    return [int(word) for word in words if word.isdigit()]


def _number(files: Files, policy: str, name: str) -> int | None:
    try:
        word = files.text(f"{FOLDER}/{policy}/{name}", 64).strip()
    except OSError:
        return None
    return int(word) if word.isdigit() else None
