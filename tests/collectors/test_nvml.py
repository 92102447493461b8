"""NVIDIA's library asked in a child process: the same series, and no harm from what it does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.system import ScriptedRunner, fake_system
from vllm_watchdog.collectors.nvidia_smi import NvidiaSmi
from vllm_watchdog.watchdog.errors import CommandTimeout, NoData, NotSupported, SourceError
from vllm_watchdog.watchdog.model import Checkpoint, Sample, labelset
from vllm_watchdog.watchdog.nvidia.nvml import COMMAND
from vllm_watchdog.watchdog.system import Files, Finished, RealRunner, System

FAKE = Path(__file__).parent / "fixtures" / "nvml"
A, B = "0000:53:00", "0000:64:00"


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the collector on the stand-in library in a mode; gives what it yielded."""

    def run(mode: str = "", timeout: float = 20.0, seen: dict[str, Any] | None = None) -> list[Any]:
        earlier = os.environ.get("PYTHONPATH", "")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(FAKE), earlier))))
        monkeypatch.setenv("FAKE_NVML", mode)
        system = System(runner=RealRunner(), files=Files(tmp_path))
        if seen is not None:
            system.checkpoints.put("nvidia_smi", {"cards": seen})
        return list(NvidiaSmi(timeout=timeout, source="nvml").collect(system))

    return run


def value(found: list[Any], name: str, card: str = A, **labels: str) -> float | None:
    wanted = labelset({"card": card, "vendor": "nvidia", **labels})
    values = [
        s.value for s in found if isinstance(s, Sample) and (s.name, s.labels) == (name, wanted)
    ]
    return values[0] if values else None


def test_the_library_gives_the_series_of_the_tool_in_base_units(ask: Any) -> None:
    found = ask()

    assert {
        name: value(found, name)
        for name in (
            "accelerator_present",
            "accelerator_healthy",
            "accelerator_utilization_ratio",
            "accelerator_memory_used_bytes",
            "accelerator_temperature_celsius",
            "accelerator_memory_temperature_celsius",
            "accelerator_power_watts",
            "accelerator_processes",
        )
    } == {
        "accelerator_present": 1.0,
        "accelerator_healthy": 1.0,
        "accelerator_utilization_ratio": 0.97,
        "accelerator_memory_used_bytes": 60.0 * 1024**3,
        "accelerator_temperature_celsius": 41.0,
        "accelerator_memory_temperature_celsius": 49.0,
        "accelerator_power_watts": 250.5,
        "accelerator_processes": 1.0,
    }
    assert value(found, "accelerator_throttle_active", reason="hw_thermal_slowdown") == 1.0
    assert value(found, "accelerator_throttle_active", reason="hw_slowdown") == 0.0


def test_what_the_library_does_not_have_gives_no_sample(ask: Any) -> None:
    assert value(ask(), "accelerator_fan_ratio") is None


def test_a_process_is_named_without_its_arguments(ask: Any) -> None:
    names = {
        dict(s.labels)["process"]
        for s in ask()
        if isinstance(s, Sample) and s.name == "accelerator_process_info"
    }

    assert names == {"/usr/bin/python3"}


def test_cards_seen_are_remembered(ask: Any) -> None:
    kept = next(item for item in ask() if isinstance(item, Checkpoint))

    assert {A, B} == set(kept.doc["cards"])


def test_an_older_driver_without_the_newer_memory_call_is_read(ask: Any) -> None:
    assert value(ask("old-driver"), "accelerator_memory_used_bytes") == 60.0 * 1024**3


@pytest.mark.parametrize("mode", ["ecc", "reset"])
def test_a_stated_fault_makes_only_its_card_unhealthy(ask: Any, mode: str) -> None:
    found = ask(mode)

    assert (
        value(found, "accelerator_healthy"),
        value(found, "accelerator_healthy", B),
    ) == (1.0, 0.0)


def test_a_failed_reading_leaves_its_card_unknown_and_the_others_told(ask: Any) -> None:
    found = ask("broken-power")

    assert value(found, "accelerator_healthy", B) is None
    assert value(found, "accelerator_power_watts", B) is None
    assert value(found, "accelerator_healthy") == 1.0


def test_a_card_that_the_library_calls_lost_is_the_one_seen_before(ask: Any) -> None:
    found = ask("lost", seen={A: {}, B: {}})

    assert value(found, "accelerator_present", B) == 0.0


def test_a_card_that_cannot_be_reached_for_another_reason_stays_unknown(ask: Any) -> None:
    assert value(ask("unreadable", seen={A: {}, B: {}}), "accelerator_present", B) is None


def test_a_card_that_the_driver_no_longer_counts_is_gone(ask: Any) -> None:
    assert value(ask("fewer", seen={A: {}, B: {}}), "accelerator_present", B) == 0.0


def test_no_card_and_none_expected_is_quiet(ask: Any) -> None:
    with pytest.raises(NoData):
        ask("empty")


def test_a_hang_in_the_library_ends_with_the_deadline(ask: Any) -> None:
    with pytest.raises(CommandTimeout):
        ask("hang", timeout=1.5)


def test_a_crash_of_the_library_is_an_error_that_names_the_signal(ask: Any) -> None:
    with pytest.raises(SourceError, match=r"ended before its answer did .signal 11"):
        ask("crash")


def test_rubbish_on_the_childs_output_is_refused(ask: Any) -> None:
    with pytest.raises(SourceError, match="something else than its answer"):
        ask("garbage")


def test_output_without_end_is_cut_and_refused(ask: Any) -> None:
    with pytest.raises(SourceError, match="NVML"):
        ask("endless")


def test_a_library_that_does_not_fit_the_driver_is_a_failure(ask: Any) -> None:
    with pytest.raises(SourceError, match="error 18"):
        ask("mismatch")


def test_a_missing_driver_is_not_supported_until_a_card_was_seen(ask: Any) -> None:
    with pytest.raises(NotSupported, match="driver is not loaded"):
        ask("no-driver")
    with pytest.raises(SourceError, match="driver is not loaded"):
        ask("no-driver", seen={A: {}})


def lines(*rows: str) -> Any:
    answer = Finished(0, "\n".join(rows).encode())
    system = fake_system({" ".join(COMMAND): answer})
    assert isinstance(system.runner, ScriptedRunner)
    return list(NvidiaSmi(source="nvml").collect(system))


CARD = '{"index": 0, "bus_id": "00000000:53:00.0", "fields": {"temperature.gpu": "41 C"}}'


def test_without_the_python_library_it_is_not_supported() -> None:
    with pytest.raises(NotSupported, match="not installed"):
        lines('{"absent": "nvidia-ml-py is not installed"}')


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ('{"driver": "580", "cards": 1}', CARD),
        ('{"driver": "580", "cards": 2}', CARD, '{"end": 2}'),
        ('{"driver": "580", "cards": 2}', CARD, CARD, '{"end": 2}'),
        ('{"driver": "580", "cards": 1}', '{"index": 0, "bus_id": 7}', '{"end": 1}'),
        ("[]",),
        ("null", "null"),
    ],
)
def test_an_answer_that_is_not_whole_says_nothing(rows: tuple[str, ...]) -> None:
    with pytest.raises(SourceError):
        lines(*rows)


def test_values_of_a_wrong_type_are_no_values() -> None:
    odd = CARD.replace('"41 C"', '41, "name": ["x"], "unknown.reading": "1"').replace(
        "}}", '}, "processes": 5, "instances": [1]}'
    )

    found = lines('{"driver": "580", "cards": 1}', odd, '{"end": 1}')

    assert value(found, "accelerator_temperature_celsius") is None
    assert value(found, "accelerator_healthy") is None
