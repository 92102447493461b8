"""The parts of a bundle of evidence, listed by hand, and those that ask tools and servers.

A part reads; it never changes anything, and gives no text that users wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...watchdog.ascend.readout import names
from ...watchdog.ascend.table import read_table
from ...watchdog.errors import CommandTimeout, NoData, NotSupported, WatchdogError
from ...watchdog.system import System
from ...watchdog.version import version
from . import redaction
from .cardview import vendor_of
from .evidence_processes import environment, family, python_stacks, sockets, stacks
from .evidence_scene import Part, Scene
from .managers import manager_of

LOG_BYTES = 256 * 1024  # of each log file, from its end
LOG_FILES = 8
KERNEL_LINES = 1000
LINES = "400"  # of the manager's own log
MAX_ANSWER = 1024 * 1024
_UNIT = (
    "Id,LoadState,ActiveState,SubState,Result,MainPID,ControlPID,NRestarts,Restart,RestartUSec,"
    "ExecMainCode,ExecMainStatus,ExecMainStartTimestamp,ExecMainExitTimestamp,InvocationID,"
    "ActiveEnterTimestamp,InactiveEnterTimestamp,StateChangeTimestamp,MemoryCurrent,MemoryPeak,"
    "MemoryMax,TasksCurrent,CPUUsageNSec,OOMPolicy,ControlGroup,WatchdogTimestamp,StatusErrno"
)
_HOST = (
    *("/proc/loadavg", "/proc/meminfo", "/proc/uptime", "/proc/pressure/cpu"),
    *("/proc/pressure/io", "/proc/pressure/memory", "/proc/sys/kernel/random/boot_id"),
)
_VERSIONS = (
    *("/proc/version", "/proc/driver/nvidia/version", "/etc/os-release"),
    *("/usr/local/Ascend/driver/version.info", "/usr/local/Ascend/firmware/version.info"),
)


def logs(system: System, scene: Scene) -> str:
    """The last lines of the service's newest log files."""
    if not scene.logs:
        raise NoData("no log files are configured")
    paths = {path for pattern in scene.logs for path in system.files.glob(pattern)}
    newest = sorted(((_written(system, path), path) for path in paths), reverse=True)[:LOG_FILES]
    return "\n".join(f"== {path}\n{_end_of(system, path)}" for _, path in newest)


def _written(system: System, path: str) -> float:
    try:
        return system.files.modified(path)
    except OSError:  # gone meanwhile, or a link to nowhere
        return 0.0


def _end_of(system: System, path: str) -> str:
    """The end of one file; only a regular file is read, so that a pipe holds nobody up."""
    try:
        size = system.files.part(path, 0, 0).size
        start = max(size - LOG_BYTES, 0)
        part = system.files.part(path, start, LOG_BYTES)
    except OSError as error:
        return f"({error.strerror or error})\n"
    data = part.data if start == 0 else part.data.partition(b"\n")[2]
    return redaction.log(data, whole=start == 0)


def journal(system: System, scene: Scene) -> str:
    """The last lines that the unit or container wrote, as its manager kept them."""
    manager = scene.instance.manager
    if manager is not None and manager.docker is not None:
        command = ("docker", "logs", "--tail", LINES, "--", manager.docker)
        answer = system.runner.run(command, timeout=4.0, limit=MAX_ANSWER)
        return redaction.log(answer.stdout) + redaction.log(answer.stderr)
    if manager is None or manager.systemd is None:
        raise NoData("neither a unit nor a container is configured")
    asked = ("journalctl", "-u", manager.systemd, "-n", LINES, "-o", "cat", "--no-pager", "-q")
    return redaction.log(_said(system, asked, 4.0).encode())


def kernel(system: System, _scene: Scene) -> str:
    """The kernel's last lines: of its ring, else as the journal keeps them."""
    try:
        stream = system.files.records("/dev/kmsg")
    except OSError:
        count = str(KERNEL_LINES)
        command = ("journalctl", "-k", "-n", count, "-o", "short-monotonic", "--no-pager")
        return redaction.lines(_said(system, command, 4.0))
    try:
        kept: list[bytes] = []
        while records := stream.read(4096)[0]:
            kept = (kept + records)[-KERNEL_LINES:]
    finally:
        stream.close()
    return redaction.lines(b"\n".join(kept).decode("utf-8", "replace"))


def unit(system: System, scene: Scene) -> str:
    """How the instance stands with its manager."""
    manager = manager_of(scene.instance, scene.state)
    if manager is None:
        raise NoData("no manager is configured")
    told = f"{manager.name}: {manager.status(system)}\n"
    name = scene.instance.manager.systemd if scene.instance.manager is not None else None
    if name is None:
        return told
    return told + _said(system, ("systemctl", "show", "-p", _UNIT, "--", name), 4.0)


def nvidia_smi(system: System, scene: Scene) -> str:
    """What the driver says of NVIDIA's cards."""
    _wanted(system, scene, "nvidia", "nvidia-smi")
    return _each(system, [("nvidia-smi",), ("nvidia-smi", "-q")])


def npu_smi(system: System, scene: Scene) -> str:
    """What the driver says of Ascend cards, and each one's health codes."""
    _wanted(system, scene, "ascend", "npu-smi")
    told = _said(system, ("npu-smi", "info"), 4.0)
    table = read_table(told)
    mine = [chip for chip, card in (names(table).items() if table else ()) if card in scene.cards]
    asked = [
        ("npu-smi", "info", "-t", "health", "-i", str(chip.npu), "-c", str(chip.chip))
        for chip in mine
        if chip.npu is not None
    ]
    return redaction.lines(told) + _each(system, asked[:16])


def hccn_tool(system: System, scene: Scene) -> str:
    """Link and network health of the Ascend cards' own ports."""
    _wanted(system, scene, "ascend", "hccn_tool")
    files = system.files.glob("/dev/davinci[0-9]*")
    ids = sorted(int(name[12:]) for name in files if name[12:].isdigit())
    asked = [("hccn_tool", "-i", str(phy), f"-{what}", "-g") for phy in ids[:16] for what in _HCCN]
    return _each(system, asked)


_HCCN = ("link", "net_health")


def _wanted(system: System, scene: Scene, vendor: str, tool: str) -> None:
    known = {vendor_of(system.files, card, scene.vendors) for card in scene.cards} - {""}
    if known and vendor not in known:
        raise NoData(f"the instance uses no {vendor} card")
    if system.runner.which(tool) is None:
        raise NotSupported(f"{tool} is not on this node")


def _each(system: System, commands: Iterable[Sequence[str]]) -> str:
    """What several commands say; one that fails leaves its reason, one that hangs ends it."""
    found: list[str] = []
    for command in commands:
        found.append(f"== {' '.join(command)}")
        try:
            found.append(redaction.lines(_said(system, command, 4.0)))
        except CommandTimeout as late:
            found.append(f"({late})\n")
            break
        except (WatchdogError, OSError) as error:
            found.append(f"({error})\n")
    return "\n".join(found)


def _said(system: System, command: Sequence[str], timeout: float) -> str:
    answer = system.runner.run(command, timeout=timeout, limit=MAX_ANSWER)
    said = answer.text or answer.stderr.decode("utf-8", "replace")
    return said if answer.code == 0 else f"{said.rstrip()}\n(exit status {answer.code})\n"


def metrics(system: System, scene: Scene) -> str:
    """The server's own figures, without the buckets of histograms."""
    url = scene.instance.url.rstrip("/")
    answer = system.http.request("GET", f"{url}/metrics", timeout=2.5, limit=4 * MAX_ANSWER)
    wanted = [row for row in answer.text.splitlines() if row[:1] != "#" and "_bucket{" not in row]
    return redaction.lines(f"HTTP {answer.status}\n" + "\n".join(wanted))


def health(system: System, scene: Scene) -> str:
    """What the server says of its health and its version."""
    url = scene.instance.url.rstrip("/")
    return "".join(f"{path}: {_answer(system, url + path)}\n" for path in ("/health", "/version"))


def _answer(system: System, url: str) -> str:
    try:
        answer = system.http.request("GET", url, timeout=1.5, limit=4096)
    except WatchdogError as error:
        return str(error)
    return f"HTTP {answer.status} {redaction.lines(answer.text).strip()}"


def host(system: System, _scene: Scene) -> str:
    """Load, memory and pressure of the node."""
    return _files(system, _HOST)


def versions(system: System, _scene: Scene) -> str:
    """Which kernel, drivers and daemon."""
    return f"vllm-watchdog {version()}\n{_files(system, _VERSIONS)}"


def _files(system: System, paths: Iterable[str]) -> str:
    return "\n".join(told for path in paths if (told := _file(system, path)))


def _file(system: System, path: str) -> str:
    try:
        return f"== {path}\n{system.files.text(path, 65536)}"
    except OSError:
        return ""


PARTS: tuple[Part, ...] = (
    Part("processes", family),
    Part("stacks", stacks),
    Part("python_stacks", python_stacks, 6.0),
    Part("sockets", sockets),
    Part("environment", environment),
    Part("unit", unit),
    Part("logs", logs, size=2 * 1024 * 1024, tail=True),
    Part("journal", journal, tail=True),
    Part("kernel", kernel, tail=True),
    Part("nvidia_smi", nvidia_smi, 8.0),
    Part("npu_smi", npu_smi, 8.0),
    Part("hccn_tool", hccn_tool, 8.0),
    Part("metrics", metrics, 3.0),
    Part("health", health, 3.5),
    Part("host", host, 2.0),
    Part("versions", versions, 2.0),
)
"""All parts. Together at most the bundle's bound; the first have the right of way."""
