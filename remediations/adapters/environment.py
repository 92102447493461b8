"""The environment that an act gives a server: one file of ours, ``STATE/services/NAME.env``.

The unit reads it as its last ``EnvironmentFile=-``; it is written aside and renamed, and what was
there before is kept beside it. Profile files of the operator have the same form. Nothing is
started here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ...watchdog.acting import Done
from ...watchdog.errors import SourceError
from ...watchdog.system import System
from .managers import Settings
from .privileged import Privileged

MAX_FILE = 65_536  # bytes
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEAD = "# Written by vllm-watchdog; what stands here is replaced at its next act.\n"
_MARK = re.compile(r"^# (request|profile): ([^\s]+)$", re.M)


def path_of(state: Path, name: str) -> Path:
    """Where the file of an instance lies."""
    return state / "services" / f"{name}.env"


def write(
    system: System,
    state: Path,
    name: str,
    values: Mapping[str, str],
    *,
    mark: str = "",
    profile: str = "",
) -> None:
    """Replace the file. Raises SourceError for a value that cannot stand in one, OSError."""
    head = _HEAD
    head += f"# request: {mark}\n" if mark else ""
    head += f"# profile: {profile}\n" if profile else ""
    lines = [f"{key}={_quoted(key, value)}\n" for key, value in sorted(values.items())]
    target, data = path_of(state, name), (head + "".join(lines)).encode()
    if len(data) > MAX_FILE:
        raise SourceError(f"{name}: its environment is larger than {MAX_FILE} bytes")
    system.files.make_folder(target.parent)
    Privileged.write(system, target, data)


def read(system: System, state: Path, name: str) -> Mapping[str, str]:
    """What the file says; nothing where there is none. Raises SourceError, OSError."""
    return settings(system, state, name).values


def settings(system: System, state: Path, name: str) -> Settings:
    """What the file says, and for which request it was written."""
    text = _text(system, path_of(state, name))
    told = dict(_MARK.findall(text))
    return Settings(parse(text, name), told.get("request", ""), told.get("profile", ""))


def configure(system: System, state: Path, name: str, wanted: Settings) -> None:
    """Write the file for a request; the one before is kept beside it."""
    target, before = path_of(state, name), _before(state, name)
    if settings(system, state, name).mark != wanted.mark:
        system.files.make_folder(target.parent)
        Privileged.write(system, before, _text(system, target).encode())
    write(system, state, name, wanted.values, mark=wanted.mark, profile=wanted.profile)


def restore(system: System, state: Path, name: str, mark: str) -> None:
    """Put back the file that stood before that request's; another request's stays."""
    target, before = path_of(state, name), _before(state, name)
    if not mark or settings(system, state, name).mark != mark:
        return
    old = _text(system, before)
    if old:
        Privileged.write(system, target, old.encode())
    else:
        system.files.remove(target)
    system.files.remove(before)


def written_at(system: System, state: Path, name: str) -> float:
    """When the file was last written (Unix seconds); 0 where there is none."""
    try:
        return system.files.modified(path_of(state, name))
    except FileNotFoundError:
        return 0.0


class ByFile:
    """The part of a manager whose servers get their environment by our file."""

    __slots__ = ()
    state: Path
    service: str

    def settings(self, system: System) -> Settings:
        """See Manager.settings."""
        return settings(system, self.state, self.service)

    def configure(self, system: System, wanted: Settings) -> None:
        """See Manager.configure."""
        configure(system, self.state, self.service, wanted)

    def restore(self, system: System, mark: str) -> None:
        """See Manager.restore."""
        restore(system, self.state, self.service, mark)

    def configured_at(self, system: System) -> float:
        """See Manager.configured_at."""
        return written_at(system, self.state, self.service)


def proved(system: System, pid: int, values: Mapping[str, str]) -> Done:
    """Whether a process was started with these values; unknown where its environment may not be
    read (another user's, without CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH)."""
    try:
        data = system.files.read(f"/proc/{pid}/environ", 1 << 20)
    except PermissionError:
        return "unknown"
    except OSError:
        return "no"
    pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
    there = {key: value for key, _, value in pairs}
    same = all(there.get(key.encode()) == value.encode() for key, value in values.items())
    return "yes" if same else "no"


def profile(system: System, path: Path) -> Mapping[str, str]:
    """The values of an operator's profile. Raises SourceError naming the file."""
    try:
        found = system.files.part(path, 0, MAX_FILE + 1)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or 'is not a regular file'}") from error
    if len(found.data) > MAX_FILE:
        raise SourceError(f"{path}: is larger than {MAX_FILE} bytes")
    try:
        text = found.data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: is not UTF-8") from error
    values = parse(text, str(path))
    for key, value in values.items():
        if not value.isprintable():
            raise SourceError(f"{path}: the value of {key} holds a control character")
    return values


def parse(text: str, where: str) -> dict[str, str]:
    """An environment file as systemd reads it: ``KEY=value`` lines, quotes, comments.

    Raises SourceError for a line that is none; a value is taken as it is, without expansion.
    """
    values: dict[str, str] = {}
    lines = text.replace("\\\n", "").splitlines()
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line[0] in "#;":
            continue
        key, equals, value = line.partition("=")
        if not equals or not _KEY.fullmatch(key.strip()) or "\0" in value:
            raise SourceError(f"{where}: line {number} is not KEY=value")
        values[key.strip()] = _unquoted(value.strip())
    return values


def _unquoted(value: str) -> str:
    """systemd's reading: quotes at the start of a value end at their twin; a backslash escapes."""
    if len(value) >= 2 and value[0] == value[-1] == "'":
        return value[1:-1]
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return re.sub(r'\\(["\\$`])', r"\1", value[1:-1])
    return re.sub(r"\\(.)", r"\1", value)


def _quoted(key: str, value: str) -> str:
    if not _KEY.fullmatch(key):
        raise SourceError(f"{key!r} is no name of a variable")
    if any(not character.isprintable() for character in value):
        raise SourceError(f"the value of {key} holds a control character")
    return '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'


def _before(state: Path, name: str) -> Path:
    return state / "services" / f"{name}.before"


def _text(system: System, path: Path) -> str:
    try:
        data = system.files.read(path, MAX_FILE + 1)
    except FileNotFoundError:
        return ""
    if len(data) > MAX_FILE:
        raise SourceError(f"{path}: is larger than {MAX_FILE} bytes")
    return data.decode("utf-8", "replace")
