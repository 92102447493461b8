"""The door to HTTP servers: requests whose whole answer has a deadline and a bound on its size.

A part of ``system``. What an answer means is for collectors and outlets.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote, urlsplit

from .commands import MAX_OUTPUT
from .connections import UNIX, Address, Connection, address_of, message_of
from .errors import HttpError

if TYPE_CHECKING:
    import ssl

MAX_KEPT = 8  # open connections of a thread


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP answer. ``truncated``: the body was longer than the limit."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False

    @property
    def text(self) -> str:
        """The body as text; undecodable bytes become U+FFFD."""
        return self.body.decode("utf-8", "replace")


def unix_url(path: str | Path, target: str = "/") -> str:
    """The address of ``target`` at a server that listens on a Unix socket (an absolute path)."""
    return f"{UNIX}{quote(str(path), safe='')}{target}"


class Http(Protocol):
    """HTTP requests, each with a deadline for the whole answer and a bound on its size.

    ``http+unix://`` addresses lead to Unix sockets (``unix_url``).
    """

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = MAX_OUTPUT,
    ) -> Response:
        """Send a request and return any answer with a status. Raises HttpError without one."""
        ...


class RealHttp:
    """HTTP/1.1 with keep-alive per thread; no proxies, no redirects, no cookies.

    ``verify``: True, the authorities that this machine trusts; a file or folder of others; False,
    no look at certificates.
    """

    def __init__(self, verify: str | bool = True) -> None:
        self._local = threading.local()
        self._verify = verify
        self._context: ssl.SSLContext | None = None

    def request(
        self,
        method: str,
        url: str,
        *,
        timeout: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        limit: int = MAX_OUTPUT,
    ) -> Response:
        """See Http.request."""
        deadline = time.monotonic() + timeout
        part = "no answer"
        try:
            address = address_of(url)
            message = message_of(method, address, headers or {}, body)
            connection = self._connection(address)
            answer = connection.ask(method, message, deadline)
            part = "no whole answer"
            data, truncated = connection.body(answer, limit)
        except TimeoutError as error:
            raise HttpError(f"{_shown(url)}: {part} within {timeout:g} s", "timeout") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HttpError(f"{_shown(url)}: {_short(error)}", _reason(error)) from error
        return Response(answer.status, data, dict(answer.getheaders()), truncated)

    def _connection(self, address: Address) -> Connection:
        """This thread's connection to a server, open or not."""
        kept: dict[tuple[str, str], Connection] | None = getattr(self._local, "kept", None)
        if kept is None:
            kept = self._local.kept = {}
        connection = kept.get(address.server)
        if connection is None:
            if len(kept) >= MAX_KEPT:
                for other in kept.values():
                    other.close()
                kept.clear()
            context = self._tls() if address.scheme == "https" else None
            connection = kept[address.server] = Connection(address, context)
        return connection

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            import ssl as library

            if isinstance(self._verify, str):
                folder = Path(self._verify).is_dir()
                context = library.create_default_context(
                    cafile=None if folder else self._verify,
                    capath=self._verify if folder else None,
                )
            else:
                context = library.create_default_context()
                context.check_hostname = self._verify
                context.verify_mode = library.CERT_REQUIRED if self._verify else library.CERT_NONE
            self._context = context
        return self._context


def _shown(url: str) -> str:
    """The address for people: a Unix socket by its path, and no password."""
    if url.startswith(UNIX):
        return unquote(urlsplit(url).netloc)
    start, found, rest = url.partition("://")
    place, slash, target = rest.partition("/")
    return f"{start}{found}{place.rpartition('@')[2]}{slash}{target}"


def _reason(error: Exception) -> str:
    if type(error).__module__ == "ssl":
        return "tls"
    return "refused" if isinstance(error, ConnectionRefusedError) else "broken"


def _short(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and type(error).__module__ != "ssl":
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text[:200]
