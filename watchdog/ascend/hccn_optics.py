"""The optical module in outputs of ``hccn_tool -optical``: volts, watts, amperes, degrees Celsius.

The tool fills values in even when it calls the module not present; both are told. Powers come in
mW, or in dBm on newer tools: both become watts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..model import Sample
from .hccn_place import Place, told

_VALUE = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?) *(C|mV|mW|uW|dBm|mA|dB)?")
_FACTORS = {"C": 1.0, "mV": 1e-3, "mW": 1e-3, "uW": 1e-6, "mA": 1e-3, "dB": 1.0}
_VALUES: tuple[tuple[str, str, tuple[str, ...]], ...] = (  # key, series, labels of its groups
    (r"(tx|rx) power ?(\d{0,2})", "power_watts", ("direction", "lane")),
    (r"(tx) bias ?(\d{0,2})", "bias_amperes", ("direction", "lane")),
    (r"(host|media) snr lane ?(\d{1,2})", "snr_decibels", ("side", "lane")),
    (r"(tx|rx)power (high|low) thres", "power_limit_watts", ("direction", "bound")),
    (r"vcc (high|low) thres", "supply_limit_volts", ("bound",)),
    (r"temp (high|low) thres", "temperature_limit_celsius", ("bound",)),
    (r"vcc", "supply_volts", ()),
    (r"temperature", "temperature_celsius", ()),
)
_FLAG = re.compile(r"(tx|rx) (los|lol) flag")
_FLAGS = {"los": "accelerator_optical_loss_of_signal", "lol": "accelerator_optical_loss_of_lock"}


def optics(text: str, place: Place) -> Iterator[Sample]:
    """The samples of one module. Loss flags are bit masks of lanes, 0xff means not valid."""
    for key, value, here in told(text, place):
        if key == "present" and value in {"present", "not present"}:
            yield Sample("accelerator_optical_present", float(value == "present"), here.labels())
        elif flag := _FLAG.fullmatch(key):
            if re.fullmatch(r"0x[0-9a-f]{1,2}", value) and value != "0xff":
                lost = float(int(value, 16) != 0)
                yield Sample(_FLAGS[flag[2]], lost, here.labels(direction=flag[1]))
        elif (number := _base(value)) is not None:
            for pattern, name, names in _VALUES:
                if found := re.fullmatch(pattern, key):
                    more = dict(zip(names, found.groups(), strict=True))
                    yield Sample(f"accelerator_optical_{name}", number, here.labels(**more))
                    break


def _base(value: str) -> float | None:
    found = _VALUE.fullmatch(value)
    if not found or not found[2]:
        return None
    if found[2] == "dBm":
        return 10 ** (min(float(found[1]), 60.0) / 10) / 1000
    return round(float(found[1]) * _FACTORS[found[2]], 12)
