"""Incident files: read strictly, played through the real engine, judged."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.support.daemon import command
from tests.support.incidents import ONE, SPARE, STANDBY, incident, problems, series
from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.incidents import Incident, Table, judge, play
from vllm_watchdog.watchdog.incidents.collecting import owner
from vllm_watchdog.watchdog.incidents.form import Stall
from vllm_watchdog.watchdog.incidents.noise import Noise
from vllm_watchdog.watchdog.incidents.reading import found, parse
from vllm_watchdog.watchdog.model import labelset

XID79 = "NVRM: Xid (PCI:0000:53:00): 79, pid=8, name=python3, GPU has fallen off the bus."
DEAD = "(APIServer pid=7) ERROR 05-06 10:20:31 [async_llm.py:480] EngineDeadError: EngineCore."
OOM = (
    "(Worker_TP0 pid=9) ERROR 05-06 10:20:30 [w.py:1] torch.OutOfMemoryError: CUDA out of memory."
    " Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 40.00 GiB of which 100.00 MiB is"
    " free. Including non-PyTorch memory, this process has 39.90 GiB memory in use. Of the allocated"
    " memory 39.30 GiB is allocated by PyTorch, and 0.10 GiB is reserved by PyTorch but unallocated."
)
FRAGMENTED = OOM.replace("39.30 GiB is", "30.00 GiB is").replace("0.10 GiB is", "9.00 GiB is")
KILLED = (
    "Out of memory: Killed process 9 (VLLM::EngineCor) total-vm:1kB, anon-rss:1kB, file-rss:0kB"
)
SERVES = {"up": "1x60", "probe": "1x60", "running": "2x60", "waiting": "0x60"}
GONE = {"up": "1x11 0x60", "probe": "1x11 0x60"}


def logs(*rows: tuple[str, str, str]) -> str:
    lines = [f"  - {{at: {at}, source: {source}, text: {text!r}}}" for at, source, text in rows]
    return "logs:\n" + "\n".join(lines) + "\n"


def exits(at: str = "62s", code: int = 0) -> str:
    return f"processes: [{{at: {at}, service: chat, event: exit, code: {code}}}]\n"


CASES: dict[str, tuple[str, str]] = {
    "a lost card, line and reading": (
        series(present="1x11 0x60", **SERVES) + logs(("58s", "kernel", XID79))
        + "expect: {alerts: [CardLost], cause: card_lost, act: card_failover, by: 88s}",
        STANDBY,
    ),
    "a lost card and two readings only": (
        series(present="1x11 0x60")
        + "expect: {alerts: [CardLost], cause: card_lost, act: card_failover, by: 65s}",
        SPARE,
    ),
    "a lost card and nowhere to go": (
        series(present="1x11 0x60") + logs(("58s", "kernel", XID79))
        + "expect: {cause: card_lost, act: page, by: 90s}",
        ONE,
    ),
    "a card missing from one reading": (series(present="1x11 0 1x60") + "expect: {act: nothing}", STANDBY),
    "a card read as lost whose other readings are fine": (
        series(present="1x11 0x60", healthy="1x60") + "expect: {cause: sensor, act: nothing}",
        STANDBY,
    ),
    "a dead engine": (
        series(**GONE) + logs(("60s", "vllm", DEAD)) + exits()
        + "expect: {alerts: [EngineDead], cause: engine_dead, act: restart, by: 90s}",
        ONE,
    ),
    "an engine killed for the host's memory": (
        series(**GONE) + "processes: [{at: 61s, service: chat, event: oom_kill}]\n"
        "expect: {alerts: [EngineDead], cause: host_memory, act: restart, by: 90s}",
        ONE,
    ),
    "device memory that kills": (
        series(**GONE) + logs(("60s", "vllm", OOM), ("61s", "vllm", DEAD)) + exits()
        + "expect: {alerts: [MemoryOverflow], cause: device_memory, act: quantize, by: 90s}",
        ONE,
    ),
    "fragmentation that kills": (
        series(**GONE) + logs(("60s", "vllm", FRAGMENTED), ("61s", "vllm", DEAD)) + exits()
        + "expect: {cause: fragmentation, act: restart, by: 90s}",
        ONE,
    ),
    "a crash after which the process table says stopped": (
        series(phase="_x12 1x60", process="1x11 0x60")
        + "expect: {alerts: [EngineDead], cause: engine_dead, act: restart, by: 90s}",
        ONE,
    ),
    "a stall with requests in it": (
        series(up="1x60", health="1x60", probe="1x13 0x60", running="4x60", waiting="1x60",
               tokens="0+50x12 600x60", steps="0+5x12 60x60")
        + "expect: {alerts: [EngineStalled], cause: engine_stalled, act: restart, by: 180s}",
        ONE,
    ),
    "an idle engine that answers nobody": (
        series(up="1x60", health="1x60", probe="1x11 0x60", running="0x60", waiting="0x60",
               tokens="600x60")
        + "expect: {alerts: [EngineStalled], cause: engine_stalled, act: restart, by: 180s}",
        ONE,
    ),
    "wrong answers twice": (
        series(canary="1x11 0x60", **SERVES)
        + "expect: {alerts: [OutputCorrupt], cause: output_corrupt, act: restart, by: 90s}",
        ONE,
    ),
    "what it needs cannot be reached": (
        series(up="1x60", probe="1x11 0x60", peer="1x11 0x60")
        + "expect: {alerts: [NetworkOutage], cause: network_outage, act: cache_only, by: 100s}",
        '{chat: {url: "http://127.0.0.1:8000", needs: [node-2]}}',
    ),
    "a fragmented allocator while little is done": (
        series(fragmented="0.4x90") + "until: 8m\nexpect: {cause: fragmentation, act: defragment, by: 6m}",
        ONE,
    ),
    "a person's own restart": (
        series(up="1x11 0x12 1x60", probe="1x11 0x12 1x60")
        + "people: [{at: 52s, do: restart, service: chat}]\n" + exits("55s")
        + "expect: {cause: planned, act: nothing}",
        ONE,
    ),
    "healing paused by a person": (
        series(**GONE) + exits() + "people: [{at: 10s, do: pause}]\nexpect: {act: nothing}", ONE,
    ),
    "a silenced alert": (
        series(**GONE) + exits()
        + "people: [{at: 10s, do: silence, alert: EngineDead}]\nexpect: {act: nothing}",
        ONE,
    ),
    "observed only": (
        "mode: observe\n" + series(**GONE) + exits() + "expect: {cause: engine_dead, act: nothing}", ONE,
    ),
    "approved by a person": (
        "mode: confirm\n" + series(**GONE) + exits() + "people: [{at: 90s, do: approve}]\n"
        + "expect: {act: restart, by: 95s}",
        ONE,
    ),
    "asleep": (
        series(up="1x60", probe="1x11 _x60", running="0x60", tokens="5x60", awake="1x11 0x60")
        + "expect: {alerts: [], cause: planned, act: nothing}",
        ONE,
    ),
    "the clients' own mistakes": (
        """\
        series:
          - {series: 'http_requests_total{service="chat",handler="/v1/completions",method="POST",status="4xx"}', values: '0+20x60'}
          - {series: 'http_requests_total{service="chat",handler="/v1/completions",method="POST",status="2xx"}', values: '0+5x60'}
        expect: {cause: client_errors, act: nothing}
        """,
        ONE,
    ),
    "an alert that no policy names": (
        series(**GONE) + exits()
        + "policies: [{when: [CardLost], do: [page]}]\nexpect: {alerts: [EngineDead], act: nothing}",
        ONE,
    ),
}  # fmt: skip


def _parsed(body: str, services: str, name: str) -> Incident:
    until = "8m" if "until: 8m" in body else "5m"
    return incident(body.replace("until: 8m\n", ""), services, until, name)


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named_and_the_right_act_chosen(name: str) -> None:
    body, services = CASES[name]

    assert problems(_parsed(body, services, name)) == []


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_noise_delays_a_decision_and_never_changes_it(name: str, seed: int) -> None:
    body, services = CASES[name]
    one = _parsed(body, services, name)
    rnd = random.Random(f"{name}{seed}")
    names = sorted({owner(each.labels) for each in one.series})
    begin = 5.0 * rnd.randrange(int(one.until / 5))
    stalls = (Stall(rnd.choice(names), begin, begin + 60),)
    noise = Noise(seed, gaps=0.03, doubles=0.5, disorder=True, stalls=stalls)

    for expected in one.expected:
        assert play(one, noise).act(expected.service)[0] in (expected.act, "nothing"), stalls


def test_the_same_noise_gives_the_same_decisions() -> None:
    body, services = CASES["a lost card, line and reading"]
    one = _parsed(body, services, "twice")
    first, second = (play(one, Noise(7, 0.1, 0.5, True)) for _ in range(2))

    assert first.requests == second.requests
    assert first.events == second.events


def test_an_hour_of_saturation_with_health_time_outs_brings_no_act() -> None:
    body = series(
        up="1x720", health="0 1 0x30 1x3 0x685", slow="1x720", running="256x720",
        waiting="900+1x720", tokens="0+9000x720", steps="0+60x720",
    )  # fmt: skip
    played = play(incident(body, until="1h"))

    assert played.acts == []
    assert played.cause("chat") == "saturated"


def test_a_stall_in_the_middle_of_saturation_is_acted_on_within_two_minutes() -> None:
    body = series(
        up="1x720", health="0x720", slow="1x360 stale", probe="_x363 0x360", running="256x720",
        waiting="900x720", tokens="0+9000x360 3240000x360", steps="0+60x360 21600x360",
    )  # fmt: skip
    act, at = play(incident(body, until="1h")).act("chat")

    assert act == "restart"
    assert at is not None
    assert 1800 < at <= 1800 + 120


BAD = {
    "seris: []": "unknown key 'seris'",
    "series: [{series: 'a{', values: '1'}]": "wanted a label name",
    "series: [{series: 'a', values: '1y'}]": "is no series value",
    "logs: [{at: 1s, source: syslog, text: x}]": "'syslog' is none of them",
    "logs: [{source: kernel, text: x}]": "'at' is missing",
    "logs: [{at: soon, source: kernel, text: x}]": "'soon' is no duration",
    "processes: [{at: 1s, service: nobody, event: exit}]": "no such service: 'nobody'",
    "processes: [{at: 1s, service: chat, event: fell}]": "'fell' is none of them",
    "stalled: [{collector: nvidia_smi, from: 9s, to: 3s}]": "'to' is not after 'from'",
    "people: [{at: 1s, do: dance}]": "'dance' is none of them",
    "people: [{at: 1s, do: silence}]": "'alert' belongs to a silence",
    "expect: {act: fly}": "'fly' is none of them",
    "expect: {cause: gremlins}": "'gremlins' is no cause",
    "expect: {alarm: [CardLost]}": "unknown key 'alarm'",
    "services: {chat: {uri: x}}": "unknown key 'services.chat.uri'",
    "guard: {attempt: 3}": "unknown key 'guard.attempt'",
    "policies: [{when: ['{'], do: [page]}]": "policies.0",
    "mode: careful": "mode",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_wrong_in_a_file_is_told_with_its_place(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        incident(text)

    problems_ = [str(problem) for problem in raised.value.problems]
    assert any(BAD[text] in problem and "inline.yaml" in problem for problem in problems_), (
        problems_
    )


def test_all_errors_of_a_file_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        parse("mode: careful\nlogs: [{at: 1s, source: x, text: y}]\nexpect: {act: fly}\n", "f.yaml")

    assert len(raised.value.problems) >= 5  # mode, source, act; name and until are missing


def test_a_path_without_incidents_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no incident"):
        found([tmp_path])


@pytest.mark.parametrize(
    ("series_", "collector"),
    [
        ('accelerator_present{vendor="nvidia",card="a"}', "nvidia_smi"),
        ('accelerator_present{vendor="ascend",card="npu0"}', "npu_smi"),
        ('vllm:num_requests_running{service="a"}', "vllm_metrics/a"),
        ('service_probe_success{service="a"}', "vllm_probe/a"),
        ('service_probe_success{service="a/standby"}', "vllm_probe/a/standby"),
        ('log_events_total{service="a",kind="x"}', "vllm_log/a"),
        ("peer_reachable", "peers"),
        ('schedule_active{name="night"}', "schedules"),
        ("something_else", "other"),
    ],
)
def test_a_series_belongs_to_the_collector_that_gives_it(series_: str, collector: str) -> None:
    from vllm_watchdog.watchdog.seriesnotation import series as read_series

    assert collector == owner(labelset(read_series(series_)))


def file_of(tmp_path: Path, name: str, expect: str) -> Path:
    path = tmp_path / f"{name}.yaml"
    head = f"name: {name}\nuntil: 2m\nservices: {ONE}\n"
    path.write_text(head + series(**GONE) + exits() + f"expect: {expect}\n")
    return path


def test_the_command_ends_0_when_all_is_right_and_1_when_anything_is_wrong(tmp_path: Path) -> None:
    right = file_of(tmp_path, "right", "{cause: engine_dead, act: restart}")
    wrong = file_of(tmp_path, "wrong", "{cause: card_lost, act: nothing}")
    good = command("test-incidents", str(right))
    bad = command("test-incidents", str(tmp_path), "--json")

    assert (good.returncode, bad.returncode) == (0, 1)
    assert b"1 incident, 1 answer: 1 right, 0 wrong; 0 acts where none was due" in good.stdout
    doc = json.loads(bad.stdout)
    assert (doc["right"], doc["wrong"], doc["acts_where_none_was_due"]) == (1, 1, 1)
    assert doc["causes"] == {"card_lost": {"engine_dead": 1}, "engine_dead": {"engine_dead": 1}}
    assert doc["acts"] == {"nothing": {"restart": 1}, "restart": {"restart": 1}}
    assert str(wrong) in [item["file"] for item in doc["incidents"] if not item["right"]]


def test_the_command_ends_2_with_one_line_for_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("name: [\n")
    done = command("test-incidents", str(tmp_path / "broken.yaml"))

    assert done.returncode == 2
    assert len(done.stderr.decode().strip().splitlines()) == 1


def test_the_tables_count_what_was_expected_against_what_came() -> None:
    table = Table()
    one = incident(
        series(**GONE) + exits() + "expect: {cause: [host_memory, engine_dead], act: page}"
    )
    table.add(judge(one, play(one)))

    assert table.doc()["causes"] == {"engine_dead": {"engine_dead": 1}}
    assert table.doc()["acts"] == {"page": {"restart": 1}}
    assert table.needless == 0
