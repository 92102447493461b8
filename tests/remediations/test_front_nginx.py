"""A real nginx as a front: switches lose nothing, and what fails is taken back."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.remediations.fronts import adapter
from tests.support.nginx import FrontServer, Upstream, ask, nginx_front, until, upstream
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.system import System

pytestmark = pytest.mark.peer


@pytest.fixture
def primary() -> Iterator[Upstream]:
    with upstream("primary") as server:
        yield server


@pytest.fixture
def standby() -> Iterator[Upstream]:
    with upstream("standby") as server:
        yield server


@pytest.fixture
def front(tmp_path: Path, primary: Upstream, standby: Upstream) -> Iterator[FrontServer]:
    with nginx_front(tmp_path / "nginx", primary.url, standby.url) as server:
        yield server


def served_by(front: FrontServer) -> str:
    answer = front.post(ask())
    return answer.text.split()[0] if answer.status == 200 else str(answer.status)


def test_new_requests_go_to_the_standby_after_a_switch(front: FrontServer) -> None:
    adapter(front).point(System(), "standby")

    assert adapter(front).state(System()) == "standby"
    assert until(lambda: served_by(front) == "standby")


def test_a_drained_front_answers_503_in_json_and_says_when_to_come_again(
    front: FrontServer,
) -> None:
    adapter(front).point(System(), "drained")

    answers = [front.post(ask())]  # a worker of before may still take one or another
    assert until(lambda: answers[-1].status == 503 or answers.append(front.post(ask())))
    assert (answers[-1].headers["Retry-After"], answers[-1].doc["error"]["code"]) == (
        "5",
        "upstream_unavailable",
    )


def test_a_dead_upstream_gives_503_in_json(front: FrontServer, primary: Upstream) -> None:
    primary.cut = True

    answer = front.post(ask())
    assert (answer.status, answer.headers["Content-Type"]) == (503, "application/json")
    assert answer.doc["error"]["type"] == "service_unavailable"


def test_a_request_that_was_sent_is_not_sent_again(front: FrontServer, primary: Upstream) -> None:
    primary.cut = True
    before = primary.asked
    front.post(ask())

    assert primary.asked == before + 1


def test_an_answer_of_the_upstream_passes_whatever_its_status(
    front: FrontServer, primary: Upstream
) -> None:
    primary.status = 503

    assert "choices" in front.post(ask()).doc


def test_a_stream_under_way_survives_switches(front: FrontServer, primary: Upstream) -> None:
    connection = http.client.HTTPConnection(str(urlsplit(front.url).netloc), timeout=30)
    connection.request("POST", "/v1/completions", json.dumps(ask(stream=True)))
    stream = connection.getresponse()
    first = stream.readline()
    for target in ("standby", "primary", "standby"):
        adapter(front).point(System(), target)  # type: ignore[arg-type]
    assert until(lambda: served_by(front) == "standby")
    primary.released.set()
    rest = stream.read()
    connection.close()

    assert first == b"data: primary 0\n"
    assert [line for line in rest.split(b"\n") if line] == [
        *(f"data: primary {number}".encode() for number in range(1, 5)),
        b"data: [DONE]",
    ]


def test_a_stream_passes_piece_by_piece(front: FrontServer, primary: Upstream) -> None:
    connection = http.client.HTTPConnection(str(urlsplit(front.url).netloc), timeout=10)
    connection.request("POST", "/v1/completions", json.dumps(ask(stream=True)))
    line = connection.getresponse().readline()  # the server holds back all the others
    connection.close()

    assert line == b"data: primary 0\n"


class Client(threading.Thread):
    """Asks without a pause, on one connection or on a new one each time."""

    def __init__(self, front: FrontServer, over: threading.Event, *, keep: bool) -> None:
        super().__init__()
        self.address, self.over, self.keep = str(urlsplit(front.url).netloc), over, keep
        self.statuses: list[int] = []
        self.wrong: list[Exception] = []

    def run(self) -> None:
        connection, used = http.client.HTTPConnection(self.address, timeout=30), False
        while not self.over.is_set():
            try:
                connection.request("POST", "/v1/completions", json.dumps(ask("load")))
                answer = connection.getresponse()
                answer.read()
            except (http.client.RemoteDisconnected, ConnectionError, BrokenPipeError) as error:
                # A connection that waits may be closed at any time; every client then opens another.
                if not used:
                    self.wrong.append(error)
                connection.close()
                used = False
                continue
            self.statuses.append(answer.status)
            used = self.keep
            if not self.keep:
                connection.close()
        connection.close()


def test_no_request_fails_across_switches(front: FrontServer) -> None:
    over = threading.Event()
    clients = [Client(front, over, keep=keep) for keep in (False, False, True)]
    for client in clients:
        client.start()
    for target in ("standby", "primary") * 3:
        adapter(front).point(System(), target)  # type: ignore[arg-type]
        seen = [len(client.statuses) for client in clients]
        assert until(lambda seen=seen: _more(clients, seen))  # type: ignore[misc]
    over.set()
    for client in clients:
        client.join()

    assert [client.wrong for client in clients] == [[], [], []]
    assert {status for client in clients for status in client.statuses} == {200}


def _more(clients: list[Client], seen: list[int]) -> bool:
    """Whether each client has got 50 answers more."""
    pairs = zip(clients, seen, strict=True)
    return all(len(client.statuses) > before + 50 for client, before in pairs)


def test_a_front_that_is_broken_elsewhere_keeps_the_old_include_and_its_traffic(
    front: FrontServer,
) -> None:
    before = adapter(front).include.read_bytes()
    (front.folder / "beside.conf").write_text("rubbish on;\n")

    with pytest.raises(SourceError, match=r'unknown directive "rubbish" in .*beside.conf:1'):
        adapter(front).point(System(), "standby")

    assert adapter(front).include.read_bytes() == before
    assert (adapter(front).state(System()), served_by(front)) == ("primary", "primary")


def test_nothing_else_than_the_include_lies_in_its_folder_after_a_switch(
    front: FrontServer,
) -> None:
    adapter(front).point(System(), "standby")
    (front.folder / "beside.conf").write_text("rubbish on;\n")
    with pytest.raises(SourceError):
        adapter(front).point(System(), "primary")

    assert sorted(path.name for path in adapter(front).include.parent.iterdir()) == [
        "deepseek.conf",
        "vllm_watchdog.js",
    ]
    assert list((front.state / "fronts").iterdir()) == []


def test_a_front_without_njs_switches_too(
    tmp_path: Path, primary: Upstream, standby: Upstream
) -> None:
    with nginx_front(tmp_path / "plain", primary.url, standby.url, njs=False) as front:
        adapter(front).point(System(), "standby")

        assert until(lambda: served_by(front) == "standby")
