"""The scrape of a vLLM server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.system import fake_system
from vllm_watchdog.collectors.vllm_metrics import VllmMetrics, capture
from vllm_watchdog.watchdog.contracts import Collector
from vllm_watchdog.watchdog.errors import HttpError, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Event, Page, Sample, labelset
from vllm_watchdog.watchdog.system import Response, System

URL = "http://127.0.0.1:8000"
PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0"} 2.0\n'
SERVICE = (("service", "s"),)


def server(metrics: object = PAGE, health: object = b"") -> System:
    return fake_system(pages={f"GET {URL}/metrics": metrics, f"GET {URL}/health": health})


def scrape(system: System, **settings: object) -> list[object]:
    return list(VllmMetrics("s", URL, **settings).collect(system))  # type: ignore[arg-type]


def test_it_is_a_collector_that_owns_its_service() -> None:
    collector = VllmMetrics("s", URL)

    assert isinstance(collector, Collector)
    assert (collector.instance, dict(collector.scope)) == ("vllm_metrics/s", {"service": "s"})


def test_the_page_passes_through_with_the_service_and_the_server_is_up() -> None:
    found = scrape(server())

    running = labelset({"engine": "0", "service": "s"}, "vllm:num_requests_running")
    assert [
        Page((running,), (2.0,)),
        Sample("service_up", 1.0, SERVICE),
        Sample("service_health", 1.0, SERVICE),
    ] == found


def test_a_repeated_page_gives_the_same_keys_object() -> None:
    collector, system = VllmMetrics("s", URL), server()
    first, second = (next(iter(collector.collect(system))) for _ in range(2))

    assert isinstance(first, Page) and isinstance(second, Page)
    assert first.keys is second.keys


def test_a_refused_connection_says_down_and_is_no_error() -> None:
    refused = HttpError("refused", "refused")

    assert [
        Sample("service_up", 0.0, SERVICE),
        Sample("service_health", 0.0, SERVICE),
    ] == scrape(server(refused, refused))


@pytest.mark.parametrize(
    "answer",
    [
        HttpError("late", "timeout"),
        Response(503, b""),
        Response(200, b"a 1\n", truncated=True),
        b"",
        b"# HELP a b\n",
        b"<html>",
    ],
)
def test_what_is_no_page_is_an_error_and_no_zero(answer: object) -> None:
    with pytest.raises((SourceError, HttpError)):
        scrape(server(answer))


@pytest.mark.parametrize(
    ("answer", "value"), [(Response(503, b""), 0.0), (HttpError("late", "timeout"), 0.0)]
)
def test_health_that_is_not_200_is_zero(answer: object, value: float) -> None:
    assert Sample("service_health", value, SERVICE) in scrape(server(health=answer))


def test_a_server_without_a_health_route_has_no_health() -> None:
    names = [x.name for x in scrape(server(health=Response(404, b""))) if isinstance(x, Sample)]

    assert names == ["service_up"]


def test_missing_engine_series_are_told_once() -> None:
    system, collector = server(b"process_open_fds 45\n"), VllmMetrics("s", URL)
    first = list(collector.collect(system))
    checkpoint = next(item for item in first if isinstance(item, Checkpoint))
    system.checkpoints.put(collector.instance, checkpoint.doc)
    second = list(collector.collect(system))

    kinds = [[x.kind for x in run if isinstance(x, Event)] for run in (first, second)]
    assert kinds == [["metrics_missing_engine_series"], []]


def test_lines_that_were_left_out_are_counted() -> None:
    skipped = labelset({"service": "s", "reason": "broken"})

    found = scrape(server(PAGE + b"rubbish\n"))
    assert Sample("service_metrics_skipped_lines", 1.0, skipped) in found


def test_the_key_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    seen: list[object] = []

    class Http:
        def request(self, method: str, url: str, **more: object) -> Response:
            seen.append(more["headers"])
            return Response(200, PAGE)

    base = fake_system(root=tmp_path)
    system = System(base.clock, base.runner, base.files, Http(), base.checkpoints)
    scrape(system, api_key_file="/key")

    assert all(headers["Authorization"] == "Bearer secret" for headers in seen)  # type: ignore[index]


def test_a_saved_page_is_read_without_a_service() -> None:
    keys = (labelset({"engine": "0"}, "vllm:num_requests_running"),)

    assert [Page(keys, (2.0,))] == capture(PAGE)


def test_a_saved_page_without_samples_is_told_as_such() -> None:
    found = capture(b"# HELP vllm:num_requests_running x\n")

    assert [x.kind for x in found if isinstance(x, Event)] == ["metrics_not_reporting"]
    assert len(found) == 1


@pytest.mark.parametrize("body", [b"", b"\n", b"<html>", b"nothing\n"])
def test_a_saved_body_that_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises(SourceError):
        capture(body)


class Patience:
    """An HTTP client that keeps what time it was given for each request."""

    def __init__(self) -> None:
        self.given: dict[str, float] = {}

    def request(self, method: str, url: str, *, timeout: float, **more: object) -> Response:
        self.given[url.removeprefix(URL)] = timeout
        return Response(200, PAGE)


def test_both_requests_together_end_with_the_time_out_of_the_run() -> None:
    http = Patience()
    list(VllmMetrics("s", URL, timeout=5.0).collect(replace(fake_system(), http=http)))

    assert http.given == {"/metrics": 2.5, "/health": 2.5}
