"""What nvidia-smi says in place of data: node-wide failures, lost cards, warnings.

All of it comes on standard output; the exit status counts first, the text tells which card.
"""

from __future__ import annotations

import re

from .values import card_name

_ADDRESS = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?)"
_HANDLE = re.compile(
    rf"unable to determine the device handle for gpu\s*{_ADDRESS}\s*:", re.IGNORECASE
)
_INFOROM = re.compile(rf"inforom is corrupted at gpu\s*{_ADDRESS}", re.IGNORECASE)
_RESET_DONE = re.compile(rf"gpu\s*{_ADDRESS} was successfully reset", re.IGNORECASE)

_FAILURES = (
    "has failed because it couldn't communicate with the nvidia driver",
    "failed to initialize nvml",
    "couldn't find libnvidia-ml",
    "mismatch in versions between nvidia-smi and nvml",
    "no devices were found",
    "no devices found",
    "is not a valid field to query",
    "could not be reset",
    "request to query nvswitch device information",
    "insufficient permissions",
    "unable to set",
    "error: option",
    "invalid combination of input arguments",
    "not found. please run",
    "gpu is lost",
    "command not found",
)

_CODES = {
    2: "an argument or field that this driver does not know",
    3: "the operation is not available on this GPU",
    4: "no permission",
    6: "no devices were found",
    8: "external power cables are not attached",
    9: "the NVIDIA driver is not loaded",
    10: "interrupt problem of a GPU",
    12: "the NVML library was not found",
    13: "the NVML library lacks a function",
    15: "a GPU has fallen off the bus",
    17: "blocked by the operating system",
    18: "driver and library versions differ",
    127: "the tool is missing",
}
NO_DEVICES = 6
INFOROM = 14


def lost_cards(text: str) -> list[str]:
    """Cards whose handle the tool could not get, in the order named, each once."""
    return list(dict.fromkeys(card_name(address) for address in _HANDLE.findall(text)))


def corrupt_inforoms(text: str) -> list[str]:
    """Cards whose infoROM the tool calls corrupted (their data are usable)."""
    return list(dict.fromkeys(card_name(address) for address in _INFOROM.findall(text)))


def cards_reset(text: str) -> list[str]:
    """Cards that the tool says it has reset."""
    return [card_name(address) for address in _RESET_DONE.findall(text)]


def failure(text: str) -> str:
    """The tool's own words, as one line, when the output is nothing but a failure; else ""."""
    lines = [" ".join(line.split()) for line in text[:4096].splitlines() if line.strip()]
    for line in lines[:4]:
        if any(words in line.lower() for words in _FAILURES):
            more = lines[1:2] if "could not be reset" in line.lower() else []
            return " ".join([line, *more])[:200]
    return ""


def all_links_down(text: str) -> bool:
    """Whether the tool says that no NVLink is up, naming no GPU."""
    return "all links are inactive" in text.lower()


def no_devices(text: str) -> bool:
    """Whether the tool says that it sees no GPU at all."""
    return "no devices" in failure(text).lower()


def exit_words(code: int) -> str:
    """What an exit status of nvidia-smi means, for people."""
    if code < 0 or 128 < code < 255:
        return f"ended by signal {-code if code < 0 else code - 128}"
    return _CODES.get(code, "no reason known")
