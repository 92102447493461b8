"""What the fault codes of the vendors mean in our own words, loaded from rules/faults.yaml.

No log lines and no devices here: a code goes in, its kind, severity and advised action come out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml

from .errors import ConfigError, Place, Problem

SEVERITIES = ("info", "warning", "critical")
ACTS = ("nothing", "page", "restart", "card_failover", "quantize")
ENDS = ("recover", "restart", "reading", "hold", "person")
_COUNTS = re.compile(r"\d+(?:/\d+[smh])?")


@dataclass(frozen=True, slots=True)
class Handling:
    """What follows from a kind of fault: ``act`` is what the daemon does about it, ``counts`` how
    often before it counts (``1``, ``3/5m``, ``0`` never alone), ``ends`` what ends it.
    """

    kind: str
    severity: str
    act: str = "nothing"
    counts: str = "1"
    ends: str = "hold"
    source: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """One code's meaning. ``code`` is as series and events carry it: an Xid in decimal, an Ascend
    event as lower-case ``0x…``, a CANN code as printed. ``known`` is false for a default.
    """

    code: str
    kind: str
    severity: str
    action: str = "support"
    source: str = ""
    category: str = ""
    known: bool = True


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All codes of the node's vendors, what follows from each kind, and how servers end.

    ``exits`` maps an exit code (a signal as its negative number) or words of the last lines.
    """

    tables: Mapping[str, Mapping[str, Fault]]
    kinds: Mapping[str, Handling] = field(default_factory=dict)
    exits: Mapping[str, Handling] = field(default_factory=dict)

    def handling(self, fault: Fault) -> Handling:
        """What follows from a code: the handling of its class or kind, or nothing where the code's
        severity is less than critical or its source advises nothing. Only the Ascend driver and
        Xid 154 tell that a fault is over.
        """
        default = Handling(fault.kind, fault.severity)
        known = self.kinds.get(fault.category) or self.kinds.get(fault.kind) or default
        known = replace(known, kind=fault.kind, severity=fault.severity)
        if known.ends == "recover" and not fault.code.startswith("0x") and fault.code != "154":
            known = replace(known, ends="hold")
        if fault.severity == "critical" and fault.action != "none":
            return known
        return replace(known, act="nothing", counts="0")

    def xid(self, number: int) -> Fault:
        """An Xid of the NVIDIA kernel driver; an unknown one is a driver fault to look at."""
        return self._get("xid", str(number), "driver_fault", "warning")

    def sxid(self, number: int) -> Fault:
        """An SXid of an NVSwitch."""
        return self._get("sxid", str(number), "nvswitch_fault", "warning")

    def ascend(self, code: int | str) -> Fault:
        """An event of the Ascend driver, as a number or as hexadecimal text with or without 0x."""
        number = int(code, 16) if isinstance(code, str) else code
        return self._get("ascend", f"0x{number & 0xFFFFFFFF:08x}", "npu_event", "warning")

    def cann(self, code: str) -> Fault:
        """A CANN runtime code (``507035``) or a named code (``EI0006``, ``ERR00100``)."""
        found = self.tables["cann"].get(code)
        if found is not None:
            return found
        if code.startswith("ERR"):
            return Fault(code, "npu_error", "info", "none", "", "secondary", known=False)
        kind = "hccl_link" if code.startswith(("EI", "EJ")) else "npu_error"
        return Fault(code, kind, "critical", known=False)

    def _get(self, table: str, code: str, kind: str, severity: str) -> Fault:
        return self.tables[table].get(code) or Fault(code, kind, severity, known=False)


def parse(text: str, name: str = "faults.yaml") -> Vocabulary:
    """Read the tables. Raises ConfigError that names each bad row."""
    document: dict[str, dict[Any, str]] = yaml.load(text, Loader=_LOADER)  # noqa: S506 safe loader
    sources = document.pop("sources")
    problems: list[Problem] = []
    handled = {
        name: _handlings(document.pop(name, {}), name, sources, problems)
        for name in ("kinds", "exits")
    }
    tables: dict[str, dict[str, Fault]] = {}
    for table, rows in document.items():
        tables[table] = {}
        for key, row in rows.items():
            code = f"0x{key:08x}" if table == "ascend" and isinstance(key, int) else str(key)
            words = row.split()
            if len(words) not in (4, 5) or words[1] not in SEVERITIES or words[3] not in sources:
                problems.append(Problem(Place(name), f"{table} {code}: not a fault: {row!r}"))
                continue
            kind, severity, action, source = words[:4]
            category = words[4] if len(words) == 5 else ""
            tables[table][code] = Fault(code, kind, severity, action, source, category)
    if problems:
        raise ConfigError(problems)
    return Vocabulary(tables, handled["kinds"], handled["exits"])


def _handlings(
    rows: Mapping[str, str], table: str, sources: Mapping[str, str], problems: list[Problem]
) -> dict[str, Handling]:
    """The rows of ``kinds`` ("severity act …") and of ``exits`` ("kind severity act …")."""
    found = {}
    for key, row in rows.items():
        words = row.split() if table == "exits" else [key, *row.split()]
        if _well_formed(words) and words[5] in sources:
            found[str(key)] = Handling(*words)
        else:
            problems.append(Problem(Place("faults.yaml"), f"{table} {key}: no handling: {row!r}"))
    return found


def _well_formed(words: list[str]) -> bool:
    if len(words) != 6:
        return False
    _, severity, act, counts, ends, _ = words
    known = severity in SEVERITIES and act in ACTS and ends in ENDS
    return known and _COUNTS.fullmatch(counts) is not None


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """The tables that come with the package, read once."""
    package = __package__.rpartition(".")[0] + ".rules"
    return parse((resources.files(package) / "faults.yaml").read_text(encoding="utf-8"))


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
