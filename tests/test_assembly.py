"""From a configuration to collectors: intervals, expected cards, services."""

from __future__ import annotations

import pytest

from tests.support.system import FakeHost, ScriptedRunner, fake_system
from vllm_watchdog.watchdog import config
from vllm_watchdog.watchdog.assembly import (
    check_names,
    discovered,
    node_collectors,
    rule_files,
    service_collectors,
    service_facts,
    shipped_rules,
)
from vllm_watchdog.watchdog.inventory import Pins, infos
from vllm_watchdog.watchdog.model import labelset
from vllm_watchdog.watchdog.system import Process

SERVICES = """
services:
  a:
    url: http://127.0.0.1:8000/
    cards: ["0000:53:00", "gpu 1"]
    spares: ["0000:64:00"]
    standby: {url: "http://127.0.0.1:8001", cards: ["0000:75:00"]}
    targets: {p95: 300ms}
    probe: {timeout: 7s, interval: 3s, kind: chat}
    logs: [/var/log/a.log]
    needs: [node-2]
peers: {node-2: {host: 10.0.0.2}}
"""


def expected(name: str, *tools: str) -> tuple[str, ...]:
    made = node_collectors(config.parse(SERVICES), ScriptedRunner(dict.fromkeys(tools, "")))
    return next(c.expected for c in made if c.name == name)


def test_cards_that_services_name_must_be_there() -> None:
    assert expected("nvidia_smi", "nvidia-smi") == ("0000:53:00", "0000:64:00", "0000:75:00")


def test_with_the_tools_of_both_vendors_it_is_not_guessed_whose_a_card_is() -> None:
    assert expected("nvidia_smi", "nvidia-smi", "npu-smi") == ()
    assert expected("npu_smi", "nvidia-smi") == ()


def test_the_interval_of_the_daemon_is_that_of_its_fast_collectors() -> None:
    made = node_collectors(
        config.parse("interval: 7s\ncollectors: {host: {interval: 9s}}"), ScriptedRunner({})
    )
    intervals = {c.instance: c.interval for c in made}

    assert (intervals["nvidia_smi"], intervals["host"], intervals["numa"]) == (7.0, 9.0, 15.0)


def test_a_collector_can_be_switched_off() -> None:
    made = node_collectors(config.parse("collectors: {host: {enabled: false}}"), ScriptedRunner({}))

    assert "host" not in {c.name for c in made}


def test_each_service_has_its_own_collectors() -> None:
    settings = config.parse(SERVICES)
    made = {c.instance: c for c in service_collectors(settings, settings.services)}

    assert {"vllm_metrics/a", "vllm_probe/a", "vllm_log/a"} <= made.keys()
    probe = made["vllm_probe/a"]
    assert (probe.url, probe.kind, probe.limit, probe.interval) == (
        "http://127.0.0.1:8000",
        "chat",
        7.0,
        3.0,
    )


def test_a_service_without_logs_or_probe_has_no_such_collector() -> None:
    settings = config.parse("services: {a: {url: 'http://h:1', probe: {kind: none}}}")
    names = {c.name for c in service_collectors(settings, settings.services)}

    assert "vllm_metrics" in names
    assert not names & {"vllm_probe", "vllm_log"}


def test_an_unknown_collector_is_named_with_the_likely_one() -> None:
    (problem,) = check_names(config.parse("collectors: {nvidia_smy: {}}"))

    assert str(problem) == "collectors.nvidia_smy: no such collector (did you mean 'nvidia_smi'?)"


def test_the_facts_of_services_are_series() -> None:
    settings = config.parse(SERVICES)
    cards = infos(
        [
            labelset({"vendor": "nvidia", "card": "0000:53:00", "index": "0"}, "accelerator_info"),
            labelset({"vendor": "nvidia", "card": "0000:64:00", "index": "1"}, "accelerator_info"),
        ]
    )

    page = service_facts(settings.services, cards, Pins())

    found = {
        tuple(pair for pair in key if pair[0] != "service"): v
        for key, v in zip(page.keys, page.values, strict=True)
    }
    assert found == {
        (("__name__", "service_card"), ("card", "0000:53:00"), ("vendor", "nvidia")): 1.0,
        (("__name__", "service_card"), ("card", "0000:64:00"), ("vendor", "nvidia")): 1.0,
        (("__name__", "service_card"), ("card", "0000:75:00")): 1.0,  # of NAME/standby
        (("__name__", "service_needs"), ("peer", "node-2")): 1.0,
        (("__name__", "service_target"), ("target", "p95")): 0.3,
        (("__name__", "service_mode"), ("mode", "normal")): 1.0,
    }


def test_a_server_found_running_becomes_a_service_with_its_cards() -> None:
    cards = infos(
        [
            labelset(
                {"vendor": "nvidia", "card": f"0000:5{n}:00", "index": str(n)}, "accelerator_info"
            )
            for n in range(4)
        ]
    )
    process = Process(10, 1, "vllm", ("vllm", "serve", "m", "--tensor-parallel-size", "2"), 0.0)

    found = discovered(fake_system(host=FakeHost([process])), cards)

    assert (found["m"].url, found["m"].cards) == (
        "http://127.0.0.1:8000",
        ("0000:50:00", "0000:51:00"),
    )


def test_without_rule_files_the_shipped_ones_are_used() -> None:
    assert rule_files(config.parse(b"")) == shipped_rules()
    assert "documented.yaml" in {path.name for path in shipped_rules()}
    assert all("groups:" in path.read_text() for path in shipped_rules())


@pytest.mark.parametrize("name", ["policies.yaml", "patterns.yaml", "faults.yaml"])
def test_other_data_of_the_rules_folder_is_no_rule_file(name: str) -> None:
    assert name not in {path.name for path in shipped_rules()}


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("vllm_probe: {timeout: 9s}", "vllm_probe.timeout", "services.NAME.probe.timeout"),
        ("vllm_probe: {interval: 9s}", "vllm_probe.interval", "services.NAME.probe.interval"),
        ("vllm_log: {files: [/a.log]}", "vllm_log.files", "services.NAME.logs"),
        ("host: {expected: ['0000:53:00']}", "host.expected", ""),
        ("npu_smi: {source: nvml}", "npu_smi.source", ""),
    ],
)
def test_a_setting_without_effect_is_refused_with_its_right_place(
    text: str, place: str, hint: str
) -> None:
    (problem,) = check_names(config.parse(f"collectors: {{{text}}}"))

    assert problem.place.file == f"collectors.{place}"
    assert hint in problem.hint


def test_the_time_out_of_a_scrape_is_that_of_the_configuration() -> None:
    settings = config.parse(f"{SERVICES}\ncollectors: {{vllm_metrics: {{timeout: 4s}}}}")
    made = {c.instance: c for c in service_collectors(settings, settings.services)}

    assert made["vllm_metrics/a"].timeout == 4.0


def test_the_source_of_the_cards_readings_can_be_the_library() -> None:
    settings = config.parse("collectors: {nvidia_smi: {source: nvml}}")
    made = {c.instance: c for c in node_collectors(settings, ScriptedRunner({}))}

    assert made["nvidia_smi"].source == "nvml"


def test_a_log_is_not_waited_for_beyond_its_collectors_time_out() -> None:
    settings = config.parse("collectors: {kernel_log: {timeout: 4s}}")
    made = {c.instance: c for c in node_collectors(settings, ScriptedRunner({}))}

    assert (made["kernel_log"].wait, made["ascend_log"].wait) == (2.0, 5.0)


def test_ports_of_peers_are_asked_by_the_tool_of_the_cards() -> None:
    settings = config.parse("peers: {a: {host: h, roce: 10.0.0.9}, b: {host: h}}")
    made = {c.instance: c for c in node_collectors(settings, ScriptedRunner({}))}

    assert made["hccn_tool"].pings == {"a": "10.0.0.9"}


def test_a_mode_that_the_top_one_does_not_let_come_true_is_a_warning() -> None:
    text = """\
mode: confirm
services:
  a: {url: 'http://x', mode: act, manager: {docker: a}}
  b: {url: 'http://y', mode: observe}
policies: [{use: engine-dead, mode: confirm}, {use: engine-stalled, mode: act}]
"""
    found = check_names(config.parse(text))

    assert [(p.place.file, p.severity) for p in found] == [
        ("services.a.mode", "warning"),
        ("policies.1.mode", "warning"),
    ]
    assert "the top mode is confirm" in found[0].message


def test_one_address_for_two_servers_is_warned_of() -> None:
    text = (
        "services: {a: {url: 'http://h:1', standby: {url: 'http://h:2'}}, b: {url: 'http://h:2/'}}"
    )
    (found,) = check_names(config.parse(text))

    assert (found.place.file, found.severity) == ("services.b.url", "warning")
    assert found.message == "http://h:2/ is the address of services.a.standby, too"


@pytest.mark.parametrize(
    ("top", "more", "warned"),
    [
        ("act", "", True),
        ("confirm", "", True),
        ("observe", "", False),
        ("act", ", mode: observe", False),
        ("act", ", manager: {systemd: vllm.service}", False),
        ("act", ", front: {nginx: /etc/f.conf, url: 'http://h:80'}", False),
    ],
)
def test_a_service_that_acts_can_do_nothing_for_is_warned_of(
    top: str, more: str, *, warned: bool
) -> None:
    found = check_names(config.parse(f"mode: {top}\nservices: {{a: {{url: 'http://h:1'{more}}}}}"))

    assert [each.severity for each in found] == (["warning"] if warned else [])
