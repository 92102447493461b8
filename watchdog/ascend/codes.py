"""What the commonest fault codes of the driver mean: a kind of event and how grave it is.

Facts only, restated from the vendor's handling levels: a level of "do not handle" is no more than
info, a level that stops jobs or resets the chip is critical. A code that is not here is an
``npu_event`` of the severity that the tool gives with it.
"""

from __future__ import annotations

KNOWN: dict[int, tuple[str, str]] = {
    0x40F84E00: ("device_lost", "critical"),  # heartbeat between boards lost
    0x80C98000: ("device_fault", "warning"),  # AI core error
    0x80E01801: ("device_ecc", "critical"),  # HBM multi-bit error
    0x80E18400: ("device_ecc", "info"),  # the same, told with the host's process id
    0x81078603: ("npu_event", "info"),  # network port: link down
    0x81AF8000: ("device_fault", "critical"),  # UB module abnormal
    0x8C03A000: ("driver_fault", "critical"),  # process manager start or exit failure
    0x8C084E00: ("device_lost", "critical"),  # ADDA heartbeat lost
    0xA4025021: ("npu_event", "info"),
    0xA8028802: ("device_ecc", "critical"),  # driver exception with multi-bit error
    0xB4060007: ("device_fault", "critical"),  # task scheduler timeout
}


def fault(code: int, severity: str = "warning") -> dict[str, str]:
    """Labels of ``accelerator_fault``: code (0x and eight lower-case digits), kind, severity."""
    kind, grave = KNOWN.get(code, ("npu_event", severity))
    return {"code": f"0x{code:08x}", "kind": kind, "severity": grave}
