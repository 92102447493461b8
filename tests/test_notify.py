"""What the service manager hears, over a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_watchdog.watchdog.system import Notifier


@pytest.fixture(params=["file", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    address = str(tmp_path / "notify") if request.param == "file" else f"@watchdog-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address.replace("@", "\0"))
        heard.settimeout(10)
        yield address, heard


def test_the_manager_hears_each_stage(manager: tuple[str, socket.socket]) -> None:
    address, heard = manager
    notifier = Notifier.from_environment({"NOTIFY_SOCKET": address})
    notifier.ready()
    notifier.alive("3 cards,\n1 alert")
    notifier.reloading()
    notifier.stopping()

    assert heard.recv(1000) == b"READY=1"
    assert heard.recv(1000) == b"WATCHDOG=1\nSTATUS=3 cards, 1 alert"
    assert heard.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert heard.recv(1000) == b"STOPPING=1"


def test_without_a_manager_nobody_is_told() -> None:
    notifier = Notifier.from_environment({})
    notifier.ready()
    notifier.alive("fine")

    assert notifier.interval == 0.0


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "gone")).alive("fine")


def test_the_watchdog_interval_counts_only_for_this_process() -> None:
    own = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}
    other = {"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}

    assert Notifier.from_environment(own).interval == 30.0
    assert Notifier.from_environment(other).interval == 0.0


def test_children_do_not_inherit_the_managers_socket() -> None:
    environ = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    Notifier.from_environment(environ)

    assert environ == {"PATH": "/bin"}
