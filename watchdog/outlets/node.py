"""Elasticsearch's answers read within bounds: the library itself takes whatever comes.

Only how an answer is read; what it means is the delivery's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elastic_transport import NodeConfig, Urllib3HttpNode
from urllib3.exceptions import ProtocolError

from ..system import RealClock

LIMIT = 16 * 1024 * 1024  # bytes of an answer; those to 500 events are far below 1 MiB
TIMEOUT = 30.0  # seconds for any answer, however slowly it comes
PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class _Read:
    """An answer that was read whole."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class Node(Urllib3HttpNode):
    """The library's node on a pool that reads within LIMIT and TIMEOUT."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__(config)
        self.pool: Any = _Pool(self.pool)


class _Pool:
    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def urlopen(self, method: str, target: str, **more: Any) -> _Read:
        """The pool's, read whole. Raises ProtocolError where it is too large or takes too long."""
        clock = RealClock()
        end = clock.mono() + TIMEOUT
        answer = self._pool.urlopen(method, target, preload_content=False, **more)
        data = bytearray()
        try:
            for piece in answer.stream(PIECE):
                data += piece
                if len(data) > LIMIT:
                    raise ProtocolError(f"the answer is larger than {LIMIT} bytes")
                if clock.mono() > end:
                    raise ProtocolError(f"no whole answer within {TIMEOUT:g} s")
        except BaseException:
            answer.close()  # a connection with a rest in it serves nobody
            raise
        answer.release_conn()
        return _Read(answer.status, answer.headers, bytes(data))

    def close(self) -> None:
        """Let go of connections."""
        self._pool.close()
