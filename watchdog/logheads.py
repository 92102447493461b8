"""The head of a log line: colour, process, level, time. What follows it is nobody's business here.

Heads stack: a container's or journald's prefix, a Ray actor, vLLM's process, its level and time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache

# Colour as terminals write it, and as it looks where the ESC byte was lost.
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]|\[(?:0|1|[39]\d)(?:;\d{1,2})*m")
_LEVEL = re.compile(
    r"\b(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)"
    r"(?:: {1,9}|(?: (\d\d-\d\d \d\d:\d\d:\d\d))?(?:\.\d+)? \[?([\w./-]+:\d+)\] ?)"
)
_PROCESS = re.compile(r"\((\w+)(?: rank=(\d+))? pid=(\d+)(?:, ip=[\w.:]+)?\)(?: |$)")
_RANK = re.compile(r"\[rank(\d+)\]:(?: ?\[[EWI]\d* [^\]]*\] ?| )")
_PLOG = re.compile(r"\[(ERROR|WARNING|INFO|EVENT|DEBUG|TRACE)\] \w+\((\d+),[^)]*\):")
_OUTER = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ \S+: "  # journald, syslog
    r"|[\w.-]+ {1,9}\| "  # compose
    r"|\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"  # Kubernetes
    r"| {1,4}\| )"
)
_COMMON = re.compile(
    r"(?:\((\w+)(?: rank=(\d+))? pid=(\d+)\) )?"
    r"(DEBUG|INFO|WARNING|ERROR|CRITICAL) (\d\d-\d\d \d\d:\d\d:\d\d) \[?([\w./-]+:\d+)\] ?"
    r"(?!\((?:\w+)(?: rank=\d+)? pid=)(?!\[rank)"
)
_PART = re.compile(r"(TP|DP|PP|EP|PCP)(\d+)")


@dataclass(frozen=True, slots=True)
class Head:
    """Who wrote the line and how loud. ``body`` is where the message begins; ``where`` is the
    source file and line as printed; ``stamp`` is vLLM's own time (month to second); ``outer``: a
    container's or journald's prefix stands before it all."""

    body: int = 0
    level: str = ""
    where: str = ""
    stamp: str = ""
    process: str = ""
    pid: int | None = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    outer: bool = False

    @property
    def quiet(self) -> bool:
        """Whether the writer did not mean it as a warning."""
        return self.level in ("INFO", "DEBUG")


@lru_cache(maxsize=256)
def _ranks(process: str) -> Mapping[str, int]:
    """The ranks that a process has in its name."""
    return {name.lower(): int(number) for name, number in _PART.findall(process)}


def plain(text: str) -> str:
    """The text without colour and without what ends the line."""
    if "\x1b" in text or "[0m" in text or "[0;" in text:
        text = _COLOUR.sub("", text)
    return text.rstrip()


def head(text: str) -> Head:
    """Read the head of a line that has no colour."""
    common = _COMMON.match(text)
    if common is not None:
        process, rank, pid, level, stamp, where = common.groups()
        ranks = {"rank": int(rank)} if rank else _ranks(process or "")
        number = int(pid) if pid else None
        return Head(common.end(), level, where, stamp, process or "", number, ranks)
    return _any_head(text)


def _any_head(text: str) -> Head:
    outer = _OUTER.match(text)
    body = outer.end() if outer else 0
    level = where = stamp = process = ""
    pid: int | None = None
    ranks: dict[str, int] = {}
    found = None
    for found in _PROCESS.finditer(text, 0, 400):
        body = max(body, found.end())
    if found is not None:
        process, pid = found[1], int(found[3])
        if found[2]:
            ranks["rank"] = int(found[2])
        ranks.update(_ranks(process))
    loud = _LEVEL.search(text, 0, 400)
    if loud is not None:
        level, stamp, where = loud[1], loud[2] or "", loud[3] or ""
        body = max(body, loud.end())
    if loud is None and (plog := _PLOG.match(text)):
        level, pid, body = plog[1], int(plog[2]), plog.end()
    if "[rank" in text and (rank := _RANK.search(text, 0, 400)):
        ranks.setdefault("rank", int(rank[1]))
        body = max(body, rank.end())
    return Head(body, level, where, stamp, process, pid, ranks, outer is not None)


NO_HEAD = Head()


_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: number for number, name in enumerate(_NAMES, start=1)}
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[T \-](\d\d):(\d\d):(\d\d)"
    r"(?:[.,:](\d{1,9}))?(?:\.\d{1,3})?(Z|[+-]\d\d:?\d\d)?"
)
_DMESG = re.compile(r"\[[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\]")
_FABRIC = re.compile(r"\[([A-Z][a-z]{2}) (\d\d) (\d{4}) (\d\d):(\d\d):(\d\d)\]")
_SYSLOG = re.compile(r"^([A-Z][a-z]{2}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) ")
_TORCH = re.compile(r"\[[EWI](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.")
_UPTIME = re.compile(r"\[ *\d+\.\d+\]|\[ *\+")
_DAYS = timedelta(days=2)
_SOME_YEAR_END = 978_220_800.0  # the end of 2000, a leap year: before all logs that name a year


@dataclass(frozen=True, slots=True)
class Calendar:
    """Turns a line's time into Unix seconds.

    ``zone`` is the writer's where the line names none. ``reference`` (Unix seconds) is a moment not
    before the line was written, from which the year comes where the line has none; without it such
    a line has no time.
    """

    zone: tzinfo = timezone.utc
    reference: float | None = None
    known: dict[str, float | None] = field(default_factory=dict, compare=False)

    def read(self, text: str, begin: Head) -> tuple[float | None, float | None]:
        """The line's time, or None where it has none (or only seconds since the boot); and the
        same in an unknown year where the year is not to be had."""
        if begin.stamp and not begin.outer:
            time = self._stamp(begin.stamp)
        elif _UPTIME.match(text):
            return None, None
        else:
            time = self._search(text, begin.stamp)
        if time is None or self.reference is not None or time > _SOME_YEAR_END:
            return time, time
        return None, time

    def _stamp(self, stamp: str) -> float | None:
        part = (stamp[:2], stamp[3:5], stamp[6:8], stamp[9:11], stamp[12:14])
        return self._once(stamp, lambda: self._without_year(*part))

    def _search(self, text: str, stamp: str) -> float | None:
        start = text[:160]
        if iso := _ISO.search(start):
            return self._once(iso[0], lambda: self._iso(iso))
        if found := _DMESG.search(start):
            month, day, hour, minute, second, year = found.groups()
            parts = (year, _MONTHS.get(month, 0), day, hour, minute, second)
            return self._once(found[0], lambda: self._full(*parts))
        if found := _FABRIC.search(start):
            month, day, year, hour, minute, second = found.groups()
            parts = (year, _MONTHS.get(month, 0), day, hour, minute, second)
            return self._once(found[0], lambda: self._full(*parts))
        if stamp:
            return self._stamp(stamp)
        if found := _SYSLOG.match(start):
            rest = found.groups()[1:]
            month_number = str(_MONTHS.get(found[1], 0))
            return self._once(found[0], lambda: self._without_year(month_number, *rest))
        if found := _TORCH.search(start):
            groups = found.groups()
            return self._once(found[0], lambda: self._without_year(*groups))
        return None

    def _once(self, key: str, work: Callable[[], float | None]) -> float | None:
        """Lines come in bursts of one second: each spelling of a time is worked out once."""
        if key not in self.known:
            if len(self.known) > 64:
                self.known.clear()
            try:
                self.known[key] = work()
            except (ValueError, OverflowError):  # the 31st of February
                self.known[key] = None
        return self.known[key]

    def _iso(self, found: re.Match[str]) -> float:
        fraction = int((found[7] or "0")[:6].ljust(6, "0"))
        year, month, day, hour, minute, second = (int(found[part]) for part in range(1, 7))
        moment = datetime(year, month, day, hour, minute, second, fraction, tzinfo=self.zone)
        offset = found[8]
        if offset == "Z":
            moment = moment.replace(tzinfo=timezone.utc)
        elif offset:
            minutes = int(offset[1:3]) * 60 + int(offset[-2:])
            sign = -1 if offset[0] == "-" else 1
            moment = moment.replace(tzinfo=timezone(timedelta(minutes=sign * minutes)))
        return moment.timestamp()

    def _full(self, *parts: str | int) -> float:
        year, month, day, hour, minute, second = map(int, parts)
        return datetime(year, month, day, hour, minute, second, tzinfo=self.zone).timestamp()

    def _without_year(self, *parts: str) -> float | None:
        """The latest such moment that is not after the reference (two days of slack for zones)."""
        reference = _SOME_YEAR_END - 2 * 86_400.0 if self.reference is None else self.reference
        latest = datetime.fromtimestamp(reference, self.zone) + _DAYS
        for year in range(latest.year, latest.year - 5, -1):  # the 29th of February needs four
            try:
                moment = self._full(year, *parts)
            except ValueError:
                continue
            if moment <= latest.timestamp():
                return moment
        return None
