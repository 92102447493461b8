"""Finds the vLLM servers that run on this node, from the process table alone.

It asks nobody and changes nothing; what is found is a proposal that a configuration may state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from .system import Process, ProcessTable

_CHILD = re.compile(r"^VLLM::")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "ascend": "ASCEND_RT_VISIBLE_DEVICES"}
_ANY = {"0.0.0.0", "::", "", "*"}  # noqa: S104 (recognised, never bound)
DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True)
class Server:
    """A vLLM server found running.

    ``devices`` are the entries of its visible-devices variable as written (indices or uuids), by
    ``vendor`` where the variable tells it; empty when the environment may not be read or says none.
    """

    name: str
    url: str
    pid: int
    model: str = ""
    vendor: str = ""
    devices: tuple[str, ...] = ()
    tensor_parallel: int = 1


def servers(host: ProcessTable) -> list[Server]:
    """All vLLM servers of the node, by port; names are unique and fit to be service names."""
    found = [_server(host.details(process)) for process in _parents(host.processes())]
    found.sort(key=lambda server: (_port(server.url), server.pid))
    return list(_named(found))


def _parents(processes: Sequence[Process]) -> Iterator[Process]:
    """Processes that are vLLM API servers, without the wrappers and children that repeat them."""
    serving = {p.pid: p for p in processes if _arguments(p) is not None}
    for process in serving.values():
        if process.ppid not in serving:
            yield process


def _arguments(process: Process) -> tuple[str, ...] | None:
    """The server's own arguments, or None when the process is no vLLM server."""
    words = process.cmdline
    if not words or _CHILD.match(process.name) or _CHILD.match(words[0]):
        return None
    for position, word in enumerate(words[:6]):
        if word in _MODULES and position and words[position - 1] == "-m":
            return words[position + 1 :]
        following = words[position + 1] if position + 1 < len(words) else ""
        program = PurePosixPath(word).name
        if program in ("vllm", "vllm-ascend") and following == "serve":
            return words[position + 2 :]
        if word == "vllm.entrypoints.cli.main" and following == "serve":
            return words[position + 2 :]
    return None


def _options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """``--key value``, ``--key=value`` and what stands free; underscores count as dashes."""
    options: dict[str, str] = {}
    free: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            free.append(word)
            continue
        key, equals, value = word.lstrip("-").partition("=")
        if not equals and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        options[key.replace("_", "-")] = value
    return options, free


def _server(process: Process) -> Server:
    options, free = _options(_arguments(process) or ())
    model = options.get("model") or (free[0] if free else "")
    vendor, devices = _devices(process.environ)
    scheme = "https" if options.get("ssl-certfile") else "http"
    host, port = _address(options, process.listens)
    return Server(
        name=_service_name(options.get("served-model-name") or PurePosixPath(model).name),
        url=f"{scheme}://{host}:{port}",
        pid=process.pid,
        model=model,
        vendor=vendor,
        devices=devices,
        tensor_parallel=_count(options),
    )


def _address(options: Mapping[str, str], listens: Iterable[tuple[str, int]]) -> tuple[str, int]:
    ports = [port for _, port in listens]
    asked = options.get("port", "")
    port = int(asked) if asked.isdigit() else DEFAULT_PORT
    if ports and port not in ports:
        port = ports[0]
    host = options.get("host", "")
    if host in _ANY:
        host = "127.0.0.1"
    return (f"[{host}]" if ":" in host else host), port


def _count(options: Mapping[str, str]) -> int:
    number = options.get("tensor-parallel-size") or options.get("tp") or "1"
    return int(number) if number.isdigit() else 1


def _devices(environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    for vendor, variable in _VISIBLE.items():
        listed = environ.get(variable, "").strip()
        if listed:
            return vendor, tuple(part.strip() for part in listed.split(",") if part.strip())
    return "", ()


def _service_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._").lower()[:63]
    return name or "vllm"


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _named(found: Sequence[Server]) -> Iterator[Server]:
    """Give servers of one name their port as a suffix, so that each name is one service."""
    names = [server.name for server in found]
    for server in found:
        name = server.name
        if names.count(name) > 1:
            name = f"{name[:56]}-{_port(server.url)}"
        yield Server(
            name,
            server.url,
            server.pid,
            server.model,
            server.vendor,
            server.devices,
            server.tensor_parallel,
        )
