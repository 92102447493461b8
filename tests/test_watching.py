"""`status --watch`: a screen that fits, keeps up to date and ends clean."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.support.daemon import COMMAND, daemon
from tests.support.system import VirtualClock
from vllm_watchdog.watchdog.cli.watching import EVERY, healing_lines, screen, watch
from vllm_watchdog.watchdog.errors import WatchdogError

CARD = {
    "card": "0000:53:00", "vendor": "nvidia", "model": "H\x1b[2J200", "present": 1, "healthy": 0,
    "utilization": 0.5, "memory_used_bytes": 1, "memory_total_bytes": 4, "temperature": 61,
}  # fmt: skip
SERVICE = {"service": "chat", "probe": "failed", "running": 3, "waiting": 9, "mode": "act"}
STATUS: dict[str, Any] = {
    "instance": "node-1:9710", "mode": "act", "time": "2026-01-31T12:00:05Z", "firing": 1,
    "alerts": [{"alert": "EngineDead", "labels": {"service": "chat"}, "fired_at": "2026-01-31T12:00:00Z"}],
    "services": [SERVICE], "cards": [CARD],
    "outlets": [{"outlet": "elasticsearch", "lag": 12, "error": ""}],
    "collectors": [{"collector": "kernel_log", "state": "failed", "error": "no such file"},
                   {"collector": "nvidia_smi", "state": "ok", "error": None}],
}  # fmt: skip
HEALING: dict[str, Any] = {
    "paused": True,
    "acts": [{"act": "restart", "service": "chat", "case": "chat", "cause": "engine_dead",
              "since": "2026-01-31T12:00:01Z", "deadline": "2026-01-31T12:20:01Z"}],
    "budgets": [{"budget": "node", "left": 3, "most": 4}],
    "quarantined": [{"card": "0000:53:00", "why": "uncorrectable"}],
}  # fmt: skip


class Ending(VirtualClock):
    """A clock on which somebody presses Ctrl-C after so many pauses."""

    def __init__(self, pauses: int) -> None:
        super().__init__()
        self.left, self.slept = pauses, []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def console(width: int = 120, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None,
        legacy_windows=False,
    )  # fmt: skip


def shown(width: int = 120, height: int = 40, silent: str = "", **status: Any) -> list[str]:
    """The lines of one look."""
    paper = console(width, height)
    paper.print(screen(({**STATUS, **status}, HEALING), silent, width, height))
    stream = paper.file
    assert isinstance(stream, io.StringIO)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_gravest_stands_first() -> None:
    lines = shown()
    titles = [line.split("  ")[0] for line in lines]

    assert lines[0] == (
        "vllm-watchdog node-1:9710 · mode act · 1 firing · healing paused · node acts left 3/4 · "
        "12:00:05 UTC"
    )
    wanted = ["alerts", "acts under way", "services", "cards", "outlets", "collectors that fail"]
    assert [title for title in titles if title in wanted] == wanted


def test_a_collector_that_is_well_is_left_out() -> None:
    assert "nvidia_smi" not in "\n".join(shown())
    assert "kernel_log" in "\n".join(shown())


@pytest.mark.parametrize("width", [40, 60, 89, 90, 200])
@pytest.mark.parametrize("height", [6, 12, 40])
def test_a_look_fits_the_terminal(width: int, height: int) -> None:
    lines = shown(width, height, cards=[CARD] * 50, silent="no daemon answers there " * 9)

    assert len(lines) <= height
    assert max(map(len, lines)) <= width


def test_names_from_outside_cannot_move_the_cursor() -> None:
    text = "\n".join(shown(mode="a\x1b[2Jb\nc"))

    assert "\x1b" not in text
    assert r"H\x1b[2J200" in text


def test_it_looks_again_and_again_until_ctrl_c() -> None:
    looks = []
    clock = Ending(3)

    watch(lambda: looks.append(1) or (STATUS, HEALING), clock, console())

    assert (len(looks), clock.slept) == (3, [EVERY] * 3)


def test_the_last_word_stays_when_the_daemon_falls_silent() -> None:
    answers: list[Any] = [(STATUS, HEALING), WatchdogError("no daemon answers there")]
    paper = console()

    def look() -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    watch(look, Ending(2), paper)

    stream = paper.file
    assert isinstance(stream, io.StringIO)
    last = stream.getvalue().rpartition("no daemon answers there")[2]
    assert "EngineDead" in last


def test_a_real_terminal_shows_a_real_daemon_and_ctrl_c_ends_it_with_0(tmp_path: Path) -> None:
    with daemon(tmp_path, {}) as running:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*COMMAND, "status", "--watch", "--url", running.url],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd="/",
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
        )  # fmt: skip
        os.close(theirs)
        try:
            text = read_until(ours, "mode observe", 30)
            process.send_signal(signal.SIGINT)
            text += read_until(ours, "\x1b[?1049l", 30)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    assert "Traceback" not in text
    assert re.search(r"\x1b\[\?25h", text), "the cursor is shown again"


def read_until(terminal: int, wanted: str, patience: float) -> str:
    """What a program writes to its terminal up to a word."""
    text, end = "", time.monotonic() + patience
    while wanted not in text and time.monotonic() < end:
        if select.select([terminal], [], [], 0.2)[0]:
            try:
                text += os.read(terminal, 65536).decode(errors="replace")
            except OSError:  # the other side is gone
                break
    assert wanted in text, text
    return text


def test_status_says_what_waits_for_a_yes_and_what_holds_healing_back() -> None:
    waiting = {"id": "chat|X", "service": "chat", "act": "restart", "cause": "none"}
    healing = {
        **HEALING,
        "waiting": [waiting],
        "cases": [
            {"case": "embed", "service": "embed", "ended": "cancelled"},
            {"case": "chat", "service": "chat", "ended": None},
        ],
        "paused": [{"service": "chat", "until": "2026-01-31T14:00:00Z"}],
        "held_back": ["webhook: every alert (NodeMaintenance)"],
        "hold_file": True,
        "breaker": "three services at once",
        "quarantined": [{"card": "0000:53:00", "why": "uncorrectable", "by": "the daemon"}],
    }

    assert list(healing_lines(healing)) == [
        "waits for a yes: restart for chat (none): `vllm-watchdog approve 'chat|X'`",
        (
            "under way: restart for chat (engine_dead) since 2026-01-31T12:00:01Z, "
            "until 2026-01-31T12:20:01Z at the latest"
        ),
        "cancelled: nothing is done for embed until its alerts were over for 15 s",
        "paused: healing of chat until 2026-01-31T14:00:00Z",
        "held back: webhook: every alert (NodeMaintenance)",
        "the hold file is there: nothing is done until it is removed",
        "the breaker is open: three services at once; `vllm-watchdog resume` closes it",
        "quarantined: card 0000:53:00 by the daemon: uncorrectable",
    ]


def test_status_says_nothing_of_healing_where_all_is_as_usual() -> None:
    assert list(healing_lines({"waiting": [], "acts": [], "paused": [], "breaker": None})) == []
