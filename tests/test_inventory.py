"""Which cards a configured name means."""

from __future__ import annotations

import pytest

from vllm_watchdog.watchdog.inventory import Pins, devices, infos, resolve, visible
from vllm_watchdog.watchdog.model import labelset


def key(**labels: str) -> tuple[tuple[str, str], ...]:
    return labelset(labels, "accelerator_info")


CARDS = infos(
    [
        key(vendor="nvidia", card="0000:64:00", index="1", uuid="GPU-bb"),
        key(vendor="nvidia", card="0000:53:00", index="0", uuid="GPU-aa"),
        key(vendor="ascend", card="0000:c1:00", npu="3", chip="0"),
        key(vendor="ascend", card="0000:c1:00/1", npu="3", chip="1"),
        key(vendor="ascend", card="0000:01:00", npu="1", chip="0"),
        labelset({"card": "x"}, "accelerator_present"),
    ]
)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("gpu 0", "0000:53:00"),
        ("gpu 1", "0000:64:00"),
        ("gpu 7", None),
        ("npu 1", "0000:01:00"),
        ("npu 3", "0000:c1:00"),
        ("npu 3/1", "0000:c1:00/1"),
        ("npu 3/2", None),
        ("0000:99:00", "0000:99:00"),
        ("npu0", "npu0"),
    ],
)
def test_a_tool_number_means_the_card_it_has_there(name: str, card: str | None) -> None:
    assert resolve(name, CARDS) == card


def test_visible_devices_are_counted_in_the_tools_order() -> None:
    assert visible(["1", "0"], "nvidia", CARDS) == ["0000:64:00", "0000:53:00"]
    assert visible(["0", "2"], "ascend", CARDS) == ["0000:01:00", "0000:c1:00/1"]


def test_visible_devices_may_be_uuids_and_unknown_ones_are_left_out() -> None:
    assert visible(["GPU-bb", "GPU-cc", "9", "x"], "nvidia", CARDS) == ["0000:64:00"]


def test_a_name_is_pinned_to_the_card_it_first_meant() -> None:
    pins = Pins()
    renumbered = infos([key(vendor="nvidia", card="0000:64:00", index="0")])

    assert pins.card("gpu 0", CARDS) == "0000:53:00"
    assert pins.card("gpu 0", renumbered) == "0000:53:00"
    assert pins.moved == {"gpu 0": "0000:64:00"}


def test_a_pin_outlives_the_process_and_the_card() -> None:
    pins = Pins({"gpu 0": "0000:53:00"})

    assert pins.card("gpu 0", []) == "0000:53:00"
    assert not pins.changed


def test_an_address_needs_no_pin() -> None:
    pins = Pins()

    assert pins.card("0000:99:00", CARDS) == "0000:99:00"
    assert (pins.kept, pins.changed) == ({}, False)


def test_an_unseen_card_is_not_pinned() -> None:
    pins = Pins()

    assert (pins.card("gpu 9", CARDS), pins.kept) == (None, {})


def test_drivers_name_ascend_cards_by_their_device_files() -> None:
    cards = infos(
        [
            key(vendor="ascend", card="0000:c1:00", npu="4", chip="0", phy_id="8"),
            key(vendor="ascend", card="0000:01:00", npu="1", chip="0", device="0"),
            key(vendor="ascend", card="npu9", npu="9", chip="0"),
            key(vendor="nvidia", card="0000:53:00", index="0", device="5"),
        ]
    )

    assert devices(cards) == {"8": "0000:c1:00", "0": "0000:01:00"}
