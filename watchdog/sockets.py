"""The door to other nodes: who answers, and how long a packet takes there and back.

Round trips are the kernel's own: the time it took the SYN's answer to come (TCP_INFO), or an echo's
receipt as the kernel stamped it. A process's own clock would add its wait for a CPU, which is
longer than the network. This is a part of ``system``: only there else are sockets opened.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket  # noqa: TID251 (this is the door)
import struct
import threading
import time  # noqa: TID251 (this is the door)
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from .errors import Temporary

Reason = Literal["open", "refused", "timeout", "no_route", "not_permitted", "broken"]

RTT, TOTAL_RETRANS = 68, 100  # bytes into struct tcp_info; the round trip in microseconds
SO_TIMESTAMPNS = 35
ADDRESSES = 3  # of a name's addresses so many are tried
NAME_TTL = 60.0  # seconds for which a name's addresses are not asked for again
NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``reached``: the other kernel answered, be it by a refusal; None: we could
    not ask. ``round_trip`` in seconds, where the kernel measured one that it did not repeat."""

    reached: bool | None
    reason: Reason
    round_trip: float | None = None


class Sockets(Protocol):
    """Probes of other nodes, each with a deadline."""

    def addresses(self, host: str, timeout: float) -> list[str]:
        """A host's addresses, the preferred one first. Raises Temporary when the name is not
        resolved within ``timeout`` seconds and never was."""
        ...

    def connect(self, targets: Sequence[tuple[str, int]], timeout: float) -> list[Answer]:
        """Connect to all (address, TCP port) at once and break off: no data, no TIME_WAIT."""
        ...

    def echo(self, address: str, timeout: float) -> Answer:
        """Send one ICMP echo request."""
        ...

    def loopback(self, count: int) -> list[float]:
        """Round trips in seconds of ``count`` connections of this node to itself."""
        ...


class RealSockets:
    """The machine's network."""

    def __init__(self) -> None:
        self._names: dict[str, _Name] = {}

    def addresses(self, host: str, timeout: float) -> list[str]:
        """See Sockets.addresses."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host.strip("[]")))]
        name = self._names.setdefault(host, _Name(host))
        return name.addresses(timeout)

    def connect(self, targets: Sequence[tuple[str, int]], timeout: float) -> list[Answer]:
        """See Sockets.connect."""
        answers: dict[int, Answer] = {}
        waiting: dict[int, tuple[int, socket.socket]] = {}
        poll = select.poll()
        try:
            for position, target in enumerate(targets):
                stream = socket.socket(_family(target[0]), socket.SOCK_STREAM)
                stream.setblocking(False)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                waiting[stream.fileno()] = (position, stream)
                poll.register(stream, select.POLLOUT)
                code = stream.connect_ex(target)
                if code not in (0, errno.EINPROGRESS):
                    poll.unregister(stream)
                    answers[position] = _answer(code, stream)
            deadline = time.monotonic() + timeout
            while len(answers) < len(targets):
                ready = poll.poll(max(deadline - time.monotonic(), 0.0) * 1000)
                if not ready:
                    break
                for descriptor, _ in ready:
                    position, stream = waiting[descriptor]
                    poll.unregister(descriptor)
                    code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    answers[position] = _answer(code, stream)
        finally:
            for _, stream in waiting.values():
                stream.close()
        late = Answer(False, "timeout")
        return [answers.get(position, late) for position in range(len(targets))]

    def echo(self, address: str, timeout: float) -> Answer:
        """See Sockets.echo."""
        try:
            asking = _icmp(address)
        except PermissionError:
            return Answer(None, "not_permitted")
        with asking:
            asking.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            token = os.urandom(16)
            try:
                sent = time.time_ns()
                asking.sendto(_echo_request(asking.family, token), (address, 0))
                received = _stamp(asking, token, time.monotonic() + timeout)
            except OSError as error:
                return _answer(error.errno or errno.EIO, None)
        if received is None:
            return Answer(False, "timeout")
        apart = received - sent
        return Answer(True, "open", apart / 1e9 if apart > 0 else None)

    def loopback(self, count: int) -> list[float]:
        """See Sockets.loopback."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(count)
            target = ("127.0.0.1", listener.getsockname()[1])
            tries = [self.connect([target], 0.5)[0].round_trip for _ in range(count)]
        return [taken for taken in tries if taken is not None]


class _Name:
    """A name's addresses. A resolver that hangs does so on a thread of its own, one at a time; the
    last known addresses stand meanwhile."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._known: list[str] = []
        self._until = 0.0
        self._asking: threading.Thread | None = None
        self._error = "no answer from the resolver"

    def addresses(self, timeout: float) -> list[str]:
        if time.monotonic() >= self._until:
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(target=self._ask, daemon=True)
                self._asking.start()
            self._asking.join(timeout)
        if not self._known:
            raise Temporary(f"{self._host}: {self._error}")
        return self._known

    def _ask(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            self._error = error.strerror or str(error)
            return
        self._known = [str(entry[4][0]) for entry in found][:ADDRESSES]
        self._until = time.monotonic() + NAME_TTL


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _answer(code: int, stream: socket.socket | None) -> Answer:
    """The answer that an error number (0: none) means."""
    if code == 0:
        return Answer(True, "open", _round_trip(stream) if stream else None)
    if code in (errno.ECONNREFUSED, errno.ECONNRESET):
        return Answer(True, "refused")
    if code == errno.ETIMEDOUT:
        return Answer(False, "timeout")
    if code in NO_ROUTE:
        return Answer(False, "no_route")
    if code in (errno.EACCES, errno.EPERM):
        return Answer(None, "not_permitted")
    return Answer(None, "broken")


def _round_trip(stream: socket.socket) -> float | None:
    info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    taken, repeats = (struct.unpack_from("=I", info, place)[0] for place in (RTT, TOTAL_RETRANS))
    return taken / 1e6 if taken and not repeats else None


def _icmp(address: str) -> socket.socket:
    """A socket for echoes: a datagram one where the kernel allows it to this user, else a raw one
    (CAP_NET_RAW). Raises PermissionError."""
    family = _family(address)
    protocol = socket.IPPROTO_ICMPV6 if family == socket.AF_INET6 else socket.IPPROTO_ICMP
    try:
        return socket.socket(family, socket.SOCK_DGRAM, protocol)
    except PermissionError:
        return socket.socket(family, socket.SOCK_RAW, protocol)


def _echo_request(family: int, token: bytes) -> bytes:
    kind = 128 if family == socket.AF_INET6 else 8
    head = struct.pack("!BBHHH", kind, 0, 0, os.getpid() & 0xFFFF, 1)
    words = struct.unpack(f"!{(len(head) + len(token)) // 2}H", head + token)
    total = sum(words)
    total = (total >> 16) + (total & 0xFFFF)
    checksum = ~(total + (total >> 16)) & 0xFFFF
    return head[:2] + struct.pack("!H", checksum) + head[4:] + token


def _stamp(asking: socket.socket, token: bytes, deadline: float) -> int | None:
    """When the kernel received the echo reply with our token, in Unix nanoseconds."""
    poll = select.poll()
    poll.register(asking, select.POLLIN)
    while poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
        data, extra, _, _ = asking.recvmsg(2048, 64)
        if _is_reply(asking, data, token):
            return next(_stamps(extra), None)
    return None


def _is_reply(asking: socket.socket, data: bytes, token: bytes) -> bool:
    raw_v4 = asking.type == socket.SOCK_RAW and asking.family == socket.AF_INET
    start = (data[0] & 15) * 4 if raw_v4 and data else 0  # a raw socket gives the IP header too
    kind = 129 if asking.family == socket.AF_INET6 else 0
    return data[start : start + 1] == bytes([kind]) and data.endswith(token)


def _stamps(extra: Sequence[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(data) >= 16:
            seconds, nanoseconds = struct.unpack("=qq", data[:16])
            yield seconds * 1_000_000_000 + nanoseconds
