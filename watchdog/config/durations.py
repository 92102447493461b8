"""Durations, rates and addresses as people write them; whole values only, no defaults."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

LONGEST = 1e9  # seconds: 31 years
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_HOST = re.compile(r"^[A-Za-z0-9._:%-]{1,253}$")
_RATE = re.compile(r"^\s*(\d+)\s*/\s*(\d*(?:ms|s|m|h|d|w))\s*$")


def seconds(value: object) -> float:
    """``5s``, ``1m30s``, ``300ms`` or a bare number of seconds → seconds. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("is no duration: write 5s, 2m or 1h30m")  # noqa: TRY004 (pydantic's way)
    if isinstance(value, int | float):
        if not 0 <= value <= LONGEST:
            raise ValueError("is no duration: seconds from 0 to 31 years")
        return float(value)
    text = value.strip()
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{value!r} is no duration: write 5s, 2m or 1h30m")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise ValueError("is longer than 31 years")
    return total


def rate(value: object) -> tuple[int, float]:
    """``4/h`` → (4, 3600.0): so many in so many seconds. Raises ValueError."""
    match = _RATE.match(value) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"{value!r} is no rate: write 4/h or 2/30m")
    unit = match[2]
    return int(match[1]), positive(unit if unit[0].isdigit() else f"1{unit}")


def address(value: object) -> tuple[str, int]:
    """``127.0.0.1:9710``, ``[::1]:9710`` → (host, port). Raises ValueError."""
    if isinstance(value, tuple):
        host, number = value
        return str(host), int(number)
    text = value if isinstance(value, str) else str(value)
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    number_ok = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535
    if not colon or not _HOST.match(host) or not number_ok:
        raise ValueError(f"{value!r} is no address: write HOST:PORT, such as 127.0.0.1:9710")
    return host, int(port)


def positive(value: object) -> float:
    """A duration above zero, in seconds. Raises ValueError."""
    result = seconds(value)
    if result <= 0:
        raise ValueError("must be longer than 0")
    return result


def period(value: object) -> float:
    """How often or how long something is waited for: 100 ms to a day. Raises ValueError."""
    result = seconds(value)
    if not 0.1 <= result <= 86400:
        raise ValueError("must be from 100ms to 1d")
    return result


Seconds = Annotated[float, BeforeValidator(seconds)]
Period = Annotated[float, BeforeValidator(period)]
PositiveSeconds = Annotated[float, BeforeValidator(positive)]
Rate = Annotated[tuple[int, float], BeforeValidator(rate)]
Address = Annotated[tuple[str, int], BeforeValidator(address)]
