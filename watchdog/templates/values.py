"""What template code can hold in its hands: label maps, samples, times, durations, alert data.

Each class tells Go's name of its type and Go's text for itself, for messages and ``printf``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import ClassVar

from .goformat import sprint

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_NS = 1_000_000_000
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class LabelMap(dict[str, str]):
    """Labels: a missing one is the empty string."""

    go_type = "map[string]string"


class ArgMap(dict[str, object]):
    """What ``args`` makes: a missing one is nil."""

    go_type = "map[string]interface {}"


class Result(list["Sample"]):
    """What ``query`` gives."""

    go_type = "template.queryResult"


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of a query's result."""

    Labels: LabelMap
    Value: float
    go_type: ClassVar[str] = "*template.sample"

    def __str__(self) -> str:
        return f"&{{{sprint(self.Labels)} {sprint(self.Value)}}}"  # a pointer, as printf shows it


@dataclass(frozen=True, slots=True)
class AlertData:
    """The cursor at the start of an annotation: the names that Prometheus gives."""

    Labels: LabelMap
    ExternalLabels: LabelMap
    ExternalURL: str
    Value: float
    go_type: ClassVar[str] = (
        "struct { Labels map[string]string; ExternalLabels map[string]string; "
        "ExternalURL string; Value interface {} }"
    )

    def __str__(self) -> str:
        parts = (self.Labels, self.ExternalLabels, self.ExternalURL, self.Value)
        return f"{{{' '.join(sprint(part) for part in parts)}}}"


@dataclass(frozen=True, slots=True)
class Time:
    """A moment in UTC, in nanoseconds since the epoch."""

    ns: int
    go_type: ClassVar[str] = "*time.Time"

    @property
    def moment(self) -> datetime:
        """The moment, cut to microseconds."""
        return _EPOCH + timedelta(microseconds=self.ns // 1000)

    def __str__(self) -> str:
        return f"{self.moment:%Y-%m-%d %H:%M:%S}{_fraction(self.ns % _NS)} +0000 UTC"


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time in nanoseconds."""

    ns: int
    go_type: ClassVar[str] = "*time.Duration"

    def __str__(self) -> str:
        sign, ns = ("-", -self.ns) if self.ns < 0 else ("", self.ns)
        if ns == 0:
            return "0s"
        for limit, unit, name in ((1000, 1, "ns"), (10**6, 1000, "µs"), (_NS, 10**6, "ms")):
            if ns < limit:
                digits = (
                    str(ns % unit).rjust(len(str(unit)) - 1, "0").rstrip("0") if unit > 1 else ""
                )
                return f"{sign}{ns // unit}{'.' if digits else ''}{digits}{name}"
        minutes, seconds = divmod(ns, 60 * _NS)
        hours, minutes = divmod(minutes, 60)
        text = f"{seconds // _NS}{_fraction(seconds % _NS)}s"
        if minutes or hours:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else sign + text


def _fraction(ns: int) -> str:
    return f".{ns:09d}".rstrip("0") if ns else ""


@dataclass(frozen=True, slots=True)
class Named:
    """A month or a day of the week: a number that prints as its name."""

    go_int: int
    name: str
    go_type: str = field(default="time.Month", compare=False)

    def __str__(self) -> str:
        return self.name


def _day(time: Time) -> str:
    return _DAYS[time.moment.weekday()]


_LAYOUT = re.compile(
    r"January|Jan|Monday|Mon|MST|Z07:00|Z0700|-07:00|-0700|-07|2006|15|01|02|03|04|05|06|002"
    r"|_2|PM|pm|[.,]0+|[.,]9+|[12345]"
)


def format_time(time: Time, layout: str) -> str:
    """Write a time in Go's layout language (the reference time is Mon Jan 2 15:04:05 2006)."""
    moment = time.moment
    texts = {
        "January": _MONTHS[moment.month - 1], "Jan": _MONTHS[moment.month - 1][:3],
        "Monday": _day(time), "Mon": _day(time)[:3], "MST": "UTC", "Z07:00": "Z", "Z0700": "Z",
        "-07:00": "+00:00", "-0700": "+0000", "-07": "+00", "2006": f"{moment.year:04d}",
        "15": f"{moment:%H}", "01": f"{moment:%m}", "02": f"{moment:%d}", "03": f"{moment:%I}",
        "04": f"{moment:%M}", "05": f"{moment:%S}", "06": f"{moment:%y}", "002": f"{moment:%j}",
        "_2": f"{moment.day:2d}", "PM": f"{moment:%p}", "pm": f"{moment:%p}".lower(),
        "1": str(moment.month), "2": str(moment.day), "3": str((moment.hour + 11) % 12 + 1),
        "4": str(moment.minute), "5": str(moment.second),
    }  # fmt: skip

    def write(match: re.Match[str]) -> str:
        word = match.group()
        if word[0] not in ".,":
            return texts[word]
        digits = f"{time.ns % _NS:09d}"[: len(word) - 1]
        if word[1] == "9":
            digits = digits.rstrip("0")
        return word[0] + digits if digits else ""

    return _LAYOUT.sub(write, layout)


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a time or duration; ``takes`` are the types of its arguments."""

    call: Callable[..., object]
    takes: tuple[str, ...] = ()


def _round_seconds(ns: int, unit: int) -> float:
    return ns // unit + (ns % unit) / unit if ns >= 0 else -_round_seconds(-ns, unit)


METHODS: Mapping[type, Mapping[str, Method]] = {
    Time: {
        "Format": Method(format_time, ("string",)),
        "String": Method(str),
        "UTC": Method(lambda time: time),
        "Unix": Method(lambda time: time.ns // _NS),
        "UnixMilli": Method(lambda time: time.ns // 10**6),
        "Year": Method(lambda time: time.moment.year),
        "Day": Method(lambda time: time.moment.day),
        "YearDay": Method(lambda time: time.moment.timetuple().tm_yday),
        "Hour": Method(lambda time: time.moment.hour),
        "Minute": Method(lambda time: time.moment.minute),
        "Second": Method(lambda time: time.moment.second),
        "Month": Method(lambda time: Named(time.moment.month, _MONTHS[time.moment.month - 1])),
        "Weekday": Method(lambda time: Named(time.moment.isoweekday() % 7, _day(time))),
    },
    Duration: {
        "String": Method(str),
        "Hours": Method(lambda duration: _round_seconds(duration.ns, 3600 * _NS)),
        "Minutes": Method(lambda duration: _round_seconds(duration.ns, 60 * _NS)),
        "Seconds": Method(lambda duration: _round_seconds(duration.ns, _NS)),
        "Milliseconds": Method(lambda duration: int(duration.ns / 10**6)),
    },
}
