"""Asks NVIDIA's management library in a process of its own: the library may hang or crash there.

``python -m vllm_watchdog.watchdog.nvidia.nvml_child`` prints one JSON object a line: the driver,
then each card with texts under the names and in the units of ``nvidia-smi --query-gpu``, then
``{"end": N}``. Nothing is judged here; what the lines mean is read in ``nvml``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from .nvml_questions import answers, kib, memory, said, text

NOT_HERE = {9: "the NVIDIA driver is not loaded", 12: "there is no NVIDIA library (libnvidia-ml)"}
PROCESSES = 512  # of a card


def processes(lib: Any, card: Any) -> list[dict[str, str]] | None:
    """Who uses the card; None where the library does not say."""
    found: dict[int, dict[str, str]] = {}
    for kind, name in (("C", "Compute"), ("G", "Graphics")):
        try:
            running = getattr(lib, f"nvmlDeviceGet{name}RunningProcesses")(card)
        except (lib.NVMLError, AttributeError):
            return None
        for process in running[:PROCESSES]:
            used = process.usedGpuMemory
            row = {
                "pid": str(process.pid),
                "name": _process_name(lib, process.pid),
                "memory": "N/A" if used is None else kib(used),
                "gi": _place(process, "gpuInstanceId"),
                "ci": _place(process, "computeInstanceId"),
            }
            earlier = found.get(process.pid)
            found[process.pid] = {**row, "kind": "C+G" if earlier else kind}
    return list(found.values())


def _process_name(lib: Any, pid: int) -> str:
    try:
        return text(lib.nvmlSystemGetProcessName(pid)).split("\0")[0]
    except lib.NVMLError:
        return ""


def _place(process: Any, name: str) -> str:
    number = getattr(process, name, None)
    return "" if number is None or number >= 0xFFFFFFFF else str(number)


def instances(lib: Any, card: Any) -> list[dict[str, Any]]:
    """The MIG instances of a card."""
    found: list[dict[str, Any]] = []
    try:
        most = lib.nvmlDeviceGetMaxMigDeviceCount(card)
    except (lib.NVMLError, AttributeError):
        return found
    for index in range(most):
        try:
            instance = lib.nvmlDeviceGetMigDeviceHandleByIndex(card, index)
        except lib.NVMLError:
            continue
        names = tuple(f"memory.{part}" for part in ("total", "used", "free", "reserved"))
        try:
            fields = dict(zip(names, memory(lib, instance), strict=True))
        except lib.NVMLError as error:
            fields = dict.fromkeys(names, said(error))
        found.append(
            {
                "index": str(index),
                "uuid": text(lib.nvmlDeviceGetUUID(instance)),
                "gi": str(lib.nvmlDeviceGetGpuInstanceId(instance)),
                "ci": str(lib.nvmlDeviceGetComputeInstanceId(instance)),
                "fields": fields,
            }
        )
    return found


def card_line(lib: Any, index: int) -> dict[str, Any]:
    """All that is known of the card with this number, or why it cannot be reached."""
    try:
        card = lib.nvmlDeviceGetHandleByIndex(index)
        bus = text(lib.nvmlDeviceGetPciInfo(card).busId)
        parts = instances(lib, card)
    except lib.NVMLError as error:
        return {"index": index, "trouble": said(error)}
    return {
        "index": index,
        "bus_id": bus,
        "fields": answers(lib, card),
        "processes": processes(lib, card),
        "instances": parts,
    }


def lines(lib: Any) -> Iterator[dict[str, Any]]:
    """What there is to print, line by line."""
    try:
        lib.nvmlInit()
        count = lib.nvmlDeviceGetCount()
        yield {"driver": text(lib.nvmlSystemGetDriverVersion()), "cards": count}
    except lib.NVMLError as error:
        word = NOT_HERE.get(int(getattr(error, "value", -1)))
        yield {"absent": word} if word else {"failed": str(error)}
        return
    for index in range(count):
        yield card_line(lib, index)
    yield {"end": count}


def main() -> int:
    """Print the lines; always 0, for what went wrong is said in them."""
    try:
        import pynvml
    except ImportError:
        found: Iterator[dict[str, Any]] = iter(
            [{"absent": "nvidia-ml-py is not installed (pip install 'vllm-watchdog[nvml]')"}]
        )
    else:
        found = lines(pynvml)
    for line in found:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
