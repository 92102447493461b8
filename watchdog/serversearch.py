"""Which process is the server on a port: by its socket, else by its command line.

It never takes the server of another port, and prefers no answer to a guess. It keeps nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from .discovery import Server, servers
from .processes import Stat, command, elsewhere, family, holder, holds, listening, stat
from .system import Files, Process

KTHREADD = 2  # the parent of the kernel's own threads: half of a quiet node's table


@dataclass(frozen=True, slots=True)
class Found:
    """``server``: the process, if there is one. ``stranger``: a process that is no vLLM server and
    holds the port; ``foreign`` are its sockets."""

    server: Stat | None
    stranger: Stat | None = None
    foreign: tuple[str, ...] = ()


def find_server(
    files: Files, port: int, known: Mapping[int, Stat], foreign: Sequence[str] = ()
) -> Found:
    """The vLLM server on a TCP port of this node among ``known`` processes.

    Whose the sockets ``foreign`` are was found out before; it is not looked for again.
    """
    inodes = listening(files, [port])[port]
    found = vllm_servers(files, known.values())
    hidden = False
    for server in found if inodes else ():
        for member in family(known, server.pid):
            answer = holds(files, member.pid, inodes)
            if answer:
                return Found(known.get(server.pid))
            hidden = hidden or answer is None
    named = _named(files, found, port, known)
    if not inodes or hidden:
        return Found(named)
    sockets = tuple(sorted(inodes))
    if sockets == tuple(foreign):
        return Found(named, None, sockets)
    pid = holder(files, inodes)
    stranger = stat(files, pid) if pid is not None else None
    if stranger is None:
        return Found(named)  # ended meanwhile, or not to be seen
    if stranger.name == "docker-proxy":
        contained = [server for server in found if elsewhere(files, server.pid)]
        inside = _container_port(command(files, stranger.pid)) or port
        return Found(_named(files, contained, inside, known))
    if any(member.name.startswith("VLLM::") for member in family(known, stranger.pid)):
        return Found(stranger)  # a launcher of one's own, with vLLM's engine below it
    return Found(named, stranger, sockets)


def vllm_servers(files: Files, known: Iterable[Stat]) -> list[Server]:
    """The vLLM servers among processes, with the ports that their command lines name."""
    return servers(_Read(tuple(_vllm_like(files, known))))


@dataclass(frozen=True, slots=True)
class _Read:
    """Processes already read, in the shape in which servers are looked for."""

    found: tuple[Process, ...]

    def processes(self) -> list[Process]:
        return list(self.found)

    def details(self, process: Process) -> Process:
        return process


def _vllm_like(files: Files, known: Iterable[Stat]) -> Iterator[Process]:
    for entry in known:
        if entry.parent == KTHREADD:
            continue
        words = command(files, entry.pid)
        if any("vllm" in word for word in words[:6]):
            yield Process(entry.pid, entry.parent, entry.name, words, float(entry.started))


def _named(
    files: Files, found: Iterable[Server], port: int, known: Mapping[int, Stat]
) -> Stat | None:
    """The one server whose command line names the port; None when several do."""
    named = [server.pid for server in found if urlsplit(server.url).port == port]
    own = [pid for pid in named if not elsewhere(files, pid)]
    chosen = own or named
    return known.get(chosen[0]) if len(chosen) == 1 else None


def _container_port(words: Sequence[str]) -> int | None:
    """The port that a container's proxy forwards to."""
    for word, following in itertools.pairwise(words):
        if word == "-container-port" and following.isdigit():
            return int(following)
    return None
