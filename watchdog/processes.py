"""Processes as /proc shows them: who is whose child, who listens where, what is still the same one.

Reads only what it is asked for, one small file each; the whole table is for when something is
looked for. It decides nothing and signals nobody. A process is named by pid and start, as a pid
alone comes again.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from .system import Files

LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
ESTABLISHED = "01"
TIME_WAIT = " 06 "
MAPPED = "0000000000000000FFFF0000"  # how an IPv4 address begins in /proc/net/tcp6
MAX_TABLE = 8 * 1024 * 1024  # bytes of a connection table that are read: about 50,000 connections
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """One process. ``started`` in clock ticks since boot, ``resident`` in bytes."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    started: int
    resident: int

    @property
    def ended(self) -> bool:
        """Whether it is dead already and only waits to be collected."""
        return self.state in "ZXx"


def stat(files: Files, pid: int) -> Stat | None:
    """A process, or None when there is none (or it has ended)."""
    try:
        text = files.text(f"/proc/{pid}/stat", 4096)
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    words = tail.split()
    if len(words) < 22:
        return None
    found = Stat(
        pid,
        head.partition("(")[2],
        words[0],
        int(words[1]),
        int(words[3]),
        int(words[19]),
        int(words[21]) * _PAGE,
    )
    return None if found.ended else found


def same(files: Files, pid: int, started: int) -> Stat | None:
    """The process of this pid and start, or None."""
    found = stat(files, pid)
    return found if found is not None and found.started == started else None


def table(files: Files) -> dict[int, Stat]:
    """All processes by pid."""
    found = (stat(files, int(name)) for name in files.names("/proc") if name.isdigit())
    return {entry.pid: entry for entry in found if entry is not None}


def family(known: Mapping[int, Stat], pid: int) -> list[Stat]:
    """A process and all that descend from it, it first."""
    children: dict[int, list[int]] = {}
    for entry in known.values():
        children.setdefault(entry.parent, []).append(entry.pid)
    found: list[Stat] = []
    waiting = [pid]
    while waiting:
        member = known.get(waiting.pop())
        if member is not None and member not in found:
            found.append(member)
            waiting += children.get(member.pid, [])
    return found


def ancestors(files: Files, pid: int) -> list[Stat]:
    """A process and those it descends from, it first."""
    found: list[Stat] = []
    entry = stat(files, pid)
    while entry is not None and len(found) < 64:
        found.append(entry)
        entry = stat(files, entry.parent) if entry.parent > 0 else None
    return found


def boot(files: Files) -> str:
    """Which boot this is; starts are only comparable within one."""
    try:
        return files.text("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def start_time(files: Files, started: int) -> float | None:
    """A start in ticks as Unix seconds; None where the kernel does not tell when it booted."""
    try:
        match = re.search(r"^btime (\d+)$", files.text("/proc/stat"), re.M)
    except OSError:
        return None
    return int(match[1]) + started / _TICKS if match else None


def command(files: Files, pid: int) -> tuple[str, ...]:
    """A process's command line; empty when it has none or may not be read."""
    try:
        data = files.read(f"/proc/{pid}/cmdline", 65536)
    except OSError:
        return ()
    words = data.rstrip(b"\0").split(b"\0") if data else []
    return tuple(word.decode("utf-8", "replace") for word in words)


def listening(files: Files, ports: Iterable[int]) -> dict[int, set[str]]:
    """The sockets (inode numbers) that listen on each of these TCP ports of this node."""
    found: dict[int, set[str]] = {port: set() for port in ports}
    ends = {f":{port:04X}": port for port in found}
    for words in _connections(files):
        if words[3] == LISTEN and words[1][-5:] in ends:
            found[ends[words[1][-5:]]].add(words[9])
    return found


def clients(files: Files, port: int) -> int | None:
    """How many connections others than this process have to a TCP port of this node; None where
    nobody is seen to listen on it (a container's, another node's)."""
    end, own = f":{port:04X}", _own_sockets(files)
    heard, mine, theirs = False, set(), []
    for words in _connections(files):
        if words[1].endswith(end):
            heard = heard or words[3] == LISTEN
            if words[3] == ESTABLISHED:
                theirs.append(words[2].removeprefix(MAPPED))
        if words[2].endswith(end) and words[9] in own:
            mine.add(words[1].removeprefix(MAPPED))
    return sum(client not in mine for client in theirs) if heard else None


def _connections(files: Files) -> Iterator[list[str]]:
    """The rows of the connection tables: at [1] this end, [2] the other, [3] state, [9] inode;
    without those that only wait for late packets: thousands, and nobody's."""
    for name in ("tcp", "tcp6"):
        try:
            text = files.text(f"/proc/net/{name}", MAX_TABLE)
        except OSError:
            continue
        for line in text.splitlines()[1:]:
            words = [] if TIME_WAIT in line else line.split(None, 10)
            if len(words) > 9:
                yield words


def _own_sockets(files: Files) -> set[str]:
    folder = "/proc/self/fd"
    targets = (_target(files, f"{folder}/{name}") for name in files.names(folder))
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def holds(files: Files, pid: int, inodes: Iterable[str]) -> bool | None:
    """Whether a process has one of these sockets open; None when that may not be seen."""
    wanted = {f"socket:[{inode}]" for inode in inodes}
    folder = f"/proc/{pid}/fd"
    try:
        names = files.names(folder)
    except OSError:
        return None
    return any(_target(files, f"{folder}/{name}") in wanted for name in names)


def _target(files: Files, path: str) -> str:
    try:
        return files.link(path)
    except OSError:  # closed meanwhile
        return ""


def holder(files: Files, inodes: Iterable[str]) -> int | None:
    """The process that has one of these sockets open, looked for among all."""
    wanted = set(inodes)
    for name in files.names("/proc"):
        if name.isdigit() and holds(files, int(name), wanted):
            return int(name)
    return None


def own_addresses(files: Files) -> set[str]:
    """This node's addresses, IPv4 and IPv6."""
    found = {"127.0.0.1", "::1"}
    last = ""
    with contextlib.suppress(OSError):
        for line in files.text("/proc/net/fib_trie", MAX_TABLE).splitlines():
            words = line.split()
            if len(words) == 2 and words[0] == "|--":
                last = words[1]
            elif words[:3] == ["/32", "host", "LOCAL"]:
                found.add(last)
    with contextlib.suppress(OSError):
        for line in files.text("/proc/net/if_inet6", MAX_TABLE).splitlines():
            found.add(str(ipaddress.IPv6Address(int(line.split()[0], 16))))
    return found


def elsewhere(files: Files, pid: int) -> bool:
    """Whether a process has a network of its own (a container's): its ports are not the node's."""
    try:
        return files.link(f"/proc/{pid}/ns/net") != files.link("/proc/self/ns/net")
    except OSError:
        return False
