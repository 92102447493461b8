"""The configuration: accepted forms, and every error with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_watchdog.watchdog import config
from vllm_watchdog.watchdog.config.durations import address, rate, seconds
from vllm_watchdog.watchdog.errors import ConfigError

WHOLE = """\
mode: confirm
listen: "[::1]:9710"
state: /tmp/state
interval: 10s
labels: {job: watch, instance: "node-1:9710"}
external_labels: {zone: a}
collectors: {nvidia_smi: {interval: 5s, timeout: 10s, expected: ["0000:c1:00"]}}
rules: {files: [rules/*.yaml], groups: ["hard*"], urgent: [hardware], stale_after: 2m}
peers: {node-2: {host: 10.0.0.2, port: 22}}
schedules: {night: {cron: "0 1 * * *", lasts: 5h}}
outlets:
  alertmanager: {urls: ["http://127.0.0.1:9093"]}
  elasticsearch: {hosts: ["https://127.0.0.1:9200"], api_key_file: /etc/key}
compat: [npu-exporter]
control: {token_file: /etc/token}
tls: {cert_file: c.pem, key_file: k.pem}
services:
  deepseek:
    url: http://127.0.0.1:8000
    cards: ["0000:c1:00", "npu 7"]
    spares: ["gpu 0"]
    standby: {url: "http://127.0.0.1:8001", manager: {systemd: vllm@standby.service}}
    manager: {command: [/usr/bin/vllm, serve]}
    profiles: {fp16: profiles/fp16.env}
    start_profile: fp16
    front: {nginx: /etc/nginx/x.conf, url: "http://127.0.0.1"}
    needs: [node-2]
    probe: {kind: chat, timeout: 1m30s}
    targets: {p95: 300ms, ttft: 1s, tokens_per_second: 1000}
    logs: [/var/log/vllm/*.log]
policies:
  - {name: a, when: [CardLost], do: [card_failover, page], within: 30s}
  - {use: night-frequency, mode: act}
guard: {cooldown: 2m, attempts: 3, per: 1h, node: 4/h, fleet: null}
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "w.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_every_documented_key_is_accepted() -> None:
    read = config.parse(WHOLE, "/etc/w/w.yaml")

    service = read.services["deepseek"]
    assert (service.probe.timeout, service.targets.p95) == (90.0, 0.3)
    assert service.profiles["fp16"] == Path("/etc/w/profiles/fp16.env")
    assert read.rules.files == ("/etc/w/rules/*.yaml",)
    assert (read.listen, read.guard.node) == (("::1", 9710), (4, 3600.0))


def test_an_empty_file_observes_on_loopback() -> None:
    read = config.parse(b"")

    assert (read.mode, read.listen, read.interval) == ("observe", ("127.0.0.1", 9710), 5.0)


def test_an_unknown_key_is_named_with_its_place_and_the_likely_one() -> None:
    assert problems("mode: observe\nliste: x\n") == [
        "w.yaml:2:1: unknown key 'liste' (did you mean 'listen'?)"
    ]


def test_an_unknown_key_deep_inside_is_found_too() -> None:
    text = "services:\n  a:\n    url: http://h:1\n    probe: {kindd: chat}\n"

    assert problems(text) == [
        "w.yaml:4:13: unknown key 'services.a.probe.kindd' (did you mean 'kind'?)"
    ]


def test_all_errors_are_reported_at_once_in_the_order_of_their_places() -> None:
    found = problems("interval: 5x\nmode: loud\nlisten: nowhere\n")

    assert [line.split(" ")[0] for line in found] == ["w.yaml:1:11:", "w.yaml:2:7:", "w.yaml:3:9:"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mode: [\n", "w.yaml:2:1"),
        ("a: 1\n b: 2\n", "w.yaml:2:3"),
        ("mode: observe\nmode: act\n", "w.yaml:2:1"),
        ("- a\n", "w.yaml:1:1"),
        ("on: true\n", "w.yaml:1:1"),
    ],
)
def test_broken_yaml_is_named_with_line_and_column(text: str, place: str) -> None:
    assert problems(text)[0].startswith(place + ":")


@pytest.mark.parametrize(
    "text",
    [
        "policies: [{when: [''], do: [page]}]",
        "policies: [{when: [X]}]",
        "policies: [{when: [X], do: [explode]}]",
        "services: {a: {url: ftp://x}}",
        "services: {'a/b': {url: 'http://x'}}",
        "services: {a: {url: 'http://x', cards: [card-1]}}",
        "services: {a: {url: 'http://x', cards: ['gpu 0'], spares: ['gpu 0']}}",
        "services: {a: {url: 'http://x', start_profile: int8}}",
        "services: {a: {url: 'http://x', needs: [node-9]}}",
        "services: {a: {url: 'http://x', manager: {systemd: a, docker: b}}}",
        "schedules: {night: {cron: 'at night', lasts: 5h}}",
        "outlets: {elasticsearch: {hosts: ['http://x'], username: u}}",
        "tls: {cert_file: c.pem}",
        "peers: {a: {host: h, roce: -rf}}",
        "guard: {node: often}",
        "interval: 0s",
        "listen: 127.0.0.1:99999",
    ],
)
def test_values_without_sense_are_refused(text: str) -> None:
    assert problems(text)[0].startswith("w.yaml:1:")


def test_a_missing_file_is_one_problem() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config.load("/nonexistent/w.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5s", 5.0), ("1h30m", 5400.0), ("300ms", 0.3), (7, 7.0), ("1.5m", 90.0), ("2d", 172800.0)],
)
def test_durations_are_read_as_people_write_them(text: object, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1h 30m", "5x", None, True, -1, [1]])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(text)


def test_rates_and_addresses_are_read() -> None:
    assert (rate("4/h"), rate("2/30m")) == ((4, 3600.0), (2, 1800.0))
    assert (address("0.0.0.0:80"), address("[::]:1")) == (("0.0.0.0", 80), ("::", 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("interval: 0.001ms\n", "1:11: interval: must be from 100ms to 1d"),
        ("interval: 2d\n", "must be from 100ms to 1d"),
        (f"interval: {'9' * 400}s\n", "is longer than 31 years"),
        ("collectors: {host: {timeout: 100d}}\n", "must be from 100ms to 1d"),
        ("rules: {stale_after: 99999999w}\n", "is longer than 31 years"),
        ("guard: {node: 4/0s}\n", "must be longer than 0"),
        ("listen: 'a b:1'\n", "is no address"),
        ("services: {a: {url: 'http://x:999999'}}\n", "is no address"),
        ("services: {a: {url: 'http://[::1'}}\n", "is no address"),
        ('services: {a: {url: "http://x/\\nHost:y"}}\n', "is no address"),
        ("labels: {__name__: x}\n", "Prometheus' own"),
        ("services: {a: {url: 'http://x', probe: {expect: '(('}}}\n", "no RE2 regular expression"),
        ("services: {a: {url: 'http://x', standby: {url: 'http://x/'}}}\n", "standby.url"),
        ("services: {a: {url: 'http://x', front: {nginx: /f, url: 'http://x'}}}\n", "front.url"),
        (
            (
                "services: {a: {url: 'http://x', manager: {systemd: a.service},"
                " standby: {url: 'http://y', manager: {systemd: a.service}}}}\n"
            ),
            "one act would end both",
        ),
        (
            (
                "services: {a: {url: 'http://x', manager: {docker: c}},"
                " b: {url: 'http://y', manager: {docker: c}}}\n"
            ),
            "services a and b have one manager",
        ),
        (
            (
                "services: {a: {url: 'http://x', front: {nginx: /f, url: 'http://f'}},"
                " b: {url: 'http://y', front: {nginx: /f, url: 'http://g'}}}\n"
            ),
            "services a and b have one front.nginx",
        ),
        (
            "services: {a: {url: 'http://x', standby: {url: 'http://y'}}, a-standby: {url: http://z}}",
            "one name of files",
        ),
        ("services: {a: {url: 'http://x', manager: {command: ['']}}}\n", "an empty word"),
        (
            "services: {a: {url: 'http://x', manager: {systemd: vllm-watchdog.service}}}\n",
            "the daemon's own unit",
        ),
        ('state: "a\\0b"\n', "1:8: holds a NUL character"),
        ("<<: {mode: act}\n", "1:1: merge keys are not read"),
    ],
)
def test_a_value_that_cannot_work_is_refused_at_its_place(text: str, words: str) -> None:
    (line,) = problems(text)

    assert words in line


def test_a_message_quotes_no_more_of_a_long_value_than_a_person_reads() -> None:
    (line,) = problems(f"services: {{a: {{url: 'http://x', cards: [{'x' * 4000}]}}}}\n")

    assert len(line) < 400


def test_a_user_without_a_home_gets_a_state_folder_to_complain_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("os.geteuid", lambda: 12345)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)

    assert Path("/var/lib/vllm-watchdog") == config.default_state()


def test_every_path_is_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
state: state
rules: {files: [rules/*.yaml]}
collectors: {kernel_log: {files: [kern.log]}}
outlets: {elasticsearch: {hosts: ["http://e"], api_key_file: key}}
control: {token_file: token}
tls: {cert_file: /etc/c.pem, key_file: k.pem}
services:
  chat:
    url: http://x
    api_key_file: key
    profiles: {int8: int8.env}
    logs: ["logs/*.log"]
    front: {nginx: chat.conf, url: "http://y"}
"""
    there = tmp_path / "etc"

    found = config.parse(text, "etc/w.yaml")
    chat = found.services["chat"]

    assert found.state == there / "state"
    assert found.rules.files == (f"{there}/rules/*.yaml",)
    assert found.collectors["kernel_log"].files == (f"{there}/kern.log",)
    assert found.outlets.elasticsearch.api_key_file == there / "key"
    assert found.control.token_file == there / "token"
    assert (found.tls.cert_file, found.tls.key_file) == (Path("/etc/c.pem"), there / "k.pem")
    assert (chat.api_key_file, chat.profiles) == (there / "key", {"int8": there / "int8.env"})
    assert chat.logs == (f"{there}/logs/*.log",)
    assert chat.front is not None and chat.front.nginx == there / "chat.conf"


def test_what_is_not_given_is_not_set_by_rooting_paths() -> None:
    found = config.parse("collectors: {kernel_log: {interval: 5s}}").collectors["kernel_log"]

    assert found.model_fields_set == {"interval"}


def test_an_address_without_its_scheme_is_refused_with_the_right_form() -> None:
    (line,) = problems("services: {a: {url: 'localhost:8000'}}\n")

    assert line.endswith("does not have the form wanted here (write http://HOST:PORT)")
