"""A /proc of the test's own: processes, their files, and who listens where."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class ProcTree:
    """Writes a fixture tree under ``root`` and changes it as processes come and go."""

    root: Path
    booted: int = 1_700_000_000
    boot_id: str = "11111111-2222-3333-4444-555555555555"
    sockets: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write("proc/sys/kernel/random/boot_id", self.boot_id + "\n")
        self.write("proc/stat", f"cpu  1 2 3\nintr 5 0 0\nbtime {self.booted}\n")
        (self.root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
        os.symlink("net:[1]", self.root / "proc/self/ns/net")
        self.listen()

    def write(self, name: str, text: str) -> None:
        """One file of the tree."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(
        self,
        pid: int,
        words: Sequence[str],
        *,
        name: str = "",
        parent: int = 1,
        session: int = 0,
        started: int | None = None,
        pages: int = 100,
        state: str = "S",
        holds: Sequence[str] = (),
        net: str = "net:[1]",
    ) -> None:
        """A process: its command line, and the sockets (inode numbers) that it has open."""
        name = (name or Path(words[0]).name)[:15]
        begun = pid * 10 if started is None else started
        rest = [
            state,
            str(parent),
            "0",
            str(session or pid),
            *["0"] * 15,
            str(begun),
            "0",
            str(pages),
        ]
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(rest)} 0 0\n")
        self.write(f"proc/{pid}/cmdline", "\0".join(words) + "\0")
        for folder, links in (
            ("fd", {str(3 + n): f"socket:[{i}]" for n, i in enumerate(holds)}),
            ("ns", {"net": net}),
        ):
            base = self.root / f"proc/{pid}/{folder}"
            shutil.rmtree(base, ignore_errors=True)
            base.mkdir(parents=True)
            for link, target in links.items():
                os.symlink(target, base / link)

    def end(self, *pids: int) -> None:
        """Processes end."""
        for pid in pids:
            shutil.rmtree(self.root / f"proc/{pid}")

    def adopt(self, pid: int, parent: int = 1) -> None:
        """A process gets another parent."""
        path = self.root / f"proc/{pid}/stat"
        head, _, tail = path.read_text().rpartition(") ")
        words = tail.split(" ")
        words[1] = str(parent)
        path.write_text(f"{head}) {' '.join(words)}")

    def listen(self, *sockets: tuple[int, str]) -> None:
        """The listening TCP sockets: (port, inode); besides them one connection to port 8000."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        lines = [f"   0: 0100007F:1F40 0100007F:D431 01 {'0 ' * 5} 777 1"]
        lines += [
            f"   1: 00000000:{port:04X} 00000000:0000 0A {'0 ' * 5} {inode} 1"
            for port, inode in sockets
        ]
        self.write("proc/net/tcp", head + "\n".join(lines) + "\n")

    def vllm(self, *, port: int = 8000, first: int = 100, session: int = 0) -> None:
        """A server with an engine and a worker: pids ``first``, +1, +2; it listens as inode 5000."""
        words = [
            "/usr/bin/python3",
            "/usr/local/bin/vllm",
            "serve",
            "/models/m",
            "--port",
            str(port),
        ]
        group = session or first
        self.process(first, words, name="vllm", session=group, pages=10, holds=["5000"])
        self.process(first + 1, ["VLLM::EngineCore"], parent=first, session=group, pages=20)
        self.process(first + 2, ["VLLM::Worker"], parent=first + 1, session=group, pages=30)
