"""What the Ascend tools print instead of an answer, told apart into "not on this node" and failure.

Pure: text in, an error raised or nothing. It must not judge a card: a refusal says something about
the call, the library or the node, never that a card is sick.
"""

from __future__ import annotations

import re

from ..errors import NotSupported, SourceError

CODES = {
    -8001: "bad parameter",
    -8002: "not permitted",
    -8003: "memory operation failed",
    -8004: "safe function failed",
    -8005: "inner error",
    -8006: "timeout",
    -8007: "invalid device id",
    -8008: "device does not exist",
    -8009: "ioctl failed",
    -8010: "sending failed",
    -8011: "receiving failed",
    -8012: "not ready: start-up or reset in progress",
    -8013: "not supported in a container",
    -8014: "file operation failed",
    -8015: "reset failed",
    -8016: "aborted",
    -8017: "upgrading",
    -8020: "resource occupied",
    -8022: "partition error",
    -8023: "configuration missing",
    -8255: "not supported",
}
"""Return codes of the management library (DCMI)."""

CAPABILITY = frozenset({-8013, -8255})

_CODE = re.compile(r"\b(dcmi|dsmi|ret(?:urn)?|error)\b[^\n]{0,200}?(-8\d{3})\b", re.IGNORECASE)
_ABSENT = (
    ("command not found", "the tool is not on this node"),
    ("there is no npu card", "there is no NPU card on this node"),
    ("does not support", "not supported by this device"),
    ("not supported", "not supported by this device"),
    ("not support", "not supported by this device"),
    ("error parameter of -t", "this tool does not know that query (-t)"),
)
_FAILED = (
    ("invalid card id", "invalid card id: the card asked for is not there"),
    ("invalid chip id", "invalid chip id: the chip asked for is not there"),
    ("is busy", "the tool is busy: not a fault, to be tried again"),
    ("another user is resetting", "another user is resetting the card: to be tried again"),
    ("command or option is not found", "the tool does not know this command or option"),
    ("error parameter of", "the tool refuses a parameter"),
    ("check uid or mode failed", "the driver library is rejected: owner or mode check failed"),
    ("libdcmi.so", "the driver library cannot be loaded"),
    ("libdrvdsmi_host.so", "the driver library cannot be loaded"),
    ("permission denied", "permission denied"),
    ("prepare dcmi failed", "the driver library cannot be used"),
)


def refuse(text: str) -> None:
    """Raise what ``text`` amounts to when it is a refusal; return when it is not one.

    Raises NotSupported (tool, card or capability is not there; asking again is useless) and
    SourceError (the tool failed or refused this call), each with one line.
    """
    head = text[:4000]
    low = head.lower()
    if found := _CODE.search(head):
        code = int(found[2])
        meaning = CODES.get(code, "unknown code")
        if code in CAPABILITY:
            raise NotSupported(f"the library answers {code}: {meaning}")
        raise SourceError(f"the library answers {code}: {meaning}")
    for words, meaning in _ABSENT[:2]:
        if words in low:
            raise NotSupported(meaning)
    for words, meaning in _FAILED[:4]:
        if words in low:
            raise SourceError(meaning)
    for words, meaning in _ABSENT[2:]:
        if words in low:
            raise NotSupported(f"{meaning}: {_line(head, words)}")
    for words, meaning in _FAILED[4:]:
        if words in low:
            raise SourceError(meaning)


def _line(text: str, words: str) -> str:
    return next(line for line in text.splitlines() if words in line.lower()).strip()[:120]
