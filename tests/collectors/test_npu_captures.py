"""Every captured output of the Ascend tools beside this repository gives the values that its index
names, by `collect --from`. The expectations are worked out by hand from the index; no row is left
out without a reason.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from tests.support.captures import collect
from vllm_watchdog.watchdog.errors import SourceError
from vllm_watchdog.watchdog.model import Sample

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "npu-smi"
MIB = 1024 * 1024

Check = tuple[str, dict[str, str], float | None]

pytestmark = pytest.mark.skipif(
    not (DATA / "INDEX.tsv").exists(),
    reason="captures of the Ascend tools are not beside this repository",
)

SHORT = {
    "present": ("accelerator_present", 1),
    "healthy": ("accelerator_healthy", 1),
    "level": ("accelerator_health_level", 1),
    "power": ("accelerator_power_watts", 1),
    "temp": ("accelerator_temperature_celsius", 1),
    "percent": ("accelerator_utilization_ratio", 0.01),
    "used": ("accelerator_memory_used_bytes", MIB),
    "total": ("accelerator_memory_total_bytes", MIB),
    "ddr": ("accelerator_ddr_used_bytes", MIB),
    "ddr_total": ("accelerator_ddr_total_bytes", MIB),
    "pages": ("accelerator_hugepages_used", 1),
    "pages_total": ("accelerator_hugepages_configured", 1),
    "processes": ("accelerator_processes", 1),
    "memory_percent": ("accelerator_memory_used_ratio", 0.01),
    "ddr_percent": ("accelerator_ddr_used_ratio", 0.01),
    "board_temp": ("accelerator_board_temperature_celsius", 1),
    "memory_temp": ("accelerator_memory_temperature_celsius", 1),
    "bandwidth_percent": ("accelerator_memory_utilization_ratio", 0.01),
    "overall_percent": ("accelerator_overall_utilization_ratio", 0.01),
}
OK = {"present": 1, "healthy": 1, "level": 0}


def card(name: str, **values: float | None) -> list[Check]:
    """Values of one card, in the units of the index; None: no such sample."""
    return [
        (SHORT[key][0], {"card": name}, None if value is None else value * SHORT[key][1])
        for key, value in values.items()
    ]


def info(name: str, **labels: str) -> list[Check]:
    return [("accelerator_info", {"card": name, **labels}, 1)]


def process(name: str, pid: int, mib: float, **labels: str) -> list[Check]:
    home = {"card": name, "pid": str(pid), **labels}
    return [("accelerator_process_memory_bytes", home, mib * MIB)]


def one(series: str, value: float | None, **labels: str) -> list[Check]:
    return [(series, labels, value)]


def clock(name: str, current: float, limit: float) -> list[Check]:
    home = {"card": name, "domain": "core"}
    return [
        ("accelerator_clock_hertz", home, current * 1e6),
        ("accelerator_max_clock_hertz", home, limit * 1e6),
    ]


def engine(name: str, kind: str, percent: float) -> list[Check]:
    labels = {"card": name, "engine": kind}
    return [("accelerator_engine_utilization_ratio", labels, percent / 100)]


def ecc_zero(name: str, *memories: str) -> list[Check]:
    found: list[Check] = []
    for kind in ("correctable", "uncorrectable"):
        home = {"card": name, "kind": kind}
        found.append(("accelerator_ecc_errors_total", home, 0))
        found.append(("accelerator_ecc_lifetime_errors_total", home, 0))
        for memory in memories:
            found.append(("accelerator_ecc_memory_errors_total", {**home, "memory": memory}, 0))
            found.append(("accelerator_retired_pages_total", {**home, "memory": memory}, 0))
    return found


def ping(device: str, first: float | None, *further: float, loss: float = 0) -> list[Check]:
    """Milliseconds; the packet that came first has the address resolution in it."""
    home = {"device": device} if device else {}
    found: list[Check] = [("accelerator_ping_loss_ratio", home, loss)]
    seconds = None if first is None else first / 1e3
    found.append(("accelerator_ping_first_round_trip_seconds", home, seconds))
    for seq, value in enumerate(further, 1):
        found.append(
            ("accelerator_ping_round_trip_seconds", {**home, "seq": str(seq)}, value / 1e3)
        )
    return found


def counter(name: str, value: float, **labels: str) -> list[Check]:
    return [("accelerator_link_counter_total", {"counter": name, **labels}, value)]


def supported(verb: str, *kinds: str) -> list[Check]:
    return [("accelerator_query_supported", {"verb": verb, "type": kind}, 1) for kind in kinds]


A3 = [
    "9d",
    "9f",
    "99",
    "9b",
    "95",
    "97",
    "91",
    "93",
    "8d",
    "8f",
    "89",
    "8b",
    "85",
    "87",
    "81",
    "83",
]

INFO: dict[str, list[Check]] = {
    "21.0.3.1_310_4card_16chip.txt": [
        *card("0000:01:00", **OK, power=12.8, temp=42, used=2621, total=8192),
        *card("0000:02:00", **OK, used=2703),
        *card("0000:0a:00", **OK, temp=48),
        *info("0000:01:00", npu="1", chip="0", model="310"),
        *info("0000:0a:00", npu="3", chip="0", device="4"),
        *info("0000:8e:00", npu="6", chip="3", device="15"),
        *card("0000:8e:00", **OK, power=12.8, temp=47),
    ],
    "21.0.3.2_910A_2card.txt": [
        *card(
            "0000:3b:00", **OK, power=65.3, temp=45, ddr=1809, ddr_total=15082, used=0, total=32768
        ),
        *card("0000:86:00", **OK, power=63.6, temp=44, ddr=1809, used=0, processes=None),
        *info("0000:86:00", npu="4", driver="21.0.3.2"),
    ],
    "22.0.0_310P3_1card.txt": [
        *card("0000:87:00", **OK, power=17.1, temp=55, percent=0, used=927, total=23054),
        *info("0000:87:00", npu="0", device="0", tool="22.0.0", driver="22.0.2"),
    ],
    "22.0.0_310P3_1card_b.txt": card(
        "0000:3b:00", **OK, power=16.5, temp=56, used=924, total=21534
    ),
    "23.0.0_310B4_alarm.txt": card(
        "npu0",
        present=1,
        healthy=0,
        level=2,
        power=None,
        temp=65,
        pages=15,
        pages_total=15,
        used=3628,
        total=15609,
    ),
    "23.0.3_910B2C_npu12-15_busy.txt": [
        *card("0000:d9:00", **OK, power=91.3, temp=53, used=52675, total=65536, percent=0),
        *info("0000:d9:00", npu="12"),
        *process("0000:d9:00", 78617, 49385, process="python"),
        *process("0000:c9:00", 79097, 49379),
        *info("0000:c9:00", npu="15"),
    ],
    "23.0.5_910_warning_elided.txt": [
        *card(
            "0000:61:00",
            present=1,
            level=1,
            power=73.1,
            temp=37,
            ddr=920,
            ddr_total=13553,
            used=0,
            total=32768,
        ),
        *card("0000:3d:00", **OK, power=67.0, temp=38, ddr=2346, ddr_total=15567),
        *info("0000:3d:00", npu="7"),
    ],
    "23.0.rc2_910B1_elided.txt": [
        *card("0000:c1:00", **OK, power=88.4, temp=46, used=4175, total=65536),
        *card("0000:42:00", **OK, power=92.7, temp=48, used=4174),
    ],
    "23.0.rc3_910_8card_hugepages_busy.txt": [
        *card(
            "0000:c1:00",
            **OK,
            power=73.4,
            temp=44,
            pages=1123,
            pages_total=1123,
            ddr=4565,
            ddr_total=15137,
            used=30710,
            total=32768,
        ),
        *process("0000:c1:00", 139667, 30780, process="python"),
        *card("0000:02:00", **OK, used=30710, processes=1),
        *process("0000:02:00", 139090, 30780),
        *info("0000:02:00", npu="7", tool="23.0.rc3", driver="23.0.rc2.3"),
    ],
    "24.1.0_910ProB_8card_idle.txt": [
        *card(
            "0000:c1:00", **OK, power=78.0, temp=38, ddr=2387, ddr_total=13553, used=18, total=32768
        ),
        *card("0000:01:00", **OK, ddr=1645, ddr_total=15567, processes=0),
    ],
    "24.1.1_910B4_2card_multi_proc.txt": [
        *card("0000:c1:00", **OK, power=88.2, temp=30, used=26838, total=32768, processes=2),
        *process("0000:c1:00", 1406630, 21835, process="mindie_llm_back"),
        *process("0000:c1:00", 60575, 2122, process="python"),
        *card("0000:c2:00", **OK, used=2000, processes=0),
    ],
    "24.1.rc1.b030_910B3_8card_no_proc_section.txt": [
        *card("0000:c1:00", **OK, power=101.8, temp=43, used=3318, total=65536, processes=None),
        *card("0000:42:00", **OK, power=98.2, temp=44, used=3315),
    ],
    "24.1.rc2.1_910B2_npu3-6_busy.txt": [
        *card("0000:02:00", **OK, power=119.9, temp=45, percent=9, used=61125, total=65536),
        *process("0000:02:00", 6290, 57776, process="VLLMWorker_TP"),
        *card("0000:41:00", **OK, temp=62, percent=5, processes=None),
    ],
    "24.1.rc3.7_A3_8npu_idle.txt": [
        *[check for place in A3 for check in card(f"0000:{place}:00", **OK, processes=0)],
        *card("0000:9d:00", power=178.9, temp=36, used=3412, total=65536),
        *card("0000:83:00", power=None, used=3188),
        *info("0000:83:00", npu="7", chip="1", phy_id="15"),
    ],
    "25.2.0_310P3_300IDuo_device_part.txt": [
        *card("0000:01:00", **OK, power=None, temp=45, used=1529, total=44280),
        *card("0000:01:00/1", **OK, power=None, temp=43, used=1412, total=43693),
        *info("0000:01:00/1", npu="2", chip="1", device="1"),
    ],
    "25.2.0_A3_2npu_4chip.txt": [
        *card("0000:9c:00", **OK, power=162.8, temp=37, used=3133, processes=0),
        *card("0000:9e:00", **OK, power=None, used=2876),
        *info("0000:9e:00", npu="0", chip="1", phy_id="1"),
        *card("0000:39:00", **OK, used=10568, total=65536),
        *info("0000:39:00", npu="1", chip="1", phy_id="3"),
        *process("0000:39:00", 990711, 7746, process="python"),
    ],
    "25.2.3_A3_8npu_busy_empty_procname.txt": [
        *card(
            "0000:9d:00",
            **OK,
            power=232.5,
            temp=52,
            percent=17,
            used=53444,
            total=65536,
            processes=4,
        ),
        *process("0000:9d:00", 3325989, 50128),
        *card("0000:95:00", **OK, processes=0, used=3128),
        *card("0000:83:00", **OK, used=50242),
        *info("0000:83:00", npu="7", chip="1", phy_id="15"),
        *process("0000:83:00", 3085964, 47416),
    ],
    "25.5.1_310P3_2card_idle.txt": [
        *card("0000:81:00", **OK, power=None, temp=37, used=1848, total=21525),
        *card("0000:85:00", **OK, temp=40, used=1849),
        *info("0000:85:00", npu="5", device="1"),
    ],
    "25.5.1_310P3_slice_container_prefix_lines.txt": [
        *card("0000:81:00", **OK, power=None, temp=38, used=0, total=8192),
        *info("0000:81:00", npu="32768", device="0"),
    ],
    "25.5.2_910B4_npu5_only.txt": [
        *card("0000:41:00", **OK, power=89.9, temp=39, used=2922, total=32768, processes=None),
        *info("0000:41:00", npu="5"),
    ],
    "26.0.rc1_910B4_wide.txt": card(
        "0000:c1:00", **OK, power=82.6, temp=32, used=2871, total=32768, processes=0
    ),
    "26.1.0.b061_A3_wide_elided.txt": [
        *card("0000:9d:00", **OK, power=178.6, temp=50, used=15516),
        *process("0000:9d:00", 692318, 12417, process="python3"),
        *card("0000:81:00", **OK, power=172.0, temp=53, used=15503),
        *info("0000:81:00", npu="7", chip="0"),
        *card("0000:83:00", **OK, power=None, temp=52, used=15242),
    ],
    "26.x_950DT_8npu_idle_no_banner.txt": [
        *[check for npu in range(8) for check in card(f"npu{npu}", **OK, processes=0)],
        *card("npu0", power=377.2, temp=48, used=4857, total=98304),
        *card("npu3", power=395.1),
    ],
    "doc_950_1npu.txt": card(
        "0000:91:00", **OK, power=204.4, temp=56, percent=0, used=4439, total=86016, processes=0
    ),
}

SYNTHETIC: dict[str, list[Check]] = {
    "910B3_8card_npu5_absent.txt": [
        *[
            check
            for place in ("c1", "01", "c2", "02", "81", "82", "42")
            for check in card(f"0000:{place}:00", **OK)
        ],
        *card("0000:41:00", present=None, healthy=None),
    ],
    "910B3_8card_warning_alarm_critical_unknown.txt": [
        *[check for place in ("c1", "c2", "81", "42") for check in card(f"0000:{place}:00", **OK)],
        *card("0000:01:00", present=1, level=1),
        *card("0000:02:00", present=1, healthy=0, level=2),
        *card("0000:41:00", present=1, healthy=0, level=3),
        *card("0000:82:00", present=1, healthy=None, level=None),
    ],
    "hccs_ping_A3_microseconds.txt": [
        *ping("", 0.02341, 0.01822, 0.01805),
        *one("accelerator_ping_summary_seconds", 23.41e-6, statistic="max", path="hccs"),
    ],
}

ALARM = "npu-smi info -t health -i 0 -c 0"
SUBCOMMANDS: dict[str, tuple[str | None, list[Check]]] = {
    "info_-h_910B_23.0.rc2.txt": (
        None,
        supported("info", "board", "health", "ecc", "proc-mem", "topo"),
    ),
    "info_-h_950.txt": (None, supported("info", "board", "current-fault-event", "tls-cert-period")),
    "info_-l_910B_16npu_first3.txt": (
        None,
        [
            *one("accelerators_listed", 16),
            *[check for npu in range(3) for check in info(f"npu{npu}", npu=str(npu))],
            *one("accelerator_info", None, card="npu3"),
        ],
    ),
    "info_-l_950.txt": (None, [*one("accelerators_listed", 1), *info("npu0", npu="0")]),
    "info_-l_950PR_2card.txt": (
        None,
        [
            *one("accelerators_listed", 2),
            *info("npu0", npu="0"),
            *info("npu3", npu="3"),
            *one("accelerator_info", None, card="npu1"),
        ],
    ),
    "info_-m_310_with_mcu.txt": (
        None,
        [*info("npu4", chip="0", device="0"), *one("accelerator_info", None, card="npu4/1")],
    ),
    "info_-m_910A_8chip.txt": (
        None,
        [
            check
            for npu in range(8)
            for check in info(
                f"npu{npu}", npu=str(npu), chip="0", device=str(npu), model="Ascend 910A"
            )
        ],
    ),
    "info_-m_950.txt": (None, info("npu0", npu="0", slot="0", chip="0", phy_id="0")),
    "info_-t_board_-i0_-c0_910A.txt": (
        None,
        info("0000:61:00", bus_id="0000:61:00.0", model="910A", firmware="7.1.0.7.220"),
    ),
    "info_-t_board_-i0_910A.txt": (
        None,
        [
            *info("0000:61:00", driver="23.0.5", firmware="7.1.0.7.220"),
            *one("accelerator_board_compatible", 1),
            *one("accelerator_chips", 1),
        ],
    ),
    "info_-t_board_-i0_950.txt": (
        None,
        [
            *info("0000:f1:00", npu="0"),
            *one("accelerator_board_compatible", 1),
            *one("accelerator_chips", 1),
        ],
    ),
    "info_-t_common_-i0_950.txt": (
        None,
        [*card("npu0", temp=65, power=298.6, memory_percent=3), *clock("npu0", 100, 1650)],
    ),
    "info_-t_common_-i1_910B_mcu_block.txt": (
        None,
        [
            *card("npu1", temp=46, power=130.4, memory_percent=91, percent=6, board_temp=40),
            *clock("npu1", 1800, 1800),
        ],
    ),
    "info_-t_common_-i7_910B_hot.txt": (
        None,
        card("npu7", temp=66, power=331.1, memory_percent=82, percent=70, board_temp=58),
    ),
    "info_-t_current-fault-event_-i0_950.txt": (
        "npu-smi info -t current-fault-event -i 0",
        [
            *one("accelerator_faults", 1, card="npu0"),
            *one("accelerator_fault", 1, card="npu0", code="0x81af8000", severity="critical"),
        ],
    ),
    "info_-t_ecc_-i0_950.txt": (
        None,
        [
            *ecc_zero("npu0", "hbm"),
            *one("accelerator_retired_pages_pending", 0, kind="uncorrectable", memory="hbm"),
        ],
    ),
    "info_-t_ecc_-i1_910.txt": (None, ecc_zero("npu1", "ddr", "hbm")),
    "info_-t_health_-i0_-c0_alarm_3codes_910A.txt": (
        ALARM,
        [
            *card("npu0", healthy=0, level=2),
            *[
                check
                for code in ("0xa4025021", "0x8c03a000", "0x8c084e00")
                for check in one("accelerator_fault", 1, card="npu0", code=code)
            ],
        ],
    ),
    "info_-t_health_-i0_-c0_ok_910A.txt": (
        ALARM,
        [*card("npu0", healthy=1, level=0), *one("accelerator_fault", None)],
    ),
    "info_-t_health_-i0_950.txt": (
        None,
        [*card("npu0", healthy=1, level=0), *one("accelerator_fault", None)],
    ),
    "info_-t_memory_-i0_950.txt": (
        None,
        [
            *card("npu0", total=131072, memory_temp=63),
            *one("accelerator_clock_hertz", 3200e6, domain="memory"),
        ],
    ),
    "info_-t_memory_-i1_-c0_910B.txt": (
        "npu-smi info -t memory -i 1 -c 0",
        [
            *card("npu1", total=65536, memory_temp=46),
            *one("accelerator_clock_hertz", 1600e6, domain="memory"),
        ],
    ),
    "info_-t_phyid-remap_-p0_950.txt": (
        None,
        info("npu0", phy_id="0", npu="0", slot="0", chip="0"),
    ),
    "info_-t_power_-i0_950.txt": (None, card("npu0", power=296.5)),
    "info_-t_proc-mem_-i0_950.txt": (None, process("npu0", 395864, 5118, process="power_test")),
    "info_-t_proc-mem_910B3.txt": (
        "npu-smi info -t proc-mem -i 0 -c 0",
        process("npu0", 207795, 55436, process="VLLMEngineCor"),
    ),
    "info_-t_spod-info_A3.txt": (
        "npu-smi info -t spod-info -i 0 -c 0",
        one("accelerator_superpod_info", 1, card="npu0", sdid="167772160", size="384", server="40"),
    ),
    "info_-t_temp_-i0_950.txt": (None, card("npu0", temp=53)),
    "info_-t_topo_910B_hccs.txt": (
        None,
        [
            *[
                ("accelerator_topology", {"card": f"npu{a}", "peer": f"npu{b}", "path": "HCCS"}, 1)
                for a in range(8)
                for b in range(8)
                if a != b
            ],
            *one("accelerator_cpu_affinity", 1, card="npu0", cpus="144-167"),
            *one("accelerator_cpu_affinity", 1, card="npu7", cpus="48-71"),
        ],
    ),
    "info_-t_usages_-i0_910A.txt": (
        None,
        [
            *card("npu0", total=31129, ddr_total=13553, ddr_percent=6, memory_percent=0, percent=0),
        ],
    ),
    "info_-t_usages_-i0_910B1.txt": (
        None,
        [*card("npu0", total=65536, memory_percent=4, percent=0), *engine("npu0", "vector", 0)],
    ),
    "info_-t_usages_-i0_950.txt": (
        None,
        [
            *card(
                "npu0",
                total=131072,
                memory_percent=3,
                percent=0,
                overall_percent=0,
                bandwidth_percent=3,
            ),
            *engine("npu0", "cube", 0),
        ],
    ),
    "info_watch_8npu_950.txt": (
        None,
        [
            *card("npu0", power=290.4, temp=51, memory_percent=3),
            *card("npu7", power=289.3, temp=51),
        ],
    ),
    "set_-h_950.txt": (None, supported("set", "reset", "clear-ecc-info", "tls-cert-period")),
    "set_-t_reset_-i0_-m1_success_950.txt": (
        "npu-smi set -t reset -i 0 -m 1",
        one("accelerator_reset_success", 1, card="npu0"),
    ),
}

RX, TX = "roce_rx_err_pkt_num", "roce_tx_err_pkt_num"
HCCN: dict[str, list[Check]] = {
    "bandwidth_-g_910B.txt": [
        *one("accelerator_link_transmit_bytes_per_second", 0),
        *one("accelerator_link_receive_bytes_per_second", 0),
    ],
    "fec_-g_none_910A.txt": one("accelerator_link_fec_info", 1, mode="none"),
    "fec_-g_rs.txt": one("accelerator_link_fec_info", 1, mode="rs"),
    "gateway_-g_8dev.txt": [
        check
        for port in range(8)
        for check in one("accelerator_network_gateway_info", 1, interface=f"eth{port}")
    ],
    "hw_stats_-g_910B.txt": [
        *counter("aeqe", 0, device="3"),
        *counter("ceqe", 0, device="3"),
    ],
    "ip_-g_910A.txt": one(
        "accelerator_network_info", 1, address="198.51.100.110", netmask="255.255.255.0"
    ),
    "link_-g_down.txt": one("accelerator_link_up", 0, link="roce"),
    "link_-g_up.txt": one("accelerator_link_up", 1, link="roce"),
    "link_stat_-g_devid_910A.txt": [
        *one("accelerator_link_changes_total", 2, device="0", direction="up"),
        *one("accelerator_link_up", 1, device="0"),
        # 2022-08-01T14:43:40Z
        *one("accelerator_link_last_change_timestamp_seconds", 1659365020, direction="up"),
        *one("accelerator_link_last_change_timestamp_seconds", 1659365020, direction="down"),
    ],
    "lldp_-g_910B.txt": one("accelerator_network_neighbour_info", 1, switch_port="400GE1/1/20:2"),
    "lldp_ifname_8dev.txt": [
        *one("accelerator_network_neighbour_info", 1, switch_port="400GE1/1/5:1"),
        *one("accelerator_network_neighbour_info", 1, switch_port="400GE1/4/5:2"),
    ],
    "net_health_-g_fault.txt": one("accelerator_network_healthy", 0),
    "net_health_-g_init.txt": [
        *one("accelerator_network_healthy", None),
        *one("accelerator_network_health_info", 1, status="init"),
    ],
    "net_health_-g_socket_failed_910A.txt": one("accelerator_network_healthy", 0),
    "net_health_-g_success.txt": one("accelerator_network_healthy", 1),
    "netdetect_-g_ok.txt": one("accelerator_network_detect_info", 1),
    "optical_-g_notpresent_values_910A.txt": [
        *one("accelerator_optical_present", 0),
        *one("accelerator_optical_temperature_celsius", 47),
        *one("accelerator_optical_supply_volts", 3.2629),
        *one("accelerator_optical_power_watts", 4.4035e-3, direction="tx", lane="0"),
        *one("accelerator_optical_power_limit_watts", 3.5481e-3, direction="tx", bound="high"),
        *one("accelerator_optical_power_watts", 0.0054e-3, direction="rx", lane="1"),
        *one("accelerator_optical_power_limit_watts", 0.1445e-3, direction="rx", bound="low"),
        *one("accelerator_optical_loss_of_signal", 0, direction="tx"),
        *one("accelerator_optical_loss_of_signal", None, direction="rx"),
    ],
    "ping_-g_8dev_910B3.txt": [
        *ping("0", 0.114, 0.067, 0.063),
        *ping("7", 0.157, 0.065, 0.063),
    ],
    "ping_-g_first_packet_slow.txt": ping("3", 1.418, 0.034, 0.040),
    "ping_-g_loss_33pct.txt": ping("", None, 0.097, 0.066, loss=1 / 3),
    "route_-g_910B.txt": one("accelerator_network_default_route", 1, interface="eth3"),
    "speed_-g_status_910B.txt": [
        *one("accelerator_link_speed_bytes_per_second", 200000e6 / 8),
        *one("accelerator_link_up", 1),
    ],
    "stat_-g_2counters_910A.txt": [*counter(RX, 0), *counter(TX, 0)],
    "stat_-g_8dev_transcript_err.txt": [
        *counter(RX, 11, device="5"),
        *counter(TX, 12, device="5"),
        *counter(RX, 13, device="6"),
        *counter(TX, 77, device="6"),
        *[
            check
            for device in "012347"
            for name in (RX, TX)
            for check in counter(name, 0, device=device)
        ],
    ],
    "stat_counters_timeseries_910.csv": [
        *counter("mac_rx_pfc_pri4_pkt_num", 1014660853, device="0"),
        *counter(RX, 0, device="0"),
        *counter(TX, 0, device="0"),
        # (1014660853 - 1014562045) / 4 s
        *one("accelerator_link_counter_rate", 24702, counter="mac_rx_pfc_pri4_pkt_num"),
    ],
    "tls_switch_8dev.txt": [
        check
        for device in range(8)
        for check in one("accelerator_tls_enabled", 0, device=str(device))
    ],
}

REFUSED: dict[str, str] = {
    "errors/command_not_found.txt": "not on this node",
    "errors/command_or_option_not_found.txt": "command or option",
    "errors/dcmi_-8005_init_failed.txt": "-8005: inner error",
    "errors/dcmi_-8020_device_used.txt": "-8020: resource occupied",
    "errors/error_parameter_-t.txt": "-t",
    "errors/invalid_card_id_usage.txt": "invalid card id",
    "errors/no_card.txt": "no NPU card",
    "errors/not_support_product.txt": "not supported",
    "errors/npu-exporter_libdcmi_check_failed.log": "library is rejected",
    "hccn_tool/busy.txt": "busy",
    "hccn_tool/ip_-g_empty_910A.txt": "nothing is configured",
}

WITHOUT_ANSWER = {
    f"hccn_tool/{name}"
    for name in (
        "bandwidth_-g_950.txt",
        "bit_err_-g_950.txt",
        "dev_info_-g_950.txt",
        "fec_-g_table_950.txt",
        "link_-g_down_950.txt",
        "link_stat_-g_table_950.txt",
        "stat_-g_950.txt",
        "ub_ping_950.txt",
        "vnic_-g_950.txt",
    )
}
"""Files that hold a command line and not its answer: the values of the index cannot be in them.
The formats themselves are tested with our own fixtures in test_hccn_tool.py."""

NOT_OUTPUTS = {
    "fault_codes.tsv": "a table of facts, restated in rules/faults.yaml",
    "npu_exporter_metric_help.txt": "names of another exporter, for its compatible names",
    "npu_exporter_metrics.tsv": "names of another exporter, for its compatible names",
}


def readers() -> dict[str, tuple[str, str | None, list[Check]]]:
    """Of each file: its collector, the command line where two could be meant, the values."""
    found: dict[str, tuple[str, str | None, list[Check]]] = {}
    for name, checks in INFO.items():
        found[f"info/{name}"] = ("npu_smi", None, checks)
    for name, (command, checks) in SUBCOMMANDS.items():
        found[f"subcommands/{name}"] = ("npu_smi", command, checks)
    for name, checks in HCCN.items():
        found[f"hccn_tool/{name}"] = ("hccn_tool", None, checks)
    for name, checks in SYNTHETIC.items():
        found[f"synthetic/{name}"] = ("hccn_tool" if "ping" in name else "npu_smi", None, checks)
    return found


READERS = readers()
CHECKS = [(file, check) for file, (_, _, checks) in READERS.items() for check in checks]


@cache
def samples(file: str) -> tuple[Sample, ...]:
    collector, command, _ = READERS[file]
    return tuple(x for x in collect(collector, DATA / file, command) if isinstance(x, Sample))


@pytest.mark.parametrize(("file", "check"), CHECKS)
def test_a_capture_gives_the_value_of_its_index_row(file: str, check: Check) -> None:
    name, labels, expected = check

    found = [
        s.value
        for s in samples(file)
        if s.name == name and labels.items() <= dict(s.labels).items()
    ]

    if expected is None:
        assert found == []
    else:
        assert found == [pytest.approx(expected)]


@pytest.mark.parametrize("file", READERS)
def test_a_capture_gives_each_series_once_and_for_a_vendor(file: str) -> None:
    found = samples(file)

    assert len(found) == len({sample.key for sample in found})
    assert all(("vendor", "ascend") in sample.labels for sample in found)


@pytest.mark.parametrize("file", REFUSED)
def test_a_refusal_is_an_error_of_one_line(file: str) -> None:
    collector = "hccn_tool" if file.startswith("hccn_tool") else "npu_smi"

    with pytest.raises(SourceError, match=REFUSED[file]) as caught:
        collect(collector, DATA / file)
    assert "\n" not in str(caught.value)


def test_a_query_for_a_card_that_is_gone_reports_it_lost() -> None:
    path = DATA / "errors/invalid_card_id_usage.txt"

    (found,) = collect("npu_smi", path, "npu-smi info -t health -i 0")

    assert isinstance(found, Sample)
    assert (found.name, found.value) == ("accelerator_present", 0)
    assert ("card", "npu0") in found.labels


def test_an_address_that_is_not_configured_is_no_error_where_it_was_asked_for() -> None:
    path = DATA / "hccn_tool/ip_-g_empty_910A.txt"

    assert collect("hccn_tool", path, "hccn_tool -i 2 -ip -g") == []


@pytest.mark.parametrize("file", sorted(WITHOUT_ANSWER))
def test_a_command_line_without_its_answer_gives_nothing(file: str) -> None:
    if (DATA / file).read_bytes().count(b"\n") > 1:
        pytest.fail("the answer is there: move this file to the table of values")

    with pytest.raises(SourceError, match="no answer"):
        collect("hccn_tool", DATA / file)


def test_every_row_of_the_index_is_checked_or_has_a_reason() -> None:
    with (DATA / "INDEX.tsv").open(encoding="utf-8") as stream:
        rows = {row["file"] for row in csv.DictReader(stream, delimiter="\t")}
    ours = {file for file in rows if not file.startswith("logs/")}  # logs are for classification

    assert ours == set(READERS) | set(REFUSED) | WITHOUT_ANSWER | set(NOT_OUTPUTS)
    print(f"{len(ours) - len(NOT_OUTPUTS)} files, {len(CHECKS)} values")
