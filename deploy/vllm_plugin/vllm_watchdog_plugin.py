"""Publishes the memory allocator's figures of each vLLM worker for vllm-watchdog.

Runs inside vLLM's processes, so it must never raise into them, never touch a device before the
worker has set one up itself, and never start anything that outlives them. Standard library only.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time  # noqa: TID251 (runs in vLLM, not in the daemon)
from collections.abc import Iterator
from typing import Any

RUN = "/run/vllm-watchdog"
INTERVAL = 10.0  # seconds between two files
LEFT_BEHIND = 3600.0  # seconds after which a killed process's file is removed
FIGURES = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "ooms": "num_ooms",
    "alloc_retries": "num_alloc_retries",
}
"""Our word → the allocator's; CUDA's and the NPU's have the same."""
VISIBLE = {"nvidia": "CUDA_VISIBLE_DEVICES", "ascend": "ASCEND_RT_VISIBLE_DEVICES"}

_state: dict[str, Any] = {"pid": 0, "hooked": False, "files": set()}


def register() -> None:
    """The entry point that vLLM calls in each of its processes."""
    try:
        if not _state["hooked"]:
            _state["hooked"] = True
            # A forked engine or worker inherits that plug-ins are loaded, and none of the threads.
            os.register_at_fork(after_in_child=_start)
        _start()
    except Exception:  # noqa: BLE001 (a plug-in must not break its host)
        return


def _start() -> None:
    """Start this process's thread, once."""
    interval = _interval()
    if _state["pid"] == os.getpid() or interval <= 0:
        return
    _state["pid"], _state["files"] = os.getpid(), set()
    try:
        publisher = threading.Thread(
            target=_publish, args=(interval,), name="vllm-watchdog", daemon=True
        )
        publisher.start()
    except Exception:  # noqa: BLE001 (likewise; no more threads, or the interpreter is ending)
        return


def _interval() -> float:
    try:
        return float(os.environ.get("VLLM_WATCHDOG_INTERVAL", INTERVAL))
    except ValueError:
        return INTERVAL


def _at_end() -> None:
    """Remove our files when the process ends. Children of multiprocessing skip atexit, and forget
    what was registered before they began: so this comes with the first file."""
    atexit.register(_remove)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _remove, exitpriority=0)  # type: ignore[attr-defined]


def _remove() -> None:
    if _state["pid"] != os.getpid():
        return
    for path in list(_state["files"]):
        _unlink(path)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def _publish(interval: float) -> None:
    folder = os.path.join(os.environ.get("VLLM_WATCHDOG_RUN") or RUN, "allocator")
    _sweep(folder)
    described: dict[tuple[str, int], dict[str, Any]] = {}
    rest = threading.Event()
    while True:
        try:
            for vendor, module in _backends():
                _write_all(folder, vendor, module, described)
        except Exception:  # noqa: BLE001 (likewise; the next turn tries again)
            described.clear()
        rest.wait(interval)


def _backends() -> Iterator[tuple[str, Any]]:
    """torch's device modules that the worker itself has set up. Nothing is imported for it."""
    torch = sys.modules.get("torch")
    npu, cuda = getattr(torch, "npu", None), getattr(torch, "cuda", None)
    if _ready(npu):
        yield "ascend", npu  # where the NPU also answers as torch.cuda, it is the same device
    elif _ready(cuda) and not getattr(getattr(torch, "version", None), "hip", None):
        yield "nvidia", cuda  # AMD's cards answer under this name too


def _ready(module: Any) -> bool:
    ready = getattr(module, "is_initialized", None)
    return callable(ready) and bool(ready())


def _write_all(
    folder: str, vendor: str, module: Any, described: dict[tuple[str, int], dict[str, Any]]
) -> None:
    for device in range(int(module.device_count())):
        stats = module.memory_stats(device)
        figures = {word: stats[key] for word, key in FIGURES.items() if key in stats}
        if not figures.get("reserved"):
            continue  # another worker's device
        key = (vendor, device)
        if key not in described:
            described[key] = _description(vendor, module, device)
        document = {**described[key], "time": time.time(), "rank": _rank(), **figures}
        # In two containers that share the folder a pid can be the same, a start cannot.
        name = f"{os.getpid()}-{device}-{described[key]['started']}.json"
        _write(folder, name, document)


def _description(vendor: str, module: Any, device: int) -> dict[str, Any]:
    """What does not change: which process and which device this is."""
    found: dict[str, Any] = {
        "version": 1,
        "pid": os.getpid(),
        "started": _started(),
        "vendor": vendor,
        "device": device,
        "visible": os.environ.get(VISIBLE[vendor]),
        "order": os.environ.get("CUDA_DEVICE_ORDER"),
    }
    if vendor == "nvidia":  # the driver's table, no device; the NPU's may set one
        properties = module.get_device_properties(device)
        uuid = getattr(properties, "uuid", None)
        found["uuid"] = None if uuid is None else str(uuid)
        parts = [
            getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")
        ]
        if all(isinstance(part, int) for part in parts):
            found["bus_id"] = "{:04x}:{:02x}:{:02x}".format(*parts)
    return found


def _started() -> int | None:
    """This process's start in clock ticks since boot: the same seen from a container's host."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _rank() -> int | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return int(distributed.get_rank())
    except Exception:  # noqa: BLE001 (likewise)
        return None
    return None


def _write(folder: str, name: str, document: dict[str, Any]) -> None:
    """Written aside and renamed, so that a reader never sees half a file."""
    aside = os.path.join(folder, f".{name}.{threading.get_ident()}")
    path = os.path.join(folder, name)
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        _unlink(aside)
        return
    except OSError:
        return  # no such folder for this user: the next turn tries again
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            os.fchmod(stream.fileno(), 0o644)
            json.dump(document, stream)
        os.replace(aside, path)
    except OSError:
        _unlink(aside)
        return
    if not _state["files"]:
        _at_end()
    _state["files"].add(path)


def _sweep(folder: str) -> None:
    """Remove our user's files that killed processes left long ago."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                old = time.time() - status.st_mtime > LEFT_BEHIND
                if old and status.st_uid == os.geteuid() and ".json" in entry.name:
                    _unlink(entry.path)
    except OSError:
        return
