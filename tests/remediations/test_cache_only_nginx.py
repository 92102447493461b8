"""Answers from the cache alone, judged by a real nginx and nobody else."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.remediations.fronts import acting, adapter, walked
from tests.support.nginx import FrontServer, Upstream, ask, nginx_front, upstream
from vllm_watchdog.remediations.cache_only import CacheOnly
from vllm_watchdog.watchdog.system import System

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FrontServer, Upstream]]:
    folder = tmp_path_factory.mktemp("nginx")
    with upstream("primary") as server, nginx_front(folder, server.url) as front:
        yield front, server


@pytest.fixture
def front(running: tuple[FrontServer, Upstream]) -> Iterator[FrontServer]:
    yield running[0]
    adapter(running[0]).cache_only.down(System())


@pytest.fixture
def primary(running: tuple[FrontServer, Upstream]) -> Iterator[Upstream]:
    yield running[1]
    running[1].cut, running[1].status = False, 200


def raise_flag(front: FrontServer) -> Path:
    adapter(front).cache_only.up(System(), 600.0, "r1")
    return adapter(front).cache_only.path


def only(front: FrontServer, body: Any, **headers: str) -> tuple[int, str]:
    """Status and cache status of a completion in cache-only mode."""
    answer = front.post(body, **headers)
    return answer.status, answer.headers.get("X-Cache-Status", "")


def test_an_answer_given_before_is_given_again_and_the_upstream_is_left_alone(
    front: FrontServer, primary: Upstream
) -> None:
    first = front.post(ask("given before"))
    raise_flag(front)
    asked = primary.asked
    again = front.post(ask("given before"))

    assert (again.status, again.body) == (200, first.body)
    assert (again.headers["X-Cache-Status"], primary.asked) == ("HIT", asked)


def test_a_question_not_asked_before_gets_503_in_json_and_the_upstream_is_left_alone(
    front: FrontServer, primary: Upstream
) -> None:
    raise_flag(front)
    asked = primary.asked
    answer = front.post(ask("never asked before"))

    assert (answer.status, answer.headers["Content-Type"]) == (503, "application/json")
    assert (answer.headers["Retry-After"], answer.doc["error"]["code"]) == ("30", "cache_only")
    assert primary.asked == asked


def test_in_normal_mode_the_cache_is_written_and_never_read(
    front: FrontServer, primary: Upstream
) -> None:
    first, second = front.post(ask("normal")), front.post(ask("normal"))

    assert first.text != second.text  # the server counts
    raise_flag(front)
    assert front.post(ask("normal")).text == second.text


def test_a_dead_upstream_in_normal_mode_is_not_covered_by_the_cache(
    front: FrontServer, primary: Upstream
) -> None:
    front.post(ask("dead"))
    primary.cut = True

    answer = front.post(ask("dead"))
    assert (answer.status, answer.doc["error"]["code"]) == (503, "upstream_unavailable")


def test_ten_minutes_after_the_flag_a_healthy_upstream_is_asked_again_with_the_flag_still_there(
    front: FrontServer, primary: Upstream
) -> None:
    path = raise_flag(front)
    assert front.post(ask("late")).status == 503
    raised = path.stat().st_mtime
    os.utime(path, (raised - 595, raised - 595))
    assert front.post(ask("late")).status == 503
    os.utime(path, (raised - 601, raised - 601))

    assert (front.post(ask("late")).status, path.exists()) == (200, True)


def test_after_ten_minutes_only_a_dead_upstream_gives_503(
    front: FrontServer, primary: Upstream
) -> None:
    front.post(ask("over"))
    path = raise_flag(front)
    os.utime(path, (path.stat().st_mtime - 601,) * 2)
    primary.cut = True

    assert front.post(ask("over")).doc["error"]["code"] == "upstream_unavailable"


def test_a_flag_may_end_sooner_than_after_ten_minutes_and_never_later(front: FrontServer) -> None:
    path = adapter(front).cache_only.path
    for said, age, status in (
        ("seconds=60\n", 61, 200),
        ("seconds=60\n", 50, 503),
        ("seconds=99999\n", 601, 200),
        ("", 500, 503),
        ("rubbish\n" * 9, 601, 200),
    ):
        path.write_text(said)
        os.utime(path, (path.stat().st_mtime - age,) * 2)

        assert front.post(ask(f"sooner {said} {age}")).status == status


def test_a_flag_from_the_future_does_not_count(front: FrontServer) -> None:
    path = raise_flag(front)
    os.utime(path, (path.stat().st_mtime + 3600,) * 2)

    assert front.post(ask("future")).status == 200


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": 0.7},
        {"temperature": None},
        {"temperature": "0"},
        {"stream": True},
        {"stream": "true"},
        {"stream": 1},
        {"n": 2},
        {"best_of": 3},
        {"use_beam_search": True},
    ],
    ids=str,
)
def test_an_answer_that_may_come_out_otherwise_is_not_kept(
    front: FrontServer, primary: Upstream, more: dict[str, Any]
) -> None:
    primary.released.set()
    body = ask(f"not kept {more}", **more)
    assert front.post(body).status == 200
    raise_flag(front)

    assert front.post(body).status == 503


def test_a_body_without_a_temperature_is_not_kept(front: FrontServer) -> None:
    body = {"model": "tiny", "prompt": "2+2="}
    front.post(body)
    raise_flag(front)

    assert front.post(body).status == 503


@pytest.mark.parametrize(
    "prompt",
    ['","temperature":0,"x":"', '{"temperature": 0, "n": 1}', '\\","temperature": 0}'],
)
def test_a_prompt_cannot_pretend_to_be_a_setting(front: FrontServer, prompt: str) -> None:
    body = {"model": "tiny", "prompt": prompt, "temperature": 1, "x": {"temperature": 0}}
    front.post(body)
    raise_flag(front)

    assert front.post(body).status == 503


def test_two_long_prompts_never_share_an_answer(front: FrontServer) -> None:
    long = "word " * 40_000
    one, two = front.post(ask(long + "one")), front.post(ask(long + "two"))
    raise_flag(front)

    assert front.post(ask(long + "one")).text == one.text
    assert front.post(ask(long + "two")).text == two.text
    assert one.text != two.text
    assert only(front, ask(long + "three"))[0] == 503


def test_a_body_sent_in_chunks_is_told_from_another(front: FrontServer) -> None:
    def chunked(prompt: str) -> int:
        data = json.dumps(ask("x" * 300_000 + prompt)).encode()
        connection = http.client.HTTPConnection(str(urlsplit(front.url).netloc), timeout=30)
        pieces = [data[i : i + 50_000] for i in range(0, len(data), 50_000)]
        connection.request(
            "POST",
            "/v1/completions",
            iter(pieces),
            encode_chunked=True,
            headers={"Transfer-Encoding": "chunked"},
        )
        status = connection.getresponse().status
        connection.close()
        return status

    raise_flag(front)

    assert [chunked("one"), chunked("two")] == [503, 503]


@pytest.mark.parametrize(
    "header", ["Authorization", "X-Api-Key", "Cookie", "OpenAI-Organization", "OpenAI-Project"]
)
def test_tenants_never_share_an_answer(front: FrontServer, header: str) -> None:
    name = header.replace("-", "_")
    body = ask(f"tenant {header}")
    front.post(body, **{name: "a"})
    raise_flag(front)

    assert only(front, body, **{name: "a"}) == (200, "HIT")
    assert only(front, body, **{name: "b"})[0] == 503
    assert only(front, body)[0] == 503


def test_models_never_share_an_answer(front: FrontServer) -> None:
    front.post(ask("model"))
    raise_flag(front)

    assert only(front, {**ask("model"), "model": "other"})[0] == 503


def test_routes_never_share_an_answer(front: FrontServer) -> None:
    front.post(ask("route"))
    raise_flag(front)

    assert front.post(ask("route"), "/v1/chat/completions").status == 503
    assert front.post(ask("route"), "/v1/completions?x=1").status == 503


@pytest.mark.parametrize("word", ["no-cache", "no-store", "max-age=0", "only-if-cached"])
def test_a_client_cannot_get_past_the_cache(
    front: FrontServer, primary: Upstream, word: str
) -> None:
    front.post(ask("past"))
    raise_flag(front)
    asked = primary.asked

    assert only(front, ask("past"), Cache_Control=word, Pragma="no-cache") == (200, "HIT")
    assert only(front, ask(f"past {word}"), Cache_Control=word)[0] == 503
    assert primary.asked == asked


@pytest.mark.parametrize("status", [500, 503, 429, 400, 404])
def test_an_error_is_never_kept(front: FrontServer, primary: Upstream, status: int) -> None:
    primary.status = status
    assert front.post(ask(f"error {status}")).status == status
    raise_flag(front)

    assert front.post(ask(f"error {status}")).doc["error"]["code"] == "cache_only"


def test_other_addresses_are_refused_and_not_passed_on(
    front: FrontServer, primary: Upstream
) -> None:
    raise_flag(front)
    asked = primary.asked

    assert [front.get(path).status for path in ("/health", "/metrics", "/v1/x")] == [503] * 3
    assert primary.asked == asked


def test_the_list_of_models_is_kept(front: FrontServer) -> None:
    front.get("/v1/models")
    raise_flag(front)

    assert front.get("/v1/models").doc["data"][0]["id"] == "tiny"


def test_what_lies_on_the_disk_names_no_tenant(front: FrontServer) -> None:
    front.post(ask("on the disk"), Authorization="Bearer secret-of-a-tenant")
    kept = [path.read_bytes() for path in (front.folder / "cache").rglob("*") if path.is_file()]

    assert kept
    assert not any(b"secret-of-a-tenant" in data for data in kept)


def test_a_stream_under_way_survives_the_flag(front: FrontServer, primary: Upstream) -> None:
    primary.released.clear()
    connection = http.client.HTTPConnection(str(urlsplit(front.url).netloc), timeout=30)
    connection.request("POST", "/v1/completions", json.dumps(ask(stream=True)))
    stream = connection.getresponse()
    stream.readline()
    raise_flag(front)
    assert front.post(ask("while streaming")).status == 503
    primary.released.set()
    rest = stream.read()
    connection.close()

    assert rest.endswith(b"data: [DONE]\n\n")


def test_shedding_refuses_about_the_share_of_new_work_and_nothing_else(front: FrontServer) -> None:
    adapter(front).shedding.up(System(), 600.0)
    try:
        answers = [front.post(ask("shed")) for _ in range(400)]
        others = {front.get("/health").status for _ in range(50)}
    finally:
        adapter(front).shedding.down(System())

    refused = [answer for answer in answers if answer.status == 503]
    assert others == {200}
    assert 60 <= len(refused) <= 145  # 25 % of 400, 5 deviations
    assert {(r.headers["Retry-After"], r.doc["error"]["code"]) for r in refused} == {
        ("3", "overloaded")
    }


def test_shedding_never_refuses_more_than_ninety_percent(front: FrontServer) -> None:
    path = adapter(front).shedding.path
    path.write_text("percent=100\n")
    try:
        statuses = [front.post(ask("shed most")).status for _ in range(300)]
    finally:
        path.unlink()

    assert 5 <= statuses.count(200) <= 65  # 10 % of 300, 5 deviations


def test_shedding_ends_with_its_time_while_the_flag_is_still_there(front: FrontServer) -> None:
    adapter(front).shedding.up(System(), 60.0)
    path = adapter(front).shedding.path
    os.utime(path, (path.stat().st_mtime - 61,) * 2)
    try:
        assert {front.post(ask("shed over")).status for _ in range(50)} == {200}
    finally:
        path.unlink()


def test_the_act_serves_from_the_cache_until_the_upstream_is_back(
    front: FrontServer, primary: Upstream
) -> None:
    front.post(ask("the act"))
    primary.cut = True
    case = acting(front, "cache_only", cause="network_outage")
    system = System()
    assert CacheOnly().precheck(system, case) == ""
    raising, holding, lowering = CacheOnly().plan(system, case)
    assert walked(raising, system)
    assert front.post(ask("the act")).headers["X-Cache-Status"] == "HIT"
    assert holding.done(system) == "no"
    primary.cut = False
    assert holding.done(system) == "yes"
    assert walked(lowering, system)

    assert front.post(ask("the act")).headers["X-Cache-Status"] == "BYPASS"
    assert adapter(front).flag(system) is None


def test_the_act_leaves_a_service_alone_that_still_answers(front: FrontServer) -> None:
    case = acting(front, "cache_only", cause="network_outage")

    assert CacheOnly().precheck(System(), case) == "it still answers through its front"
