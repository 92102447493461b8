"""Looks fault codes, kinds, exit codes and log lines up in the vocabulary and its texts.

It reads files of the package only; how an answer is shown is the command's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

import yaml

from ..faults import Fault, Handling, Vocabulary, vocabulary

_SXIDS = range(10_000, 30_000)
_QUESTION = re.compile(r"(?i)(?P<word>sxid|xid|exit(?: code| status)?|status)?[ :=#]*(?P<code>\S+)")
_NAMED = re.compile(r"E[A-Z]\d{4}|E[1-9]\d{4}|ERR\d{5}")
_ALERTS: Mapping[str, str] = {
    "device_lost": "CardLost",
    "device_ecc": "CardUncorrectable",
    "driver_fault": "CardResetRequired",
    "npu_event": "CardResetRequired",
    "recovery_hint": "CardResetRequired",
    "engine_dead": "EngineDead",
    "engine_proc_died": "EngineDead",
    "kv_cache_unavailable": "MemoryOverflow",
    "oom_device": "MemoryOverflow",
    "device_memory": "MemoryOverflow",
    "oom_foreign_process": "MemoryHeldByOther",
    "orphan_processes": "MemoryHeldByOther",
    "output_corrupt": "OutputCorrupt",
}
"""The alert through which a kind of fault acts."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One answer. ``family`` is xid, sxid, ascend, cann, kind, exit or line."""

    family: str
    code: str
    meaning: str
    handling: Handling
    known: bool = True
    action: str = ""
    category: str = ""
    source: str = ""
    line: str = ""

    @property
    def alert(self) -> str:
        """The alert that fires for it, empty where none does."""
        name = _ALERTS.get(self.category) or _ALERTS.get(self.handling.kind, "")
        on_card = self.family in ("xid", "sxid", "ascend")
        if on_card and (self.handling.act == "nothing" or not name.startswith("Card")):
            return ""
        return name

    def document(self) -> dict[str, Any]:
        """The answer as JSON."""
        handling = self.handling
        return {
            "family": self.family,
            "code": self.code,
            "known": self.known,
            "meaning": self.meaning,
            "kind": handling.kind,
            "severity": handling.severity,
            "class": self.category or None,
            "advised": self.action or None,
            "act": handling.act,
            "counts": handling.counts,
            "ends": handling.ends,
            "recovers": handling.ends == "recover",
            "alert": self.alert or None,
            "source": self.source or None,
            "line": self.line or None,
        }


def explain(asked: str) -> Iterator[Explained]:
    """Every answer to a question, the likeliest reading of it only."""
    words = vocabulary()
    if asked in words.kinds:
        yield _of_kind(asked, words)
        return
    match = _QUESTION.fullmatch(asked)
    if match is not None:
        answer = _of_code((match["word"] or "").lower(), match["code"].strip("'\".,"), words)
        if answer is not None:
            yield answer
            return
    yield from _of_text(asked, words)


def _of_code(word: str, code: str, words: Vocabulary) -> Explained | None:
    """The answer to a bare code, read by the word before it or by its form."""
    if word in ("exit", "exit code", "exit status", "status"):
        return _of_exit(code, words)
    number = int(code) if code.isascii() and code.isdigit() else None
    if word == "sxid" and number is not None:
        return _answer("sxid", words.sxid(number), words)
    if word == "xid" and number is not None:
        return _answer("xid", words.xid(number), words)
    if number is not None:
        return _of_number(code, number, words)
    if _NAMED.fullmatch(code.upper()):
        return _answer("cann", words.cann(code.upper()), words)
    if re.fullmatch(r"(?i)0x[0-9a-f]{1,8}|[0-9a-f]{8}", code):
        return _answer("ascend", words.ascend(code), words)
    return _of_exit(code, words) if code in words.exits else None


def _of_number(code: str, number: int, words: Vocabulary) -> Explained | None:
    if code in words.tables["cann"] or (len(code) == 6 and code[0] in "125"):
        return _answer("cann", words.cann(code), words)
    if number in _SXIDS:
        return _answer("sxid", words.sxid(number), words)
    if number <= 999:
        return _answer("xid", words.xid(number), words)
    if len(code) == 8 and f"0x{code}" in words.tables["ascend"]:
        return _answer("ascend", words.ascend(code), words)
    if 1 << 28 <= number < 1 << 32:  # as the official exporter gives them
        return _answer("ascend", words.ascend(number), words)
    return None


def _answer(family: str, fault: Fault, words: Vocabulary) -> Explained:
    return Explained(
        family,
        fault.code,
        _meaning(family, fault),
        words.handling(fault),
        fault.known,
        fault.action,
        fault.category,
        _source(fault.source),
    )


def _of_kind(kind: str, words: Vocabulary) -> Explained:
    handling = words.kinds[kind]
    return Explained(
        "kind", kind, texts()["kinds"][kind], handling, source=_source(handling.source)
    )


def _of_exit(code: str, words: Vocabulary) -> Explained:
    """An exit code; above 128 a shell's way to tell a signal."""
    if re.fullmatch(r"-?\d+", code) and 128 < int(code) < 160:
        code = str(128 - int(code))
    handling = words.exits.get(code)
    if handling is None:
        text = "no code of its own: look at the last lines of the log"
        default = Handling("server_exit", "warning", "restart", "1", "restart")
        return Explained("exit", code, text, default, known=False)
    text = texts()["exits"][code]
    return Explained("exit", code, text, handling, source=_source(handling.source))


def _of_text(asked: str, words: Vocabulary) -> Iterator[Explained]:
    """What the log patterns see in a text, else an exit pattern that stands in it."""
    from ..logs import classify

    told = False
    for record in classify(asked.encode(), None):
        told = True
        yield _of_record(record.kind, record.severity, record.fields, record.text, words)
    if told:
        return
    for pattern in words.exits:
        if not re.fullmatch(r"-?\d+", pattern) and pattern.lower() in asked.lower():
            yield _of_exit(pattern, words)
            return


def _of_record(
    kind: str, severity: str, fields: Mapping[str, Any], text: str, words: Vocabulary
) -> Explained:
    """A line of a log: by its code where it has one, as grave as the line itself says."""
    family, fault = _fault_of(fields, words)
    if fault is None:
        known = words.kinds.get(kind) or Handling(kind, severity)
        meaning = texts()["kinds"].get(kind, "")
        return Explained("line", kind, meaning, known, source=_source(known.source), line=text)
    action = str(fields.get("action", fault.action))
    said = Fault(fault.code, kind, severity, action, fault.source, fault.category, fault.known)
    answer = _answer(family, said, words)
    return Explained(
        family, answer.code, answer.meaning, answer.handling, answer.known, answer.action,
        answer.category, answer.source, text,
    )  # fmt: skip


def _fault_of(fields: Mapping[str, Any], words: Vocabulary) -> tuple[str, Fault | None]:
    if "xid" in fields:
        return "xid", words.xid(int(fields["xid"]))
    if "sxid" in fields:
        return "sxid", words.sxid(int(fields["sxid"]))
    code = str(fields.get("code", ""))
    if code.startswith("0x"):
        return "ascend", words.ascend(code)
    return ("cann", words.cann(code)) if code in words.tables["cann"] else ("", None)


def _meaning(family: str, fault: Fault) -> str:
    """What a code means in words, put together from its parts where it has no text of its own."""
    words = texts()
    if family == "ascend":
        module = words["ascend_modules"].get(fault.code[2:6], "")
        failure = words["ascend_failures"].get(fault.code[6:], "")
        return ": ".join(filter(None, (module, failure))) or _unnamed(fault)
    if family == "sxid":
        unit = words["sxid_units"].get(int(fault.code) // 1000, "")
        own = words["sxid"].get(int(fault.code), "")
        return own or (f"an error of the switch's {unit}" if unit else _unnamed(fault))
    key: Any = int(fault.code) if family == "xid" else fault.code
    return str(words[family].get(key, "")) or _unnamed(fault)


def _unnamed(fault: Fault) -> str:
    if not fault.known:
        return "not known; told with the defaults of its family"
    if fault.action == "support" and fault.kind == "driver_fault":
        return "a code that cards since Ampere no longer use"
    return "a code that its vendor lists without a name"


def _source(name: str) -> str:
    if not name:
        return ""
    text = (resources.files(_package()) / "faults.yaml").read_text(encoding="utf-8")
    found = re.search(rf"(?m)^  {re.escape(name)}: (.*)$", text)
    return found[1] if found else name


@lru_cache(maxsize=1)
def texts() -> dict[str, Any]:
    """The texts for people, by section."""
    text = (resources.files(_package()) / "meanings.yaml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.safe_load(text)
    return document


def _package() -> str:
    return __package__.rpartition(".watchdog.")[0] + ".rules"
