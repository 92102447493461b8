"""hccn_tool: every output in base units, one call at a time, a busy tool is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system import VirtualClock, fake_system
from vllm_watchdog.collectors.hccn_tool import HccnTool, capture
from vllm_watchdog.watchdog.errors import CommandTimeout, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample
from vllm_watchdog.watchdog.system import System

BUSY = "hccn_tool is busy, please try again\n"


def read(text: str, command: str | None = None) -> list:
    return capture(text.encode(), command)


def value(samples: list, name: str, **labels: str) -> float | None:
    found = [s.value for s in samples if s.name == name and set(labels.items()) <= set(s.labels)]
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize(("word", "up"), [("UP", 1), ("DOWN", 0)])
def test_a_link_is_up_or_down(word: str, up: int) -> None:
    found = read(f"link status: {word}\n", "hccn_tool -i 3 -link -g")

    assert value(found, "accelerator_link_up", card="npu3", device="3", link="roce") == up


@pytest.mark.parametrize("text", ["link status: U\n", "net health status: Succ\n"])
def test_a_cut_word_is_no_value(text: str) -> None:
    with pytest.raises(SourceError, match="nothing can be read"):
        read(text)


@pytest.mark.parametrize(
    ("word", "healthy"),
    [
        ("Success", 1),
        ("Fault", 0),
        ("Socket fail", 0),
        ("Socket failed", 0),
        ("Receive timeout", 0),
        ("Unreachable", 0),
        ("Time exceeded", 0),
        ("Thread error", 0),
        ("Init", None),
        ("Detect ip set", None),
        ("Unknown", None),
    ],
)
def test_only_success_is_a_healthy_network(word: str, healthy: int | None) -> None:
    assert value(read(f"net health status: {word}\n"), "accelerator_network_healthy") == healthy


PING = """\
device 2 PING 192.0.2.7
recv seq=0,time=1.250000ms
recv seq=1,time=0.050000ms
recv time out seq=2
3 packets transmitted, 2 received, 33.33% packet loss
"""


def test_a_ping_is_in_seconds_and_its_first_packet_apart() -> None:
    found = read(PING)

    assert value(found, "accelerator_ping_first_round_trip_seconds", device="2") == 0.00125
    assert value(found, "accelerator_ping_round_trip_seconds", peer="192.0.2.7") == 0.00005
    assert value(found, "accelerator_ping_loss_ratio") == pytest.approx(1 / 3)


def test_a_ping_that_loses_all_has_loss_one_and_no_round_trip() -> None:
    found = read("recv time out seq=0\n1 packets transmitted, 0 received, 100.00% packet loss\n")

    assert value(found, "accelerator_ping_loss_ratio") == 1
    assert value(found, "accelerator_ping_round_trip_seconds") is None


def test_a_ping_between_dies_is_in_microseconds() -> None:
    found = read(
        "recv seq 0, time = 30.5us, L1 plane check result = 0x0\n\n"
        "recv seq 1, time = 20.5us, L1 plane check result = 0x0\n\n"
        "2 packets transmitted, 2 received, 0.00% packets loss\nmax time 30.5us\nTP95 time 30.5us\n"
    )

    assert value(found, "accelerator_ping_round_trip_seconds", path="hccs") == pytest.approx(
        20.5e-6
    )
    assert value(found, "accelerator_ping_summary_seconds", statistic="tp95") == pytest.approx(
        30.5e-6
    )


def test_a_ping_over_the_unified_bus_has_colons() -> None:
    found = read(
        "device 1 dev  EID ::1 to ::2\nrecv seq:0,time:0.300000ms\nrecv seq:1,time:0.250000ms\n"
        "2 packets transmitted, 2 received, 0.00% packet loss\naverage time 0.275000ms\n"
        "Cmd executed successfully!\n"
    )

    labels = {"path": "ub", "device": "1", "peer": "::2"}
    assert value(found, "accelerator_ping_round_trip_seconds", **labels) == pytest.approx(250e-6)
    assert value(found, "accelerator_ping_summary_seconds", statistic="average") == 0.000275


@pytest.mark.parametrize("prefix", ["devid", "device"])
def test_the_newest_record_of_the_link_history_is_the_present_state(prefix: str) -> None:
    head = f"[{prefix} 4]"
    found = read(
        f"{head}current time        : Thu Nov 16 10:00:00 2023\n"
        f"{head}link up count       : 3\n"
        f"{head}link change records :\n"
        f"{head}    Tue Nov 14 22:13:20 2023    LINK DOWN\n"
        f"{head}    Tue Nov 14 22:13:19 2023    LINK UP\n"
        f"{head}    Tue Nov 14 22:00:00 2023    LINK DOWN\n"
    )

    assert value(found, "accelerator_link_up", card="npu4") == 0
    assert value(found, "accelerator_link_changes_total", direction="up") == 3
    assert value(found, "accelerator_link_changes_total", direction="down") == 2
    stamp = "accelerator_link_last_change_timestamp_seconds"
    assert value(found, stamp, direction="down") == 1_700_000_000
    assert value(found, stamp, direction="up") == 1_699_999_999


def test_the_link_history_may_be_a_table() -> None:
    found = read(
        "link up count :    2\nlink down count :  7\n"
        "+-----+------+------+-------------+--------------------------+\n"
        "| NPU | UDie | Port | Link_Status | Time_Stamp               |\n"
        "+-----+------+------+-------------+--------------------------+\n"
        "|  1  |  0   |  5   |  LINK_UP    | Tue Nov 14 22:13:20 2023 |\n"
        "|  1  |  0   |  5   |  LINK_DOWN  | Tue Nov 14 22:13:10 2023 |\n"
        "+-----+------+------+-------------+--------------------------+\n"
    )

    home = {"device": "1", "udie": "0", "port": "5", "link": "ub"}
    assert value(found, "accelerator_link_up", **home) == 1
    assert value(found, "accelerator_link_changes_total", direction="down", **home) == 7


def test_counters_keep_the_names_of_the_tool() -> None:
    found = read("packet statistics:\nroce_rx_err_pkt_num:11\nmac_rx_pfc_pkt_num:12345678901\n")

    counter = "accelerator_link_counter_total"
    assert value(found, counter, counter="roce_rx_err_pkt_num") == 11
    assert value(found, counter, counter="mac_rx_pfc_pkt_num") == 12345678901


def test_counters_of_a_port_are_told_by_port() -> None:
    found = read(
        "packet statistics:\nport_id: 6\nis_uboe_port: 0\nunknown_pkt_cnt_rx: 3\n",
        "hccn_tool -g -stat -i 1 -u 0 -p 6",
    )

    labels = {"counter": "unknown_pkt_cnt_rx", "device": "1", "port": "6", "udie": "0"}
    assert value(found, "accelerator_link_counter_total", **labels) == 3


def test_bit_errors_are_hexadecimal() -> None:
    found = read("------ dl-bit_err ------\nport_id: 0x4\nst_fec_decoding_fail_num: 0x1f\n")

    labels = {"counter": "st_fec_decoding_fail_num", "port": "4"}
    assert value(found, "accelerator_link_counter_total", **labels) == 31


def test_hardware_objects_are_counters_and_gauges() -> None:
    found = read("[devid 3] pd_alloc: 4\n[devid 3] pd_active: 1\n[devid 3] aeqe: 2\n")

    assert value(found, "accelerator_rdma_objects", object="pd", device="3") == 1
    assert value(found, "accelerator_link_counter_total", counter="aeqe", device="3") == 2


def test_a_transcript_gives_each_device_its_own_values() -> None:
    found = read(
        "/usr/local/Ascend/driver/tools/hccn_tool -i 0 -stat -g\npacket statistics:\n"
        "roce_rx_err_pkt_num:1\n\n/usr/local/Ascend/driver/tools/hccn_tool -i 5 -link -g\n"
        "link status: DOWN\n"
    )

    assert value(found, "accelerator_link_counter_total", device="0") == 1
    assert value(found, "accelerator_link_up", device="5") == 0


def test_a_time_series_gives_the_last_values_and_rates() -> None:
    found = read(
        "timestamp,npu_index,report_time,host_ip,mac_rx_pfc_pkt_num,mac_rx_total_oct_num\n"
        "100,2,x,y,1000,8.0E+3\n102,2,x,y,1500,9.0E+3\n104,2,x,y,3000,1.0E+4\n"
    )

    labels = {"device": "2", "counter": "mac_rx_pfc_pkt_num"}
    assert value(found, "accelerator_link_counter_total", **labels) == 3000
    assert value(found, "accelerator_link_counter_rate", **labels) == 500


OPTICS = """\
optical info:
present              : not present
temperature          : 41 C
Vcc                  : 3300.50 mV
Tx Power0            : 1.2500 mW
Rx Power1            : -3.0103 dBm
Tx Power2            : not supported
RxPower Low Thres    : 0.1445 mW
Tx Bias0             : 7.5000 mA
Tx Los Flag          : 0x2
Rx Los Flag          : 0xff
Media SNR Lane0      : 23.5 dB
Host SNR Lane0       : not supported
"""


def test_optics_are_in_base_units_and_told_though_not_present() -> None:
    found = read(OPTICS)

    assert value(found, "accelerator_optical_present") == 0
    assert value(found, "accelerator_optical_temperature_celsius") == 41
    assert value(found, "accelerator_optical_supply_volts") == 3.3005
    power = "accelerator_optical_power_watts"
    assert value(found, power, direction="tx", lane="0") == 0.00125
    assert value(found, power, direction="rx", lane="1") == pytest.approx(0.0005, rel=1e-5)
    assert value(found, power, direction="tx", lane="2") is None
    assert value(found, "accelerator_optical_power_limit_watts", bound="low") == 0.0001445
    assert value(found, "accelerator_optical_bias_amperes", lane="0") == 0.0075


def test_a_loss_flag_of_all_ones_is_no_value() -> None:
    found = read(OPTICS)

    assert value(found, "accelerator_optical_loss_of_signal", direction="tx") == 1
    assert value(found, "accelerator_optical_loss_of_signal", direction="rx") is None


def test_speed_and_bandwidth_are_in_bytes_per_second() -> None:
    speed = read("Settings for eth3:\n  Speed: 200000Mb/s\n  Link detected: yes\n")
    load = read("Bandwidth TX: 1.50 MB/sec\nBandwidth RX: 0.00 MB/sec\n")

    assert value(speed, "accelerator_link_speed_bytes_per_second") == 25e9
    assert value(speed, "accelerator_link_up") == 1
    assert value(load, "accelerator_link_transmit_bytes_per_second") == 1.5e6


def test_a_peak_is_told_apart_from_the_mean() -> None:
    found = read("Peak Bandwidth TX:       2.50 MB/sec\nPeak Bandwidth RX:       1.00 MB/sec\n")

    assert value(found, "accelerator_link_peak_transmit_bytes_per_second") == 2.5e6
    assert value(found, "accelerator_link_transmit_bytes_per_second") is None


def test_a_module_without_lanes_has_one_power() -> None:
    found = read("optical info:\npresent : present\ntemperature : NA\nTx Power : 1.5 mW\n")

    assert value(found, "accelerator_optical_power_watts", direction="tx") == 0.0015
    assert value(found, "accelerator_optical_temperature_celsius") is None


def test_an_unknown_speed_is_no_value() -> None:
    assert read("Speed: Unknown!\n", "hccn_tool -i 0 -speed -g") == []


def test_all_ports_of_a_device_stand_in_one_table() -> None:
    found = read(
        "+--------+--------+---------------------+-----------+-------------+------------+\n"
        "| UDie ID | Port ID | Speed Ability(Gbps) | Port Type | Link Status | Media Type |\n"
        "+--------+--------+---------------------+-----------+-------------+------------+\n"
        "| 0       | 4       | 400                 | UB        | UP          | Electrical |\n"
        "| 1       | 9       | 200                 | ETH       | DOWN        | Optical    |\n"
        "+--------+--------+---------------------+-----------+-------------+------------+\n",
        "hccn_tool -g -dev_info -i 2",
    )

    assert value(found, "accelerator_link_up", device="2", udie="0", port="4", link="ub") == 1
    assert value(found, "accelerator_link_up", device="2", udie="1", port="9", link="eth") == 0
    assert value(found, "accelerator_link_max_speed_bytes_per_second", port="4") == 50e9


@pytest.mark.parametrize(
    ("text", "name", "labels"),
    [
        ("fec mode: rs FEC mode\n", "accelerator_link_fec_info", {"mode": "rs"}),
        ("fec mode: no FEC mode\n", "accelerator_link_fec_info", {"mode": "none"}),
        (
            (
                "| NPU | UDie | Port | rs_mode | auto_change_mode | itlv_mode |\n"
                "| 0   | 0    | 4    | 128 T4  | Static           | None      |\n"
            ),
            "accelerator_link_fec_info",
            {"mode": "128 T4", "change": "Static", "port": "4"},
        ),
        (
            "ipaddr:192.0.2.9\nnetmask:255.255.255.0\n",
            "accelerator_network_info",
            {"address": "192.0.2.9", "netmask": "255.255.255.0"},
        ),
        (
            "vnic link status: UP\nvnic ipaddr: 192.0.2.9\nvnic netmask: 255.255.255.0\n",
            "accelerator_network_info",
            {"address": "192.0.2.9", "interface": "vnic"},
        ),
        (
            "default gateway:192.0.2.1, Iface:eth2\n",
            "accelerator_network_gateway_info",
            {"gateway": "192.0.2.1", "interface": "eth2"},
        ),
        (
            "netdetect address: 192.0.2.3\n",
            "accelerator_network_detect_info",
            {"address": "192.0.2.3"},
        ),
        (
            (
                "Routing table:\nDestination Gateway Genmask Flags Metric Ref Use Iface\n"
                "default 192.0.2.1 0.0.0.0 UG 0 0 0 eth2\n"
            ),
            "accelerator_network_default_route",
            {"gateway": "192.0.2.1", "interface": "eth2"},
        ),
        (
            "Port ID TLV\n        Ifname: 200GE1/0/7\n\nEnd of LLDPDU TLV\n",
            "accelerator_network_neighbour_info",
            {"switch_port": "200GE1/0/7"},
        ),
        (
            "dev_id:6, tls switch[1](0:disable, 1:enable), tls preconfigured[1]\n",
            "accelerator_tls_enabled",
            {"device": "6"},
        ),
    ],
)
def test_descriptions_become_info_series(text: str, name: str, labels: dict[str, str]) -> None:
    assert value(read(text), name, **labels) == 1


def test_nothing_configured_is_an_empty_answer_and_no_error() -> None:
    assert read("\n", "hccn_tool -i 2 -ip -g") == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (BUSY, SourceError, "busy"),
        ("", SourceError, "empty"),
        ("bash: hccn_tool: command not found\n", NotSupported, "not on this node"),
        ("hccn_tool -g -link -i 0 -u 0 -p 4\n", SourceError, "no answer"),
        ("this is no output of the tool\n", SourceError, "not a known output"),
    ],
)
def test_a_refusal_is_told_in_one_line(text: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        read(text)

    assert "\n" not in str(caught.value)


STAT = "packet statistics:\nroce_rx_err_pkt_num:1\n"
HISTORY = "link up count : 1\n    Tue Nov 14 22:13:20 2023    LINK UP\n"


def node(tmp_path: Path, **answers: object) -> System:
    """Two devices; ``answers`` replace those of ``VERB_DEVICE``."""
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci6", "davinci_manager"):
        (tmp_path / "dev" / name).touch()
    usual = {"link": "link status: UP\n", "net_health": "net health status: Success\n"}
    usual |= {"stat": STAT, "link_stat": HISTORY, "optical": OPTICS}
    script = {
        f"hccn_tool -i {device} -{verb} -g": answers.get(f"{verb}_{device}", text)
        for verb, text in usual.items()
        for device in (0, 6)
    }
    for device in (0, 6):
        script[f"hccn_tool -g -dev_info -i {device}"] = answers.get(
            "dev_info", "Usage: hccn_tool\n"
        )
    system = fake_system(script, root=tmp_path)
    system.checkpoints.put("npu_smi", {"phy": {"6": "0000:c2:00"}})
    return system


def run(system: System, times: int = 1) -> list[Sample]:
    found: list = []
    for _ in range(times):
        found = list(HccnTool().collect(system))
        for item in found:
            if isinstance(item, Checkpoint):
                system.checkpoints.put("hccn_tool", item.doc)
        assert isinstance(system.clock, VirtualClock)
        system.clock.advance(30)
    return [item for item in found if isinstance(item, Sample)]


def test_every_device_is_asked_and_named_by_its_card(tmp_path: Path) -> None:
    found = run(node(tmp_path, link_6="link status: DOWN\n"))

    assert value(found, "accelerator_link_up", card="0000:c2:00", device="6") == 0
    assert value(found, "accelerator_link_up", card="npu0", device="0") == 1
    assert value(found, "accelerator_network_healthy", device="6") == 1


def test_slow_answers_stay_until_they_are_asked_again(tmp_path: Path) -> None:
    found = run(node(tmp_path), times=2)

    for device in ("0", "6"):
        assert value(found, "accelerator_link_counter_total", device=device) == 1
        assert value(found, "accelerator_link_changes_total", device=device, direction="up") == 1
        assert value(found, "accelerator_optical_temperature_celsius", device=device) == 41


def test_a_run_gives_each_series_once(tmp_path: Path) -> None:
    found = run(node(tmp_path), times=2)

    assert len(found) == len({sample.key for sample in found})


def test_a_busy_tool_is_asked_once_more(tmp_path: Path) -> None:
    found = run(node(tmp_path, link_0=[BUSY, "link status: UP\n"], link_6=BUSY))

    assert value(found, "accelerator_link_up", device="0") == 1
    assert value(found, "accelerator_link_up", device="6") is None


def test_a_slow_device_does_not_hide_the_others(tmp_path: Path) -> None:
    found = run(node(tmp_path, link_0=CommandTimeout("late"), net_health_0=CommandTimeout("late")))

    assert value(found, "accelerator_link_up", device="6") == 1


def test_a_tool_that_cannot_be_killed_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandTimeout, match="stuck"):
        run(node(tmp_path, link_0=CommandTimeout("stuck", stuck=True)))


def test_a_tool_that_knows_ports_is_asked_for_all_at_once(tmp_path: Path) -> None:
    usage = "Usage\n\thccn_tool -mode -cmd -npu_info [-options]\n"
    ports = (
        "| UDie ID | Port ID | Port Type | Link Status | Media Type |\n"
        "| 0       | 4       | UB        | UP          | Optical    |\n"
    )
    old = {
        f"{verb}_{n}": usage for verb in ("link", "net_health", "stat", "link_stat") for n in (0, 6)
    }
    system = node(tmp_path, dev_info=ports, **old)
    run(system)
    before = len(system.runner.calls)  # type: ignore[attr-defined]

    found = run(system)

    assert value(found, "accelerator_link_up", device="6", port="4") == 1
    assert len(system.runner.calls) - before == 2  # type: ignore[attr-defined]


def test_when_no_device_answers_the_run_fails(tmp_path: Path) -> None:
    verbs = ("link", "net_health", "stat", "link_stat", "optical")
    old = {f"{verb}_{n}": BUSY for verb in verbs for n in (0, 6)}

    with pytest.raises(SourceError, match="busy"):
        run(node(tmp_path, dev_info="rubbish\n", **old))


def test_a_node_without_devices_or_tool_is_not_supported(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="no Ascend device files"):
        list(HccnTool().collect(fake_system(root=tmp_path)))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "davinci0").touch()
    with pytest.raises(NotSupported, match="not on this node"):
        list(HccnTool().collect(fake_system(root=tmp_path)))


def test_a_port_without_an_optical_module_hides_nothing_else(tmp_path: Path) -> None:
    refused = "This device does not support querying optical module information.\n"
    found = run(node(tmp_path, optical_0=refused, optical_6=refused), times=2)

    assert value(found, "accelerator_link_counter_total", device="0") == 1
    assert value(found, "accelerator_optical_temperature_celsius", device="0") is None


def test_a_peer_is_pinged_from_one_device_in_turn_under_its_own_name(tmp_path: Path) -> None:
    system = node(tmp_path)
    reply = (
        "device {n} PING 10.20.0.7\nrecv seq=0,time=1.500000ms\nrecv seq=1,time=0.050000ms\n"
        "2 packets transmitted, 2 received, 0.00% packet loss\n"
    )
    for n in (0, 6):
        line = f"hccn_tool -i {n} -ping -g address 10.20.0.7 pkt 3"
        system.runner.script[line] = reply.format(n=n)

    found = list(HccnTool(pings={"node-2": "10.20.0.7"}).collect(system))

    pings = [s for s in found if isinstance(s, Sample) and s.name.startswith("accelerator_ping")]
    trips = [s.value for s in pings if s.name == "accelerator_ping_round_trip_seconds"]
    assert trips == [pytest.approx(50e-6)]
    assert {dict(s.labels)["peer"] for s in pings} == {"node-2"}
    assert len({dict(s.labels)["device"] for s in pings}) == 1
