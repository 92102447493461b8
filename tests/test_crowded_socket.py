"""A person's word where many hold the control socket, or where another program answers."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import FakeDesk
from tests.support.servers import free_port
from vllm_watchdog.watchdog.api import server as server_module
from vllm_watchdog.watchdog.api.control import Commands
from vllm_watchdog.watchdog.api.doors import Rate, Token
from vllm_watchdog.watchdog.api.routes import Answer, Routes
from vllm_watchdog.watchdog.api.server import Server
from vllm_watchdog.watchdog.api.unix import UnixServer
from vllm_watchdog.watchdog.cli import run
from vllm_watchdog.watchdog.system import Files, RealClock


def test_a_pause_waits_until_others_have_let_go_of_the_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "CONNECTIONS", 2)
    monkeypatch.setattr(server_module, "PATIENCE", 0.5)
    desk = FakeDesk()
    doors = {
        "/api/v1/commands": Commands(desk, Token(lambda: None, Files()), Rate(RealClock(), 10, 1.0))
    }
    server = UnixServer(tmp_path / "c.sock", Routes(None), RealClock(), str, doors)  # type: ignore[arg-type]
    server.start()
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            holding = stack.enter_context(socket.socket(socket.AF_UNIX))
            holding.connect(str(tmp_path / "c.sock"))
        code = run(["pause", "--reason", "x", "--socket", str(tmp_path / "c.sock")])
    server.stop()

    assert (code, [command.verb for command in desk.commands]) == (0, ["pause"])
    assert capsys.readouterr().err == ""


def test_what_a_message_quotes_sends_nothing_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run(
        ["explain", "\x1b[2J\u202eevil", "--url", f"http://127.0.0.1:{free_port()}/\x1b]0;x\x07"]
    )

    told = capsys.readouterr().err
    assert code == 2
    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize("doc", [{}, [], None, 5, {"found": None}, [{"alert": None}]])
@pytest.mark.parametrize("command", ["explain", "status", "alerts", "history", "report"])
def test_another_programs_json_is_one_line(
    command: str, doc: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Strange(Routes):
        def __init__(self) -> None:
            """It has no views."""

        def answer(self, *_: Any) -> Answer:
            return Answer(200, json.dumps(doc).encode())

    server = Server(("127.0.0.1", 0), Strange(), RealClock(), str)
    server.start()
    host, port = server.address
    code = run([command, "--url", f"http://{host}:{port}"])
    server.stop()
    told = capsys.readouterr().err

    empty = doc == [] and command in ("alerts", "history")
    assert code == (0 if empty else 2)
    assert told.count("\n") == (0 if code == 0 and not told else 1)
