"""The metrics page: what Prometheus' own tools and parsers make of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.support import peers
from tests.support.servers import Server, free_port
from vllm_watchdog.watchdog.api import CollectorFigures, OutletFigures, Snapshot
from vllm_watchdog.watchdog.api.exporter import Exporter, own_series
from vllm_watchdog.watchdog.model import Labels, labelset

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PAGE: list[tuple[Labels, float]] = [
    (labelset({"vendor": "ascend", "card": "0000:c1:00", "job": "j", "instance": "i"}, "accelerator_present"), 1.0),
    (labelset({"vendor": "ascend", "card": "0000:c1:00", "kind": "correctable"}, "accelerator_ecc_errors_total"), 3.0),
    (labelset({"service": "a", "text": 'back\\slash "quote"\nline'}, "service_up"), 0.0),
    (labelset({"service": "a", "le": "0.5"}, "vllm:e2e_request_latency_seconds_bucket"), 2.0),
    (labelset({"service": "a", "le": "+Inf"}, "vllm:e2e_request_latency_seconds_bucket"), 3.0),
    (labelset({"service": "a"}, "vllm:e2e_request_latency_seconds_count"), 3.0),
    (labelset({"service": "a"}, "vllm:e2e_request_latency_seconds_sum"), 1234567.891),
    (labelset({"service": "a"}, "vllm:num_requests_running"), float("inf")),
    (labelset({"service": "a"}, "vllm:prompt_tokens_total"), 1e21),
    (labelset({"service": "a"}, "vllm:lone_sum"), float("nan")),
]  # fmt: skip
FULL = Snapshot(
    version="1.2.3",
    ready=True,
    series=PAGE,
    collectors=[
        CollectorFigures("npu_smi", True, 0.25, succeeded=1.7e9),
        CollectorFigures("l3", False, stalled=True),
    ],
    outlets=[OutletFigures("elasticsearch", lag=7, sent=3, errors=2, refused=1, lost=4)],
    alerts={("CardLost", "firing"): 2},
    ticks=10,
)


def render(series: Sequence[tuple[Labels, float]], accept: str = "") -> list[str]:
    """The page's lines without the daemon's own metrics."""
    text = Exporter().render(Snapshot(series=series), accept)[0].decode()
    return [line for line in text.splitlines() if "watchdog_" not in line]


def test_a_series_keeps_its_name_and_labels_but_for_job_and_instance() -> None:
    assert render(PAGE[:1]) == [
        "# HELP accelerator_present 1 if an expected card is there, 0 if it is gone.",
        "# TYPE accelerator_present gauge",
        'accelerator_present{card="0000:c1:00",vendor="ascend"} 1.0',
    ]


def test_a_counter_is_a_counter_in_both_forms() -> None:
    line = 'accelerator_ecc_errors_total{card="0000:c1:00",kind="correctable",vendor="ascend"} 3.0'

    assert ["# TYPE accelerator_ecc_errors_total counter", line] == render(PAGE[1:2])[1:]
    assert ["# TYPE accelerator_ecc_errors counter", line] == render(PAGE[1:2], OPENMETRICS)[1:-1]


def test_flat_histogram_series_are_one_histogram_again_in_their_own_order() -> None:
    lines = render(PAGE[3:7])

    assert lines[1] == "# TYPE vllm:e2e_request_latency_seconds histogram"
    assert [line.partition("{")[0].rpartition("_")[2] for line in lines[2:]] == [
        "bucket",
        "bucket",
        "count",
        "sum",
    ]


def test_a_sum_without_buckets_is_untyped() -> None:
    assert render(PAGE[9:])[1:] == [
        "# TYPE vllm:lone_sum untyped",
        'vllm:lone_sum{service="a"} NaN',
    ]


def test_openmetrics_calls_a_foreign_gauge_unknown_and_ends_with_eof() -> None:
    lines = render(PAGE[7:8], OPENMETRICS)

    assert lines[1:] == [
        "# TYPE vllm:num_requests_running unknown",
        'vllm:num_requests_running{service="a"} +Inf',
        "# EOF",
    ]


def test_a_counter_beside_a_series_of_its_base_name_stays_apart() -> None:
    both = [(labelset({}, "x"), 1.0), (labelset({}, "x_total"), 2.0)]

    assert render(both, OPENMETRICS)[1:3] == ["# TYPE x unknown", "x 1.0"]
    assert render(both, OPENMETRICS)[4:6] == ["# TYPE x_total unknown", "x_total 2.0"]


def test_series_that_differ_only_in_what_is_left_out_are_there_once() -> None:
    twice = [(labelset({"instance": name}, "x"), value) for name, value in (("a", 1.0), ("b", 2.0))]

    assert render(twice)[2:] == ["x 1.0"]


@pytest.mark.parametrize("accept", ["", OPENMETRICS], ids=["text", "openmetrics"])
def test_the_page_is_what_prometheus_client_would_write(accept: str) -> None:
    page = Exporter().render(FULL, accept)[0].decode()
    families = list(read_openmetrics(page) if accept else read_text(page))
    generate = generate_openmetrics if accept else generate_latest

    # With "underscores" prometheus_client spoils colons in OpenMetrics, which are valid there.
    assert page == generate(_Given(families), escaping="allow-utf-8").decode()  # type: ignore[arg-type]


class _Given:
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def test_a_second_rendering_is_the_same_and_what_has_ended_is_gone() -> None:
    exporter = Exporter()
    first = exporter.render(FULL, "")

    assert first == exporter.render(FULL, "")
    assert b"accelerator_" not in exporter.render(Snapshot(), "")[0]
    assert first == exporter.render(FULL, "")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html, */*", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
    ],
)  # fmt: skip
def test_the_content_type_follows_the_accept_header(accept: str, content_type: str) -> None:
    assert content_type == Exporter().render(FULL, accept)[1]


def test_a_name_outside_the_old_alphabet_is_quoted_or_escaped_as_asked() -> None:
    series = [(labelset({"a.b": "v"}, "x.y"), 1.0)]

    assert render(series, OPENMETRICS + "; escaping=allow-utf-8")[2:-1] == ['{"x.y","a.b"="v"} 1.0']
    assert render(series)[2:] == ['x_y{a_b="v"} 1.0']


def test_own_figures_are_on_the_page() -> None:
    page = Exporter().render(FULL, "")[0].decode().splitlines()

    for line in (
        "watchdog_ticks_total 10.0",
        'watchdog_collector_success{collector="npu_smi"} 1.0',
        'watchdog_collector_duration_seconds{collector="npu_smi"} 0.25',
        'watchdog_collector_stalled{collector="l3"} 1.0',
        'watchdog_outlet_lag_events{outlet="elasticsearch"} 7.0',
        'watchdog_outlet_lost_total{outlet="elasticsearch"} 4.0',
        'watchdog_alerts{alertname="CardLost",alertstate="firing"} 2.0',
    ):
        assert line in page


def test_a_collector_of_something_this_node_lacks_has_neither_succeeded_nor_failed() -> None:
    absent = Snapshot(collectors=[CollectorFigures("npu_smi", False, absent=True)])

    assert b"npu_smi" not in Exporter().render(absent, "")[0]


def test_another_exporters_metric_keeps_its_type_and_words() -> None:
    replays = Snapshot(
        series=[(labelset({"gpu": "0"}, "DCGM_REPLAYS"), 3.0)],
        described={"DCGM_REPLAYS": ("counter", "replays in all")},
    )
    text, openmetrics = (
        Exporter().render(replays, accept)[0].decode().splitlines()[:3]
        for accept in ("", OPENMETRICS)
    )

    assert text == [
        "# HELP DCGM_REPLAYS replays in all",
        "# TYPE DCGM_REPLAYS counter",
        'DCGM_REPLAYS{gpu="0"} 3.0',
    ]
    assert openmetrics[1:] == ["# TYPE DCGM_REPLAYS unknown", 'DCGM_REPLAYS{gpu="0"} 3.0']


def test_what_a_failing_collector_last_told_has_an_age() -> None:
    name = b"watchdog_collector_last_success_timestamp_seconds"
    failing = Snapshot(collectors=[CollectorFigures("l3", False, succeeded=1.7e9)])
    never = Snapshot(collectors=[CollectorFigures("l3", False)])

    assert name + b'{collector="l3"} 1.7e+09' in Exporter().render(failing, "")[0]
    assert name not in Exporter().render(never, "")[0]


@pytest.mark.parametrize("tool", ["promtool", "promtool-2.42"])
def test_promtool_finds_nothing_to_complain_of(tool: str) -> None:
    own = [pair for pair in PAGE if not dict(pair[0])["__name__"].startswith("vllm:lone")]
    page = Exporter().render(
        Snapshot(series=own, collectors=FULL.collectors, outlets=FULL.outlets), ""
    )
    done = subprocess.run(
        [peers.require(tool), "check", "metrics"], input=page[0], capture_output=True, check=False
    )

    complaints = (done.stdout + done.stderr).decode().splitlines()
    assert [line for line in complaints if "vllm:" not in line] == []


@pytest.mark.peer
def test_a_real_prometheus_scrapes_each_series_under_its_own_labels(tmp_path: Path) -> None:
    import threading
    import time
    from http.server import BaseHTTPRequestHandler, HTTPServer

    from tests.support import servers

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, content_type = Exporter().render(FULL, self.headers.get("Accept", ""))
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    port = free_port()
    with HTTPServer(("127.0.0.1", port), Page) as pages:
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        config = (
            "scrape_configs: [{job_name: node, scrape_interval: 200ms, scrape_timeout: 200ms,"
            f" static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
        )
        with servers.prometheus(tmp_path / "prometheus", config) as server:
            found = _until(server, len(PAGE), time)
        pages.shutdown()

    added = {"job": "node", "instance": f"127.0.0.1:{port}"}
    wanted = {labelset({**dict(key), **added}) for key, _ in PAGE}
    assert wanted == {labelset(series) for series in found}


def _until(server: Server, count: int, clock: object) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    for _ in range(100):
        answer = server.get("/api/v1/series?match[]={__name__!~'watchdog_.*|up|scrape_.*',job!=''}")
        found = answer["data"]
        if len(found) >= count:
            break
        clock.sleep(0.1)  # type: ignore[attr-defined]
    return found


def test_every_metric_of_the_daemon_is_described_on_its_page_and_no_other() -> None:
    page = (Path(__file__).parents[1] / "docs/telling.md").read_text()
    described = set(re.findall(r"^\| `(watchdog_\w+)` \|", page, re.M))
    series = own_series(FULL)

    assert described == {dict(key)["__name__"] for key, _ in series}
