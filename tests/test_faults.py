"""The vocabulary of fault codes."""

from __future__ import annotations

from importlib import resources

import pytest
import yaml

from vllm_watchdog.watchdog.errors import ConfigError
from vllm_watchdog.watchdog.faults import SEVERITIES, parse, vocabulary

KINDS = {
    "device_lost", "device_ecc", "driver_fault", "app_fault", "nvlink_fault", "nvswitch_fault",
    "pcie_error", "recovery_hint", "context", "npu_event", "npu_error", "hccl_link", "hccl_timeout",
}  # fmt: skip


@pytest.mark.parametrize(
    ("xid", "kind", "severity"),
    [
        (79, "device_lost", "critical"),
        (48, "device_ecc", "critical"),
        (63, "device_ecc", "critical"),
        (64, "device_ecc", "critical"),
        (94, "device_ecc", "critical"),
        (95, "device_ecc", "critical"),
        (119, "driver_fault", "critical"),
        (120, "driver_fault", "critical"),
        (109, "driver_fault", "critical"),
        (13, "app_fault", "warning"),
        (31, "app_fault", "warning"),
        (43, "app_fault", "warning"),
        (45, "app_fault", "warning"),
        (74, "nvlink_fault", "critical"),
        (149, "nvlink_fault", "warning"),
        (154, "recovery_hint", "warning"),
    ],
)
def test_an_xid_has_its_kind(xid: int, kind: str, severity: str) -> None:
    fault = vocabulary().xid(xid)

    assert (fault.code, fault.kind, fault.severity) == (str(xid), kind, severity)


@pytest.mark.parametrize("text", ["40F84E00", "0x40F84E00", "0x40f84e00"])
def test_an_ascend_code_is_one_however_it_is_spelled(text: str) -> None:
    fault = vocabulary().ascend(text)

    assert (fault.code, fault.kind, fault.action) == ("0x40f84e00", "device_lost", "reset_card")


def test_the_handling_level_of_an_ascend_code_decides_its_severity() -> None:
    codes = ("0x81078603", "0x80e20207", "0x8c084e00", "0x8c03a000", "0x80818c05")

    severities = [vocabulary().ascend(code).severity for code in codes]
    assert severities == ["info", "warning", "warning", "critical", "critical"]


@pytest.mark.parametrize(
    ("code", "kind", "category"),
    [
        ("507010", "device_lost", "heartbeat_lost"),
        ("507035", "npu_error", "device_fault"),
        ("507014", "npu_error", "aicore_timeout"),
        ("EL0004", "npu_error", "device_memory"),
        ("EL0009", "npu_error", "stream_resources"),
        ("EI0006", "hccl_link", "socket_timeout"),
        ("EI0002", "hccl_timeout", "notify_wait"),
        ("ERR99999", "npu_error", "secondary"),
    ],
)
def test_a_cann_code_has_its_kind_and_class(code: str, kind: str, category: str) -> None:
    fault = vocabulary().cann(code)

    assert (fault.kind, fault.category) == (kind, category)


def test_an_unknown_code_is_told_as_such() -> None:
    words = vocabulary()
    unknown = [words.xid(9999), words.sxid(1), words.ascend(1), words.cann("EI0999")]

    assert not any(fault.known for fault in unknown)
    assert [fault.kind for fault in unknown] == [
        "driver_fault",
        "nvswitch_fault",
        "npu_event",
        "hccl_link",
    ]


def test_every_row_has_a_known_kind_a_severity_and_a_source() -> None:
    text = (resources.files("vllm_watchdog.rules") / "faults.yaml").read_text()
    sources = yaml.safe_load(text)["sources"]

    rows = [fault for table in vocabulary().tables.values() for fault in table.values()]
    assert len(rows) > 1000
    assert {fault.kind for fault in rows} <= KINDS
    assert {fault.severity for fault in rows} == set(SEVERITIES)
    assert {fault.source for fault in rows} <= set(sources)


def test_bad_rows_are_all_named() -> None:
    with pytest.raises(ConfigError) as told:
        parse("sources: {a: b}\nxid: {1: device_lost critical none, 2: device_lost loud none a}\n")

    assert len(told.value.problems) == 2
