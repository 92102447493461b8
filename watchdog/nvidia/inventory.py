"""NVIDIA GPUs as PCI shows them, without asking the driver: which it holds, which it gave away.

It reads sysfs only. A GPU handed to a virtual machine is nobody's loss.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..system import Files
from .values import card_name

_DEVICES = "/sys/bus/pci/devices"
_VENDOR = "0x10de"
_DISPLAY = "0x03"  # PCI base class of display controllers


def gpus_of_driver(files: Files) -> set[str]:
    """Card names of the GPUs bound to the ``nvidia`` driver; empty where sysfs shows none."""
    return {name for name, driver in _gpus(files) if driver == "nvidia"}


def handed_away(files: Files) -> set[str]:
    """Card names of the GPUs that another driver (vfio-pci …) holds."""
    return {name for name, driver in _gpus(files) if driver not in ("nvidia", "")}


def _gpus(files: Files) -> Iterator[tuple[str, str]]:
    for address in files.names(_DEVICES):
        device = f"{_DEVICES}/{address}"
        name = card_name(address)
        try:
            if not name or files.text(f"{device}/vendor", 16).strip() != _VENDOR:
                continue
            if not files.text(f"{device}/class", 16).startswith(_DISPLAY):
                continue
        except OSError:
            continue  # gone between listing and reading
        if not files.exists(f"{device}/physfn"):  # virtual functions are no cards
            yield name, _driver(files, device)


def _driver(files: Files, device: str) -> str:
    try:
        return files.path(f"{device}/driver").readlink().name
    except OSError:
        return ""
