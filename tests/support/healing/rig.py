"""A whole node in a machine of its own: servers under a real systemd, a real nginx, the daemon's unit.

``chat`` (card 53, standby on 64, spares) and ``other`` (card c1) run behind one nginx; the daemon
runs as its own user with the shipped unit, rule and drop-in. A test injects faults and reads what
came of them from the journal, the units and the users' own log.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support import peers
from tests.support.machines import Machine, hidden_paths, machine
from tests.support.nginx import require_njs

REPOSITORY = Path(__file__).parents[3]
SYSTEMD = REPOSITORY / "deploy" / "systemd"
HEALING = Path(__file__).parent
STATE = "/var/lib/vllm-watchdog"
UNIT = "vllm-watchdog.service"
OWN, STANDBY, SPARE, THIRD, OTHERS = (f"0000:{bus}:00" for bus in ("53", "64", "81", "82", "c1"))
FRONT, OTHER_FRONT, FAR_FRONT = (f"http://127.0.0.1:{port}" for port in (80, 81, 82))
FAR = "10.9.0.2"
PORTS = {"chat": 8101, "chat-standby": 8102, "other": 8104}
SERVERS = {"chat": OWN, "chat-standby": STANDBY, "other": OTHERS}
XID = "NVRM: Xid (PCI:{card}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."

NGINX = """user www-data;
worker_processes 2;
worker_shutdown_timeout 120s;
pid /run/nginx.pid;
error_log /var/log/nginx/error.log;
include /etc/nginx/modules-enabled/*.conf;
events { worker_connections 8192; }
http {
    log_format users '$msec|$request_time|$status|$http_x_number|$upstream_addr|'
                     '$upstream_connect_time|$upstream_status';
    access_log /var/log/nginx/users.log users;
    include /etc/nginx/conf.d/*.conf;
}
"""


def front(name: str, url: str) -> dict[str, Any]:
    """The front of a service, reloaded by its unit."""
    return {
        "nginx": f"/etc/nginx/vllm-watchdog/{name}.conf",
        "url": url,
        "reload": ["systemctl", "--no-ask-password", "reload", "nginx.service"],
    }


def probe(**more: Any) -> dict[str, Any]:
    """A probe in a hurry."""
    return {"kind": "completion", "interval": "1s", "timeout": "3s", **more}


def chat(**more: Any) -> dict[str, Any]:
    """The service with all that healing may use; ``more`` replaces keys, None takes them out."""
    whole = {
        "url": f"http://127.0.0.1:{PORTS['chat']}",
        "cards": [OWN],
        "spares": [SPARE],
        "standby": {
            "url": f"http://127.0.0.1:{PORTS['chat-standby']}",
            "manager": {"systemd": "vllm@chat-standby.service"},
            "cards": [STANDBY],
        },
        "manager": {"systemd": "vllm@chat.service"},
        "profiles": {each: f"/etc/vllm/{each}.profile" for each in ("fp16", "int8")},
        "start_profile": "fp16",
        "front": front("chat", FRONT),
        "probe": probe(),
        "logs": ["/var/log/vllm/chat.log"],
        **more,
    }
    return {key: value for key, value in whole.items() if value is not None}


def other() -> dict[str, Any]:
    """A neighbour behind the same nginx that nothing ails."""
    return {
        "url": f"http://127.0.0.1:{PORTS['other']}",
        "cards": [OTHERS],
        "manager": {"systemd": "vllm@other.service"},
        "front": front("other", OTHER_FRONT),
        "probe": probe(),
    }


def far() -> dict[str, Any]:
    """A service whose server is on another node."""
    return {
        "url": f"http://{FAR}:8000",
        "front": front("far", FAR_FRONT),
        "probe": probe(),
        "needs": ["node-2"],
    }


def configuration(services: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A node that acts, and looks often."""
    return {
        "mode": "act",
        "interval": "500ms",
        "labels": {"job": "vllm-watchdog", "instance": "node-1:9710"},
        "collectors": {
            "kernel_log": {"files": ["/var/log/kern.log"]},
            "ascend_log": {"enabled": False},
            "nvidia_smi": {"timeout": "2s"},
            "peers": {"interval": "1s"},
        },
        "peers": {"node-2": {"host": FAR, "port": 9}},
        "services": dict(services),
        "guard": {"cooldown": "1s", "attempts": 9, "per": "1h", "node": "99/h"},
        **more,
    }


def prepare(root: Path) -> None:
    """Programs, units, the daemon's user and rights, nginx, cards: all that stands before a boot."""
    program = Path(sys.executable).parent / "vllm-watchdog"
    for needed in (program, Path(sys.executable).resolve(), REPOSITORY / "watchdog"):
        for folder in needed.parents:
            inside = root / str(folder).lstrip("/")
            inside.chmod(inside.stat().st_mode | 0o055)
    (root / "usr/bin/vllm-watchdog").symlink_to(program)
    _servers(root)
    _daemon(root)
    (root / "etc/nginx/nginx.conf").write_text(NGINX)
    for old in (root / "etc/nginx/conf.d").iterdir():
        old.unlink()


def _servers(root: Path) -> None:
    units, own = root / "etc/systemd/system", root / "etc/vllm"
    own.mkdir()
    shutil.copy(SYSTEMD / "vllm@.service", units)
    (units / "vllm@.service.d").mkdir()
    log = "[Service]\nStandardOutput=append:/var/log/vllm/%i.log\nStandardError=inherit\n"
    (units / "vllm@.service.d/log.conf").write_text(log)
    (root / "var/log/vllm").mkdir()
    _install(HEALING / "engine_server.py", root / "usr/bin/vllm")
    cards = root / "srv/cards"
    for folder in ("cards/holders", "clients", *(f"control/{name}" for name in SERVERS)):
        (root / "srv" / folder).mkdir(parents=True)
        (root / "srv" / folder).chmod(0o777)
    cards.chmod(0o777)
    _install(HEALING / "nvidia_tool.py", cards / "nvidia-smi")
    (root / "usr/bin/nvidia-smi").unlink(missing_ok=True)
    (root / "usr/bin/nvidia-smi").symlink_to("/srv/cards/nvidia-smi")
    for name, card in SERVERS.items():
        (own / f"{name}.env").write_text(
            f"MODEL=/models/fp16\nPORT={PORTS[name]}\nARGS=\nCONTROL=/srv/control/{name}\n"
            f"CARDS=/srv/cards\nINSTANCE={name}\n"
            f"CUDA_VISIBLE_DEVICES={list(cards_file()).index(card)}\n"
        )
    for name, size in (("fp16", 400), ("int8", 200)):
        (own / f"{name}.profile").write_text(f"MODEL=/models/{name}\n")
        model = root / "models" / name
        model.mkdir(parents=True)
        (model / "config.json").write_text('{"quantization_config": {"quant_method": "x"}}')
        (model / "model.safetensors").write_bytes(b"x" * size)


def cards_file() -> dict[str, dict[str, Any]]:
    """The cards of the node."""
    return {
        card: {"uuid": f"GPU-{number:08x}-1111-2222-3333-444455556666", "load": 75}
        for number, card in enumerate((OWN, STANDBY, SPARE, THIRD, OTHERS))
    }


def _daemon(root: Path) -> None:
    sysusers, units = root / "usr/lib/sysusers.d", root / "etc/systemd/system"
    shutil.copy(SYSTEMD / "vllm-watchdog.sysusers.conf", sysusers / "vllm-watchdog.conf")
    (sysusers / "vllm.conf").write_text("u vllm - vllm\n")
    subprocess.run(
        ["systemd-sysusers", f"--root={root}", "vllm-watchdog.conf", "vllm.conf"], check=True
    )
    shutil.copy(SYSTEMD / UNIT, units)
    (units / f"{UNIT}.d").mkdir()
    shutil.copy(SYSTEMD / "acting.conf", units / f"{UNIT}.d")
    shown = "".join(f"BindReadOnlyPaths={path}\n" for path in hidden_paths())
    (units / f"{UNIT}.d/test.conf").write_text(f"[Service]\nRestartSec=100ms\n{shown}")
    rules = root / "etc/polkit-1/rules.d"
    rules.mkdir(parents=True, exist_ok=True)
    rule = (SYSTEMD / "vllm-watchdog.rules").read_text()
    rule = rule.replace('"vllm@deepseek.service",', '"vllm@chat.service", "vllm@other.service",')
    rule = rule.replace("vllm@deepseek-", "vllm@chat-").replace('// "nginx.', '"nginx.')
    (rules / "50-vllm-watchdog.rules").write_text(rule)
    (root / "etc/vllm-watchdog").mkdir(exist_ok=True)


def _install(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    shutil.copy(source, target)
    target.chmod(0o755)


@dataclass(frozen=True)
class Act:
    """An act as the journal has it; ``steps`` name -> state, ``times`` name -> Unix seconds."""

    id: str
    remediation: str
    service: str
    cause: str
    status: str
    detail: str
    steps: Mapping[str, str]
    times: Mapping[str, float]
    moved_at: float | None


@dataclass(frozen=True)
class Answered:
    """What one request got; ``number`` as the front logs it."""

    number: str
    status: int
    headers: Mapping[str, str]
    body: str


@dataclass
class Users:
    """Clients of one front; ``lines`` as clients.py tells them."""

    process: subprocess.Popen[bytes]
    out: Path
    begun: float = field(default_factory=time.time)

    def lines(self) -> list[dict[str, Any]]:
        text = self.out.read_text() if self.out.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]

    def wait(self, timeout: float = 90.0) -> list[dict[str, Any]]:
        """Their log once they are through."""
        self.process.wait(timeout)
        return self.lines()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


@dataclass
class Rig:
    """The booted node."""

    machine: Machine
    users: list[Users] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.machine.root

    def run(self, *argv: str | Path, timeout: float = 60.0) -> str:
        """A command inside; its output. Its exit status is no matter."""
        return self.machine.run(*argv, timeout=timeout).stdout

    def must(self, *argv: str | Path) -> str:
        """A command inside that has to succeed."""
        done = self.machine.run(*argv)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout

    def path(self, inside: str) -> Path:
        """A file of the node as seen from here."""
        return self.root / inside.lstrip("/")

    # Its life

    def fresh(self) -> None:
        """All as after a boot: no daemon, no state, no faults, servers serving, front as set up."""
        self.stop_users()
        self.run("systemctl", "stop", UNIT)
        self.run("systemctl", "reset-failed", UNIT)
        for word in self.path("/srv/control").glob("*/*"):
            word.unlink()
        for name in ("hang", "calls.log"):
            self.path(f"/srv/cards/{name}").unlink(missing_ok=True)
        self.path("/srv/cards/cards.json").write_text(json.dumps(cards_file()))
        self.run("rm", "-rf", STATE, "/etc/nginx/vllm-watchdog", "/etc/nginx/conf.d/broken.conf")
        self.run("sh", "-c", "rm -rf /run/systemd/system/vllm@*.d; systemctl daemon-reload")
        for name in SERVERS:
            unit = f"vllm@{name}.service"
            self.run("systemctl", "kill", "--signal=SIGKILL", unit)
            self.run("systemctl", "stop", unit)
            self.run("systemctl", "reset-failed", unit)
        for pid in self.run("pgrep", "-x", "VLLM::EngineCor").split():
            self.run("kill", "-9", pid)
        self.link("up")
        owner = ["-o", "vllm-watchdog", "-g", "vllm-watchdog"]
        self.must("install", "-d", *owner, STATE, "/etc/nginx/vllm-watchdog")
        for log in ("/var/log/kern.log", *(f"/var/log/vllm/{name}.log" for name in SERVERS)):
            self.path(log).write_text("")
        self.path("/var/log/kern.log").chmod(0o644)

    def serve(self, services: Mapping[str, Any], *, record: bool = True, **more: Any) -> None:
        """The servers and nginx of these services come up, then the daemon; all answer."""
        doc = configuration(services, **more)
        self.path("/etc/vllm-watchdog/config.yaml").write_text(yaml.safe_dump(doc))
        options = "OPTIONS=--config /etc/vllm-watchdog/config.yaml"
        options += f" --record {STATE}/recording" if record else ""
        self.path("/etc/vllm-watchdog/environment").write_text(options + "\n")
        names = [name for name in SERVERS if self._wanted(name, services)]
        for name in names:
            self.must("systemctl", "start", f"vllm@{name}.service")
        for old in self.path("/etc/nginx/conf.d").iterdir():
            old.unlink()
        for name, service in services.items():
            if "front" in service:
                self.must(
                    "vllm-watchdog", "setup", "nginx", name, "--config",
                    "/etc/vllm-watchdog/config.yaml",
                )  # fmt: skip
        self.must("systemctl", "restart", "nginx.service")
        self.must("systemctl", "start", UNIT)
        self.warm(services)

    def keep(self, name: str) -> None:
        """Where RECORDINGS names a folder: the daemon's recording and journal, for a look later."""
        folder = os.environ.get("RECORDINGS")
        if not folder or not self.path(f"{STATE}/recording").exists():
            return
        self.stop_users()
        self.run("systemctl", "stop", UNIT)
        target = Path(folder) / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.path(f"{STATE}/recording"), target)
        shutil.copy(self.path(f"{STATE}/journal.db"), target)

    def _wanted(self, name: str, services: Mapping[str, Any]) -> bool:
        service, _, aside = name.partition("-")
        return service in services and (not aside or "standby" in services[service])

    def warm(self, services: Mapping[str, Any]) -> None:
        """Wait until the daemon has seen each instance answer."""
        watched = set(services)
        watched |= {f"{n}/standby" for n, each in services.items() if "standby" in each}

        def seen() -> bool:
            page = self.metrics()
            return all(f'service_probe_success{{service="{name}"}} 1' in page for name in watched)

        self.wait_for(seen, 30.0, "probes that succeed")

    def metrics(self) -> str:
        """The daemon's page, over its own loopback."""
        return self.get("http://127.0.0.1:9710/metrics")

    def get(self, url: str) -> str:
        """A page as the node itself gets it; empty where nothing answers."""
        return self.run("curl", "-s", "--max-time", "5", url)

    def wait_for(self, check: Callable[[], Any], within: float, what: str) -> Any:
        """Poll until ``check`` gives something true, and give it."""
        deadline = time.monotonic() + within
        while not (found := check()):
            assert time.monotonic() < deadline, f"not within {within:g} s: {what}\n{self.told()}"
            time.sleep(0.1)
        return found

    def told(self) -> str:
        """What the daemon journaled and logged: for whoever reads a failure."""
        lines = [f"{e['time']:.2f} {e['kind']}: {e['message']}" for e in self.events()[-60:]]
        log = self.run("journalctl", "-u", UNIT, "-n", "15", "-o", "cat")
        return "\n".join([*lines, "--", log])

    # Faults

    def cards(self, card: str, **marks: Any) -> None:
        """Mark a card as the tool shows it (``lost=True``)."""
        path = self.path("/srv/cards/cards.json")
        known = json.loads(path.read_text())
        known[card].update(marks)
        aside = path.with_suffix(".new")
        aside.write_text(json.dumps(known))
        aside.chmod(0o644)
        aside.replace(path)

    def hang_tool(self) -> None:
        """Every later call of the cards' tool hangs."""
        self.path("/srv/cards/hang").touch()

    def kernel(self, text: str) -> None:
        """A line of the kernel's log, as a syslog daemon keeps it."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        with self.path("/var/log/kern.log").open("a") as log:
            log.write(f"{stamp} node kernel: {text}\n")

    def word(self, name: str, word: str, text: str = "") -> None:
        """Lay a word down for a server (see engine_server.py)."""
        self.path(f"/srv/control/{name}/{word}").write_text(text)

    def signal(self, name: str, who: str, sign: str) -> None:
        """A signal to a server's ``api`` or ``engine``."""
        pid = self.pid(name)
        if who == "engine":
            pid = self.must("pgrep", "-P", pid, "-x", "VLLM::EngineCor").split()[0]
        self.must("kill", f"-{sign}", pid)

    def pid(self, name: str) -> str:
        """The main process of a server's unit."""
        return self.machine.show(f"vllm@{name}.service", "MainPID")

    def drop_in(self, name: str, text: str) -> None:
        """Other settings for one unit, as an operator has them; it takes them at its next start."""
        folder = f"/run/systemd/system/vllm@{name}.service.d"
        script = 'mkdir -p "$1"; printf "%s" "$2" >"$1/test.conf"; systemctl daemon-reload'
        self.must("sh", "-c", script, "sh", folder, text)

    def link(self, how: str) -> None:
        """The way to the other node: ``up`` or ``down``."""
        self.run("ip", "-n", "far", "link", "set", "far1", how)

    def far_server(self) -> None:
        """A server on the other node."""
        self.run("systemctl", "stop", "far-server.service")
        argv = [
            "systemd-run", "--unit=far-server", "--collect", "--uid=vllm",
            "-p", "NetworkNamespacePath=/run/netns/far",
            "--setenv=CARDS=/srv/cards", "--setenv=CONTROL=/srv/control/other",
            "--setenv=CUDA_VISIBLE_DEVICES=3", "--setenv=INSTANCE=far",
            "/usr/bin/vllm", "serve", "tiny", "--port", "8000", "--host", FAR,
        ]  # fmt: skip
        self.must(*argv)
        self.wait_for(lambda: self.get(f"http://{FAR}:8000/v1/models"), 20.0, "the far server")

    # What came of it

    def _rows(self, sql: str) -> list[sqlite3.Row]:
        path = self.path(f"{STATE}/journal.db")
        if not path.exists():
            return []
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)
        try:
            connection.row_factory = sqlite3.Row
            return connection.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []
        finally:
            connection.close()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The journal's events of these kinds (all without one), oldest first."""
        found = []
        for row in self._rows("SELECT * FROM events ORDER BY seq"):
            if not kinds or row["kind"] in kinds:
                more = {key: json.loads(row[key]) for key in ("labels", "fields")}
                found.append({**dict(row), **more})
        return found

    def acts(self) -> list[Act]:
        """All acts, oldest first."""
        steps: dict[str, list[sqlite3.Row]] = {}
        for row in self._rows("SELECT * FROM steps ORDER BY at, rowid"):
            steps.setdefault(row["act"], []).append(row)
        found = []
        for row in self._rows("SELECT * FROM acts ORDER BY began"):
            request, own = json.loads(row["doc"])["request"], steps.get(row["id"], [])
            moved = [step["at"] for step in own if step["moved"] and step["state"] == "done"]
            found.append(
                Act(
                    row["id"], request["remediation"], request["service"], request["cause"],
                    row["status"], row["detail"], {s["name"]: s["state"] for s in own},
                    {s["name"]: s["at"] for s in own}, min(moved, default=None),
                )
            )  # fmt: skip
        return found

    def ended(self, remediation: str, within: float = 60.0) -> Act:
        """The first act of a kind, once it ended."""

        def over() -> Act | None:
            return next((a for a in self.acts() if a.remediation == remediation and a.status), None)

        found: Act = self.wait_for(over, within, f"the end of {remediation}")
        return found

    def include(self, name: str = "chat") -> str:
        """Where the front sends requests: the port in its include, ``down`` where it is drained."""
        text = self.path(f"/etc/nginx/vllm-watchdog/{name}.conf").read_text()
        line = next(line for line in text.splitlines() if line.startswith("server "))
        return "down" if " down" in line else line.rpartition(":")[2].rstrip(";")

    def holders(self, card: str) -> set[str]:
        """The processes that hold a card's memory."""
        folder = self.path(f"/srv/cards/holders/{card}")
        pids = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
        return {pid for pid in pids if self.machine.run("kill", "-0", pid).returncode == 0}

    def engines(self, name: str) -> set[str]:
        """The engine processes of a server's unit."""
        return set(self.run("pgrep", "-P", self.pid(name), "-x", "VLLM::EngineCor").split())

    def starts(self, name: str) -> int:
        """How often a server was begun, by its own log."""
        path = self.path(f"/var/log/vllm/{name}.log")
        return path.read_text().count("vLLM API server version") if path.exists() else 0

    def outside(self, pid: str) -> int:
        """The pid, as seen from here, of a process inside."""
        for status in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError):
                line = next(x for x in status.read_text().splitlines() if x.startswith("NSpid:"))
                if line.split()[1:][-1:] == [pid] and len(line.split()) > 2:
                    return int(status.parent.name)
        raise AssertionError(f"no process {pid} inside")

    # Users

    def post(self, url: str, body: Mapping[str, Any]) -> Answered:
        """One completion by a front's way."""
        number = f"one-{time.monotonic_ns()}"
        text = self.run(
            "curl", "-s", "-i", "--max-time", "15", f"{url}/v1/completions",
            "-H", "Content-Type: application/json", "-H", f"X-Number: {number}",
            "-d", json.dumps({"model": "tiny", "max_tokens": 2, **body}),
        )  # fmt: skip
        head, _, rest = text.replace("\r\n", "\n").partition("\n\n")
        first, *lines = head.splitlines() or [""]
        pairs = [line.partition(": ") for line in lines]
        status = int(first.split()[1]) if first else 0
        return Answered(number, status, {key.lower(): value for key, _, value in pairs}, rest)

    def clients(
        self, url: str, rate: float, seconds: float, streams: int = 0, name: str = "users"
    ) -> Users:
        """Users of a front from now on."""
        out = self.path(f"/srv/clients/{name}-{len(self.users)}.jsonl")
        out.unlink(missing_ok=True)
        inside = f"/srv/clients/{out.name}"
        enter = ["nsenter", "-t", str(self.machine.leader), "-m", "-n", "-p", "--"]
        words = [url, str(rate), str(seconds), inside, str(streams)]
        clients = REPOSITORY / "tests/support/healing/clients.py"
        process = subprocess.Popen([*enter, sys.executable, "-I", "-S", clients, *words])
        self.users.append(Users(process, out))
        return self.users[-1]

    def stop_users(self) -> None:
        for each in self.users:
            each.stop()
        self.users.clear()

    def front_log(self) -> dict[str, dict[str, str]]:
        """What nginx itself logged of each numbered request, by number."""
        names = ("msec", "seconds", "status", "number", "upstream", "connect", "answer")
        found = {}
        for line in self.path("/var/log/nginx/users.log").read_text().splitlines():
            fields = dict(zip(names, line.split("|"), strict=False))
            if fields.get("number", "-") != "-":
                found[fields["number"]] = fields
        return found

    def sent_to(self, port: int) -> list[float]:
        """When nginx began each request that it sent to an instance, in order."""
        seen = self.front_log().values()
        return sorted(
            float(each["msec"]) - float(each["seconds"])
            for each in seen
            if f":{port}" in each["upstream"]
        )

    def failed_outside(self, lines: Sequence[Mapping[str, Any]], sick: int, moved: float | None,
                       *, limit: float = 10.0, grace: float = 0.5) -> list[Mapping[str, Any]]:  # fmt: skip
        """Requests that failed or took longer than ``limit`` seconds though they had not been sent
        to the sick instance before the switch; one that could not be connected counts. ``grace``:
        seconds from the switch's end until nginx's new workers have taken over."""
        log, found = self.front_log(), []
        for line in lines:
            if "number" not in line or (line["status"] == 200 and line["seconds"] <= limit):
                continue
            seen = log.get(line["number"])
            upstream = seen["upstream"] if seen else ""
            inside = upstream.endswith(f":{sick}") and seen is not None and seen["connect"] != "-"
            early = moved is None or line["at"] <= moved + grace
            if seen is None:  # nginx had not answered when the client gave up
                inside = early and line["seconds"] > limit
            if not (inside and early):
                found.append({**line, "front": seen})
        return found


@contextlib.contextmanager
def rig(folder: Path) -> Iterator[Rig]:
    """Boot the node; it is gone afterwards. Skips where it cannot be."""
    peers.require("nginx")
    require_njs()
    if os.geteuid() != 0:
        import pytest

        pytest.skip("booting a machine needs root")
    with machine(folder, prepare) as running:
        made = Rig(running)
        far_script = (
            "ip netns add far; ip link add far0 type veth peer name far1 netns far; "
            "ip addr add 10.9.0.1/24 dev far0; ip link set far0 up; "
            f"ip -n far addr add {FAR}/24 dev far1; ip -n far link set far1 up; "
            "ip -n far link set lo up"
        )
        made.must("sh", "-ec", far_script)
        try:
            yield made
        finally:
            made.stop_users()
