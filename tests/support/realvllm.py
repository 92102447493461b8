"""A real vLLM server on this machine's CPUs, and what clients do to it.

It runs from a folder that holds a virtual environment with vLLM (`venv`) and a tiny model
(`model`); it installs nothing. Every load is bounded, and it ends only what it started.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.servers import answers, free_port

MODEL = "tiny"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
STARTUP = 300.0  # seconds; 40 to 80 on a quiet machine
PATIENCE = 240.0  # seconds a client waits for its answer: longer than any hang of a test


@dataclass
class RealVllm:
    """One server at a time, on one port, with a log of its own for each start.

    ``pristine`` is False once a test has done something to it that its log may tell of;
    ``development`` says whether it has the routes of development mode (/pause, /is_paused).
    """

    folder: Path
    logs: Path
    port: int = field(default_factory=free_port)
    pristine: bool = False
    development: bool = False
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """The log of the latest start."""
        return self.logs / f"vllm-{self.starts}.log"

    @property
    def healthy(self) -> bool:
        return (
            self.process is not None
            and self.process.poll() is None
            and answers(f"{self.url}/health")
        )

    @property
    def pid(self) -> int:
        """Of the API server, which leads the session of all its processes."""
        assert self.process is not None
        return self.process.pid

    @property
    def core(self) -> psutil.Process:
        """The process of the engine core."""
        below = psutil.Process(self.pid).children(recursive=True)
        (found,) = [child for child in below if child.name().startswith("VLLM::EngineCor")]
        return found

    def begin(self, *, development: bool = False) -> None:
        """Start it, without waiting until it serves."""
        self.end()
        self.starts += 1
        venv = self.folder / "venv/bin"
        words = ["serve", self.folder / "model", "--served-model-name", MODEL, "--enforce-eager"]
        words += ["--host", "127.0.0.1", "--port", self.port, "--dtype", "float32"]
        words += ["--max-model-len", 1024, "--max-num-seqs", 8]
        env = {**os.environ, **OFFLINE, "PATH": f"{venv}{os.pathsep}{os.environ['PATH']}"}
        env["VLLM_SERVER_DEV_MODE"] = str(int(development))
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in (venv / "vllm", *words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        self.pristine = True
        self.development = development

    def ready(self) -> None:
        """Wait until it serves."""
        deadline = time.monotonic() + STARTUP
        while not self.healthy:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, f"no /health within {STARTUP:g} s"
            time.sleep(0.25)

    def serve(self, *, pristine: bool = False, development: bool = False) -> None:
        """Have it serve: as it is if that is as wanted, else started anew."""
        wanted = self.development == development and (self.pristine or not pristine)
        if not wanted or not self.healthy:
            self.begin(development=development)
            self.ready()

    def end(self) -> None:
        """End it and everything that it left behind."""
        if self.process is None:
            return
        for member in self.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self.process.wait(30)
        self.process = None

    def members(self) -> list[psutil.Process]:
        """All processes of its session: the server, its engine, and orphans of both."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.pid:
                    found.append(process)
        return found

    def reaped(self) -> int | None:
        """Its exit status, None while it lives; whoever asks also collects it."""
        assert self.process is not None
        return self.process.poll()

    @contextlib.contextmanager
    def hanging_core(self) -> Iterator[float]:
        """Stop the engine core as a hang would, and let it go on at the end. Gives when."""
        core = self.core
        self.pristine = False
        core.send_signal(signal.SIGSTOP)
        try:
            yield time.time()
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                core.send_signal(signal.SIGCONT)

    def post(self, path: str) -> int:
        """The HTTP status of a request without a body."""
        with contextlib.closing(self._connection()) as connection:
            connection.request("POST", path)
            return connection.getresponse().status

    def complete(self, tokens: int) -> int:
        """One completion of exactly so many tokens; its HTTP status, 0 where none came."""
        with contextlib.closing(self._connection()) as connection:
            try:
                answer = self._ask(connection, tokens, stream=False)
                answer.read()
            except (OSError, http.client.HTTPException):
                return 0
            return answer.status

    def leave_midway(self, tokens: int) -> None:
        """Ask for a stream and go away after its first words."""
        with (
            contextlib.closing(self._connection()) as connection,
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            self._ask(connection, tokens, stream=True).read(64)

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)

    @staticmethod
    def _ask(
        connection: http.client.HTTPConnection, tokens: int, *, stream: bool
    ) -> http.client.HTTPResponse:
        body = {"model": MODEL, "prompt": "the node is", "max_tokens": tokens}
        body |= {"ignore_eos": True, "stream": stream}
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        return connection.getresponse()


@contextlib.contextmanager
def load(server: RealVllm, clients: int, tokens: int, requests: int = 200) -> Iterator[list[int]]:
    """So many clients that ask one request after another, ``requests`` each at most.

    Gives the list to which the status of each answer is added. At the end no new request is made
    and those under way are waited for.
    """
    statuses: list[int] = []
    over = threading.Event()

    def ask() -> None:
        for _ in range(requests):
            if over.is_set():
                return
            status = server.complete(tokens)
            statuses.append(status)
            if status == 0:
                return  # nobody is there any more

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join(PATIENCE)


def abort(server: RealVllm, clients: int, tokens: int) -> None:
    """So many clients ask for long streams and all leave at about the same time."""
    threads = [
        threading.Thread(target=server.leave_midway, args=(tokens,), daemon=True)
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
