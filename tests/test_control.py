"""The control socket and its HTTP door: who may give commands, which are taken, what is said."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.desk import FAILOVER, NOW, OTHER, RESTART, FakeDesk
from vllm_watchdog.watchdog.api import server as server_module
from vllm_watchdog.watchdog.api.asking import Refused, commands_of
from vllm_watchdog.watchdog.api.control import MAX_BODY, PATH, Commands
from vllm_watchdog.watchdog.api.doors import Caller, Rate, Token
from vllm_watchdog.watchdog.api.routes import Routes
from vllm_watchdog.watchdog.api.server import Server
from vllm_watchdog.watchdog.api.unix import RUN, UnixServer, places
from vllm_watchdog.watchdog.system import Files, RealClock, RealHttp, Response
from vllm_watchdog.watchdog.web import unix_url

JSON = {"Content-Type": "application/json"}


class Views:
    """Nothing of it is asked for here."""

    def alerts(self) -> list[Any]:
        return []

    def status(self) -> dict[str, Any]:
        return {"mode": "act"}


class Socket:
    """A control socket in a folder, and its desk."""

    def __init__(self, path: Path, desk: FakeDesk) -> None:
        self.path, self.desk = path, desk
        self.reports: list[str] = []
        doors = {PATH: Commands(desk, Token(lambda: None, Files()), Rate(RealClock(), 10, 1.0))}
        self.server = UnixServer(path, Routes(Views()), RealClock(), self.reports.append, doors)  # type: ignore[arg-type]
        self.server.start()

    def ask(self, body: Any = None, headers: Mapping[str, str] = JSON) -> tuple[int, Any]:
        """Status and document of GET, or of POST with this body."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        answer = RealHttp().request(
            "GET" if body is None else "POST",
            unix_url(self.path, PATH),
            timeout=10,
            headers=dict(headers),
            body=data,
        )
        return answer.status, json.loads(answer.body)

    def give(self, verb: str, **args: Any) -> tuple[int, Any]:
        return self.ask({"verb": verb, "args": args})


@pytest.fixture
def desk() -> FakeDesk:
    return FakeDesk()


@pytest.fixture
def control(tmp_path: Path, desk: FakeDesk) -> Iterator[Socket]:
    made = Socket(tmp_path / "c.sock", desk)
    yield made
    made.server.stop()


def test_the_kernel_says_who_gave_a_command(control: Socket) -> None:
    control.give("pause", reason="update")

    (command,) = control.desk.commands
    assert f"uid {os.geteuid()}, pid {os.getpid()})" in command.who


def test_the_socket_is_for_its_user_and_group(control: Socket) -> None:
    assert control.path.stat().st_mode & 0o777 == 0o660


def test_a_pause_says_until_when_and_that_the_act_under_way_is_stopped(tmp_path: Path) -> None:
    socket_ = Socket(tmp_path / "c.sock", FakeDesk(acts=(RESTART,)))
    try:
        status, doc = socket_.give("pause", service="chat", reason="update", **{"for": "10m"})
    finally:
        socket_.server.stop()

    assert status == 200
    assert doc["done"] == [
        "healing of chat is paused until 2023-11-14T22:23:20.000Z; watching goes on",
        "restart of chat is stopped after its present step",
    ]
    assert doc["acts"][0]["act"] == "restart"


def test_a_command_that_no_tick_hears_says_so(control: Socket) -> None:
    control.desk.hears = False
    status, doc = control.give("pause", reason="update")

    assert (status, doc["heard"]) == (200, False)
    assert "late" in doc["done"][0]


def test_a_command_that_cannot_be_passed_on_is_503(control: Socket) -> None:
    control.desk.fault = "1000 commands wait already: try again later"
    status, doc = control.give("pause", reason="update")

    assert (status, doc["error"]) == (503, control.desk.fault)


def test_the_standing_is_told_without_a_command(control: Socket) -> None:
    control.desk.now = FakeDesk(waiting=(FAILOVER,), quarantined={"npu3": "card_lost"}).now
    status, doc = control.ask()

    assert status == 200
    assert doc["quarantined"] == {"npu3": "card_lost"}
    assert [(w["id"], w["act"], w["also"]) for w in doc["waiting"]] == [
        ("chat", "card_failover", ["cooling down for another 9 s"])
    ]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "no JSON"),
        (b"[" * 10_000, "no JSON"),
        (b"\xff\xfe", "no JSON"),
        ([], "send"),
        ({"verb": 3}, "send"),
        ({"verb": "pause", "args": []}, "args"),
        ({"verb": "pause", "args": {}, "more": 1}, "args"),
        ({"verb": "paus", "args": {}}, "did you mean 'pause'"),
        ({"verb": "journal", "args": {}}, "no such command"),
        ({"verb": "silence", "args": {}}, "no such command"),
    ],
)
def test_a_body_that_cannot_be_read_is_400_in_one_line(
    control: Socket, body: Any, told: str
) -> None:
    status, doc = control.ask(body)

    assert status == 400
    assert told in doc["error"]
    assert control.desk.commands == []


def test_a_body_of_another_kind_is_refused(control: Socket) -> None:
    status, doc = control.ask({"verb": "resume"}, {"Content-Type": "text/plain"})

    assert (status, "application/json" in doc["error"]) == (400, True)


def test_a_body_that_is_too_large_is_refused_unread(control: Socket) -> None:
    status, doc = control.ask(b" " * (MAX_BODY + 1))

    assert (status, doc["errorType"]) == (413, "too_large")


def test_a_slow_client_is_let_go_of(control: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE", 0.2)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(10)
        slow.connect(str(control.path))
        slow.sendall(f"POST {PATH} HTTP/1.1\r\nContent-Length: 100\r\n\r\n{{".encode())

        assert slow.recv(100) == b""
    assert control.desk.commands == []


def test_many_that_hold_the_socket_open_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    made = Socket(tmp_path / "c.sock", FakeDesk())
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            holding = stack.enter_context(socket.socket(socket.AF_UNIX))
            holding.connect(str(made.path))
        ending = threading.Thread(target=made.server.stop)
        ending.start()
        ending.join(5)

        assert not ending.is_alive()
    assert not made.path.exists()


def test_the_file_of_a_dead_daemon_is_replaced(tmp_path: Path, desk: FakeDesk) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    made = Socket(path, desk)
    try:
        assert made.ask()[0] == 200
    finally:
        made.server.stop()


def test_a_living_daemons_socket_is_left_alone(control: Socket) -> None:
    with pytest.raises(OSError, match="another daemon"):
        Socket(control.path, FakeDesk())

    assert control.ask()[0] == 200


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path, desk: FakeDesk) -> None:
    path = tmp_path / "c.sock"
    path.write_text("mine")
    with pytest.raises(OSError, match="no socket"):
        Socket(path, desk)

    assert path.read_text() == "mine"


def test_a_socket_that_another_put_in_our_place_stays(tmp_path: Path, desk: FakeDesk) -> None:
    made = Socket(tmp_path / "c.sock", desk)
    made.path.unlink()
    made.path.write_text("another's")
    made.server.stop()

    assert made.path.exists()


def test_places_of_the_socket_best_first(tmp_path: Path) -> None:
    own, run = tmp_path / "control.sock", RUN / "control.sock"

    assert [Path("/r/control.sock")] == places(tmp_path, {"RUNTIME_DIRECTORY": "/r:/s"}, 0)
    assert [run, own] == places(tmp_path, {}, 0)
    assert own == places(tmp_path, {}, 1000)[-1]


# What is taken


@pytest.mark.parametrize(
    ("verb", "args", "commands"),
    [
        ("pause", {"reason": " why  not "}, [("pause", {"service": "", "reason": "why not"})]),
        (
            "pause",
            {"service": "chat", "for": "90s", "reason": "x"},
            [("pause", {"service": "chat", "reason": "x", "for": 90.0})],
        ),
        ("resume", {"service": "chat"}, [("resume", {"service": "chat"})]),
        ("resume", {}, [("resume", {}), ("close_breaker", {})]),
        ("quarantine", {"card": "npu 7"}, [("quarantine", {"card": "0000:c1:00"})]),
        (
            "quarantine",
            {"card": "00000000:C1:00.0", "reason": "rma"},
            [("quarantine", {"card": "0000:c1:00", "reason": "rma"})],
        ),
    ],
)
def test_what_is_asked_becomes_the_engines_commands(
    verb: str, args: dict[str, Any], commands: list[Any]
) -> None:
    assert commands == commands_of(verb, args, FakeDesk().now)


@pytest.mark.parametrize(
    ("verb", "args", "told"),
    [
        ("pause", {}, "reason: is missing"),
        ("pause", {"reason": " "}, "reason: is missing"),
        ("pause", {"reason": "x" * 501}, "reason: is longer"),
        ("pause", {"reason": "a\x1b[31m"}, "cannot be printed"),
        ("pause", {"reason": ["x"]}, "is a text"),
        ("pause", {"reason": "x", "for": "soon"}, "for: 'soon' is no duration"),
        ("pause", {"reason": "x", "for": "0s"}, "for: must be longer"),
        ("pause", {"reason": "x", "service": "chta"}, "did you mean 'chat'"),
        ("pause", {"reason": "x", "servce": "chat"}, "did you mean 'service'"),
        ("pause", {"reason": "x", "until": 1}, "pause takes no 'until'"),
        ("resume", {"service": "x; reboot"}, "no such service"),
        ("quarantine", {}, "card: is missing"),
        ("quarantine", {"card": "0000:c2:00"}, "did you mean '0000:c1:00'"),
        ("quarantine", {"card": "$(reboot)"}, "no such card"),
    ],
)
def test_what_means_nothing_here_is_refused(verb: str, args: dict[str, Any], told: str) -> None:
    with pytest.raises(Refused) as refused:
        commands_of(verb, args, FakeDesk().now)

    assert (refused.value.status, told in str(refused.value)) == (400, True)


@pytest.mark.parametrize(
    ("verb", "args", "standing", "told"),
    [
        ("approve", {}, {}, "no act waits"),
        ("approve", {"id": "chta"}, {"waiting": (FAILOVER,)}, "did you mean 'chat'"),
        ("cancel", {}, {}, "nothing is under way"),
        ("cancel", {"service": "deepseek"}, {"acts": (RESTART,)}, "nothing is under way or due"),
        ("release", {"card": "npu 7"}, {}, "0000:c1:00 is not quarantined"),
        ("quarantine", {"card": "npu3"}, {"quarantined": {"npu3": "card_lost"}}, "already"),
    ],
)
def test_what_does_not_fit_how_things_stand_is_a_conflict(
    verb: str, args: dict[str, Any], standing: dict[str, Any], told: str
) -> None:
    with pytest.raises(Refused) as refused:
        commands_of(verb, args, FakeDesk(**standing).now)

    assert (refused.value.status, told in str(refused.value)) == (409, True)


@pytest.mark.parametrize("args", [{}, {"id": "chat"}, {"service": "chat"}])
def test_the_one_act_that_waits_is_approved(args: dict[str, Any]) -> None:
    waiting = (FAILOVER,) if not args else (FAILOVER, OTHER)

    assert commands_of("approve", args, FakeDesk(waiting=waiting).now) == [
        ("approve", {"id": "chat"})
    ]


def test_of_several_one_must_be_named() -> None:
    with pytest.raises(Refused, match="name one of chat, deepseek"):
        commands_of("approve", {}, FakeDesk(waiting=(FAILOVER, OTHER)).now)
    with pytest.raises(Refused, match="name one of chat, deepseek"):
        standing = FakeDesk(acts=(RESTART,), open={"chat": "chat", "deepseek": "deepseek"}).now
        commands_of("cancel", {}, standing)


@pytest.mark.parametrize("args", [{}, {"id": "chat-1-1"}, {"id": "chat"}, {"service": "chat"}])
def test_the_act_under_way_is_cancelled_by_any_of_its_names(args: dict[str, Any]) -> None:
    assert commands_of("cancel", args, FakeDesk(acts=(RESTART,)).now) == [
        ("cancel", {"service": "chat", "id": "chat"})
    ]


# What is said


@pytest.mark.parametrize(
    ("verb", "args", "standing", "done"),
    [
        (
            "resume",
            {},
            {"breaker": "two of three", "held": True},
            [
                "healing of every service goes on",
                "the breaker is closed (it was open: two of three)",
                "but the hold file is there: nothing is done until it is removed",
            ],
        ),
        (
            "resume",
            {"service": "chat"},
            {"paused": {"": None, "chat": NOW}},
            [
                "healing of chat goes on",
                "but all services are still paused: resume without --service ends that",
            ],
        ),
        (
            "approve",
            {},
            {"waiting": (FAILOVER,)},
            [
                "card_failover for chat (card_lost) is approved, for this once and for 10 minutes",
                "it still waits: cooling down for another 9 s",
            ],
        ),
        ("cancel", {}, {"acts": (RESTART,)}, ["restart of chat is stopped after its present step"]),
        (
            "cancel",
            {},
            {"open": {"chat": "chat"}},
            ["nothing more is done for chat until its alerts were over for a minute"],
        ),
        (
            "release",
            {"card": "npu3"},
            {"quarantined": {"npu3": "card_lost"}},
            ["npu3 is released (it was quarantined: card_lost)"],
        ),
    ],
)
def test_a_person_hears_what_changed(
    tmp_path: Path, verb: str, args: dict[str, Any], standing: dict[str, Any], done: list[str]
) -> None:
    made = Socket(tmp_path / "c.sock", FakeDesk(**standing))
    try:
        status, doc = made.give(verb, **args)
    finally:
        made.server.stop()

    assert (status, doc.get("done")) == (200, done)


# Over TCP


class Listener:
    """The HTTP listener with a door, with or without a token."""

    def __init__(self, token: Path | None, burst: int = 5) -> None:
        self.desk = FakeDesk()
        doors = {
            PATH: Commands(
                self.desk, Token(lambda: token, Files()), Rate(RealClock(), burst, 0.001)
            )
        }
        self.server = Server(
            ("127.0.0.1", 0),
            Routes(Views()),
            RealClock(),
            print,
            None,
            doors,  # type: ignore[arg-type]
        )
        self.server.start()

    def give(self, **headers: str) -> Response:
        url = f"http://127.0.0.1:{self.server.address[1]}{PATH}"
        body = b'{"verb": "pause", "args": {"reason": "x"}}'
        return RealHttp().request("POST", url, timeout=10, headers={**JSON, **headers}, body=body)


@contextlib.contextmanager
def listener(token: Path | None, burst: int = 5) -> Iterator[Listener]:
    made = Listener(token, burst)
    try:
        yield made
    finally:
        made.server.stop()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    return path


def test_without_a_token_file_no_command_comes_over_http() -> None:
    with listener(None) as made:
        answer = made.give(Authorization="Bearer s3cret")

    assert (answer.status, made.desk.commands) == (403, [])
    assert "Unix socket" in answer.text


def test_the_token_lets_a_command_in(token: Path) -> None:
    with listener(token) as made:
        answer = made.give(Authorization="Bearer s3cret")

    assert answer.status == 200
    assert [command.who for command in made.desk.commands] == ["the token's holder at 127.0.0.1"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Basic czNjcmV0"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer s3cre"}, 403),
        ({"Authorization": "Bearer s3cret!"}, 403),
    ],
)
def test_another_token_does_not(token: Path, headers: dict[str, str], status: int) -> None:
    with listener(token) as made:
        answer = made.give(**headers)

    assert (answer.status, made.desk.commands) == (status, [])
    assert "s3cret" not in answer.text


@pytest.mark.parametrize("text", ["", "  \n", None])
def test_a_token_file_that_says_nothing_lets_nobody_in(token: Path, text: str | None) -> None:
    token.unlink() if text is None else token.write_text(text)
    with listener(token) as made:
        answer = made.give(Authorization="Bearer ")

    assert (answer.status, made.desk.commands) == (403, [])


def test_a_token_is_exchanged_without_a_restart(token: Path) -> None:
    with listener(token) as made:
        token.write_text("another")

        assert made.give(Authorization="Bearer s3cret").status == 403
        assert made.give(Authorization="Bearer another").status == 200


def test_who_guesses_tokens_is_slowed_down_and_the_right_one_goes_on(token: Path) -> None:
    with listener(token, burst=3) as made:
        guesses = [made.give(Authorization=f"Bearer {i}") for i in range(5)]

        assert [answer.status for answer in guesses] == [403, 403, 403, 429, 429]
        assert int(guesses[-1].headers["Retry-After"]) > 0
        assert made.give(Authorization="Bearer s3cret").status == 200


def test_a_caller_of_the_unix_socket_needs_no_token(token: Path) -> None:
    door = Commands(FakeDesk(), Token(lambda: token, Files()), Rate(RealClock(), 1, 1.0))

    assert door.refuse(Caller("POST", peer="root (uid 0, pid 1)", length=10)) is None
