"""A small HTTP server for the daemon: bounded connections, bounded requests, no tracebacks.

One thread a connection, one request a connection, a deadline for reading it whole. What an answer
holds is for the routes.
"""

from __future__ import annotations

import contextlib
import io
import math
import socket  # noqa: TID251 (a listener is this room's own door)
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, Place, Problem
from ..system import Clock, hostname
from .doors import Caller, Door, Doors
from .doors import error as refusal
from .hosts import REFUSAL, own
from .parameters import BadRequest, form
from .routes import Answer, Asked, Routes

if TYPE_CHECKING:
    import ssl

CONNECTIONS = 32
PATIENCE = 10.0  # seconds to read a request whole, and to write its answer
GRACE = 1.0  # seconds after which a request that is not there yet makes room for another
REST = 60.0  # seconds between two wake-ups without a client
MAKING_ROOM = 0.2  # seconds to wait for a place that becomes free
MAX_BODY = 1024 * 1024  # bytes of a form
LINGER = 8 * MAX_BODY  # bytes that are read and dropped, so that a refused client hears why
_BY_BROWSERS = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode")  # headers that no page can leave out
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Listens on one address. ``report`` is told of a fault of ours in one line."""

    def __init__(
        self,
        address: tuple[str, int],
        routes: Routes,
        clock: Clock,
        report: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
        doors: Doors | None = None,
    ) -> None:
        """Bind. Raises ConfigError when the address cannot be had."""
        host, port = address
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = Listener(family, address, routes, clock, report, tls, doors)
        except (OSError, UnicodeError) as error:  # the latter: a name with a label too long
            raise ConfigError(_in_use(host, port, error)) from error
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(REST,), name="http", daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        """Where it really listens (port 0 asks for any)."""
        host, port = self._listener.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Begin to answer, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End; requests under way are let go of."""
        if self._thread.is_alive():
            self._listener.socket.shutdown(socket.SHUT_RDWR)  # ends its wait
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()


def _in_use(host: str, port: int, error: OSError | UnicodeError) -> Problem:
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    reason = getattr(error, "strerror", None) or error
    hint = "is another daemon running? choose another by listen: or --listen"
    return Problem(Place("listen"), f"cannot listen on {shown}: {reason}", hint)


class Listener(ThreadingHTTPServer):
    """Accepts connections on one address, each on a thread of its own."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        family: int,
        address: Any,
        routes: Routes,
        clock: Clock,
        report: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
        doors: Doors | None = None,
    ) -> None:
        self.address_family = family
        self.routes, self.clock, self.report, self.tls = routes, clock, report, tls
        self.doors: Doors = doors or {}
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._unheard: dict[int, tuple[float, socket.socket]] = {}  # by thread, the oldest first
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server who we are."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "vllm-watchdog", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, or refuse where all places are taken."""
        if self._places.acquire(blocking=False) or self._room():
            try:
                super().process_request(request, client_address)
            except BaseException:
                self._places.release()
                raise
        else:
            request.settimeout(0)
            with contextlib.suppress(OSError):
                request.send(BUSY)
            self.shutdown_request(request)

    def _room(self) -> bool:
        """A place, by ending the connection whose request has been awaited longest."""
        with self._lock:
            thread, (since, oldest) = next(iter(self._unheard.items()), (0, (math.inf, None)))
            if oldest is None or self.clock.mono() - since < GRACE:
                return False
            del self._unheard[thread]
            with contextlib.suppress(OSError):  # not TLS' own way, which another thread still uses
                socket.socket.shutdown(oldest, socket.SHUT_RDWR)
        return self._places.acquire(timeout=MAKING_ROOM)

    def awaits(self, connection: socket.socket) -> None:
        """This thread waits for a request on a connection."""
        with self._lock:
            self._unheard[threading.get_ident()] = (self.clock.mono(), connection)

    def heard(self) -> None:
        """This thread waits no longer."""
        with self._lock:
            self._unheard.pop(threading.get_ident(), None)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One connection, then its place is free again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.heard()
            self._places.release()

    def peer(self, _: socket.socket) -> str:
        """Who is on the other end, as the kernel says; empty where it says nothing."""
        return ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Timed(io.RawIOBase):
    """Reads a socket until a deadline for the whole request."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection, self._clock = connection, clock
        self._deadline = clock.mono() + PATIENCE

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._deadline - self._clock.mono(), 0.001))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "vllm-watchdog"
    sys_version = ""

    @property
    def _listener(self) -> Listener:
        return cast(Listener, self.server)

    def setup(self) -> None:
        """Shake hands where TLS is on, and set the request's deadline."""
        self.request.settimeout(PATIENCE)
        tls = self._listener.tls
        if tls is not None:
            self.request = tls.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        self._listener.awaits(self.request)
        if tls is not None:
            try:
                self.request.do_handshake()
            except BaseException:
                self.request.close()
                raise
        super().setup()
        self.rfile = io.BufferedReader(_Timed(self.request, self._listener.clock))

    def finish(self) -> None:
        """Close what TLS put around the connection, too."""
        super().finish()
        if self._listener.tls is not None:
            self.request.close()

    def do_GET(self) -> None:
        """Answer a question."""
        self._serve("GET")

    def do_HEAD(self) -> None:
        """Answer a question without its body."""
        self._serve("GET")

    def do_POST(self) -> None:
        """Answer a question that came as a form."""
        self._serve("POST")

    def _serve(self, method: str) -> None:
        self.close_connection = True
        self._unread = 0
        try:
            answer = self._answer(method)
        except BadRequest as error:
            answer = Answer(400, f"{error}\n".encode())
        except OSError:
            return  # the client went away, or took too long
        except Exception as error:  # noqa: BLE001 (a fault of ours must not reach a client)
            self._listener.report(f"{method} {self.path[:200]!r}: {type(error).__name__}: {error}")
            answer = Answer(500, b"internal error: see the daemon's log\n")
        self.connection.settimeout(PATIENCE)
        self._send(answer)
        self._drop_unread()

    def _answer(self, method: str) -> Answer:
        listening = self._listener.server_address[0]  # of a Unix socket a character
        if not own(self.headers.get("Host", ""), listening, hostname()):
            return Answer(421, f"{REFUSAL}\n".encode())
        path, _, query = self.path.partition("?")
        door = self._listener.doors.get(path)
        if door is not None:
            return self._through(door, method)
        given = form(query)
        if method == "POST":
            given |= form(self._body())
        self._listener.heard()
        headers = self.headers
        asked = Asked(given, headers.get("Accept", ""), headers.get("Accept-Language", ""))
        return self._listener.routes.answer(method, path, asked)

    def _body(self) -> str:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or len(length) > 18:
            raise BadRequest("Content-Length: is missing")
        if int(length) > MAX_BODY:
            raise BadRequest(f"the body is larger than {MAX_BODY} bytes")
        kind = self.headers.get_content_type()
        if kind != "application/x-www-form-urlencoded":
            raise BadRequest(f"Content-Type: {kind} is not application/x-www-form-urlencoded")
        return self.rfile.read(int(length)).decode("utf-8", "replace")

    def _through(self, door: Door, method: str) -> Answer:
        """The answer of a door; the body is read only for somebody whom it lets in."""
        caller = self._caller(method)
        self._unread = caller.length or 0
        refused = door.refuse(caller)
        if refused is not None:
            return refused
        if method == "POST" and caller.length is None:
            return refusal(411, "Content-Length: is missing")
        body = self.rfile.read(caller.length or 0)
        self._unread = 0
        self._listener.heard()
        if len(body) < (caller.length or 0):
            raise OSError("the client went away")
        return door.answer(caller, body)

    def _caller(self, method: str) -> Caller:
        length = self.headers.get("Content-Length", "")
        known = length.isascii() and length.isdigit() and len(length) <= 18
        address = self.client_address[0] if isinstance(self.client_address, tuple) else ""
        return Caller(
            method,
            self._listener.peer(self.connection),
            _subject(self.connection),
            str(address),
            self.headers.get("Authorization", ""),
            self.headers.get_content_type() if "Content-Type" in self.headers else "",
            int(length) if known else None,
            any(name in self.headers for name in _BY_BROWSERS),
        )

    def _drop_unread(self) -> None:
        """Read what a refused client still sends, within bounds, so that it hears the answer."""
        left = min(self._unread, LINGER)
        with contextlib.suppress(OSError):
            while left > 0:
                chunk = self.rfile.read1(min(left, 65536))
                if not chunk:
                    return
                left -= len(chunk)

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        headers = {
            "Content-Type": answer.type,
            "Content-Length": str(len(answer.body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
            **answer.headers,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base's name)
        """No line a request."""


def _subject(connection: Any) -> str:
    """Whom a client certificate names that TLS has verified; empty without one."""
    certificate = connection.getpeercert() if hasattr(connection, "getpeercert") else None
    if not certificate:
        return ""
    names = {name: value for part in certificate.get("subject", ()) for name, value in part}
    shown = names.get("commonName") or names.get("organizationName") or "a certificate"
    return "".join(c for c in str(shown) if c.isprintable())[:100] or "a certificate"
