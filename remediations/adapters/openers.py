"""Which processes have a device file open, as the kernel shows it in /proc. Looks only.

Without the right to see every process there is no answer: a process that is not seen may hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...watchdog.system import Files, System

_ALL = "pid:[4026531836]"  # the kernel's number of the first namespace of processes


def openers(system: System, devices: Iterable[str]) -> Mapping[str, tuple[int, ...]] | None:
    """The processes that have each of these files open, by path; None where not every process of
    the node can be seen (not root, or in a container's own table of processes)."""
    files = system.files
    found: dict[str, set[int]] = {device: set() for device in devices}
    if not found or not _sees_all(files):
        return None
    for name in files.names("/proc"):
        if not name.isdigit():
            continue
        try:
            numbers = files.names(f"/proc/{name}/fd")
        except PermissionError:
            return None
        except OSError:  # it ended meanwhile
            continue
        for number in numbers:
            target = _target(files, f"/proc/{name}/fd/{number}")
            if target in found:
                found[target].add(int(name))
    return {device: tuple(sorted(pids)) for device, pids in found.items()}


def _sees_all(files: Files) -> bool:
    try:
        return files.link("/proc/self/ns/pid") == _ALL
    except OSError:
        return False


def _target(files: Files, path: str) -> str:
    try:
        return files.link(path)
    except OSError:  # closed meanwhile
        return ""
