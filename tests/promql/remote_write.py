"""Hands samples to a Prometheus by remote write: the only way to give it staleness markers.

Protobuf and snappy by hand, as far as this message needs them (all snappy blocks are literals).
"""

from __future__ import annotations

import http.client
import struct
import urllib.parse
from collections.abc import Iterable

from vllm_watchdog.watchdog.model import Labels

Series = tuple[Labels, list[tuple[int, float]]]


def write(url: str, series: Iterable[Series]) -> None:
    """POST the series, samples ascending in time, to the server's receiver."""
    host = urllib.parse.urlparse(url).netloc
    connection = http.client.HTTPConnection(host, timeout=30)
    headers = {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Write-Version": "0.1.0",
    }
    body = _snappy(b"".join(_field(1, _series(each)) for each in series))
    connection.request("POST", "/api/v1/write", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.status in (200, 204), text


def _series(series: Series) -> bytes:
    labels, samples = series
    parts = [
        _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in labels
    ]
    parts += [
        _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(ms))
        for ms, value in samples
    ]
    return b"".join(parts)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _snappy(data: bytes) -> bytes:
    out = [_varint(len(data))]
    for at in range(0, len(data), 60_000):
        part = data[at : at + 60_000]
        out.append(b"\xf4" + struct.pack("<H", len(part) - 1) + part)
    return b"".join(out)
