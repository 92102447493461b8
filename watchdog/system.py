"""The one door to the outside: clock, commands, files, HTTP.

Only here, and in its parts (``commands``, ``web``, ``sockets``, ``perf``), are time, subprocess,
socket and requests used.

Everything above takes a ``System`` as an argument, so a test hands in a virtual clock, a scripted
runner and a tree of fixture files. No room above may reach around it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import stat
import threading
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .commands import MAX_OUTPUT, Finished, RealRunner, Runner
from .perf import Perf, RealPerf
from .sockets import RealSockets, Sockets
from .web import Http, RealHttp, Response

__all__ = [
    "MAX_OUTPUT",
    "Checkpoints",
    "Clock",
    "FilePart",
    "Files",
    "Finished",
    "FolderWatch",
    "Host",
    "Http",
    "Lock",
    "Notifier",
    "Process",
    "ProcessTable",
    "RealClock",
    "RealHost",
    "RealHttp",
    "RealRunner",
    "RecordStream",
    "Response",
    "Runner",
    "System",
    "hostname",
    "read_input",
]


class Clock(Protocol):
    """Time and waiting. ``mono`` never jumps; ``wall`` is Unix seconds."""

    def mono(self) -> float: ...

    def wall(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The machine's clocks."""

    def mono(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


MAX_LINKS = 40  # symbolic links that are followed one after the other, as the kernel does


@dataclass(frozen=True, slots=True)
class FilePart:
    """A piece of a file: identity (device, inode), the whole file's size, the bytes."""

    device: int
    inode: int
    size: int
    data: bytes


class RecordStream:
    """An open device that gives one record a read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, limit: int) -> tuple[list[bytes], bool]:
        """The records there are now, at most ``limit``, and whether older ones were overwritten
        before they were read. Raises OSError.
        """
        records: list[bytes] = []
        lost = False
        while len(records) < limit:
            try:
                record = os.read(self._descriptor, 16384)
            except BlockingIOError:
                break
            except BrokenPipeError:  # EPIPE: the ring was faster; the next read goes on behind
                lost = True
                continue
            if not record:
                break
            records.append(record)
        return records, lost

    def wait(self, seconds: float) -> bool:
        """Wait until there is a record, at most so long; whether there is one."""
        return _readable(self._descriptor, seconds)

    def close(self) -> None:
        """Let go of the device."""
        os.close(self._descriptor)


class FolderWatch:
    """Tells when files in some folders are written, made or renamed (inotify). Raises OSError."""

    _EVENTS = 0x2 | 0x80 | 0x100 | 0x400  # IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE_SELF

    def __init__(self, folders: Sequence[Path]) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify cannot be used")
        for folder in folders:
            libc.inotify_add_watch(self._descriptor, os.fsencode(folder), self._EVENTS)

    def wait(self, seconds: float) -> bool:
        """Wait until something changed since the last wait, at most so long; whether it did."""
        if not _readable(self._descriptor, seconds):
            return False
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, 65536):
                pass
        return True

    def close(self) -> None:
        """Let go of the folders."""
        os.close(self._descriptor)


def _readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, round(seconds * 1000))))


def read_input(path: str | Path, limit: int, patience: float = 5.0) -> bytes:
    """A file that a person named, whole, at most ``limit`` bytes and one (then it is longer).

    A pipe is read until its end, for ``patience`` seconds at most. Raises OSError, also for a path
    that cannot be one.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(str(error)) from error
    chunks: list[bytes] = []
    size, deadline = 0, time.monotonic() + patience
    try:
        while size <= limit:
            if not _readable(descriptor, deadline - time.monotonic()):
                raise OSError(f"nothing more came within {patience:g} s")
            chunk = os.read(descriptor, min(limit + 1 - size, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
    finally:
        os.close(descriptor)
    return b"".join(chunks)


class Lock:
    """A lock file that one process holds until it ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Open the file, made where absent. Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Take the lock; False while another process holds it. Raises OSError."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Files:
    """Files below ``root`` (``/`` in service, a fixture tree in tests). Paths are absolute node
    paths.
    """

    root: Path = Path("/")

    def path(self, path: str | Path) -> Path:
        """Where ``path`` of the node really lies."""
        return self.root / str(path).lstrip("/")

    def read(self, path: str | Path, limit: int = MAX_OUTPUT) -> bytes:
        """At most ``limit`` bytes of a file. Raises OSError, for a pipe as well: none is waited
        for."""
        chunks: list[bytes] = []
        place = os.path.join(self.root, str(path).lstrip("/"))
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "is a pipe", str(path))
            while limit > 0 and (chunk := os.read(descriptor, min(limit, 1 << 16))):
                chunks.append(chunk)
                limit -= len(chunk)
        finally:
            os.close(descriptor)
        return b"".join(chunks)

    def part(self, path: str | Path, offset: int, limit: int) -> FilePart:
        """At most ``limit`` bytes of a regular file from ``offset`` on, and which file that was (a
        name may mean another one by now). Raises OSError.
        """
        descriptor = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not block
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{path} is not a regular file")
            data = os.pread(descriptor, limit, offset)
        finally:
            os.close(descriptor)
        return FilePart(status.st_dev, status.st_ino, status.st_size, data)

    def records(self, path: str | Path) -> RecordStream:
        """A device that gives one record a read (/dev/kmsg), never waited for. Raises OSError."""
        return RecordStream(os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK))

    def watch(self, folders: Sequence[str]) -> FolderWatch:
        """Notice of changes in folders. Raises OSError."""
        return FolderWatch([self.path(folder) for folder in folders])

    def text(self, path: str | Path, limit: int = MAX_OUTPUT) -> str:
        """A small file as text, undecodable bytes as U+FFFD. Raises OSError."""
        return self.read(path, limit).decode("utf-8", "replace")

    def exists(self, path: str | Path) -> bool:
        """Whether the path is there."""
        return self.path(path).exists()

    def names(self, path: str | Path) -> list[str]:
        """Names in a folder, sorted; empty when there is no such folder."""
        try:
            return sorted(os.listdir(self.path(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def link(self, path: str | Path) -> str:
        """Where a symbolic link points, as written. Raises OSError."""
        return os.readlink(self.path(path))

    def followed(self, path: str | Path) -> Path:
        """The file that is meant by a name that may be a symbolic link: what the last one of the
        chain names, so that writing it leaves the links as they are.

        Raises OSError, its ``strerror`` a clear half sentence, for a link to nothing, a circle, and
        a link that neither root, this user nor the owner of the file made: whoever could put it
        there would choose what is overwritten.
        """
        place, links = Path(path), list[Path]()
        while self.path(place).is_symlink():
            if len(links) == MAX_LINKS:
                raise OSError(errno.ELOOP, "is a circle of symbolic links", str(path))
            links.append(place)
            place = place.parent / self.link(place)
        if not links:
            return place
        if not self.exists(place):
            text = f"is a symbolic link to {place}, which is not there"
            raise OSError(errno.ENOENT, text, str(path))
        trusted = {0, os.geteuid(), self.owner(place)}
        if not trusted.issuperset(map(self.owner, links)):
            raise OSError(errno.EPERM, "is another user's symbolic link", str(path))
        return place

    def owner(self, path: str | Path) -> int:
        """The user (number) whose file it is. Raises OSError."""
        return self.path(path).lstat().st_uid

    def glob(self, pattern: str) -> list[str]:
        """Node paths that match a pattern, sorted."""
        import glob as globbing

        prefix = "" if self.root == Path("/") else str(self.root)
        found = globbing.glob(prefix + pattern)
        return sorted(path[len(prefix) :] for path in found)

    def modified(self, path: str | Path) -> float:
        """When the file was last written, in Unix seconds. Raises OSError."""
        return self.path(path).stat().st_mtime

    def make_folder(self, path: str | Path, mode: int = 0o700) -> None:
        """Make the folder and those above it, where absent. Raises OSError."""
        self.path(path).mkdir(parents=True, exist_ok=True, mode=mode)

    def remove(self, path: str | Path) -> None:
        """Remove a file; one that is not there is no error. Raises OSError."""
        self.path(path).unlink(missing_ok=True)

    def write(self, path: str | Path, data: bytes, mode: int = 0o600) -> None:
        """Replace a file atomically: written aside, synced, renamed. Raises OSError."""
        target = self.path(path)
        aside = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                os.fchmod(descriptor, mode)  # as asked for, whatever the umask
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise


class Checkpoints:
    """Where each collector instance stands: what it last yielded, or what the journal kept."""

    def __init__(self, kept: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._docs: dict[str, Mapping[str, Any]] = dict(kept or {})

    def get(self, instance: str) -> Mapping[str, Any] | None:
        """The last checkpoint of an instance, or None."""
        return self._docs.get(instance)

    def put(self, instance: str, doc: Mapping[str, Any]) -> None:
        """Remember a checkpoint (the host's work, after a run)."""
        self._docs[instance] = doc


@dataclass(frozen=True, slots=True)
class Process:
    """One process: ids, titles, the ports it listens on, start in Unix seconds."""

    pid: int
    ppid: int
    name: str
    cmdline: tuple[str, ...]
    started: float
    listens: tuple[tuple[str, int], ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)


class ProcessTable(Protocol):
    """The machine's processes."""

    def processes(self) -> list[Process]:
        """All processes that may be seen, without ports and environment, by pid."""
        ...

    def details(self, process: Process) -> Process:
        """The process with listening ports and environment, as far as permitted."""
        ...


class Host(ProcessTable, Protocol):
    """The machine's process table and host figures."""

    def figures(self) -> Mapping[str, float]:
        """Host figures: cpu_seconds_total by mode as ``cpu:MODE``, memory and swap in bytes."""
        ...

    def kill(self, process: Process, number: int) -> bool:
        """Send a signal to this very process (its start tells it from a later one of the same
        pid); False when it is gone. Raises PermissionError."""
        ...


class RealHost:
    """psutil's view of this machine."""

    def processes(self) -> list[Process]:
        """See Host.processes."""
        import psutil

        found = []
        for entry in psutil.process_iter(["pid", "ppid", "name", "cmdline", "create_time"]):
            info = entry.info
            cmdline = tuple(info["cmdline"] or ())
            found.append(
                Process(
                    info["pid"],
                    info["ppid"] or 0,
                    info["name"] or "",
                    cmdline,
                    info["create_time"] or 0.0,
                )
            )
        return sorted(found, key=lambda process: process.pid)

    def details(self, process: Process) -> Process:
        """See Host.details."""
        import psutil

        listens: tuple[tuple[str, int], ...] = ()
        environ: Mapping[str, str] = {}
        with contextlib.suppress(psutil.Error):
            handle = psutil.Process(process.pid)
            with contextlib.suppress(psutil.Error):
                environ = handle.environ()
            connections = getattr(handle, "net_connections", handle.connections)
            listens = tuple(
                sorted(
                    {
                        (c.laddr.ip, c.laddr.port)
                        for c in connections("tcp")
                        if c.status == psutil.CONN_LISTEN
                    }
                )
            )
        return Process(
            process.pid,
            process.ppid,
            process.name,
            process.cmdline,
            process.started,
            listens,
            environ,
        )

    def kill(self, process: Process, number: int) -> bool:
        """See Host.kill."""
        import psutil

        try:
            handle = psutil.Process(process.pid)
            if abs(handle.create_time() - process.started) > 0.05:
                return False
            handle.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied as error:
            raise PermissionError(f"process {process.pid} is another user's") from error
        return True

    def figures(self) -> Mapping[str, float]:
        """See Host.figures."""
        import psutil

        memory, swap = psutil.virtual_memory(), psutil.swap_memory()
        times = psutil.cpu_times()._asdict()
        load1, load5, load15 = psutil.getloadavg()
        return {
            **{f"cpu:{mode}": value for mode, value in times.items() if "guest" not in mode},
            "memory_total": float(memory.total),
            "memory_available": float(memory.available),
            "swap_total": float(swap.total),
            "swap_used": float(swap.used),
            "cpus": float(psutil.cpu_count() or 0),
            "load1": load1,
            "load5": load5,
            "load15": load15,
            "boot_time": psutil.boot_time(),
        }


def hostname() -> str:
    """The node's own name, without its domain."""
    return socket.gethostname().partition(".")[0] or "localhost"


class Notifier:
    """Tells the service manager how the daemon stands; without one it tells nobody.

    ``interval``: seconds within which ``alive`` must come again (0: the manager does not watch).
    """

    def __init__(self, address: str = "", interval: float = 0.0) -> None:
        self.interval = interval
        self._address = "\0" + address[1:] if address.startswith("@") else address

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        """The manager that started this process. Its variables are taken out of the environment,
        so that no command started later speaks for the daemon."""
        address = environ.pop("NOTIFY_SOCKET", "")
        usec, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        watched = usec.isdigit() and pid in ("", str(os.getpid()))
        return cls(address, int(usec) / 1e6 if watched else 0.0)

    def ready(self) -> None:
        """The start, or a reload, is complete."""
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """A tick has finished; ``status`` is one line for people."""
        self._send("WATCHDOG=1", "STATUS=" + " ".join(status.split())[:500])

    def reloading(self) -> None:
        """A reload begins."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The end begins."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.settimeout(1.0)
            out.sendto("\n".join(lines).encode(), self._address)


@dataclass(frozen=True, slots=True)
class System:
    """Everything outside, handed to whoever needs it."""

    clock: Clock = field(default_factory=RealClock)
    runner: Runner = field(default_factory=RealRunner)
    files: Files = field(default_factory=Files)
    http: Http = field(default_factory=RealHttp)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    host: Host = field(default_factory=RealHost)
    perf: Perf = field(default_factory=RealPerf)
    sockets: Sockets = field(default_factory=RealSockets)
