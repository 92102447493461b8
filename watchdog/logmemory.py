"""Out-of-memory texts of PyTorch, on CUDA and on NPUs: the sizes they tell, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from .logrecords import Found

_SIZE = r"([\d.]+) ([KMGT]?i?B|bytes)"
_SIZES = {
    "tried": re.compile(rf"[Tt]ried to allocate {_SIZE}"),
    "total": re.compile(rf"total capaci?ty of {_SIZE}|; {_SIZE} total capacity"),
    "free": re.compile(rf"of which {_SIZE} is free|; {_SIZE} free"),
    "used": re.compile(rf"(?:this process|Process \d+) has {_SIZE} memory in use"),
    "allocated": re.compile(
        rf"Of the allocated memory {_SIZE} is allocated by PyTorch|; {_SIZE} already allocated"
    ),
    "active": re.compile(rf"; {_SIZE} current active"),
    "private_pools": re.compile(rf"with {_SIZE} allocated in private pools"),
    "reserved_unalloc": re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated"),
    "reserved": re.compile(rf"; {_SIZE} reserved in total by PyTorch"),
}
_OOM_DEVICE = re.compile(r"GPU (\d+) has a total|\((?:GPU|NPU) (\d+); ")
_HOLDER = re.compile(r"Process (\d+) has ")
_UNITS = {"bytes": 0, "B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}


def _oom(found: Found) -> None:
    """Sizes as the text gives them, and from them fragmentation and cause where they suffice."""
    text, fields = found.text, found.fields
    device = _OOM_DEVICE.search(text)
    if device is not None:
        index = device[1] or device[2]
        fields["device"] = f"npu:{index}" if "NPU out of" in text else int(index)
    holder = _HOLDER.search(text)
    if holder is not None:
        fields["holder_pid"] = int(holder[1])
    size: dict[str, float] = {}
    for name, expression in _SIZES.items():
        match = expression.search(text)
        if match is None:
            continue
        amount, unit = (part for part in match.groups() if part is not None)
        unit = "bytes" if unit == "B" else unit
        if unit not in _UNITS:
            continue
        fields[f"{name}_{unit.lower()}"] = float(amount)
        size[name] = float(amount) * 1024.0 ** _UNITS[unit]
    found.marks["tried"] = size.get("tried")
    _oom_cause(fields, size)


def _oom_cause(fields: dict[str, Any], size: dict[str, float]) -> None:
    if "allocated" not in size:
        return
    allocated = size["allocated"]
    if "reserved" in size:
        unused, held = size["reserved"] - allocated, size["reserved"]
    elif "reserved_unalloc" in size:
        unused, held = size["reserved_unalloc"], size["reserved_unalloc"] + allocated
    else:
        return
    fields["fragmentation"] = round(max(unused, 0.0) / held, 4) if held else 0.0
    total, free = size.get("total"), size.get("free")
    if total is None or free is None:
        return
    outside = total - free - held
    cause = "capacity"
    if outside >= total / 2:
        fields["outside_pytorch_gib"] = round(outside / 1024**3, 1)
        cause = "foreign_process"
    elif size.get("tried", 0.0) <= free + unused and fields["fragmentation"] >= 0.01:
        cause = "fragmentation"
    fields["cause"] = cause


FINISHERS: Mapping[str, Callable[[Found], None]] = {"oom": _oom}
