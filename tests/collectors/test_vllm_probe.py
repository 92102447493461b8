"""The probe of a vLLM server: what each answer means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.vllm_probe import VllmProbe
from vllm_watchdog.watchdog.contracts import Collector
from vllm_watchdog.watchdog.errors import HttpError
from vllm_watchdog.watchdog.model import Checkpoint, Event, Sample
from vllm_watchdog.watchdog.processes import clients
from vllm_watchdog.watchdog.system import Files, Response, System

URL = "http://127.0.0.1:8000"
MODELS = json.dumps({"data": [{"id": "tiny"}]})
ROUTES = json.dumps({"paths": {"/v1/completions": {}, "/v1/chat/completions": {}}})
ANSWER = json.dumps({"choices": [{"text": "4", "finish_reason": "length"}]})
LATE = HttpError("late", "timeout")
REFUSED = HttpError("refused", "refused")


def metrics(tokens: float, running: float = 0, waiting: float = 0) -> str:
    return (
        f"vllm:generation_tokens_total {tokens}\n"
        f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"
    )


def server(completion: Any = ANSWER, **pages: Any) -> System:
    table: dict[str, Any] = {
        f"GET {URL}/metrics": metrics(7),
        f"GET {URL}/v1/models": MODELS,
        f"GET {URL}/openapi.json": ROUTES,
        f"GET {URL}/is_paused": Response(404, b""),
        f"GET {URL}/is_sleeping": Response(404, b""),
        f"POST {URL}/v1/completions": completion,
    }
    table.update({line.replace("_", " ", 1).replace("URL", URL): x for line, x in pages.items()})
    return fake_system(pages=table)


def run(system: System, **settings: Any) -> list[Any]:
    probe = VllmProbe("s", URL, **settings)
    found = list(probe.collect(system))
    checkpoint = next(x for x in found if isinstance(x, Checkpoint))
    system.checkpoints.put(probe.instance, checkpoint.doc)
    return found


def verdict(found: list[Any]) -> str:
    (sample,) = [x for x in found if isinstance(x, Sample) and x.name == "service_probe_verdict"]
    assert sample.value == 1.0
    return dict(sample.labels)["verdict"]


def success(found: list[Any]) -> list[float]:
    return [x.value for x in found if isinstance(x, Sample) and x.name == "service_probe_success"]


def calls(system: System) -> list[tuple[str, str, bytes | None]]:
    return system.http.calls  # type: ignore[attr-defined, no-any-return]


def test_it_is_a_collector() -> None:
    assert isinstance(VllmProbe("s", URL), Collector)


def test_a_token_is_success() -> None:
    found = run(server())

    assert (verdict(found), success(found)) == ("ok", [1.0])


def test_the_request_is_small_and_certain() -> None:
    system = server()
    run(system)

    ((_, _, body),) = [call for call in calls(system) if call[0] == "POST"]
    expected = {"model": "tiny", "prompt": "2+2=", "max_tokens": 1, "temperature": 0}
    assert expected == json.loads(body or b"")


@pytest.mark.parametrize(
    "answer",
    [
        Response(500, b"{}"),
        Response(503, b""),
        REFUSED,
        HttpError("reset", "broken"),
        "not json",
        '{"choices": []}',
        '{"choices": [{"text": "4"}]}',
        '{"choices": [{"text": "", "finish_reason": "error"}]}',
    ],
)
def test_a_broken_engine_fails(answer: Any) -> None:
    found = run(server(answer))

    assert (verdict(found), success(found)) == ("failed", [0.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422, 429, 501])
def test_an_answer_about_us_is_unknown_and_no_failure(status: int) -> None:
    system = server(Response(status, b"{}"))
    found = run(system, kind="completion")

    assert (verdict(found), success(found)) == ("unknown", [])


def test_unknown_is_told_once() -> None:
    system = server(GET_URL_v1_models=None)
    system.http.script[f"GET {URL}/v1/models"] = Response(401, b"")  # type: ignore[attr-defined]
    events = [[x for x in run(system) if isinstance(x, Event)] for _ in range(3)]

    assert [len(told) for told in events] == [1, 0, 0]


def test_what_cannot_be_asked_is_asked_again_after_a_minute() -> None:
    system = server()
    script = system.http.script  # type: ignore[attr-defined]
    script[f"GET {URL}/v1/models"] = [Response(401, b""), MODELS]
    first = verdict(run(system))
    system.clock.sleep(59)
    second = verdict(run(system))
    system.clock.sleep(1)

    assert [first, second, verdict(run(system))] == ["unknown", "unknown", "ok"]


def test_a_server_without_models_is_unknown() -> None:
    system = server()
    system.http.script[f"GET {URL}/v1/models"] = '{"data": []}'  # type: ignore[attr-defined]

    assert verdict(run(system)) == "unknown"


def test_a_time_out_while_no_token_moves_fails() -> None:
    assert verdict(run(server(LATE))) == "failed"


def test_a_time_out_while_tokens_move_is_slow_and_has_no_success() -> None:
    system = server(LATE)
    system.http.script[f"GET {URL}/metrics"] = [metrics(7), metrics(8)]  # type: ignore[attr-defined]
    found = run(system)

    assert (verdict(found), success(found)) == ("slow", [])


def test_a_time_out_of_a_paused_engine_is_unknown() -> None:
    system = server(LATE)
    system.http.script[f"GET {URL}/is_paused"] = '{"is_paused": true}'  # type: ignore[attr-defined]

    assert verdict(run(system)) == "unknown"


def test_a_time_out_of_a_sleeping_engine_is_unknown() -> None:
    system = server(LATE)
    page = metrics(7) + 'vllm:engine_sleep_state{sleep_state="awake"} 0.0\n'
    system.http.script[f"GET {URL}/metrics"] = page  # type: ignore[attr-defined]

    assert verdict(run(system)) == "unknown"


def test_a_time_out_without_progress_figures_is_unknown() -> None:
    system = server(LATE)
    system.http.script[f"GET {URL}/metrics"] = "process_open_fds 3\n"  # type: ignore[attr-defined]

    assert verdict(run(system)) == "unknown"


def test_a_server_that_answers_nothing_fails() -> None:
    system = server(LATE)
    system.http.script[f"GET {URL}/metrics"] = LATE  # type: ignore[attr-defined]

    assert verdict(run(system)) == "failed"


def test_a_refused_port_fails_before_anything_is_known() -> None:
    system = server(REFUSED)
    for path in ("/metrics", "/v1/models", "/openapi.json"):
        system.http.script[f"GET {URL}{path}"] = REFUSED  # type: ignore[attr-defined]

    assert (verdict(found := run(system)), success(found)) == ("failed", [0.0])


def test_what_was_found_is_remembered() -> None:
    system = server()
    run(system)
    calls(system).clear()
    run(system)

    assert [f"{URL}/metrics", f"{URL}/v1/completions"] == [url for _, url, _ in calls(system)]


def test_an_embedding_server_is_asked_for_an_embedding() -> None:
    system = server(
        Response(400, b"{}"),
    )
    script = system.http.script  # type: ignore[attr-defined]
    script[f"GET {URL}/openapi.json"] = '{"paths": {"/v1/completions": {}, "/v1/embeddings": {}}}'
    script[f"POST {URL}/v1/embeddings"] = '{"data": [{"embedding": [0.1]}]}'

    assert verdict(run(system)) == "ok"


def test_a_chat_server_is_asked_to_chat() -> None:
    system = server()
    script = system.http.script  # type: ignore[attr-defined]
    script[f"POST {URL}/v1/chat/completions"] = (
        '{"choices": [{"message": {"content": null}, "finish_reason": "length"}]}'
    )

    assert verdict(run(system, kind="chat")) == "ok"


def test_kind_none_sends_nothing() -> None:
    system = server()
    found = run(system, kind="none")

    assert verdict(found) == "unknown"
    assert not [call for call in calls(system) if call[0] == "POST"]


@pytest.mark.parametrize(("text", "value"), [("4", 1.0), ("!!!!", 0.0)])
def test_the_canary_says_whether_the_answer_is_the_expected_one(text: str, value: float) -> None:
    answer = json.dumps({"choices": [{"text": text, "finish_reason": "length"}]})
    found = run(server(answer), expect="^ *4")

    canary = [x.value for x in found if getattr(x, "name", "") == "service_canary_success"]
    assert ("ok", [value]) == (verdict(found), canary)


def test_neither_prompt_nor_answer_leaves() -> None:
    answer = json.dumps({"choices": [{"text": "ANSWER", "finish_reason": "length"}]})
    system = server(answer)
    found = run(system, prompt="PROMPT", expect="x")

    assert "PROMPT" not in repr(found)
    assert "ANSWER" not in repr(found)


class Waits:
    """A door to HTTP that notes the time-out of each request for a token, and lets it pass."""

    def __init__(self, inner: Any, clock: VirtualClock, takes: float) -> None:
        self.inner, self.clock, self.takes = inner, clock, takes
        self.limits: list[float] = []

    def request(self, method: str, url: str, **more: Any) -> Response:
        if method == "POST":
            self.limits.append(more["timeout"])
        try:
            answer = self.inner.request(method, url, **more)
        except HttpError as error:
            self.clock.advance(more["timeout"] if error.reason == "timeout" else 0.0)
            raise
        self.clock.advance(self.takes if method == "POST" else 0.0)
        assert isinstance(answer, Response)
        return answer


def timed(base: System, takes: float = 0.05) -> tuple[System, list[float]]:
    """The system with requests that take time, and the list to which their time-outs are added."""
    assert isinstance(base.clock, VirtualClock)
    waits = Waits(base.http, base.clock, takes)
    system = System(base.clock, base.runner, base.files, waits, base.checkpoints)
    return system, waits.limits


def test_patience_grows_with_a_queue_that_moves_up_to_the_double() -> None:
    base = server()
    base.http.script[f"GET {URL}/metrics"] = [  # type: ignore[attr-defined]
        metrics(7),
        metrics(9, running=8, waiting=4),
        metrics(11, running=8, waiting=54),
        metrics(11, running=8, waiting=54),
    ]
    system, limits = timed(base)
    for _ in range(4):
        run(system)

    assert limits == [20.0, 30.0, 40.0, 20.0]


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LISTENS = "0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 111"
CLIENT = "0100007F:1F40 0100007F:9C40 01 00000000:00000000 00:00000000 00000000 0 0 222"


def connections(root: Path, *rows: str) -> None:
    """The node's table of TCP connections (the server listens on 127.0.0.1:8000)."""
    folder = root / "proc/net"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [HEAD, *(f"{number:4}: {row}" for number, row in enumerate(rows))]
    (folder / "tcp").write_text("\n".join(lines) + "\n")


def hanging(
    root: Path, *rows: str, pages: list[str] | None = None, after: Any = LATE, takes: float = 0.05
) -> tuple[System, list[float]]:
    """A server that answered three times and then no more, and the time-outs of what is asked
    from then on. ``pages``: what its metrics page says then (idle, without a step)."""
    connections(root, *rows)
    script = {
        f"GET {URL}/metrics": [*[metrics(7)] * 3, *(pages or [metrics(7)])],
        f"GET {URL}/v1/models": MODELS,
        f"GET {URL}/openapi.json": ROUTES,
        f"GET {URL}/is_paused": Response(404, b""),
        f"GET {URL}/is_sleeping": Response(404, b""),
        f"POST {URL}/v1/completions": [ANSWER, ANSWER, ANSWER, *after]
        if isinstance(after, list)
        else [ANSWER, ANSWER, ANSWER, after],
    }
    system, limits = timed(fake_system(pages=script, root=root), takes)
    for _ in range(3):
        run(system)
    limits.clear()
    return system, limits


def test_an_idle_server_that_hangs_is_given_up_after_two_quick_tries(tmp_path: Path) -> None:
    system, limits = hanging(tmp_path, LISTENS)
    begun = system.clock.mono()
    found = run(system)

    assert (verdict(found), success(found), limits) == ("failed", [0.0], [2.0, 2.0])
    assert system.clock.mono() - begun == pytest.approx(4.0)


def test_after_a_failure_the_probe_is_patient(tmp_path: Path) -> None:
    system, limits = hanging(tmp_path, LISTENS)
    run(system)
    limits.clear()

    assert (verdict(run(system)), limits) == ("failed", [20.0])


def test_one_lost_answer_of_an_idle_server_is_no_failure(tmp_path: Path) -> None:
    system, limits = hanging(tmp_path, LISTENS, after=[LATE, ANSWER])

    assert (verdict(run(system)), limits) == ("ok", [2.0, 2.0])


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((LISTENS, CLIENT), id="a client that may keep it busy"),
        pytest.param((), id="nobody is seen to listen: another network"),
    ],
)
def test_an_idle_looking_server_that_may_have_work_is_waited_for(
    tmp_path: Path, rows: tuple[str, ...]
) -> None:
    system, limits = hanging(tmp_path, *rows, after=[LATE, ANSWER])

    assert (verdict(run(system)), limits) == ("ok", [2.0, 20.0])


@pytest.mark.parametrize("page", [metrics(8), metrics(7, running=1), metrics(7, waiting=1)])
def test_a_server_that_got_work_meanwhile_is_waited_for(tmp_path: Path, page: str) -> None:
    system, limits = hanging(tmp_path, LISTENS, pages=[metrics(7), page], after=[LATE, ANSWER])

    assert (verdict(run(system)), limits) == ("ok", [2.0, 20.0])


def test_a_server_with_requests_is_waited_for(tmp_path: Path) -> None:
    system, limits = hanging(tmp_path, LISTENS, pages=[metrics(7, running=2)])

    assert (verdict(run(system)), limits) == ("failed", [20.0])


def test_a_server_that_began_anew_is_waited_for(tmp_path: Path) -> None:
    system, limits = hanging(tmp_path, LISTENS, pages=[metrics(0)])

    assert (verdict(run(system)), limits) == ("failed", [20.0])


@pytest.mark.parametrize(("takes", "expected"), [(0.4, [4.0, 4.0]), (1.0, [20.0])])
def test_a_slow_server_is_given_ten_times_what_it_usually_takes(
    tmp_path: Path, takes: float, expected: list[float]
) -> None:
    system, limits = hanging(tmp_path, LISTENS, takes=takes)

    assert (verdict(run(system)), limits) == ("failed", pytest.approx(expected))


def test_a_failure_and_its_end_are_told_once_and_the_failure_at_once(tmp_path: Path) -> None:
    system, _ = hanging(tmp_path, LISTENS, after=[LATE, LATE, LATE, ANSWER])
    told = [[x for x in run(system) if isinstance(x, Event)] for _ in range(4)]

    assert [[(event.kind, event.urgent) for event in events] for events in told] == [
        [("probe_failed", True)],
        [],
        [("probe_recovered", False)],
        [],
    ]


def test_own_connections_are_no_clients(tmp_path: Path) -> None:
    mapped = "0000000000000000FFFF0000"
    mine = "0100007F:9C42 0100007F:1F40 01 00000000:00000000 00:00000000 00000000 0 0 333"
    connections(tmp_path, mine)
    rows = [LISTENS, CLIENT, CLIENT.replace("9C40", "9C42")]
    text = "\n".join([HEAD, *(f"   0: {r.replace('0100007F', mapped + '0100007F')}" for r in rows)])
    (tmp_path / "proc/net/tcp6").write_text(text + "\n")
    (tmp_path / "proc/self/fd").mkdir(parents=True)
    (tmp_path / "proc/self/fd/5").symlink_to("socket:[333]")

    assert clients(Files(tmp_path), 8000) == 1
