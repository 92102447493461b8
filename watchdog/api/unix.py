"""The control socket: the same HTTP on a Unix socket, where the kernel says who asks.

Where it lies, how a dead daemon's file is replaced, and the credentials of the other end; what is
asked there is for the doors and routes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket  # noqa: TID251 (a listener is this room's own door)
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..system import Clock, Files
from .doors import Doors
from .routes import Routes
from .server import REST, Listener

RUN = Path("/run/vllm-watchdog")
NAME = "control.sock"
MODE = 0o660
NO_LOGIN = 4294967295  # the kernel's word for a process without a login


class UnixServer:
    """Answers on one Unix socket. ``path`` is where it lies."""

    def __init__(
        self,
        path: Path,
        routes: Routes,
        clock: Clock,
        report: Callable[[str], None],
        doors: Doors,
        files: Files | None = None,
    ) -> None:
        """Bind, in the place of a dead daemon's file. Raises OSError, also where a living one
        answers."""
        self.path = path
        _refuse_others(path)
        self._listener = _UnixListener(path, routes, clock, report, doors, files or Files())
        status = path.lstat()
        self._own = (status.st_dev, status.st_ino)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, args=(REST,), name="control", daemon=True
        )

    def start(self) -> None:
        """Begin to answer, on a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End, and take the file away if it still is ours."""
        if self._thread.is_alive():
            self._listener.socket.shutdown(socket.SHUT_RDWR)  # ends its wait
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
        with contextlib.suppress(OSError):
            status = self.path.lstat()
            if (status.st_dev, status.st_ino) == self._own:
                self.path.unlink()


def places(state: Path, environ: Mapping[str, str], user: int) -> list[Path]:
    """Where the socket may lie, the best place first: what the service manager gave, /run, the
    state folder."""
    given = environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if given:
        return [Path(given) / NAME]
    usual = user == 0 or os.access(RUN, os.W_OK)
    return [*([RUN / NAME] if usual else []), state / NAME]


def _refuse_others(path: Path) -> None:
    """Raises OSError where somebody answers at the path, or where something else lies there."""
    try:
        if not path.is_socket():
            if path.exists():
                raise OSError(errno.EEXIST, "something that is no socket lies there")
            return
        with socket.socket(socket.AF_UNIX) as trying:
            trying.settimeout(1.0)
            trying.connect(str(path))
    except (ConnectionRefusedError, FileNotFoundError):
        return  # of a dead daemon
    except BlockingIOError:  # its queue is full: it lives
        pass
    raise OSError(errno.EADDRINUSE, "another daemon answers there")


class _UnixListener(Listener):
    def __init__(
        self,
        path: Path,
        routes: Routes,
        clock: Clock,
        report: Callable[[str], None],
        doors: Doors,
        files: Files,
    ) -> None:
        self._files = files
        super().__init__(socket.AF_UNIX, str(path), routes, clock, report, None, doors)

    def server_bind(self) -> None:
        """Bind aside, set who may connect, then put it in place: no moment of other rights."""
        path = Path(str(self.server_address))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        aside = path.with_name(f".{os.getpid()}.sock")
        aside.unlink(missing_ok=True)
        self.socket.bind(str(aside))
        try:
            aside.chmod(MODE)
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        self.server_name, self.server_port = "vllm-watchdog", 0

    def peer(self, connection: socket.socket) -> str:
        """The other end's user as the kernel says, with whoever logged in to become that user."""
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _ = struct.unpack("3i", data)
        name, login = _user(uid), self._login(pid)
        whom = name if login in (None, uid) else f"{_user(login)} as {name}"
        return f"{whom} (uid {uid}, pid {pid})"

    def _login(self, pid: int) -> int | None:
        """The user who logged in, whatever user the process became since."""
        try:
            login = int(self._files.text(f"/proc/{pid}/loginuid", 32))
        except (OSError, ValueError):
            return None
        return None if login == NO_LOGIN else login


def _user(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid or 0).pw_name
    except KeyError:
        return f"user {uid}"
