#!/usr/bin/python3
"""A server that behaves as a vLLM server was measured to behave: ``vllm serve MODEL --port PORT``.

Two processes, the API server and below it ``VLLM::EngineCore``, joined by a socket. The core killed:
what is in flight gets 500, the API server ends within a second with exit status 0. The core
stopped: /health says 200, requests hang, the figures freeze. The API server killed: the core lives
on with the cards' memory. It is a program of its own (standard library only), installed under the
name ``vllm``; it computes nothing.

Environment: CONTROL, a folder in which the test lays words as files (``oom``, ``refuse``,
``waiting``, ``cache_use``, ``start_seconds``, ``die_at_start``); CARDS, the folder of the scripted tool (``nvidia_tool.py``);
CUDA_VISIBLE_DEVICES, the cards; MODEL, the checkpoint (``int8`` in its path needs less memory).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

STEP = 0.01  # seconds between two tokens of one request
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.00 GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process has "
    "78.00 GiB memory in use. Of the allocated memory 76.00 GiB is allocated by PyTorch, and "
    "0.40 GiB is reserved by PyTorch but unallocated."
)


def say(role: str, level: str, place: str, text: str) -> None:
    """A line of the log in vLLM's form."""
    now = time.strftime("%m-%d %H:%M:%S")
    sys.stdout.write(f"({role} pid={os.getpid()}) {level} {now} [{place}] {text}\n")
    sys.stdout.flush()


def word(name: str) -> str | None:
    """What the test laid down under a name, or None."""
    try:
        return (Path(os.environ["CONTROL"]) / name).read_text().strip()
    except (KeyError, OSError):
        return None


def out_of_memory() -> bool:
    """Whether the device is too small for the present checkpoint."""
    return word("oom") is not None and "int8" not in os.environ.get("MODEL", "")


def cards() -> list[str]:
    """The cards that this server may use, as the tool's addresses."""
    folder = Path(os.environ["CARDS"])
    known = json.loads((folder / "cards.json").read_text())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name for name in known if not known[name].get("lost")]
    found = []
    for part in filter(None, visible.split(",")):
        if part.isdigit():
            found.append(names[int(part)])
        else:
            found += [n for n in names if part in (known[n]["uuid"], n)]
    return found or names[:1]


# The engine's core


def core(descriptor: int) -> None:
    """One token a step for each request; EOF of the API server changes nothing."""
    ctypes.CDLL(None).prctl(15, b"VLLM::EngineCor", 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    held = cards()
    for card in held:
        folder = Path(os.environ["CARDS"]) / "holders" / card.replace("/", "_")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(os.getpid())).write_text(os.environ.get("MODEL", ""))
    say("EngineCore", "INFO", "core.py:100", f"Initializing a V1 LLM engine on {','.join(held)}")
    time.sleep(float(word("start_seconds") or 0.3))
    if word("die_at_start") is not None:
        say("EngineCore", "ERROR", "core.py:900", "EngineCore failed to start.")
        os._exit(1)
    link = socket.socket(fileno=descriptor)
    link.sendall(b"ready\n")
    link.setblocking(False)
    active: dict[str, int] = {}
    waiting = b""
    gone = False
    while True:
        if not gone:
            try:
                data = link.recv(65536)
                gone = not data
                waiting += data
            except BlockingIOError:
                pass
            except OSError:
                gone = True
        *lines, waiting = waiting.split(b"\n")
        for line in lines:
            name, tokens = line.decode().split()
            if out_of_memory():
                say("EngineCore", "ERROR", "core.py:710", OOM)
                say("EngineCore", "ERROR", "core.py:1120", "EngineCore encountered a fatal error.")
                os._exit(1)
            else:
                active[name] = int(tokens)
        for name in list(active):
            active[name] -= 1
            last = active[name] <= 0
            answer(link, f"{name} {'last' if last else 'token'}\n")
            if last:
                del active[name]
        if active:
            time.sleep(STEP)
        else:
            select.select([] if gone else [link], [], [], 1.0)


def answer(link: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        link.setblocking(True)
        link.sendall(text.encode())
    with contextlib.suppress(OSError):
        link.setblocking(False)


# The API server


class Engine:
    """The core's side as the API server sees it; ``counts`` are the figures of the page."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.link = ours
        self.lock = threading.Lock()
        self.condition = threading.Condition(self.lock)
        self.tokens: dict[str, list[str]] = {}
        self.counts: Counter[str] = Counter()
        self.ready = self.dead = self.stopping = False
        self.number = 0
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            os.set_inheritable(theirs.fileno(), True)
            os.execv(
                os.readlink("/proc/self/exe"),
                ["VLLM::EngineCore", "-I", "-S", os.path.abspath(sys.argv[0]), "--core",
                 str(theirs.fileno())],
            )  # fmt: skip
        theirs.close()
        self.outgoing: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self.listen, daemon=True).start()
        threading.Thread(target=self.send, daemon=True).start()

    def send(self) -> None:
        """Hand requests to the core; those that it does not take wait here, however many."""
        while True:
            text = self.outgoing.get()
            with contextlib.suppress(OSError):
                self.link.sendall(text.encode())

    def listen(self) -> None:
        waiting = b""
        while True:
            try:
                data = self.link.recv(65536)
            except OSError:
                data = b""
            if not data:
                self.died()
                return
            *lines, waiting = (waiting + data).split(b"\n")
            with self.condition:
                for line in lines:
                    self.take(line.decode())
                self.condition.notify_all()

    def take(self, line: str) -> None:
        if line == "ready":
            self.ready = True
            return
        name, what = line.split()
        self.counts["tokens"] += what != "error"
        self.counts["asked"] += what == "last"
        if name in self.tokens:
            self.tokens[name].append(what)

    def died(self) -> None:
        with self.condition:
            self.dead = True
            failed = list(self.tokens)
            for name in failed:
                self.tokens[name].append("dead")
            self.condition.notify_all()
        if self.stopping:
            return
        if not self.ready:
            say(
                "APIServer",
                "ERROR",
                "core_client.py:80",
                "Engine core initialization failed. See root cause above.",
            )
            os._exit(1)
        say(
            "APIServer",
            "ERROR",
            "core_client.py:600",
            "Engine core proc EngineCore died unexpectedly, shutting down client.",
        )
        say("APIServer", "ERROR", "async_llm.py:700", "AsyncLLM output_handler failed.")
        say(
            "APIServer",
            "ERROR",
            "async_llm.py:700",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
        )
        time.sleep(0.7)
        say("APIServer", "INFO", "launcher.py:120", "Shutting down FastAPI HTTP server.")
        os._exit(0)

    def ask(self, tokens: int) -> str:
        with self.condition:
            self.number += 1
            name = f"r{self.number}"
            self.tokens[name] = []
        self.outgoing.put(f"{name} {tokens}\n")
        return name

    def results(self, name: str):
        """Each token of a request as it comes; ends with last, error or dead."""
        done = 0
        while True:
            with self.condition:
                while len(self.tokens[name]) <= done and not self.dead:
                    self.condition.wait(5.0)
                fresh = self.tokens[name][done:] or ["dead"]
                done += len(fresh)
                if fresh[-1] != "token":
                    del self.tokens[name]
            yield from fresh
            if fresh[-1] != "token":
                return


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    instance = ""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/health":
            self.send(503 if self.engine.dead else 200, b"")
        elif path == "/metrics":
            self.send(200, self.page(), "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/v1/models":
            self.doc({"object": "list", "data": [{"id": "tiny", "object": "model"}]})
        elif path == "/openapi.json":
            self.doc(
                {"paths": {"/v1/completions": {"post": {}}, "/v1/chat/completions": {"post": {}}}}
            )
        else:
            self.doc({"detail": "Not Found"}, 404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        try:
            asked = json.loads(body)
        except ValueError:
            self.doc({"error": {"message": "no JSON"}}, 400)
            return
        if word("refuse") is not None:
            self.doc({"error": {"message": "Internal Server Error"}}, 500)
            return
        name = self.engine.ask(int(asked.get("max_tokens") or 16))
        self.engine.counts["running"] += 1
        try:
            if asked.get("stream"):
                self.stream(name)
            else:
                self.whole(name)
        finally:
            self.engine.counts["running"] -= 1

    def whole(self, name: str) -> None:
        results = list(self.engine.results(name))
        if results[-1] == "dead":
            self.doc(
                {
                    "error": {
                        "message": "EngineCore encountered an issue.",
                        "type": "EngineDeadError",
                    }
                },
                500,
            )
        elif results[-1] == "error":
            self.doc(
                {"error": {"message": "CUDA out of memory", "type": "InternalServerError"}}, 500
            )
        else:
            choice = {"index": 0, "text": "4" * len(results), "finish_reason": "length",
                      "message": {"role": "assistant", "content": "4"}}  # fmt: skip
            self.doc(
                {"id": "cmpl-1", "object": "text_completion", "model": "tiny", "choices": [choice]}
            )

    def stream(self, name: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("X-Instance", self.instance)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for result in self.engine.results(name):
            if result in ("dead", "error"):
                self.chunk(b'data: {"error": {"message": "EngineDeadError"}}\n\n')
                break
            self.chunk(b'data: {"choices": [{"index": 0, "text": "4"}]}\n\n')
        else:
            self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")
        self.engine.counts["2xx"] += 1

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def page(self) -> bytes:
        counts, m = self.engine.counts, '{model_name="tiny",engine="0"}'
        http = 'handler="/v1/completions",method="POST"'
        return (
            f"vllm:num_requests_running{m} {counts['running']}\n"
            f"vllm:num_requests_waiting{m} {word('waiting') or 0}\n"
            f"vllm:kv_cache_usage_perc{m} {word('cache_use') or 0.25}\n"
            f"vllm:generation_tokens_total{m} {counts['tokens']}\n"
            f"vllm:prompt_tokens_total{m} {counts['asked']}\n"
            f'http_requests_total{{{http},status="2xx"}} {counts["2xx"]}\n'
            f'http_requests_total{{{http},status="5xx"}} {counts["5xx"]}\n'
            f'http_requests_total{{{http},status="4xx"}} {counts["4xx"]}\n'
        ).encode()

    def doc(self, value: object, status: int = 200) -> None:
        if self.command == "POST":
            self.engine.counts[f"{status // 100}xx"] += 1
        self.send(status, json.dumps(value).encode(), "application/json")

    def send(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Instance", self.instance)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """No line a request."""


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_: object) -> None:
        """Clients come and go."""


def serve(words: list[str]) -> None:
    options = dict(zip(words[1::2], words[2::2], strict=False))
    port = int(options["--port"])
    say("APIServer", "INFO", "api_server.py:1900", f"vLLM API server version 0.32.0 on port {port}")
    engine = Engine()

    def end(*_: object) -> None:
        engine.stopping = True
        say("APIServer", "INFO", "launcher.py:100", "Shutting down")
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine.pid, signal.SIGTERM)
        if word("slow_stop") is None:
            os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while not engine.ready:
        time.sleep(0.01)
    Handler.engine, Handler.instance = engine, os.environ.get("INSTANCE", str(port))
    listener = Listener((options.get("--host", "127.0.0.1"), port), Handler)
    say("APIServer", "INFO", "api_server.py:1950", "Application startup complete.")
    listener.serve_forever(0.1)


if __name__ == "__main__":
    if sys.argv[1] == "--core":
        core(int(sys.argv[2]))
    else:
        serve(sys.argv[2:])
