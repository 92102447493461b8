"""The door to HTTP servers: requests whose whole answer has a deadline and a bound on its size.

A part of ``system``: only here is ``requests`` used. What an answer means is for collectors and
outlets.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, unquote, urlsplit

from .commands import MAX_OUTPUT
from .errors import HttpError

if TYPE_CHECKING:
    import requests

UNIX = "http+unix://"


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


_ENDED = ("Remote end closed", "reset by peer", "Broken pipe")


class RealHttp:
    """requests, with keep-alive per thread and without proxies of the environment."""

    def __init__(self, verify: str | bool = True) -> None:
        self._local = threading.local()
        self._until = _Until()
        self._verify = verify

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            import requests as library

            session = library.Session()
            session.trust_env = False
            for scheme in ("http://", "https://"):
                session.mount(scheme, _adapter(self._until))
            session.mount(UNIX, _unix_adapter(self._until))
            self._local.session = session
        return session

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
        """See Http.request. What only reads is asked once more when a kept connection ends
        under it: the server closed it at that moment."""
        self._until.deadline = time.monotonic() + timeout
        try:
            return self._once(method, url, timeout, headers, body, limit)
        except HttpError as error:
            if method not in ("GET", "HEAD") or not any(word in str(error) for word in _ENDED):
                raise
        return self._once(method, url, timeout, headers, body, limit)

    def _once(
        self,
        method: str,
        url: str,
        timeout: float,
        headers: Mapping[str, str] | None,
        body: bytes | None,
        limit: int,
    ) -> Response:
        import requests as library

        deadline = self._until.deadline
        try:
            answer = self._session().request(
                method,
                url,
                headers=dict(headers or {}),
                data=body,
                timeout=timeout,
                stream=True,
                allow_redirects=False,
                verify=self._verify,
            )
            with contextlib.closing(answer):
                data, truncated = _read_body(answer, deadline, limit)
        except library.exceptions.SSLError as error:
            raise HttpError(f"{_shown(url)}: {_short(error, url)}", "tls") from error
        except library.exceptions.Timeout as error:
            raise HttpError(f"{_shown(url)}: no answer within {timeout:g} s", "timeout") from error
        except library.exceptions.ConnectionError as error:
            if "timed out" in str(error).lower():
                text = f"{_shown(url)}: no whole answer within {timeout:g} s"
                raise HttpError(text, "timeout") from error
            reason = "refused" if "refused" in str(error) else "broken"
            raise HttpError(f"{_shown(url)}: {_short(error, url)}", reason) from error
        except library.exceptions.RequestException as error:
            raise HttpError(f"{_shown(url)}: {_short(error, url)}", "broken") from error
        return Response(answer.status_code, data, dict(answer.headers), truncated)


def _read_body(answer: requests.Response, deadline: float, limit: int) -> tuple[bytes, bool]:
    import requests as library

    chunks: list[bytes] = []
    size = 0
    for chunk in answer.iter_content(65536):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], True
        if time.monotonic() > deadline:
            raise library.exceptions.Timeout
    return b"".join(chunks), False


def _shown(url: str) -> str:
    """The address for people: a Unix socket by its path, no password."""
    if url.startswith(UNIX):
        return unquote(urlsplit(url).netloc)
    secret = _secret(url)
    return url.replace(f"{secret}@", "", 1) if secret else url


def _secret(url: str) -> str:
    """User and password, where the address holds them."""
    try:
        return urlsplit(url).netloc.rpartition("@")[0]
    except ValueError:
        return ""


def _short(error: Exception, url: str) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    secret = _secret(url)
    return (text.replace(f"{secret}@", "") if secret else text)[:200]


class _Until(threading.local):
    """The moment by which the answer that this thread waits for must be there."""

    deadline = 0.0


class _Timed(io.RawIOBase):
    """Reads a connection until a deadline: a server that sends a byte now and then gains nothing.

    (A socket's own time-out begins anew with each byte.)
    """

    def __init__(self, connection: socket.socket, until: _Until) -> None:
        self._connection, self._until = connection, until
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _adapter(until: _Until) -> Any:
    """An adapter of requests whose connections keep ``until`` for the head of an answer, too."""
    from requests.adapters import HTTPAdapter
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    answer = _answer(until)

    def timed(pool: Any) -> Any:
        connection = type("Connection", (pool.ConnectionCls,), {"response_class": answer})
        return type("Pool", (pool,), {"ConnectionCls": connection})

    adapter = HTTPAdapter()
    pools = {"http": timed(HTTPConnectionPool), "https": timed(HTTPSConnectionPool)}
    adapter.poolmanager.pool_classes_by_scheme = pools
    return adapter


def _answer(until: _Until) -> type[http.client.HTTPResponse]:
    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
            super().__init__(sock, *args, **kwargs)
            self.fp.close()
            self.fp = io.BufferedReader(_Timed(sock, until))

    return Answer


def _unix_adapter(until: _Until) -> Any:
    """An adapter of requests that speaks to Unix sockets, one pool of connections for each."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection
    from urllib3.connectionpool import HTTPConnectionPool
    from urllib3.exceptions import NewConnectionError

    def pool(path: str) -> HTTPConnectionPool:
        class Connection(HTTPConnection):
            response_class = _answer(until)

            def connect(self) -> None:
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(max(until.deadline - time.monotonic(), 0.001))
                try:
                    connection.connect(path)
                except TimeoutError:
                    connection.close()
                    raise
                except OSError as error:
                    connection.close()
                    gone = isinstance(error, (FileNotFoundError, ConnectionRefusedError))
                    told = "connection refused" if gone else error.strerror or str(error)
                    raise NewConnectionError(self, told) from error
                self.sock = connection

        class Pool(HTTPConnectionPool):
            ConnectionCls = Connection

        return Pool("localhost")

    class Adapter(HTTPAdapter):
        def __init__(self) -> None:
            super().__init__()
            self._pools: dict[str, HTTPConnectionPool] = {}

        def get_connection(self, url: Any, *_: Any, **__: Any) -> HTTPConnectionPool:
            path = unquote(urlsplit(url).netloc)
            if path not in self._pools:
                self._pools[path] = pool(path)
            return self._pools[path]

        def get_connection_with_tls_context(
            self, request: Any, *_: Any, **__: Any
        ) -> HTTPConnectionPool:
            return self.get_connection(request.url)

        def close(self) -> None:
            for each in self._pools.values():
                each.close()
            super().close()

    return Adapter()
