"""Which lines mean something, and which of them are one event."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.logpatterns import Pattern, parse, shipped
from vllm_watchdog.watchdog.logrecords import LogRecord
from vllm_watchdog.watchdog.logs import Classifier, classify
from vllm_watchdog.watchdog.logscan import HyperscanScanner, Re2Scanner

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 2 has a total "
    "capacity of 10.00 GiB of which 0.50 GiB is free. Including non-PyTorch memory, this process "
    "has 9.50 GiB memory in use. Of the allocated memory 9.00 GiB is allocated by PyTorch, and "
    "100.00 MiB is reserved by PyTorch but unallocated."
)
ERROR = "(EngineCore pid=7) ERROR 03-04 05:06:07 [core.py:9] "
KINDS = {
    "oom_device", "kv_cache_unavailable", "engine_dead", "engine_proc_died", "engine_init_failed",
    "ipc_stall", "rpc_timeout", "collective_timeout", "device_fault", "device_ecc", "device_lost",
    "driver_fault", "app_fault", "recovery_hint", "npu_error", "hccl_link", "hccl_timeout",
    "preemption", "request_error_client", "request_error_server", "ray_actor_died", "context",
    "lifecycle", "output_corrupt", "nvlink_fault", "nvswitch_fault", "pcie_error", "host_oom",
    "npu_event", "collective_error", "collective_abort", "server_exit", "worker_died",
    "worker_exception", "",
}  # fmt: skip


def read(text: str, source: str | None = "vllm", **settings: Any) -> list[LogRecord]:
    return classify(text.encode(), source, **settings)


def told(records: list[LogRecord]) -> list[tuple[str, int]]:
    return [(record.kind, record.line) for record in records]


# ---- the patterns, as data ----


@pytest.mark.parametrize("pattern", shipped(), ids=lambda pattern: pattern.name)
def test_the_example_of_a_pattern_is_recognised(pattern: Pattern) -> None:
    for source in (*pattern.sources, None):
        records = read(pattern.example, source)
        if not pattern.kind:
            continue
        fields = {"kind": records[0].kind, **records[0].fields}
        assert fields["kind"] == pattern.expect.get("kind", pattern.kind)
        assert {name: fields.get(name) for name in pattern.expect} == dict(pattern.expect)


@pytest.mark.parametrize("pattern", shipped(), ids=lambda pattern: pattern.name)
def test_an_expression_means_the_same_to_re2(pattern: Pattern) -> None:
    for expression in (pattern.match, pattern.unless):
        if expression is not None:
            linear = re2.compile(expression.pattern)
            text = pattern.example
            assert bool(linear.search(text)) == bool(re.search(expression.pattern, text))


def test_names_are_unique_and_kinds_are_words_of_the_vocabulary() -> None:
    names = [pattern.name for pattern in shipped()]

    assert len(names) == len(set(names))
    assert {pattern.kind for pattern in shipped()} <= KINDS


def test_bad_patterns_are_all_named() -> None:
    rows = "patterns:\n- {name: a, kind: x}\n- {name: b, kind: x, severity: loud, source: vllm}\n"
    with pytest.raises(ConfigError) as problems:
        parse(rows)

    assert len(problems.value.problems) == 2


# ---- both scanners ----

LITERALS = ("alpha", "beta", "alp", "ta\x7f", "ééé")


@given(st.lists(st.sampled_from([*LITERALS, "x", "al", "be", "é"]), max_size=40), st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_both_scanners_find_the_same_lines(words: list[str], every: int) -> None:
    text = "".join(
        word + ("\n" if every and place % every == 0 else " ") for place, word in enumerate(words)
    )
    found = [
        [(start, stop, sorted(held)) for start, stop, held in scan(LITERALS).hits(text.encode())]
        for scan in (HyperscanScanner, Re2Scanner)
    ]

    assert found[0] == found[1]


def test_both_scanners_give_the_same_records() -> None:
    text = "\n".join(pattern.example for pattern in shipped()) + "\n"
    results = []
    for scan in (HyperscanScanner, Re2Scanner):
        reader = Classifier(None, scan=scan)
        results.append(reader.feed(text.encode()) + reader.finish())

    assert results[0] == results[1]


# ---- blocks, bytes, encodings ----


def test_a_log_in_pieces_gives_the_same_events() -> None:
    text = (ERROR + OOM + "\n" + ERROR + "EngineCore encountered a fatal error.\n").encode()
    reader = Classifier("vllm")
    records = [
        record for place in range(len(text)) for record in reader.feed(text[place : place + 1])
    ]

    assert told(records + reader.finish()) == [("oom_device", 1), ("engine_dead", 2)]


def test_a_cut_last_line_waits_for_its_rest() -> None:
    reader = Classifier("vllm")

    assert reader.feed((ERROR + OOM[:40]).encode()) == []
    assert told(reader.feed((OOM[40:] + "\n").encode())) == [("oom_device", 1)]


def test_a_hole_that_truncation_left_costs_next_to_nothing() -> None:
    reader = Classifier("vllm")
    start = time.process_time()

    reader.feed(bytes(16 * 1024 * 1024))

    assert time.process_time() - start < 0.25  # a second and more where each NUL is looked at


def test_nul_bytes_are_passed_over() -> None:
    text = b"\0" * 5000 + (ERROR + OOM).encode() + b"\n"

    assert told(classify(text, "vllm")) == [("oom_device", 1)]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16", "gb18030", "latin-1"])
def test_other_encodings_are_read(encoding: str) -> None:
    text = "启动\n" if encoding != "latin-1" else "d\xe9marrage\n"
    data = (text + ERROR + OOM + "\n").encode(encoding)

    assert [record.kind for record in classify(data, "vllm")] == ["oom_device"]


def test_an_endless_line_is_bounded() -> None:
    reader = Classifier("vllm")
    for _ in range(5):
        reader.feed(b"x" * (1 << 20))

    assert told(reader.feed(b"\n" + ERROR.encode() + OOM.encode() + b"\n"))[0][0] == "oom_device"
    assert len(reader._rest) < 1 << 20


def test_colour_is_taken_out_of_the_text() -> None:
    line = (
        "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m \x1b[31mERROR\x1b[0m \x1b[90m03-04 05:06:07\x1b[0m "
    )
    (record,) = read(line + "\x1b[90m[core.py:9]\x1b[0m " + OOM)

    assert record.text == ERROR + OOM
    assert record.fields["pid"] == 7


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "vllm-1  | ",
        "Jan  2 03:04:05 node vllm[12]: ",
        "2026-01-02T03:04:05.678901234Z stdout F ",
        "2026-01-02 03:04:05.678 (MapWorker(Map(Actor)) pid=1, ip=192.0.2.1) ",
    ],
)
def test_outer_prefixes_are_seen_through(prefix: str) -> None:
    (record,) = read(prefix + ERROR + OOM)

    assert (record.kind, record.fields["pid"]) == ("oom_device", 7)


# ---- what does not count ----


@pytest.mark.parametrize(
    "line",
    [
        'INFO 03-04 05:06:07 [logger.py:43] Received request cmpl-1: prompt: "CUDA out of memory. Tried to allocate 1.00 GiB", params: x',
        "DEBUG 03-04 05:06:07 [x.py:1] EngineDeadError is an exception",
        'INFO:     192.0.2.1:1 - "GET /health HTTP/1.1" 503 Service Unavailable',
        'INFO:     192.0.2.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        "INFO 03-04 05:06:07 [launcher.py:9] Route: /pause, Methods: POST",
        "[12.3] nvidia-nvswitch2: open (major=510)",
        "nanobind: leaked 64 types!",
    ],
)
def test_quiet_and_foreign_text_is_no_event(line: str) -> None:
    assert read(line, None) == []


def test_source_text_in_a_traceback_does_not_count_beside_its_exception() -> None:
    text = "\n".join(
        ERROR + line
        for line in (
            "Traceback (most recent call last):",
            '  File "/x/worker.py", line 1, in f',
            '    raise ValueError("No available memory for the cache blocks. "',
            "ValueError: No available memory for the cache blocks. Try more.",
        )
    )

    assert told(read(text)) == [("kv_cache_unavailable", 4)]


def test_source_text_whose_exception_is_cut_off_counts_once() -> None:
    text = "\n".join(
        ERROR + line
        for line in (
            '    raise ValueError("No available memory for the cache blocks. "',
            '                     "Try more.")',
        )
    )

    (record,) = read(text)
    assert (record.kind, record.line, record.fields["cut"]) == ("kv_cache_unavailable", 1, True)


def test_source_text_whose_exception_comes_with_the_next_block_does_not_count() -> None:
    reader = Classifier("vllm")
    first = reader.feed(
        (ERROR + '    raise ValueError("No available memory for the cache blocks. "\n').encode()
    )
    second = reader.feed(
        (ERROR + "ValueError: No available memory for the cache blocks. x\n").encode()
    )

    assert first == []
    assert told(second + reader.finish()) == [("kv_cache_unavailable", 2)]


# ---- one event ----


def test_what_a_dying_engine_says_many_times_is_one_event() -> None:
    lines = [
        ERROR + "EngineCore encountered a fatal error.",
        *[
            "ERROR 03-04 05:06:08 [async_llm.py:9] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
        ]
        * 9,
        "INFO 03-04 05:06:08 [async_llm.py:3] Request cmpl-9 failed (engine dead).",
    ]
    (record,) = read("\n".join(lines))

    assert (record.kind, record.line) == ("engine_dead", 1)
    assert record.fields["failed_request"] == "cmpl-9"


def test_the_same_death_a_day_later_is_another_event() -> None:
    text = "\n".join(
        f"ERROR {day} 05:06:07 [core.py:9] EngineCore encountered a fatal error."
        for day in ("03-04", "03-05")
    )

    assert told(read(text)) == [("engine_dead", 1), ("engine_dead", 2)]


def test_copies_that_ray_folded_are_counted() -> None:
    (record,) = read(ERROR + OOM + " [repeated 6x across cluster]")

    assert record.fields["copies"] == 6


def test_what_was_told_is_not_told_again_by_the_next_block() -> None:
    reader = Classifier("vllm")
    line = (ERROR + "EngineCore encountered a fatal error.\n").encode()

    assert [len(reader.feed(line)) for _ in range(3)] == [1, 0, 0]


def test_two_lines_of_a_card_that_fell_off_are_one_event() -> None:
    text = (
        "[10.1] NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus.\n"
        "[10.2] NVRM: GPU 0000:c1:00.0: GPU has fallen off the bus.\n"
    )

    assert told(read(text, "kernel")) == [("device_lost", 1)]


def test_a_card_that_falls_off_over_three_lines_is_one_event() -> None:
    text = (
        "[10.1] NVRM: The NVIDIA GPU 0000:c1:00.0\n"
        "       NVRM: (PCI ID: 10de:2330) installed in this system has\n"
        "       NVRM: fallen off the bus and is not responding to commands.\n"
    )

    assert told(read(text, "kernel")) == [("device_lost", 1)]


def test_a_card_that_is_only_unsupported_is_not_lost() -> None:
    text = (
        "[10.1] NVRM: The NVIDIA GPU 0000:c1:00.0 (PCI ID: 10de:1111)\n"
        "NVRM: installed in this system is not supported by this driver.\n"
    )

    assert read(text, "kernel") == []


def test_the_details_of_an_sxid_are_not_counted_again() -> None:
    head = "[10.1] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, "
    text = "\n".join(
        head + tail
        for tail in ("Fatal, Link 3 LTSSM Fault Up", "Severity 1 Engine instance 3", "Data {0x1}")
    )

    assert told(read(text, "kernel")) == [("nvswitch_fault", 1)]


def test_cann_text_over_many_lines_is_one_event_under_its_telling_code() -> None:
    text = (
        "RuntimeError: x.ts:1 NPU function error: aclrtSynchronize(s), error code is 507046\n"
        "[ERROR] 2026-01-02-03:04:05 (PID:5, Device:3, RankID:-1) ERR00100 PTA call acl api failed\n"
        "[Error]: A task of the stream timed out.\n"
        "EZ9999: Inner Error!\n"
        "        synchronize stream failed, runtime result = 507046[FUNC:x]\n"
    )
    (record,) = read(text)

    assert (record.kind, record.line) == ("npu_error", 1)
    assert dict(record.fields) == {
        "code": "507046",
        "class": "stream_timeout",
        "secondary": "EZ9999,ERR00100",
        "pid": 5,
        "device": 3,
    }


def test_a_follow_up_code_alone_is_secondary() -> None:
    line = "[ERROR] 2026-01-02-03:04:05 (PID:5, Device:3, RankID:-1) ERR99999 UNKNOWN\n"
    (record,) = read(line)

    assert (record.severity, record.fields["role"]) == ("info", "secondary")


# ---- cause and consequence ----


def test_an_engine_that_dies_of_memory_names_its_cause() -> None:
    text = ERROR + OOM + "\n" + ERROR + "EngineCore encountered a fatal error."
    memory, dead = read(text)

    assert (memory.severity, dead.fields["cause"]) == ("critical", "oom_device")


def test_an_out_of_memory_that_kills_nobody_is_a_warning() -> None:
    assert [record.severity for record in read(ERROR + OOM)] == ["warning"]


def test_an_engine_that_is_stopped_on_purpose_has_no_fault() -> None:
    text = (
        "(APIServer pid=1) INFO 03-04 05:06:07 [launcher.py:9] [shutdown] API server: shutdown triggered\n"
        "(APIServer pid=1) ERROR 03-04 05:06:08 [async_llm.py:9] vllm.v1.engine.exceptions.EngineDeadError: x\n"
    )
    dead = read(text)[1]

    assert (dead.severity, dead.fields["during_shutdown"]) == ("info", True)


def test_three_stalls_in_a_row_are_critical() -> None:
    text = "\n".join(
        f"(EngineCore pid=7) INFO 03-04 05:0{minute}:07 [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds. x"
        for minute in range(4)
    )

    severities = [record.severity for record in read(text)]
    assert severities == ["warning", "warning", "critical", "critical"]


def test_a_stall_while_the_engine_starts_is_no_warning() -> None:
    text = (
        "INFO 03-04 05:06:07 [model_runner.py:9] Starting to load model m...\n"
        "INFO 03-04 05:07:07 [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds. x\n"
    )

    assert [record.severity for record in read(text)] == ["info", "info"]


@pytest.mark.parametrize(
    ("sizes", "cause", "rate"),
    [
        # reserved but unused 4 of 36 GiB; with the free 1 GiB more than the 2 GiB asked for
        (("2.00", "40.00", "1.00", "32.00", "4.00"), "fragmentation", 0.1111),
        (("8.00", "40.00", "1.00", "32.00", "4.00"), "capacity", 0.1111),
        # 40 - 1 - 6 = 33 GiB are somebody else's
        (("2.00", "40.00", "1.00", "5.00", "1.00"), "foreign_process", 0.1667),
    ],
)
def test_the_sizes_of_an_out_of_memory_tell_its_cause(
    sizes: tuple[str, ...], cause: str, rate: float
) -> None:
    tried, total, free, allocated, unused = sizes
    (record,) = read(
        f"RuntimeError: CUDA out of memory. Tried to allocate {tried} GiB. GPU 0 has a total capacity of {total} GiB of which {free} GiB is free. Of the allocated memory {allocated} GiB is allocated by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated."
    )

    assert (record.fields["cause"], record.fields["fragmentation"]) == (cause, rate)


# ---- time and secrets ----


@pytest.mark.parametrize(
    ("line", "moment"),
    [
        ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 79, pid=1", "2025-02-23T16:24:18Z"),
        ("2024-04-29T14:55:41,678628+02:00 NVRM: Xid (PCI:0000:9b:00): 79", "2024-04-29T12:55:41.678628Z"),
        ("[12345.678901] NVRM: Xid (PCI:0000:9b:00): 79", None),
        ("Dec 31 23:59:59 node kernel: NVRM: Xid (PCI:0000:9b:00): 79", "2024-12-31T23:59:59Z"),
        ("Jan  2 00:00:01 node kernel: NVRM: Xid (PCI:0000:9b:00): 79", "2025-01-02T00:00:01Z"),
    ],
)  # fmt: skip
def test_the_time_of_a_line_is_told_in_rfc_3339(line: str, moment: str | None) -> None:
    (record,) = read(line, "kernel", reference=1735776000.0)  # 2025-01-02T00:00:00Z

    assert record.document()["time"] == moment


def test_without_a_year_and_a_reference_there_is_no_time() -> None:
    assert [record.time for record in read(ERROR + OOM)] == [None]


def test_request_dumps_are_cut() -> None:
    line = (
        ERROR
        + "Dumping input data for V1 LLM engine (v0.11.0) with config: SECRET, prompt_token_ids=[1]"
    )
    (record,) = read(line)

    assert "SECRET" not in record.text


def test_a_record_is_json() -> None:
    (record,) = read(ERROR + OOM)

    assert list(record.document()) == ["kind", "severity", "line", "text", "time", "fields"]


@given(st.binary(max_size=2000))
@settings(max_examples=200, deadline=None)
def test_rubbish_is_read_without_complaint(data: bytes) -> None:
    assert isinstance(classify(data), list)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_lines_are_read_without_complaint(data: st.DataObject) -> None:
    pattern = data.draw(st.sampled_from(shipped()))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(pattern.example))] * 2)))
    text = pattern.example[:start] + data.draw(st.text(max_size=5)) + pattern.example[stop:]

    assert isinstance(read(text + "\n" + pattern.example, None), list)


# ---- floods ----


def flood(text: str, times: int, detail: int) -> tuple[list[LogRecord], dict[str, int]]:
    reader = Classifier("vllm", detail=detail)
    records = reader.feed((text + "\n").encode() * times) + reader.finish()
    return records, dict(reader.passed)


def test_a_flood_is_read_up_to_a_bound_and_counted_past_it() -> None:
    line = 'INFO:     192.0.2.7:4040 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error'
    records, passed = flood(line, 500, detail=100)

    assert (len(records), passed) == (100, {"request_error_server": 400})


def test_what_is_one_event_is_not_counted_again_by_a_flood() -> None:
    records, passed = flood(ERROR + "EngineCore encountered a fatal error.", 500, detail=10)

    assert (len(records), passed) == (1, {})


def test_a_flood_of_xids_is_counted_by_what_each_code_means() -> None:
    reader = Classifier("kernel", detail=5)
    for xid in (13, 79) * 10:
        reader.feed(f"[1.2] NVRM: Xid (PCI:0000:c1:00): {xid}, pid=1\n".encode())

    assert dict(reader.passed) == {"app_fault": 7, "device_lost": 8}


@pytest.mark.parametrize(
    "line",
    [
        "INFO 03-04 05:06:07 [x.py:1] Sequence group 1 is preempted by PreemptionMode.SWAP mode",
        ERROR + '    raise X("Sequence group 1 is preempted by PreemptionMode.SWAP mode")\n'
        "XError: something else",
    ],
)
def test_a_flood_does_not_make_quiet_or_source_text_count(line: str) -> None:
    loud = "WARNING 03-04 05:06:07 s.py:9] Sequence group 7 is preempted by PreemptionMode.SWAP"
    _, passed = flood(loud + " mode\n" + line, 50, detail=10)

    assert passed == {"preemption": 40}


def test_a_bound_that_was_used_up_is_renewed() -> None:
    line = b'INFO:     192.0.2.7:4040 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error\n'
    reader = Classifier("vllm", detail=5)
    first = len(reader.feed(line * 20))
    reader.renew()

    assert (first, len(reader.feed(line * 20))) == (5, 5)


def test_the_last_writing_of_a_line_counts() -> None:
    (record,) = read("Loading: 0%\rLoading: 100%\r" + ERROR + OOM)

    assert record.text == ERROR + OOM


# ---- other wordings of the same ----


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 1; 24.00 GiB total capacity; 20.00 GiB already allocated; 1.00 GiB free; 22.00 GiB reserved in total by PyTorch)",
            "oom_device",
            {"device": 1, "tried_gib": 2.0, "total_gib": 24.0, "free_gib": 1.0, "reserved_gib": 22.0},
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 24.00 GiB of which 8.00 MiB is free.",
            "oom_device",
            {"device": 0, "total_gib": 24.0, "free_mib": 8.0},
        ),
        (
            "RuntimeError: NPU out of memory. NPUWorkspaceAllocator tried to allocate 64.00 MiB(NPU 2; 29.50 GiB total capacity; 20.50 MiB free)",
            "oom_device",
            {"tried_mib": 64.0, "total_gib": 29.5, "free_mib": 20.5},
        ),
        (
            "torch.distributed.DistBackendError: NCCL error in: ../c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.20.5",
            "collective_error",
            {"error": "remote process exited or there was a network error"},
        ),
        (
            "[rank3]:[E1206 18:44:12.715 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 3 Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=22, OpType=BROADCAST, NumelIn=1, NumelOut=2, Timeout(ms)=600000) ran for 600083 milliseconds before timing out.",
            "collective_timeout",
            {"rank": 1, "seq": 22, "op": "BROADCAST"},
        ),
        (
            "[rank3]:[E1206 18:44:12.715 x.cpp:1] [PG 0 Rank 3] Process group watchdog thread terminated with exception: CUDA error: an illegal memory access was encountered",
            "device_fault",
            {"error": "illegal_memory_access", "rank": 3},
        ),
        (
            "ERROR 01-02 03:04:05 [serving.py:9] ValueError: The decoder prompt (length 40000) is longer than the maximum model length of 32768.",
            "request_error_client",
            {"requested": 40000, "max_len": 32768, "status": 400},
        ),
        (
            "ERROR 01-02 03:04:05 [serving.py:9] ValueError: 'max_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your request has 5000 input tokens.",
            "request_error_client",
            {"requested": 5000, "max_len": 32768},
        ),
        (
            "ERROR 01-02 03:04:05 async_llm_engine.py:9] Engine background task failed",
            "engine_dead",
            {},
        ),
        ("RuntimeError: EngineCore initialization failed. See root cause above.", "engine_init_failed", {}),
    ],
)  # fmt: skip
def test_other_wordings_are_understood(line: str, kind: str, fields: dict[str, Any]) -> None:
    (record,) = read(line)

    assert record.kind == kind
    assert {name: record.fields.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        (
            "[ 12.3] pcieport 0000:80:01.1: AER: Uncorrectable (Fatal) error message received from 0000:81:00.0",
            "pcie_error",
            {"error": "fatal", "bus_id": "0000:80:01"},
        ),
        (
            "2026-01-02T03:04:05.678+00:00 node kernel: NVRM: GPU at 0000:81:00.0 has fallen off the bus.",
            "device_lost",
            {"bus_id": "0000:81:00"},
        ),
        (
            "[ 12.3] NVRM: Xid (PCI:0000:81:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No",
            "device_ecc",
            {"xid": 94},
        ),
        (
            "3,512,9001,-;NVRM: Xid (PCI:0000:81:00): 31, pid=9, name=ray::WorkerDict, Ch 00000008, intr 00000000. MMU Fault",
            "app_fault",
            {"xid": 31, "name": "ray::WorkerDict", "pid": 9},
        ),
        (
            "[ascend] [ERROR] [drv_soft_fault] [heart_beat_judge 3] <kworker> Heartbeat lost! (device_id=2; current_count=7)",
            "device_lost",
            {"device": 2, "code": "0x40f84e00"},
        ),
        (
            "[ 12.3] nvidia-nvswitch1: SXid (PCI:0000:86:00.0): 26006, Host_unhandled_interrupt",
            "nvswitch_fault",
            {"sxid": 26006, "switch": 1},
        ),
    ],
)  # fmt: skip
def test_other_wordings_of_the_kernel_are_understood(
    line: str, kind: str, fields: dict[str, Any]
) -> None:
    (record,) = read(line, "kernel")

    assert record.kind == kind
    assert {name: record.fields.get(name) for name in fields} == fields


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        (
            "[PID: 7] 2026-01-02-03:04:05.006.007 Communication_Error_Get_Socket(EI0006): Getting socket times out.",
            "hccl_link",
            {"code": "EI0006", "pid": 7},
        ),
        (
            "EI0002: [PID: 7] 2026-01-02-03:04:05.006.007 The wait execution of the Notify register times out.",
            "hccl_timeout",
            {"code": "EI0002", "class": "notify_wait"},
        ),
        (
            "RuntimeError: x:1 HCCL function error: hcclAllReduce, error code is 4",
            "npu_error",
            {"code": "4"},
        ),
        (
            "RuntimeError: x:1 NPU function error: c10_npu::aclrtSynchronize(), error code is 507899",
            "device_lost",
            {"code": "507899"},
        ),
        (
            "[WARN] 2026/01/02 03:04:05 fault: event_id: [0x80F78009], devid: 5, event_state=1",
            "npu_event",
            {"code": "0x80f78009", "device": 5, "state": "occur"},
        ),
    ],
)  # fmt: skip
def test_other_wordings_of_ascend_are_understood(
    line: str, kind: str, fields: dict[str, Any]
) -> None:
    (record,) = read(line, "ascend")

    assert record.kind == kind
    assert {name: record.fields.get(name) for name in fields} == fields


@pytest.mark.parametrize("pattern", shipped(), ids=lambda pattern: pattern.name)
def test_hostile_text_costs_little(pattern: Pattern) -> None:
    example = pattern.example
    lines = [
        example * 200,
        example[: len(example) // 2] * 400,
        "".join(example[:stop] for stop in range(1, len(example))),
        pattern.literals[0] * 2000,
    ]
    reader = Classifier(None)
    before = time.process_time()
    for line in lines:
        reader.feed((line[:8000] + "\n").encode())

    assert time.process_time() - before < 3.0
