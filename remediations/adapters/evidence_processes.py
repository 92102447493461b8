"""Parts of the evidence about processes: what they are, where they hang, whom they talk to.

It reads /proc and asks py-spy where that is installed; it never stops a process, and never reads
what its variables hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...watchdog import processes
from ...watchdog.errors import CommandTimeout, NoData, NotSupported, WatchdogError
from ...watchdog.system import Files, System
from . import redaction
from .evidence_scene import Scene

MAX_THREADS = 512  # of one process
_STATES = {"01": "ESTABLISHED", "02": "SYN_SENT", "06": "TIME_WAIT", "08": "CLOSE_WAIT"}
_STATES |= {"03": "SYN_RECV", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "0A": "LISTEN"}
_SHOWN = ("VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NPU_ALLOC_CONF", "VLLM_USE_V1")
_SHOWN_TOO = ("CUDA_DEVICE_ORDER", "NCCL_DEBUG", "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT")


def family(system: System, scene: Scene) -> str:
    """Command line and status of each process."""
    files = system.files
    return "\n".join(_status(files, pid) for pid in _members(system, scene))


def stacks(system: System, scene: Scene) -> str:
    """Where each thread of each process is, as the kernel tells."""
    return "".join(_stacks(system.files, pid) for pid in _members(system, scene))


def python_stacks(system: System, scene: Scene) -> str:
    """The Python stacks by py-spy, without stopping the process and without local variables."""
    if system.runner.which("py-spy") is None:
        raise NotSupported("py-spy is not on this node")
    named = {pid: _comm(system.files, pid) for pid in _members(system, scene)}
    return "\n".join(
        f"== {pid} {name}\n{_py_spy(system, pid)}"
        for pid, name in named.items()
        if any(word in name.lower() for word in ("python", "vllm"))
    )


def _py_spy(system: System, pid: int) -> str:
    command = ("py-spy", "dump", "--nonblocking", "--pid", str(pid))
    try:
        answer = system.runner.run(command, timeout=2.0, limit=512 * 1024)
    except CommandTimeout as late:
        if late.stuck:
            raise
        return f"{late}\n"
    told = answer.text or answer.stderr.decode("utf-8", "replace")
    return redaction.lines(told)


def environment(system: System, scene: Scene) -> str:
    """Names of the variables of each process; values only of a few that hold no secret."""
    found: list[str] = []
    for pid in _members(system, scene):
        try:
            data = system.files.read(f"/proc/{pid}/environ", 256 * 1024)
        except OSError as error:
            found.append(f"== {pid}: {error.strerror}")
            continue
        found.append(f"== {pid}")
        found += sorted(_variable(entry) for entry in data.split(b"\0") if b"=" in entry)
    return "\n".join(found) + "\n"


def _variable(entry: bytes) -> str:
    name, _, value = entry.decode("utf-8", "replace").partition("=")
    shown = name.endswith(_SHOWN) or name in _SHOWN_TOO
    return f"{name[:200]}={value[:200]}" if shown else name[:200]


def sockets(system: System, scene: Scene) -> str:
    """The TCP sockets of the processes, with what waits in their queues."""
    files = system.files
    rows: list[str] = ["pid state local remote sent_queue received_queue"]
    seen: set[str] = set()
    for pid in _members(system, scene):
        own = _inodes(files, pid)
        space = _link(files, f"/proc/{pid}/ns/net")
        for name in ("tcp", "tcp6"):
            rows += _rows(files, pid, name, own - seen)
        if not space:
            rows.append(f"{pid} its network cannot be seen")
        seen |= own
    return "\n".join(rows) + "\n"


def _rows(files: Files, pid: int, name: str, inodes: set[str]) -> Iterator[str]:
    try:
        table = files.text(f"/proc/{pid}/net/{name}", processes.MAX_TABLE)
    except OSError:
        return
    for row in table.splitlines()[1:]:
        words = row.split(None, 10)
        if len(words) > 9 and words[9] in inodes:
            sent, _, received = words[4].partition(":")
            state = _STATES.get(words[3], words[3])
            ends = f"{_address(words[1])} {_address(words[2])}"
            yield f"{pid} {state} {ends} {_number(sent)} {_number(received)}"


def _address(text: str) -> str:
    """``0100007F:1F40`` as 127.0.0.1:8000; IPv6 stays hexadecimal in words of four bytes."""
    host, _, port = text.partition(":")
    if len(host) == 8:
        host = ".".join(str(int(host[at : at + 2], 16)) for at in (6, 4, 2, 0))
    return f"{host}:{_number(port)}"


def _number(text: str) -> str:
    try:
        return str(int(text, 16))
    except ValueError:
        return text


def _inodes(files: Files, pid: int) -> set[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = files.names(folder)
    except OSError:
        return set()
    targets = (_link(files, f"{folder}/{name}") for name in names)
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def _link(files: Files, path: str) -> str:
    try:
        return files.link(path)
    except OSError:
        return ""


def _members(system: System, scene: Scene) -> tuple[int, ...]:
    pids = scene.family.pids(system, scene)
    if not pids:
        raise NoData("no process of the instance is there")
    return pids


def _comm(files: Files, pid: int) -> str:
    return _text(files, f"/proc/{pid}/comm").strip()


def _status(files: Files, pid: int) -> str:
    words = redaction.words(processes.command(files, pid))
    held = len(_names(files, f"/proc/{pid}/fd"))
    group = _text(files, f"/proc/{pid}/cgroup")
    return f"== {pid} {words}\nopen files: {held}\n{group}{_text(files, f'/proc/{pid}/status')}"


def _stacks(files: Files, pid: int) -> str:
    found = [f"== {pid} {_comm(files, pid)}\n"]
    for thread in sorted(_names(files, f"/proc/{pid}/task"), key=len)[:MAX_THREADS]:
        base = f"/proc/{pid}/task/{thread}"
        state = processes.stat(files, pid) if thread == str(pid) else None
        found.append(f"-- {thread} {_text(files, f'{base}/comm').strip()} ")
        found.append(f"{_state(files, base) or (state.state if state else '?')} ")
        found.append(f"wchan={_text(files, f'{base}/wchan') or '?'} ")
        found.append(f"syscall={_text(files, f'{base}/syscall').strip() or '?'}\n")
        found.append(_text(files, f"{base}/stack"))
    return "".join(found)


def _state(files: Files, base: str) -> str:
    tail = _text(files, f"{base}/stat").rpartition(")")[2].split()
    return tail[0] if tail else ""


def _text(files: Files, path: str) -> str:
    """A small file of /proc; empty where it is gone or may not be read."""
    try:
        return files.text(path, 16384)
    except (OSError, WatchdogError):
        return ""


def _names(files: Files, path: str) -> list[str]:
    try:
        return files.names(path)
    except OSError:
        return []
