"""What each process that writes to a log has said of itself, kept for its later lines.

Its rank and device, and how many notices of a stall it gave in a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .loggroups import Groups
from .logrecords import Found

STALL_ROW = 75.0  # seconds within which the next notice of a stall is one more in a row


@dataclass
class Writers:
    """By pid: rank and device, and the notices of a stall with the time of the last."""

    identity: dict[int | None, dict[str, int]] = field(default_factory=dict)
    stalls: dict[int | None, tuple[int, float | None]] = field(default_factory=dict)

    def remember(self, found: Found, time: float | None, told: Groups) -> None:
        """Take what a line says of its writer, or add to the line what the writer said before."""
        finish, fields, pid = found.pattern.finish, found.fields, found.head.pid
        if finish == "ipc_stall":
            self._stall(found, time, pid, starting=told.starting)
        elif finish == "identity":
            self.identity[pid] = _identity(found.text)
        elif finish == "hccl_return":
            link = told.latest("hccl_link", pid)
            if link is not None:
                link.fields.setdefault("ret", fields["ret"])
        else:
            for name, value in self.identity.get(pid, {}).items():
                fields.setdefault(name, value)

    def _stall(self, found: Found, time: float | None, pid: int | None, *, starting: bool) -> None:
        """One notice is a warning, the third in a row critical; at the engine's start, none is."""
        count, last = self.stalls.get(pid, (0, None))
        row = last is None or time is None or 0 <= time - last <= STALL_ROW
        count = count + 1 if row else 1
        self.stalls[pid] = (count, time)
        found.fields["in_row"] = count
        if starting:
            found.severity = "info"
        elif count >= 3:
            found.severity = "critical"


_IDENTITY = {
    "rank": re.compile(r"\brank\[(\d+)\]"),
    "device": re.compile(r"\bdevice\[(\d+)\]|\bdeviceLogicId\[(\d+)\]|\blogicDevId\[(\d+)\]"),
}


def _identity(text: str) -> dict[str, int]:
    """Rank and device that a process says are its own."""
    told: dict[str, int] = {}
    for name, expression in _IDENTITY.items():
        match = expression.search(text)
        if match is not None:
            told[name] = int(next(part for part in match.groups() if part is not None))
    return told
