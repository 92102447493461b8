"""Which numbers a server is given for its cards, by vendor; never a guess."""

from __future__ import annotations

from typing import Any

import pytest

from tests.remediations.actors import FIRST, SECOND, Npu, gpus, npus
from tests.support.system import fake_system
from vllm_watchdog.remediations.adapters.visible import allocator, visible
from vllm_watchdog.watchdog.errors import CommandTimeout, NotSupported, SourceError
from vllm_watchdog.watchdog.system import Finished

A, B = "0000:c1:00", "0000:c2:00"
ASCEND = {A: "ascend", B: "ascend"}
NVIDIA = {FIRST: "nvidia", SECOND: "nvidia"}
TABLE = npus([Npu(4, A), Npu(2, B)])
MAP = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
        4                              0                              1                              Ascend 910B3
        4                              1                              -                              Mcu
        2                              0                              0                              Ascend 910B3
"""


def ascend(told: str = MAP) -> Any:
    return fake_system({"npu-smi info": TABLE, "npu-smi info -m": told})


def test_ascend_cards_go_by_their_logic_ids_in_the_given_order() -> None:
    assert visible(ascend(), (A, B), ASCEND) == {"ASCEND_RT_VISIBLE_DEVICES": "1,0"}


def test_an_ascend_card_without_a_logic_id_is_no_guess() -> None:
    with pytest.raises(SourceError, match="does not tell its logic id"):
        visible(ascend(MAP.replace("\n        2 ", "\n        9 ")), (A, B), ASCEND)


def test_an_ascend_card_that_the_table_lacks_is_no_guess() -> None:
    with pytest.raises(SourceError, match="0000:99:00"):
        visible(ascend(), ("0000:99:00",), {"0000:99:00": "ascend"})


def test_nvidia_cards_go_by_their_index_in_bus_order() -> None:
    system = fake_system({"nvidia-smi -q -x": gpus((FIRST, SECOND))})

    assert visible(system, (SECOND,), NVIDIA) == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_a_server_with_uuids_is_answered_by_uuids() -> None:
    system = fake_system({"nvidia-smi -q -x": gpus((FIRST, SECOND))})

    told = visible(system, (FIRST,), NVIDIA, {"CUDA_VISIBLE_DEVICES": "GPU-abc"})

    assert list(told) == ["CUDA_VISIBLE_DEVICES"]
    assert told["CUDA_VISIBLE_DEVICES"].startswith("GPU-")


def test_where_a_card_is_missing_places_are_no_indices() -> None:
    listed = gpus((SECOND,)).replace("<attached_gpus>1<", "<attached_gpus>2<")
    own = f"nvidia-smi --query-gpu=index --format=csv,noheader -i {SECOND}.0"
    system = fake_system({"nvidia-smi -q -x": listed, own: "1\n"})
    silent = fake_system({"nvidia-smi -q -x": listed, own: Finished(15, b"Unable to determine")})

    assert visible(system, (SECOND,), NVIDIA)["CUDA_VISIBLE_DEVICES"] == "1"
    with pytest.raises(SourceError, match="does not tell the index"):
        visible(silent, (SECOND,), NVIDIA)


def test_mig_instances_are_their_uuids_and_no_tool_is_asked() -> None:
    cards = ("MIG-1", "MIG-2")

    assert visible(fake_system(), cards, {}) == {"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}


def test_no_cards_change_nothing() -> None:
    assert visible(fake_system(), (), {}) == {}


def test_cards_of_two_vendors_are_not_shown_together() -> None:
    with pytest.raises(SourceError, match="together"):
        visible(fake_system(), (FIRST, A), {**NVIDIA, **ASCEND})


@pytest.mark.parametrize("answer", [CommandTimeout("late"), NotSupported("not here")])
def test_a_tool_that_fails_is_passed_on(answer: Exception) -> None:
    with pytest.raises(type(answer)):
        visible(fake_system({"nvidia-smi -q -x": answer}), (FIRST,), NVIDIA)


def test_the_allocator_s_variable_is_the_vendor_s() -> None:
    assert allocator(ASCEND, (A,)) == {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}
    assert allocator(NVIDIA, (FIRST,)) == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
