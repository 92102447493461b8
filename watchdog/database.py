"""An SQLite file that a daemon can rely on: opened late, set aside when broken, errors in one line.

Only the file and its transactions; what the tables mean is for the rooms above. One connection
writes and one reads, each behind a lock, so any thread may use them.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from .errors import ConfigError, Place, Problem, WatchdogError
from .system import Clock

BUSY = 5.0  # seconds to wait for another process (a backup, a person's sqlite3)
CHECKED = 64 * 1024 * 1024  # bytes; a larger file is not read through at start
KEPT = 3  # broken files kept
WAL = 16 * 1024 * 1024  # bytes of write-ahead log kept on the disk when it is empty
VACUUMED = 4096  # pages given back at a time, so that no write waits long
COMPANIONS = ("", "-wal", "-shm")
LOG = "-wal"
HEADS = {"": (b"SQLite format 3\0",), LOG: (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")}


class StorageError(WatchdogError):
    """The file cannot be read or written just now; one line says why."""


class StorageFull(StorageError):
    """There is no room to write."""


class StorageAway(StorageError):
    """It cannot be had just now: another process has it, or the disk does not give it."""


class StorageBroken(StorageError):
    """The file is damaged; the next write sets it aside and begins a new one."""


class Database:
    """A database file with a versioned schema.

    ``schema[n]`` leads from version n to n + 1. ``notes`` tells what befell the file, one sentence
    each; whoever owns the database reports and clears them. ``begun_anew`` counts the files
    that were damaged or gone. ``known``: an earlier run had one, so that none is one that is gone.
    """

    def __init__(
        self, path: Path, schema: Sequence[str], clock: Clock, *, known: bool = False
    ) -> None:
        self.path = path
        self.notes: list[str] = []
        self.begun_anew = 0
        self._schema, self._clock = schema, clock
        self._writing, self._reading = threading.RLock(), threading.RLock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._broken = False
        self._known = known
        self._patience = threading.local()
        self._inodes: dict[str, int] = {}

    def open(self) -> None:
        """Open the file, or make it.

        Raises ConfigError where the folder or file cannot be used at all, StorageFull where only
        room is lacking and StorageAway where it cannot be had just now (each later write tries
        again).
        """
        if self._opened():
            return
        with self._turn(self._writing), self._turn(self._reading):
            if self._opened():
                return
            self._make_folder()
            if self._broken:
                self._set_aside("it was damaged while in use")
            try:
                self._connect()
            except StorageBroken as error:
                self._set_aside(str(error))
                self._connect()

    def close(self) -> None:
        """Close the file; a later read or write opens it again."""
        with self._writing, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):
                        connection.close()
            self._reader = self._writer = None

    @contextlib.contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """What this thread does meanwhile waits no longer than this for another process that has
        the file, or another thread that writes; then it raises StorageAway."""
        self._patience.seconds = seconds
        try:
            yield
        finally:
            del self._patience.seconds

    def _seconds(self) -> float | None:
        """How long this thread waits, if that was said."""
        found: float | None = getattr(self._patience, "seconds", None)
        return found

    def _busy(self) -> str:
        """The same, as SQLite is told how long to wait for another process."""
        seconds = self._seconds()
        return f"PRAGMA busy_timeout={round((BUSY if seconds is None else seconds) * 1000)}"

    @contextlib.contextmanager
    def _turn(self, lock: threading.RLock) -> Iterator[None]:
        """This thread's turn at a connection."""
        seconds = self._seconds()
        if not lock.acquire(timeout=-1 if seconds is None else seconds):
            raise StorageAway(f"{self.path}: another thread still uses it")
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction; ``durable``: on the disk when this ends. Raises StorageError."""
        with self._turn(self._writing):
            self._ensure()
            assert self._writer is not None
            writer = self._writer
            writer.execute(self._busy())
            with self._translated(), _synchronous(writer, durable), _transaction(writer):
                yield writer

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The reading connection. Raises StorageError."""
        self._open_again()  # before the lock: a writer takes both, in the other order
        with self._turn(self._reading):
            if self._reader is None:
                raise StorageError(f"{self.path}: is being opened again")
            self._reader.execute(self._busy())
            with self._translated():
                yield self._reader

    def used(self) -> int:
        """Bytes of the pages in use. Raises StorageError."""
        with self.read() as connection:
            size, pages, free = (
                connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_size", "page_count", "freelist_count")
            )
        return int(size * (pages - free))

    def shrink(self) -> None:
        """Give free pages back to the disk, without waiting for readers. Raises StorageError."""
        with self._turn(self._writing):
            self._ensure()
            assert self._writer is not None
            with self._translated():
                self._writer.executescript(f"PRAGMA incremental_vacuum({VACUUMED})")
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _ensure(self) -> None:
        """The file as it must be before a write: open, whole, and still the one in the folder."""
        if self._writer is not None:
            gone = not self._same("")
            self._broken = self._broken or not (gone or self._headed())
            if gone or self._broken or not self._same(LOG):  # of a log that is gone, closing
                with self._turn(self._reading):  # takes what it held into the file
                    self.close()
                    if gone and not self._broken:
                        self._exchanged()
        self._open_again()

    def _exchanged(self) -> None:
        """Another file lies there, or none: what ours held is lost."""
        _remove(self.path, COMPANIONS[1:])
        if self.path.exists():
            self.begun_anew += 1
            self.notes.append(f"{self.path} was exchanged for another file")

    def _open_again(self) -> None:
        """Open where it is not; in use, a folder that has become unusable is no end of the run."""
        try:
            self.open()
        except ConfigError as error:
            raise StorageError(str(error)) from error

    def _opened(self) -> bool:
        return self._reader is not None

    def _same(self, end: str) -> bool:
        if end not in self._inodes:
            return True
        try:
            return self._beside(end).stat().st_ino == self._inodes[end]
        except OSError:
            return False

    def _headed(self) -> bool:
        """Whether file and log begin as they must; a log may be empty."""
        for end, heads in HEADS.items():
            with contextlib.suppress(OSError), self._beside(end).open("rb") as stream:
                head = stream.read(len(heads[0]))
                if head not in heads and (head or not end):
                    return False
        return True

    def _beside(self, end: str) -> Path:
        return self.path.with_name(self.path.name + end)

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(
            Problem(
                Place(str(self.path.parent)),
                f"cannot be used as the state folder: {reason}",
                "let the daemon's user write there, or choose another by state: or --state",
            )
        )

    def _connect(self) -> None:
        fresh = not self.path.exists() or (self.path.is_file() and not self.path.stat().st_size)
        try:
            if self.path.exists() and not self.path.is_file():
                raise StorageBroken("it is no file")
            with self._translated():
                self._writer = self._connection()
                self._prepare(self._writer)
                self._reader = self._connection()
                self._reader.execute("PRAGMA query_only=ON")
            there = [end for end in HEADS if self._beside(end).exists()]  # some disks hold no log
            self._inodes = {end: self._beside(end).stat().st_ino for end in there}
        except StorageError as error:
            self.close()
            if fresh and isinstance(error, StorageFull):
                _remove(self.path)
            if isinstance(error, StorageFull | StorageAway | StorageBroken):
                raise
            raise self._unusable(str(error)) from error
        except OSError as error:
            self.close()
            raise self._unusable(error.strerror or str(error)) from error
        except BaseException:
            self.close()
            raise
        if fresh and self._known:
            self.begun_anew += 1
            self.notes.append(f"{self.path} was removed; a new one is begun")
        self._known = True

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(self._busy())
            connection.execute("PRAGMA cache_size=-1024")
        except BaseException:  # a file that is no database is noticed here
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(self._schema):
            raise StorageBroken(f"it was written by a newer version (schema {version})")
        if version and self.path.stat().st_size <= CHECKED:
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise StorageBroken(verdict.splitlines()[-1])
        if not version:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self.path.chmod(0o600)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA journal_size_limit={WAL}")
        for number, script in enumerate(self._schema[version:], version + 1):
            with _transaction(connection):
                for statement in script.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={number}")

    def _set_aside(self, reason: str) -> None:
        when = datetime.fromtimestamp(self._clock.wall(), timezone.utc).strftime("%Y%m%dT%H%M%S")
        aside = self.path.with_name(f"{self.path.name}.broken-{when}")
        try:
            for end in COMPANIONS:
                part = self._beside(end)
                if part.exists():
                    part.rename(f"{aside}{end}")
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from error
        self._broken = self._known = False
        self.begun_anew += 1
        for old in sorted(self.path.parent.glob(f"{self.path.name}.broken-*[0-9]"))[:-KEPT]:
            _remove(old)
        self.notes.append(f"{self.path} was set aside as {aside.name}: {reason}")

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            translated = _translate(error, self.path)
            self._broken = self._broken or isinstance(translated, StorageBroken)
            raise translated from error


@contextlib.contextmanager
def _synchronous(connection: sqlite3.Connection, durable: bool) -> Iterator[None]:
    if not durable:
        yield
        return
    connection.execute("PRAGMA synchronous=FULL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous=NORMAL")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _translate(error: sqlite3.Error, path: Path) -> StorageError:
    text = str(error)
    if "is full" in text:
        return StorageFull(f"{path}: no room left on the disk")
    if any(word in text for word in ("malformed", "not a database", "no such table")):
        return StorageBroken(f"{path}: {text}")
    if any(word in text for word in ("I/O error", "is locked")):
        return StorageAway(f"{path}: {text}")
    return StorageError(f"{path}: {text}")


def _remove(path: Path, ends: Sequence[str] = COMPANIONS) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            path.with_name(path.name + end).unlink()
